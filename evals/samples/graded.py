"""Samples, each with its grade, which comes from a graded copy of the file, from the rows, or from a grader here.

A graded file holds samples with `correct` and `outcome`, and has a note beside it that says of which samples, by which
grader, with which settings and tests it was made. `quatro eval grade RUN` makes one for each samples file of a run,
which takes the file's place wherever samples are measured. As soon as one of these things is another, the graded file
is stale: it is not used, and grading makes it anew.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import UsageError
from evals.files.belonging import file_sha256, read_or_empty, run_of
from evals.files.own_code import is_own
from evals.files.whole import write_whole
from evals.grading import GRADER_VERSION, OUTCOMES, OnProgress
from evals.results.document import GraderInfo
from evals.samples import graders
from evals.samples.about import note_file, stem_of
from evals.samples.code import BESIDE, looked_up, sandbox_here, tests_digests
from evals.samples.graders import GradingSettings
from evals.samples.reading import named_files, read_files, read_samples, sample_files
from evals.samples.types import GradedProblem, Problem, Samples, graded_of

_SETTINGS = tuple(one.name for one in fields(GradingSettings))


@dataclass(frozen=True)
class Asked:
    """How to grade: the settings that were ``given`` by name, else those of graded copies, else the default.

    ``first`` takes this many samples of each problem.
    """

    given: Mapping[str, Any] = field(default_factory=dict)
    first: int | None = None

    def settings(self) -> GradingSettings:
        return GradingSettings(**self.given)

    def settings_of(self, file: Path) -> GradingSettings:
        """What was asked for, else what ``file``, or its graded copy in a run, was graded with, else the default.

        Raises UsageError if a user's own function, which is code, graded the file, and it was not asked for.
        """
        copy = graded_copy(file)
        note = note_of(file) or (copy if copy is not None and not copy.stale else None)
        known = {name: value for name in _SETTINGS if note and (value := note.grader.get(name)) is not None}
        self.refuse_forgotten(note)
        return GradingSettings(**{**known, **self.given})

    def refuse_forgotten(self, *notes: Note | None) -> None:
        """Raises UsageError if a user's own function graded a file that is graded again, and no grader was named."""
        for note in notes:
            grader = note.grader.get("grader") if note is not None and "grader" not in self.given else None
            if note is not None and isinstance(grader, str) and is_own(grader):
                raise UsageError(
                    f"{note.file} was graded by {grader}. This is code, run only if you name it: add --grader {grader} "
                    "to grade again by it, or name another grader, such as --grader math"
                )

    def differs_from(self, grader: Mapping[str, Any]) -> str:
        """The first setting in which ``grader`` differs from what was asked for, in words; empty if there is none."""
        for name, value in self.given.items():
            if grader.get(name) != value:
                usual = "by benchmark" if name == "grader" else "not set"
                return f"{name} {grader.get(name) or usual}, not {value}"
        return ""


def _files_to_read(paths: Sequence[Path], asked: Asked) -> tuple[dict[Path, list[Path]], list[Note], list[str]]:
    """The files of each path, or their graded copies; the notes of these, and warnings. Raises as `named_files`."""
    sources_of = named_files(paths)
    copies: dict[Path, Path] = {}
    notes: list[Note] = []
    warnings: list[str] = []
    for file in chain(*sources_of.values()):
        note, copy = note_of(file), graded_copy(file)
        if note is not None and note.stale:
            warnings.append(f"{file} {note.stale}: the grades in its rows are used, and their grader is unknown")
        elif note is not None:
            notes.append(note)
        if copy is None:
            continue
        difference = asked.differs_from(copy.grader)
        if copy.stale or difference:
            asked.refuse_forgotten(copy)
            reason = copy.stale or f"was graded with {difference}"
            warnings.append(f"{copy.file} {reason}: it is ignored, and {file} is graded anew")
        else:
            copies[file] = copy.file
            notes.append(copy)
    files_of = {path: [copies.get(file, file) for file in files] for path, files in sources_of.items()}
    return files_of, notes, warnings


def read_graded(
    paths: Sequence[Path],
    *,
    benchmarks: Sequence[str] | None = None,
    asked: Asked | None = None,
    id: str | None = None,
    jobs: int | None = None,
    on_progress: OnProgress = None,
) -> tuple[Samples, GraderInfo]:
    """Samples with `correct` in every row, and who graded them: unknown (None) if the rows came with it.

    ``id`` leaves the rows of other problems ungraded; ``jobs`` and ``on_progress(done, total)`` are those of
    `grade_rows`.

    Raises:
        UsageError: ``asked`` names a setting, but no row is left to grade; or as `read_samples`.
        DataError: files were graded by different graders, a sample cannot be graded; or as `read_samples`.
    """
    asked = asked or Asked()
    files_of, notes, warnings = _files_to_read(paths, asked)
    samples = read_files(files_of, benchmarks=benchmarks, first=asked.first)
    settings = asked.settings()
    rows = list(settings.without_thoughts(samples.rows))
    notes = [note for note in notes if note.file in samples.files]
    said_by = {str(note.file): graders.grader_info(note.grader) for note in notes}
    ungraded = [file for file in samples.files if str(file) not in said_by]
    chosen = [place for place, row in enumerate(rows) if id is None or row.id == id]
    open_places = [place for place in chosen if rows[place].correct is None]
    warnings = [*samples.warnings, *warnings]
    graders.refuse_infra_errors((rows[place], str(rows[place].extra.get("outcome"))) for place in chosen)
    if not open_places:
        _refuse_idle(asked, ungraded, notes)
        if not ungraded:
            return replace(samples, rows=rows, warnings=warnings), graders.agreed_grader(said_by)
        # Who graded such rows is unknown, but for the sandbox that `quatro sample --grade` writes down.
        sandboxes = {str(row.extra["sandbox"]) for row in rows if "sandbox" in row.extra}
        grader = GraderInfo(**({"sandbox": " and ".join(sorted(sandboxes))} if sandboxes else {}))
        return replace(samples, rows=rows, warnings=warnings), grader
    open_rows = [rows[place] for place in open_places]
    grades = graders.grade_rows(open_rows, settings=settings, files=samples.files, jobs=jobs, on_progress=on_progress)
    graders.check_grades(open_rows, grades)
    made_here = graders.grader_info(graders.made_by(open_rows, grades, settings))
    warnings += graders.box_hints([*files_of], open_rows, grades, settings)
    for place, found in zip(open_places, grades, strict=True):
        rows[place] = replace(rows[place], correct=found.correct)
    here = f"{ungraded[0] if ungraded else samples.files[0]}{graders.GRADED_HERE}"
    grader = graders.agreed_grader({**said_by, here: made_here})
    return replace(samples, rows=rows, warnings=warnings), grader


def graded_problem(problem: Problem) -> GradedProblem:
    """The problem with its right answers; samples without a grade are graded here. Raises as `grade_rows`."""
    grades = iter(graders.grade_rows([row for row in problem.samples if row.correct is None], jobs=1))
    rows = [row if row.correct is not None else replace(row, correct=next(grades).correct) for row in problem.samples]
    return graded_of(problem._replace(samples=rows))


def read_recorded(path: Path) -> Samples:
    """The samples at ``path`` with the grades that are written down, which some may lack; raises as `read_samples`."""
    samples = read_files(_files_to_read([path], Asked())[0])
    graders.refuse_infra_errors((row, str(row.extra.get("outcome"))) for row in samples.rows)
    return samples


def _refuse_idle(asked: Asked, ungraded: Sequence[Path], notes: Sequence[Note]) -> None:
    """Raises UsageError if settings were asked for that would be ignored."""
    options = [word for name, value in asked.given.items() for word in (f"--{name}", value)]
    reasons = {note.file: f"was graded with {found}" for note in notes if (found := asked.differs_from(note.grader))}
    reasons |= dict.fromkeys(ungraded if options else [], "says `correct` in every row")
    for file, reason in reasons.items():
        command = shlex.join(["quatro", "eval", "grade", str(file), *options, "-o", "graded"])
        raise UsageError(f"{shlex.join(options)}: {file} {reason}; to grade it again: `{command}`")


class Note(NamedTuple):
    """The note beside a graded file. ``stale`` says why the file cannot be used; it is empty if the file can.

    ``grader`` holds the version, policy, extraction, grader (None: the registry's choice), sandbox and own graders of
    the grading, and ``said`` the whole note.
    """

    file: Path
    grader: Mapping[str, Any]
    stale: str = ""
    said: Mapping[str, Any] = {}


def note_of(graded: Path, source: Path | None = None) -> Note | None:
    """The note of a graded file, compared with the file, and with the samples in ``source``; None if there is no note.

    What is not here has not changed: whoever only reads grades need have neither tests nor own graders.
    """
    path = note_file(graded)
    if not path.is_file():
        return None
    said = read_or_empty(path)
    grader, counts = said.get("grader", {}), said.get("outcomes", {})
    is_sound = (
        isinstance(grader, dict)
        and isinstance(counts, dict)
        and all(isinstance(grader.get(key), str) for key in ("version", "policy"))
        and all(type(counts.get(name)) is int for name in OUTCOMES)
    )
    if not is_sound:
        return Note(graded, {}, f"has a note that cannot be read ({path.name})")
    found = {**grader, "sandbox": said.get("sandbox"), "own_graders": said.get("own_graders")}
    return Note(graded, found, _why_stale(said, graded, source), said)


def _why_stale(said: Mapping[str, Any], graded: Path, source: Path | None) -> str:
    """What decided about the grades and is another one now, in words; empty if nothing is."""
    if said.get("graded_sha256") != file_sha256(graded):
        return "was changed after it was graded"
    if changed := graders.changed_since(said.get("own_graders")):
        return f"was graded by {changed}, which was changed since"
    if said.get("sandbox") is not None:
        tests = known if isinstance(known := said.get("tests"), dict) else {}
        here = tests_digests(source or graded, [name for name in tests if name != BESIDE])
        if any(tests.get(name) != digest for name, digest in here.items()):
            return "was graded with other tests"
    if source is None:
        return ""
    if said.get("samples_sha256") != file_sha256(source):
        return "was made of other samples"
    if (version := said["grader"]["version"]) != GRADER_VERSION:
        return f"was made by another version of quatro (grader {version}, not {GRADER_VERSION})"
    if said.get("sandbox") is None:
        return ""
    from evals.sandbox import VERSION

    # Versions alone: who reads what was run in a sandbox elsewhere may have none here.
    version = str(said["sandbox"]).partition(", version ")[2]
    if version == str(VERSION):
        return ""
    return f"was made by another version of quatro (sandbox {version}, not {VERSION})"


def graded_copy(source: Path) -> Note | None:
    """The graded copy of a run's samples file, stale if ``source`` has changed since; None if there is none."""
    target = _target(source, None) if _run_of(source) is not None else None
    if target is None or not target.is_file():
        return None
    return note_of(target, source) or Note(target, {}, "has no note that says how it was made")


@dataclass(frozen=True)
class GradedFile:
    """What became of one samples file; ``outcomes`` counts its rows, ``agreements`` compares with scores they held."""

    source: Path
    target: Path
    outcomes: Mapping[str, int]
    was_done: bool
    warnings: Sequence[str] = ()
    agreements: Sequence[graders.Agreement] = ()
    majorities: Sequence[graders.Majority] = ()

    @property
    def num_rows(self) -> int:
        return sum(self.outcomes.values())


def plan(paths: Sequence[Path], out: Path | None) -> list[tuple[Path, Path]]:
    """(samples file, graded file) for every file that ``paths`` name.

    Files in a run (``samples/<tag>/<benchmark>.jsonl``) go to its ``graded/<tag>/`` unless ``out`` says otherwise.

    Raises:
        UsageError: a file is in no run and ``out`` is missing, ``out`` is a file, or two would have the same name.
        DataError: a path does not exist or holds no samples.
    """
    if out is not None and out.exists() and not out.is_dir():
        raise UsageError(f"-o {out} is a file; name a folder, which will hold a graded file for each samples file")
    targets: dict[Path, Path] = {}
    for path in paths:
        for source in sample_files(path):
            target = _target(source, out)
            if target.resolve() == source.resolve():
                raise UsageError(f"{source} would be overwritten by its graded copy; choose another folder with -o DIR")
            if target in targets and targets[target] != source:
                raise UsageError(
                    f"{targets[target]} and {source} would both become {target}; grade them into different folders"
                )
            targets[target] = source
    return [(source, target) for target, source in targets.items()]


def grade_file(
    source: Path,
    target: Path,
    settings: GradingSettings,
    *,
    jobs: int | None = None,
    on_progress: OnProgress = None,
) -> GradedFile:
    """Grades every row of ``source`` into ``target``; both it and its note appear whole or not at all.

    What would come out the same is left as it is. Code is graded again in another sandbox.

    Raises:
        DataError: a row breaks the samples contract, or cannot be graded.
        MissingError: a row is code, and programs cannot be isolated on this machine.
        OSError: ``target`` cannot be written.
    """
    grader = {"version": GRADER_VERSION, **settings.recorded()}
    note = note_of(target, source) if target.is_file() else None
    is_by_this = (
        note is not None and not note.stale and note.said["grader"] == grader and "against_reference" in note.said
    )
    if note is not None and is_by_this and (note.grader["sandbox"] is None or note.grader["sandbox"] == sandbox_here()):
        known = [graders.Agreement(**one) for one in note.said.get("agreements", ())]
        against = [graders.Majority(**one) for one in note.said["against_reference"]]
        return GradedFile(source, target, note.said["outcomes"], True, agreements=known, majorities=against)
    document: dict[str, Any] = {"schema": 1, "grader": grader, "samples_sha256": file_sha256(source)}
    samples = read_samples([source])
    rows = settings.without_thoughts(samples.rows)
    grades = graders.grade_rows(rows, settings=settings, files=[source], jobs=jobs, on_progress=on_progress)
    made_here = graders.made_by(rows, grades, settings)
    document["sandbox"] = made_here["sandbox"]
    if made_here["sandbox"] is not None:
        document["tests"] = tests_digests(source, looked_up(rows, source))
    if made_here["own_graders"] is not None:
        document["own_graders"] = made_here["own_graders"]
    counts = Counter(grade.outcome for grade in grades)
    outcomes: dict[str, int] = {name: counts[name] for name in OUTCOMES}
    path = note_file(target)
    path.unlink(missing_ok=True)
    write_whole(
        target, (graders.with_grade(row, found).to_json_line() for row, found in zip(rows, grades, strict=True))
    )
    found = graders.agreements(samples.rows, [bool(grade.correct) for grade in grades])
    document |= {"outcomes": outcomes, "graded_sha256": file_sha256(target)}
    document["agreements"] = [one._asdict() for one in found]
    against = graders.majorities(rows, grades)
    document["against_reference"] = [one._asdict() for one in against]
    # Last, so that a note means a complete file. Failures of this machine deserve another try: no note.
    if not counts["infra_error"]:
        write_whole(path, [json.dumps(document, indent=2).encode("utf-8") + b"\n"])
    return GradedFile(source, target, outcomes, False, samples.warnings, found, against)


def _target(source: Path, out: Path | None) -> Path:
    name = f"{stem_of(source)}.jsonl"
    run = _run_of(source)
    if run is None:
        if out is None:
            raise UsageError(f"{source} is in no run directory; name a folder for graded files with -o DIR")
        return out / name
    return (out or run / "graded") / source.resolve().parent.relative_to((run / "samples").resolve()) / name


def _run_of(source: Path) -> Path | None:
    """The run directory whose ``samples`` folder holds ``source``."""
    run = run_of(source)
    return run if run is not None and source.resolve().is_relative_to(run / "samples") else None
