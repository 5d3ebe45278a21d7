"""Graded files: samples with `correct` and `outcome`, beside a note that says how they were made.

A file is graded again only if its samples, the grader or its settings have changed since.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from evals.code.grading import isolation
from evals.errors import DataError, UsageError
from evals.files.strict_json import read_document
from evals.files.whole import write_whole
from evals.grading import GRADER_VERSION, OUTCOMES
from evals.samples.agreement import Agreement, agreements
from evals.samples.code import BESIDE, looked_up, tests_digests
from evals.samples.graders import GradingSettings, grade_rows, own_sources, with_grade
from evals.samples.own_grader import changed_since
from evals.samples.reading import read_samples, sample_files
from evals.sandbox import VERSION


@dataclass(frozen=True)
class GradedFile:
    """What became of one samples file; ``outcomes`` counts its rows, ``agreements`` compares with scores they held."""

    source: Path
    target: Path
    outcomes: Mapping[str, int]
    was_done: bool
    warnings: Sequence[str] = ()
    agreements: Sequence[Agreement] = ()

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
    on_progress: Callable[[int, int], None] | None = None,
) -> GradedFile:
    """Grades every row of ``source`` into ``target``; both it and its note appear whole or not at all.

    Raises:
        DataError: a row breaks the samples contract, or cannot be graded.
        MissingError: a row is code, and programs cannot be isolated on this machine.
        OSError: ``target`` cannot be written.
    """
    made_by: dict[str, Any] = {
        "schema": 1,
        "grader": {"version": GRADER_VERSION, **settings.recorded()},
        "samples_sha256": _sha256(source) if source.is_file() else None,
    }
    note = _note_path(target)
    done = _read_note(note) if target.is_file() else {}
    if done and _is_same(done, made_by, source) and done.get("graded_sha256") == _sha256(target):
        known = [Agreement(**one) for one in done.get("agreements", ())]
        return GradedFile(source, target, done["outcomes"], was_done=True, agreements=known)
    samples = read_samples([source])
    rows = settings.without_thoughts(samples.rows)
    grades = grade_rows(rows, **settings.of_rows(), files=[source], jobs=jobs, on_progress=on_progress)
    made_by["sandbox"] = None
    if any(grade.verdicts for grade in grades):
        made_by |= {"sandbox": isolation(), "tests": tests_digests(source, looked_up(rows, source))}
    if (sources := own_sources(rows, grades, settings.grader)) is not None:
        made_by["own_graders"] = sources
    counts = Counter(grade.outcome for grade in grades)
    outcomes: dict[str, int] = {name: counts[name] for name in OUTCOMES}
    lines = (with_grade(row, found).to_json_line() for row, found in zip(rows, grades, strict=True))
    note.unlink(missing_ok=True)
    write_whole(target, lines)
    found = agreements(samples.rows, [bool(grade.correct) for grade in grades])
    document = {**made_by, "outcomes": outcomes, "graded_sha256": _sha256(target)}
    document["agreements"] = [one._asdict() for one in found]
    # Last, so that a note means a complete file. Failures of this machine deserve another try: no note.
    if not counts["infra_error"]:
        write_whole(note, [json.dumps(document, indent=2).encode("utf-8") + b"\n"])
    return GradedFile(source, target, outcomes, was_done=False, warnings=samples.warnings, agreements=found)


def _is_same(done: Mapping[str, Any], made_by: Mapping[str, Any], source: Path) -> bool:
    """Whether a graded file is what grading ``source`` now would make.

    Code is graded again in another sandbox or with other tests, and what an own grader judged if that was changed.
    """
    return (
        not _changed(done, source)
        and {key: done.get(key) for key in made_by} == made_by
        and (done.get("sandbox") in (None, isolation()))
    )


def _changed(done: Mapping[str, Any], file: Path) -> str:
    """What decided about the grades of ``file`` and is another one now, in words; empty if nothing is.

    What is not here has not changed: whoever only reads grades need have neither tests nor own graders.
    """
    if changed := changed_since(done.get("own_graders")):
        return f"was graded by {changed}, which was changed since"
    if done.get("sandbox") is None:
        return ""
    said = done.get("tests")
    tests = said if isinstance(said, dict) else {}
    here = tests_digests(file, [name for name in tests if name != BESIDE])
    return "was graded with other tests" if any(tests.get(name) != digest for name, digest in here.items()) else ""


class FileState(NamedTuple):
    """What a file held when it was looked at."""

    size: int
    mtime_ns: int
    sha256: str

    def is_still_that_of(self, file: Path) -> bool:
        """Whether nobody has written to ``file`` since, as far as its size and time tell."""
        status = file.stat()
        return (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


def file_state(file: Path) -> FileState:
    """The state of ``file``; what is written while it is read makes it another one."""
    status = file.stat()
    return FileState(status.st_size, status.st_mtime_ns, _sha256(file))


class Note(NamedTuple):
    """The note beside a graded file. ``stale`` says why the file cannot be used; it is empty if the file can.

    ``grader`` holds the version, policy, extraction, grader (None: the registry's choice), sandbox and own graders of
    the grading, ``state`` is that of the file.
    """

    file: Path
    grader: Mapping[str, Any]
    stale: str = ""
    state: FileState | None = None


def note_of(graded: Path) -> Note | None:
    """The note of a graded file, compared with the file; None if there is no note."""
    path = _note_path(graded)
    if not path.is_file():
        return None
    found = _read_note(path)
    grader = found.get("grader")
    if not isinstance(grader, dict) or not all(isinstance(grader.get(key), str) for key in ("version", "policy")):
        return Note(graded, {}, f"has a note that cannot be read ({path.name})")
    grader = {**grader, "sandbox": found.get("sandbox"), "own_graders": found.get("own_graders")}
    state = file_state(graded)
    is_same = found.get("graded_sha256") == state.sha256
    return Note(graded, grader, _changed(found, graded) if is_same else "was changed after it was graded", state)


def graded_copy(source: Path) -> Note | None:
    """The graded copy of a run's samples file, stale if ``source`` has changed since; None if there is none."""
    run = _run_of(source)
    target = _target(source, None) if run is not None else None
    if target is None or not target.is_file():
        return None
    note = note_of(target)
    if note is None:
        return Note(target, {}, "has no note that says how it was made")
    if note.stale:
        return note
    if _read_note(_note_path(target)).get("samples_sha256") != _sha256(source):
        return note._replace(stale="was made of other samples")
    # Only versions: who reads what was run in a sandbox elsewhere may have none here.
    version, (_, _, sandbox) = note.grader["version"], str(note.grader["sandbox"] or "").partition(", version ")
    if version != GRADER_VERSION or sandbox not in ("", str(VERSION)):
        what = (
            f"grader {version}, not {GRADER_VERSION}"
            if version != GRADER_VERSION
            else f"sandbox {sandbox}, not {VERSION}"
        )
        return note._replace(stale=f"was made by another version of quatro ({what})")
    return note


def _note_path(graded: Path) -> Path:
    return graded.with_name(f"{graded.name.removesuffix('.gz').removesuffix('.jsonl')}.grading.json")


def _target(source: Path, out: Path | None) -> Path:
    name = f"{source.name.removesuffix('.gz').removesuffix('.jsonl')}.jsonl"
    run = _run_of(source)
    if run is None:
        if out is None:
            raise UsageError(f"{source} is in no run directory; name a folder for graded files with -o DIR")
        return out / name
    return (out or run / "graded") / source.parent.resolve().relative_to((run / "samples").resolve()) / name


def _run_of(source: Path) -> Path | None:
    """The run directory whose ``samples`` folder holds ``source``."""
    for folder in source.resolve().parents:
        if folder.name == "samples" and (folder.parent / "config.yaml").is_file():
            return folder.parent
    return None


def _read_note(note: Path) -> dict[str, Any]:
    try:
        found = read_document(note)
    except (OSError, DataError):  # absent or damaged: the file is graded again
        return {}
    counts = found.get("outcomes")
    is_sound = isinstance(counts, dict) and all(type(counts.get(name)) is int for name in OUTCOMES)
    return found if is_sound else {}


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
