"""Pairs of right answers for a person to label: the same solution or not. `labels` reads what is written here.

Half of the pairs are drawn at random, and half where the measures disagree most. The chance of a pair over both ways is
written down with its label, and weighs it: what is found by the labels is then true of all pairs.
"""

# Axes: U distinct right answers to one problem, of which M are compared: at most `MOST_TEXTS`.

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.errors import UsageError
from evals.estimators import Floats
from evals.files.whole import json_line
from evals.metrics.studies.labels import Label, read_labels, text_hash
from evals.samples.graded import graded_problem
from evals.samples.index import SamplesIndex
from evals.samples.types import GradedProblem
from evals.similarity import SIMILARITIES

MOST_TEXTS = 48
_TRIES = 50


class Pair(NamedTuple):
    """Two right answers to a problem, and the chance with which they were drawn."""

    problem: GradedProblem
    texts: tuple[str, str]
    chance: float


class Pairs:
    """Draws pairs by ``seed``, and keeps the labels of those it has drawn."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._drawn: dict[tuple[str, str], Pair] = {}

    def draw(self, index: SamplesIndex, benchmark: str, labels: Path) -> Pair:
        """A pair that has no label in ``labels``; raises UsageError where none is found."""
        done = {frozenset((one.a, one.b)) for one in known_labels(labels)}
        # Of those that may have two right answers, once all are graded.
        own = [(id, one) for (name, id), one in index.places.items() if name == benchmark]
        ids = [id for id, one in own if len(one.starts) - one.num_wrong > 1]
        for _ in range(_TRIES if ids else 0):
            problem = graded_problem(index.problem(benchmark, ids[self._rng.integers(len(ids))]))
            num = len(texts := sorted(set(problem.completions)))
            if num < 2:
                continue
            chosen = [texts[place] for place in self._rng.permutation(num)[:MOST_TEXTS]]
            chance_M = pair_chances(chosen)
            at = self._rng.choice(len(chance_M), p=chance_M)
            share = len(chance_M) / (num * (num - 1) / 2)  # of the pairs are compared
            i, j = (places[at] for places in np.triu_indices(len(chosen), 1))
            pair = chosen[i], chosen[j]
            a, b = map(text_hash, pair)
            if frozenset((a, b)) not in done:
                self._drawn[a, b] = Pair(problem, pair, float(chance_M[at] * share / len(ids)))
                return self._drawn[a, b]
        raise UsageError(
            "no pair of right answers without a label was found; two different ones to a problem make a pair"
        )

    def keep(self, labels: Path, a: str, b: str, label: str, who: str) -> int:
        """Adds the label of a pair that was drawn to ``labels``, and returns how many these are now."""
        if (a, b) not in self._drawn:
            raise UsageError("this pair was not drawn here; load the page again")
        problem, _, chance = self._drawn[a, b]
        head = {"benchmark": problem.benchmark, "id": problem.id, "a": a, "b": b}
        said = Label.model_validate({**head, "label": label, "who": who, "chance": chance})
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(labels, flags, 0o644), "ab") as stream:
            stream.write(json_line(said.model_dump()))
        return len(known_labels(labels))


def known_labels(labels: Path) -> list[Label]:
    """The labels in a file; none where it is not there."""
    return read_labels(labels) if labels.is_file() else []


def pair_chances(texts: list[str]) -> Floats:
    """The chance of each pair i < j of ``texts``, in the order of `numpy.triu_indices`: the mean of two.

    One is the same for all. The other goes as v (4 - v), where v of the four measures call the pair the same at their
    default thresholds; where all pairs are agreed on, it is the same for all, too.
    """
    upper = np.triu_indices(len(texts), 1)
    named = {name: one.threshold for name, one in SIMILARITIES.items() if one.threshold is not None}
    votes_M = np.sum([SIMILARITIES[name](texts)[upper] >= threshold for name, threshold in named.items()], axis=0)
    disputed_M = votes_M * (len(named) - votes_M) + 0.0
    equal_M = np.full(len(disputed_M), 1 / len(disputed_M))
    return (equal_M + disputed_M / disputed_M.sum()) / 2 if disputed_M.any() else equal_M
