"""Samples, each with its grade, which comes from a graded copy of the file, from the rows, or from a grader here.

A file of a run is replaced by its graded copy (`quatro eval grade RUN`) if that copy was made from these samples.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from evals.code.grading import isolation
from evals.errors import DataError, UsageError
from evals.files.own_code import is_own
from evals.grading import GRADER_VERSION, Grade, Policy
from evals.grading.extraction import ExtractionPolicy
from evals.results.document import GraderInfo
from evals.samples.graded_copies import Note, graded_copy, note_of
from evals.samples.graders import (
    GAVE_UP,
    GradingSettings,
    grade_rows,
    log_failures,
    missing_box_hint,
    own_sources,
    refuse_infra_errors,
)
from evals.samples.own_grader import OWN
from evals.samples.places import refuse_misplaced
from evals.samples.reading import read_samples, sample_files
from evals.samples.types import Sample, Samples

_HERE = ", graded here"


@dataclass(frozen=True)
class Asked:
    """How to grade. None means as graded copies were, else the default.

    Where ``may_grade`` is false, a row without a grade is refused. ``first`` takes this many samples of each problem.
    """

    policy: Policy | None = None
    extraction: ExtractionPolicy | None = None
    grader: str | None = None
    may_grade: bool = True
    thinking: str | None = None
    first: int | None = None

    def given(self) -> dict[str, str]:
        """The settings that were asked for by name."""
        values = {field.name: getattr(self, field.name) for field in fields(GradingSettings)}
        return {name: value for name, value in values.items() if value is not None}

    def settings(self) -> GradingSettings:
        return GradingSettings(self.policy or "strict", self.extraction or "boxed", self.grader, self.thinking)

    def settings_of(self, file: Path) -> GradingSettings:
        """What was asked for, else what ``file``, or its graded copy in a run, was graded with, else the default.

        Raises:
            UsageError: the file was graded by a user's own function, which is code, and it was not asked for.
        """
        copy = graded_copy(file)
        note = note_of(file) or (copy if copy is not None and not copy.stale else None)
        known = {field.name: note.grader.get(field.name) for field in fields(GradingSettings)} if note else {}
        self.refuse_forgotten(note)
        chosen: dict[str, Any] = {name: value for name, value in (known | self.given()).items() if value is not None}
        return GradingSettings(**chosen)

    def refuse_forgotten(self, *notes: Note | None) -> None:
        """Raises UsageError if a user's own function graded a file that is graded again, and no grader was named."""
        for note in notes:
            grader = note.grader.get("grader") if note is not None and self.grader is None else None
            if note is not None and isinstance(grader, str) and is_own(grader):
                raise UsageError(
                    f"{note.file} was graded by {grader}. This is code, run only if you name it: add --grader {grader} "
                    "to grade again by it, or name another grader, such as --grader math"
                )

    def differs_from(self, grader: Mapping[str, Any]) -> str:
        """The first setting in which ``grader`` differs from what was asked for, in words; empty if there is none."""
        for name, value in self.given().items():
            if grader.get(name) != value:
                usual = "by benchmark" if name == "grader" else "not set"
                return f"{name} {grader.get(name) or usual}, not {value}"
        return ""


class Reading(NamedTuple):
    """What is to be read: ``files``, which are those that paths name, or in their place their graded copies.

    ``copies`` are those by samples file, ``notes`` those of all graded files, ``warnings`` are about others.
    """

    paths: Sequence[Path]
    files: Sequence[Path]
    copies: Mapping[Path, Path]
    notes: Sequence[Note]
    warnings: Sequence[str]


def plan_reading(paths: Sequence[Path], asked: Asked) -> Reading:
    """Which files to read; raises DataError for a path that does not exist or holds no samples, and for misplaced ones.

    `refuse_misplaced` says which these are.
    """
    sources = [file for path in paths for file in sample_files(Path(path))]
    for file in sources:
        refuse_misplaced(file)
    copies, notes, warnings = _graded_copies(sources, asked)
    return Reading(paths, [copies.get(file, file) for file in sources], copies, notes, warnings)


class Graded(NamedTuple):
    """Samples with `correct` in every row, and who graded them: unknown (None) if the rows came with it.

    ``is_lasting``: the grades are those of the rows, or would come out the same on any machine and at any time: no
    program and no grader of the user's own was run, and no grader gave up.
    """

    samples: Samples
    grader: GraderInfo
    is_lasting: bool = True


def read_graded(
    paths: Sequence[Path],
    *,
    benchmarks: Sequence[str] | None = None,
    asked: Asked | None = None,
    id: str | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> tuple[Samples, GraderInfo]:
    """Samples with `correct` in every row, and who graded them: unknown (None) if the rows came with it.

    ``id`` leaves the rows of other problems ungraded; ``jobs`` and ``on_progress(done, total)`` are those of
    `grade_rows`.

    Raises:
        UsageError: ``asked`` names a setting, but no row is left to grade; or as `read_samples`.
        DataError: files were graded by different graders, a sample cannot be graded; or as `read_samples`.
    """
    asked = asked or Asked()
    plan = plan_reading(paths, asked)
    found = grade_planned(plan, benchmarks=benchmarks, asked=asked, id=id, jobs=jobs, on_progress=on_progress)
    return found.samples, found.grader


def grade_planned(
    plan: Reading,
    *,
    benchmarks: Sequence[str] | None,
    asked: Asked,
    id: str | None = None,
    jobs: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Graded:
    """`read_graded` of files that were looked for already; raises as it does."""
    samples = read_samples(plan.paths, benchmarks=benchmarks, instead=plan.copies, first=asked.first)
    samples = replace(samples, rows=asked.settings().without_thoughts(samples.rows))
    said_by = {str(note.file): _info(note.grader) for note in plan.notes if note.file in samples.files}
    ungraded = [file for file in samples.files if str(file) not in said_by]
    chosen = [place for place, row in enumerate(samples.rows) if id is None or row.id == id]
    open_places = [place for place in chosen if samples.rows[place].correct is None]
    open_rows = [samples.rows[place] for place in open_places]
    refuse_infra_errors((samples.rows[place], str(samples.rows[place].extra.get("outcome"))) for place in chosen)
    if not open_rows:
        _refuse_idle(asked, ungraded, [note for note in plan.notes if note.file in samples.files])
        grader = _grader_of_rows(samples) if ungraded else agreed_grader(said_by)
        return Graded(replace(samples, warnings=[*samples.warnings, *plan.warnings]), grader)
    if not asked.may_grade:
        Samples.graded(samples)
    settings = asked.settings()
    grades = grade_rows(open_rows, **settings.of_rows(), files=samples.files, jobs=jobs, on_progress=on_progress)
    refuse_infra_errors((row, found.outcome) for row, found in zip(open_rows, grades, strict=True))
    log_failures(grades)
    hints = _hints(plan.paths, open_rows, grades, settings)
    rows = list(samples.rows)
    for place, found in zip(open_places, grades, strict=True):
        rows[place] = replace(rows[place], correct=found.correct)
    here = f"{ungraded[0] if ungraded else samples.files[0]}{_HERE}"
    sandbox = isolation() if any(grade.verdicts for grade in grades) else None
    sources = own_sources(open_rows, grades, settings.grader)
    made_by = {"version": GRADER_VERSION, **settings.recorded(), "sandbox": sandbox, "own_graders": sources}
    grader = agreed_grader({**said_by, here: _info(made_by)})
    is_lasting = all(found.stage not in ("sandbox", OWN) and found.outcome not in GAVE_UP for found in grades)
    warnings = [*samples.warnings, *plan.warnings, *hints]
    return Graded(replace(samples, rows=rows, warnings=warnings), grader, is_lasting)


def _grader_of_rows(samples: Samples) -> GraderInfo:
    """Who graded rows that came with grades: unknown, but for the sandbox that `quatro sample --grade` writes down."""
    sandboxes = {str(row.extra["sandbox"]) for row in samples.rows if "sandbox" in row.extra}
    return GraderInfo(**({"sandbox": " and ".join(sorted(sandboxes))} if sandboxes else {}))


def agreed_grader(said_by: Mapping[str, GraderInfo]) -> GraderInfo:
    """The one grader of all files. ``said_by`` has the grader of each by name; unknown ones are passed over.

    A file without code has no sandbox, and goes with any; so does one that no grader of the user's own judged.

    Raises:
        DataError: two differ; both files and what they say are named.
    """
    agreed: dict[str, Any] = {}
    sources: dict[str, str] = {}
    first = ""
    for file, grader in said_by.items():
        own = grader.model_dump()
        if grader.version is None:
            continue
        for spec, digest in (own.pop("own_graders", None) or {}).items():
            if sources.setdefault(spec, digest) != digest:
                raise DataError(
                    f"{first} and {file} were graded by two versions of {spec}, so their numbers do not compare; grade "
                    "them alike with `quatro eval grade FILES -o DIR`"
                )
        sandbox = agreed.get("sandbox", own.get("sandbox"))
        if first and {**own, "sandbox": own.get("sandbox", sandbox)} != {**agreed, "sandbox": sandbox}:
            raise DataError(
                f"{first} ({_words(agreed)}) and {file} ({_words(own)}) were graded differently, so "
                f"their numbers do not compare; grade them alike: `{_alike((first, file), (agreed, own))}`"
            )
        agreed, first = {**own, **agreed}, first or file
    return GraderInfo(**agreed | ({"own_graders": sources} if sources else {}))


def _alike(names: Sequence[str], graders: Sequence[Mapping[str, str | None]]) -> str:
    """The command that grades two files alike: with each setting that one of them has and that is not the default."""
    defaults = {**GradingSettings().recorded(), "thinking": None}
    chosen = {
        setting: next((value for one in graders if (value := one.get(setting)) not in (None, usual)), None)
        for setting, usual in defaults.items()
    }
    options = [word for setting, value in chosen.items() if value is not None for word in (f"--{setting}", value)]
    files = [name.removesuffix(_HERE) for name in names]
    return shlex.join(["quatro", "eval", "grade", *files, *options, "-o", "graded-alike"])


def _graded_copies(sources: Sequence[Path], asked: Asked) -> tuple[dict[Path, Path], list[Note], list[str]]:
    """Graded copies by samples file, notes of all graded files to be read, and warnings about those that are not."""
    copies: dict[Path, Path] = {}
    notes: list[Note] = []
    warnings: list[str] = []
    for file in dict.fromkeys(sources):
        own = note_of(file)
        if own is not None and own.stale:
            warnings.append(f"{file} {own.stale}: the grades in its rows are used, and their grader is unknown")
        elif own is not None:
            notes.append(own)
        copy = graded_copy(file)
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
    return copies, notes, warnings


def _refuse_idle(asked: Asked, ungraded: Sequence[Path], notes: Sequence[Note]) -> None:
    """Raises UsageError if settings were asked for that would be ignored."""
    if not asked.given():
        return
    options = [word for name, value in asked.given().items() for word in (f"--{name}", value)]
    found = [
        (note.file, f"was graded with {difference}")
        for note in notes
        if (difference := asked.differs_from(note.grader))
    ]
    found += [(file, "says `correct` in every row") for file in ungraded]
    for file, reason in found[:1]:
        command = shlex.join(["quatro", "eval", "grade", str(file), *options, "-o", "graded"])
        raise UsageError(f"{shlex.join(options)}: {file} {reason}; to grade it again: `{command}`")


def _hints(
    paths: Sequence[Path], rows: Sequence[Sample], grades: Sequence[Grade], settings: GradingSettings
) -> list[str]:
    outcomes: dict[str, Counter[str]] = {}
    for row, found in zip(rows, grades, strict=True):
        outcomes.setdefault(row.benchmark, Counter())[found.outcome] += 1
    found_hints = {name: missing_box_hint(counts, settings) for name, counts in outcomes.items()}
    files = [str(path) for path in paths]
    command = shlex.join(["quatro", "eval", "grade", *files, "--extraction", "last-number", "-o", "graded"])
    return [
        f"{', '.join(files)}: {name}: {hint}: `{command}`" for name, hint in found_hints.items() if hint is not None
    ]


def _info(grader: Mapping[str, Any]) -> GraderInfo:
    """The head's entry: version, policy, and the settings that are not the default."""
    defaults = {"extraction": "boxed", "grader": None, "thinking": None, "sandbox": None, "own_graders": None}
    unusual = {key: grader[key] for key, value in defaults.items() if grader.get(key, value) != value}
    return GraderInfo(version=grader["version"], policy=grader["policy"], **unusual)


def _words(grader: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in grader.items())
