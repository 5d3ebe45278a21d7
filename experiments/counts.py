"""The counts of each problem of a run's samples as arrays, and what follows from them problem by problem."""

# Axes: P problems, C counts of correct samples.
from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from evals.errors import DataError
from evals.estimators import Floats, hit_table
from evals.files.frames import grouped
from evals.metrics.flips import bucket_of, flip_at_k
from quatro.sample.folder import UCC, Tag
from quatro.sweep.results import problems_in

NEVER = "never"  # solved by the base


@dataclass(frozen=True)
class Counts:
    """For each problem, in one order: ``n`` samples, the ``correct`` ones (P,), and the sizes of their clusters."""

    benchmark: str
    ids: tuple[str, ...]
    n: int
    correct: Floats
    clusters: tuple[tuple[int, ...], ...]

    def passed(self, k: int) -> Floats:
        """pass@k (P,)."""
        passed_P: Floats = hit_table(self.n, [k])[0][self.correct.astype(int)]
        return passed_P

    def unique(self, k: int) -> Floats:
        """UCC@k (P,)."""
        hit_C = hit_table(self.n, [k])[0]
        return np.array([math.fsum(hit_C[list(sizes)]) for sizes in self.clusters])

    def unique_ratio(self) -> Floats:
        """UCR (P,): clusters of correct answers over samples."""
        return np.array([len(sizes) / self.n for sizes in self.clusters])

    def flips(self, base: Counts, name: str, k: int) -> Floats:
        """Over the problems that ``base`` never solved (`never`) or of a bucket: newly solved, or flip@k (P,).

        Raises DataError if the two hold other problems, or other numbers of samples.
        """
        if (self.ids, self.n) != (base.ids, base.n):
            raise DataError("the samples of the base and of a run hold different problems or numbers of samples")
        counts = list(zip(base.correct.astype(int).tolist(), self.correct.astype(int).tolist(), strict=True))
        if name == NEVER:
            return np.array([float(after > 0) for before, after in counts if before == 0])
        of_bucket = [(before, after) for before, after in counts if bucket_of(self.n, before) == name]
        return np.array([flip_at_k(self.n, before, after, k) for before, after in of_bucket])


def counts_in(run: Path, tag: Tag) -> Mapping[str, Counts]:
    """The counts of the samples ``tag`` of a run by benchmark; raises as `problems_in`."""
    path = tag.folder(run) / UCC
    return _read_counts(run, tag, path.stat().st_mtime_ns if path.is_file() else 0)  # measured again, it is read again


@cache
def _read_counts(run: Path, tag: Tag, written_ns: int) -> Mapping[str, Counts]:
    found = {}
    for name, own in grouped(problems_in(run, tag), lambda one: one.benchmark).items():
        if len({problem.n for problem in own}) > 1:
            raise DataError(f"{run}: problems of {name} with different numbers of samples")
        found[name] = Counts(
            benchmark=name,
            ids=tuple(problem.id for problem in own),
            n=own[0].n,
            correct=np.array([problem.correct for problem in own], dtype=np.float64),
            clusters=tuple(tuple(problem.clusters or ()) for problem in own),
        )
    return found
