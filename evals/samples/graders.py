"""The grades that samples get, each from the grader of its benchmark, and how often other scores agree with them."""

import inspect
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals.benchmarks.catalogue import GRADERS, JUDGED_AS, Kind, is_grader, kind_of, maker_of
from evals.benchmarks.prompts import THOUGHT, split_thought
from evals.errors import DataError, UsageError
from evals.files.own_code import file_of, is_own, own_function, source_digest
from evals.files.strict_json import shown
from evals.grading import GRADER_VERSION, ExtractionPolicy, Grade, OnProgress, grade_many, same_answer
from evals.grading.decide import Policy
from evals.results.document import GraderInfo
from evals.samples.code import grade_code, sandbox_here
from evals.samples.types import Sample

_log = logging.getLogger(__name__)

Verdict = Callable[[str, str | float | None, str], bool]

_SHOWN_CHARS = 200  # of an answer in a list
OWN = "own"  # the stage of a grade by a function of the user's own
GRADED_HERE = ", graded here"  # follows the name of a file that had no grades


@dataclass(frozen=True)
class GradingSettings:
    """How to grade. ``grader`` None: the registry's choice; ``thinking``: markers of thoughts (`split_thought`)."""

    policy: Policy = "strict"
    extraction: ExtractionPolicy = "boxed"
    grader: str | None = None
    thinking: str | None = None

    def recorded(self) -> dict[str, str | None]:
        """The settings for a note; markers of thoughts stand in it only where there are some."""
        return {name: value for name, value in vars(self).items() if name != "thinking" or value is not None}

    def without_thoughts(self, rows: Sequence[Sample]) -> Sequence[Sample]:
        """The rows with their thoughts apart, in a column of their own."""
        if self.thinking is None:
            return rows
        found = list(rows)
        for place, row in enumerate(rows):
            if THOUGHT not in row.extra:
                thought, answer = split_thought(row.completion, self.thinking, row.prompt)
                found[place] = replace(row, completion=answer, extra={**row.extra, THOUGHT: thought})
        return found


def grade_rows(
    rows: Sequence[Sample],
    *,
    settings: GradingSettings | None = None,
    files: Sequence[Path] = (),
    jobs: int | None = None,
    on_progress: OnProgress = None,
) -> list[Grade]:
    """A grade for each row, whatever its ``correct`` says, by the grader of its benchmark (or by the settings').

    A row whose thought is unfinished has no answer; `without_thoughts` went over the rows. ``files`` are those that the
    rows come from, beside which tests of code may lie. ``jobs`` processes share the work (None: one a usable core), and
    ``on_progress(done, total)`` counts what takes time: different answers, programs, and isolated checkers.

    Raises:
        UsageError: there is no such grader, or it is math and a row has no answer.
        MissingError: a row is code, and programs cannot be isolated on this machine; or reasoning-gym is missing.
        DataError: a row is not the countdown problem that its benchmark says, or is code and its tests are not there,
            or does not say which item of reasoning-gym it answers.
    """
    settings = settings or GradingSettings()
    if settings.grader is not None and not is_grader(settings.grader):
        raise UsageError(
            f"unknown grader {settings.grader!r}; choose {', '.join(GRADERS)}, or your own as module:function"
        )
    kinds = graders_of(rows, settings.grader)
    grades: dict[int, Grade] = {}
    places: dict[str, list[int]] = {}
    for index, row in enumerate(rows):
        if not row.completion and row.extra.get(THOUGHT):
            grades[index] = Grade(False, "no_answer", None, "extraction", "the thought is unfinished")
        else:
            has_tests = row.answer is None and settings.grader is None and kinds[row.benchmark] in ("math", "code")
            places.setdefault("code" if has_tests else kinds[row.benchmark], []).append(index)
    for kind in sorted(places, key=lambda kind: _ORDER.get(kind, 0)):
        chosen = [rows[index] for index in places[kind]]
        if is_own(kind):
            judge = own_grader(kind)
            found = []
            for row in chosen:
                is_right = judge(row.completion, row.answer, f"sample {row.sample_index} of {shown(row.id)}")
                found.append(Grade(is_right, "correct" if is_right else "incorrect", None, OWN))
        elif kind == "countdown":
            found = [_grade_countdown(row) for row in chosen]
        elif kind == "reasoning-gym":
            from evals.samples.gym import grade_tasks

            found = grade_tasks(chosen, files, jobs, on_progress)
        elif kind == "code":
            found = grade_code(chosen, files, jobs, on_progress)
        else:
            found = _grade_maths(chosen, settings, on_progress)
        grades.update(zip(places[kind], found, strict=True))
    return [grades[index] for index in range(len(rows))]


# What takes long is graded last.
_ORDER = {"reasoning-gym": 1, "code": 2, "math": 3}


def _grade_maths(rows: Sequence[Sample], settings: GradingSettings, on_progress: OnProgress) -> list[Grade]:
    for row in rows:
        if row.answer is None:
            raise UsageError(
                f"--grader {settings.grader}: {row.benchmark} {shown(row.id)} has no reference answer; leave the "
                "option out"
            )
        if not str(row.answer).strip():
            raise DataError(
                f"{row.benchmark} {shown(row.id)} has an empty reference answer: nothing can be correct; "
                "add the answer, or leave the problem out"
            )
    pairs = ((row.completion, row.answer) for row in rows)
    return grade_many(pairs, policy=settings.policy, extraction=settings.extraction, on_progress=on_progress)


def graders_of(rows: Sequence[Sample], grader: str | None) -> dict[str, str]:
    """The grader of each benchmark of ``rows``: ``grader``, else what its rows record, else what the registry says.

    Raises:
        UsageError: rows record a function that neither ``grader`` nor the registry here names: a samples file must not
            choose which code is run.
        DataError: two rows of a benchmark record different ones.
    """
    if grader is not None:
        return dict.fromkeys((row.benchmark for row in rows), grader)
    found = {name: kind.grader for name, kind in _kinds_of(rows).items()}
    for name, chosen in found.items():
        if is_own(chosen) and kind_of(name).grader != chosen:
            raise UsageError(
                f"the samples of {name} say that {chosen} judges them. This is code, run only if you name it: "
                f"add --grader {chosen}, or call quatro in the folder of the benchmark's table"
            )
    return found


def _kinds_of(rows: Sequence[Sample]) -> dict[str, Kind]:
    """By benchmark what its rows record, else what the registry says; raises DataError where two rows differ."""
    recorded: dict[str, tuple[Kind, Sample]] = {}
    for row in rows:
        kind = Kind.recorded_in(row.extra)
        there, first = recorded.setdefault(row.benchmark, (kind, row)) if kind is not None else (kind, row)
        if there != kind:
            raise DataError(
                f"{shown(first.id)} and {shown(row.id)} of {row.benchmark} are judged differently ({JUDGED_AS}: "
                f"{there} and {kind}): they are of two benchmarks of one name; name the files of one"
            )
    names = {row.benchmark for row in rows}
    return {name: recorded[name][0] if name in recorded else kind_of(name) for name in names}


def _grade_countdown(row: Sample) -> Grade:
    countdown = maker_of("countdown")
    countdown.check_answer(row.answer, row.id, row.benchmark)
    why = countdown.fault(str(row.answer), row.completion, row.finish_reason)
    return Grade(not why, "incorrect" if why else "correct", row.completion, "countdown", detail=why)


def with_grade(row: Sample, found: Grade) -> Sample:
    """The row with its grade, which takes the place of what an earlier one left in it."""
    extra = {key: value for key, value in row.extra.items() if key != "verdicts"} | {"outcome": found.outcome}
    if found.verdicts:
        extra["verdicts"] = dict(found.verdicts)
    return replace(row, correct=found.correct, extra=extra)


def missing_box_hint(outcomes: Mapping[str, int], settings: GradingSettings) -> str | None:
    """What to try if more than a tenth of the graded samples hold no box; else None."""
    num_rows = sum(outcomes.values())
    missing = outcomes.get("no_answer", 0)
    if settings.extraction != "boxed" or 10 * missing <= num_rows:
        return None
    if settings.thinking is not None:
        return (
            f"{missing} of {num_rows} graded samples have no \\boxed answer after a thought (no_answer) and count as "
            f"wrong; does {settings.thinking.split()[-1]} end the thoughts, or were they cut by --max-tokens?"
        )
    return (
        f"{missing} of {num_rows} graded samples hold no \\boxed answer (no_answer) and count as wrong; if their "
        "prompt asked for none, as GSM8K's does not, grade with `--extraction last-number` or `answer-is`"
    )


def box_hints(
    paths: Sequence[Path], rows: Sequence[Sample], grades: Sequence[Grade], settings: GradingSettings
) -> list[str]:
    """`missing_box_hint` of each benchmark in ``paths``, with the command."""
    outcomes: dict[str, Counter[str]] = {}
    for row, found in zip(rows, grades, strict=True):
        outcomes.setdefault(row.benchmark, Counter())[found.outcome] += 1
    found_hints = {name: missing_box_hint(counts, settings) for name, counts in outcomes.items()}
    files = [str(path) for path in paths]
    command = shlex.join(["quatro", "eval", "grade", *files, "--extraction", "last-number", "-o", "graded"])
    return [
        f"{', '.join(files)}: {name}: {hint}: `{command}`" for name, hint in found_hints.items() if hint is not None
    ]


def refuse_infra_errors(outcomes: Iterable[tuple[Sample, str]]) -> None:
    """Raises DataError for a sample whose outcome is `infra_error`: the machine failed, not the model."""
    for row, outcome in outcomes:
        if outcome == "infra_error":
            raise DataError(
                f"sample {row.sample_index} of {shown(row.id)} ({row.benchmark}) has outcome infra_error: grading "
                "failed on this machine, so it is neither right nor wrong; grade the file again with "
                "`quatro eval grade`"
            )


def check_grades(rows: Sequence[Sample], grades: Sequence[Grade]) -> None:
    """Warns of samples that the grader gave up on; raises DataError for one that this machine failed to grade."""
    refuse_infra_errors((row, found.outcome) for row, found in zip(rows, grades, strict=True))
    counts = Counter(grade.outcome for grade in grades)
    failed = [f"{name} {counts[name]}" for name in ("timeout", "error") if counts[name]]
    if failed:
        said = f"{', '.join(failed)} of {len(grades)} graded samples count as wrong"
        _log.warning(f"{said}; `quatro eval grade --explain` shows them")


def made_by(rows: Sequence[Sample], grades: Sequence[Grade], settings: GradingSettings) -> dict[str, Any]:
    """Who gave ``grades``: version, settings, sandbox, and the SHA-256 of the file of each own grader.

    The last two are None where no program and no own grader was run.
    """
    is_own_used = any(grade.stage == OWN for grade in grades)
    specs = sorted(set(filter(is_own, graders_of(rows, settings.grader).values()))) if is_own_used else []
    sources = {spec: digest for spec in specs if (digest := source_digest(spec)) is not None}
    return {
        "version": GRADER_VERSION,
        **settings.recorded(),
        "sandbox": sandbox_here() if any(grade.verdicts for grade in grades) else None,
        "own_graders": sources or None,
    }


def own_grader(spec: str) -> Verdict:
    """A function from a response, its reference and words for the sample, which stand in errors, to a verdict.

    The user's function gets the response and the reference as text, None where there is no reference; the reference
    first where its first parameter is called `answer` or `reference`.

    Raises:
        UsageError: as `own_function`; and from the function, if the user's returns something else than True, False, 1
            or 0.
    """
    function = own_function(spec, "grader", "of a response and a reference")
    names = getattr(getattr(inspect.unwrap(function), "__code__", None), "co_varnames", ())  # none of what is in C

    def verdict(completion: str, answer: str | float | None, where: str) -> bool:
        pair = completion, None if answer is None else str(answer)
        found = function(where, *(reversed(pair) if names[:1] in (("answer",), ("reference",)) else pair))
        if not isinstance(found, bool | int | float | np.bool_ | np.number) or found not in (0, 1):
            raise UsageError(
                f"grader {spec!r} returned {found!r:.80} for {where}; expected True or False, or 1 or 0. "
                f"Look at {file_of(spec)}"
            )
        return bool(found)

    return verdict


def changed_since(sources: object) -> str:
    """The own grader whose file is another one than when ``sources`` (of `made_by`) was made; empty if there is none.

    A file that is not here has not changed: whoever only reads grades need not have it.
    """
    known = sources if isinstance(sources, dict) else {}
    return next((spec for spec, digest in known.items() if source_digest(spec) not in (None, digest)), "")


class Agreement(NamedTuple):
    """One score beside our grades: counts of samples by who calls them correct."""

    score: str
    both: int
    neither: int
    only_ours: int
    only_theirs: int

    @property
    def share(self) -> float:
        """Of the samples that have the score, those on which both agree."""
        agreed = self.both + self.neither
        return agreed / (agreed + self.only_ours + self.only_theirs)


class Majority(NamedTuple):
    """A problem with no correct sample, to which more than half of the samples give the same ``answer``."""

    benchmark: str
    id: str
    reference: str
    answer: str
    share: float


def majorities(rows: Sequence[Sample], grades: Sequence[Grade]) -> list[Majority]:
    """The problems of mathematics with 4 samples or more whose reference may be wrong; ``rows`` are in order."""
    found: list[Majority] = []
    for name, group in groupby(zip(rows, grades, strict=True), key=lambda pair: (pair[0].benchmark, pair[0].id)):
        pairs = list(group)
        answers = (grade.extracted for _, grade in pairs if grade.stage == "tree")
        texts = Counter(text for text in answers if text)
        if len(pairs) < 4 or 2 * texts.total() <= len(pairs) or any(grade.correct for _, grade in pairs):
            continue
        [(most, _)] = texts.most_common(1)
        share = sum(count for text, count in texts.items() if same_answer(text, most)) / len(pairs)
        if share > 0.5:
            found.append(Majority(*name, str(pairs[0][0].answer)[:_SHOWN_CHARS], most[:_SHOWN_CHARS], share))
    return sorted(found, key=lambda one: -one.share)


def stored_scores(row: Sample) -> Iterator[tuple[str, bool]]:
    """(name, whether it calls the sample correct): `correct` of the row, and its `source_scores` that are 0 or 1."""
    if row.correct is not None:
        yield "correct", row.correct
    scores = row.extra.get("source_scores")
    if isinstance(scores, Mapping):
        for name, value in scores.items():
            if type(value) in (bool, int, float) and value in (0, 1):
                yield str(name), bool(value)


def is_disputed(row: Sample, correct: bool) -> bool:
    """Whether a score that the row holds says otherwise."""
    return any(found != correct for _, found in stored_scores(row))


def agreements(rows: Sequence[Sample], corrects: Sequence[bool]) -> list[Agreement]:
    """One for each score that rows hold, in the order in which they occur."""
    pairs = zip(rows, corrects, strict=True)
    counts = Counter((name, ours, theirs) for row, ours in pairs for name, theirs in stored_scores(row))
    kinds = ((True, True), (False, False), (True, False), (False, True))  # as `Agreement` has them
    names = dict.fromkeys(name for name, *_ in counts)
    return [Agreement(name, *(counts[name, *kind] for kind in kinds)) for name in names]


def agreed_grader(said_by: Mapping[str, GraderInfo]) -> GraderInfo:
    """The one grader of all files. ``said_by`` has the grader of each by name; unknown ones are passed over.

    A file without code has no sandbox, and goes with any; so does one that no grader of the user's own judged.

    Raises DataError if two differ; both files and what they say are named.
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
    files = [name.removesuffix(GRADED_HERE) for name in names]
    return shlex.join(["quatro", "eval", "grade", *files, *options, "-o", "graded-alike"])


def grader_info(grader: Mapping[str, Any]) -> GraderInfo:
    """The head's entry: version, policy, and the settings that are not the default."""
    defaults = {"extraction": "boxed", "grader": None, "thinking": None, "sandbox": None, "own_graders": None}
    unusual = {key: grader[key] for key, value in defaults.items() if grader.get(key, value) != value}
    return GraderInfo(version=grader["version"], policy=grader["policy"], **unusual)


def _words(grader: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {value}" for name, value in grader.items())
