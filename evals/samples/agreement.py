"""How often grades agree with what somebody else said of the same samples: earlier grades, and other tools' scores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from evals.samples.types import Sample


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
    counts: dict[str, list[int]] = {}
    for row, correct in zip(rows, corrects, strict=True):
        for name, found in stored_scores(row):
            count = counts.setdefault(name, [0, 0, 0, 0])
            count[(0 if found else 2) if correct else (3 if found else 1)] += 1
    return [Agreement(name, *count) for name, count in counts.items()]
