"""Pairs of right answers for a person to label: the same solution or not. `labels` reads what is written here.

Half of the pairs are drawn at random, and half where the measures disagree most. The chance of a pair over both ways,
and how often was drawn until then, are written down with its label, and weigh it: what is found by the labels is then
true of all pairs. A draw that finds nothing new counts, too.
"""

# Axes: U distinct right answers to one problem, of which M are compared: at most `MOST_TEXTS`.

import os
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

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
_TRIES = 400


class Pair(NamedTuple):
    """Two right answers to a problem, and the chance with which they were drawn; ``key`` names them."""

    problem: GradedProblem
    texts: tuple[str, str]
    chance: float
    key: str


class Pairs:
    """Draws pairs, and keeps the labels of those it has drawn. ``seed`` and the number of a draw decide what it gives.

    So whoever goes on with a file of labels does not draw the same again.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn: dict[str, dict[str, Any]] = {}  # the line of each, but for the label
        self._num_draws, self._num_shown = Counter[tuple[Path, str]](), 0

    def draw(self, index: SamplesIndex, benchmark: str, labels: Path) -> Pair:
        """A pair that has no label in ``labels``; raises UsageError where none is found."""
        known = [one for one in known_labels(labels) if one.benchmark == benchmark]
        done = {(one.id, frozenset((one.a, one.b))) for one in known}
        start = max([self._num_draws[labels, benchmark], *(one.draw or 0 for one in known)]) + 1
        # Of those that may have two right answers, once all are graded. The index may grow meanwhile.
        own = [(id, one) for (name, id), one in list(index.places.items()) if name == benchmark]
        ids = [id for id, one in own if len(one.starts) - one.num_wrong > 1]
        for number in range(start, start + _TRIES if ids else 0):
            self._num_draws[labels, benchmark] = number
            rng = np.random.default_rng([self._seed, number])
            problem = graded_problem(index.problem(benchmark, ids[rng.integers(len(ids))]))
            num = len(texts := sorted(set(problem.completions)))
            if num < 2:
                continue
            chosen = [texts[place] for place in rng.permutation(num)[:MOST_TEXTS]]
            chance_M = pair_chances(chosen)
            at = rng.choice(len(chance_M), p=chance_M)
            share = len(chance_M) / (num * (num - 1) / 2)  # of the pairs are compared
            i, j = (places[at] for places in np.triu_indices(len(chosen), 1))
            pair = chosen[i], chosen[j]
            a, b = map(text_hash, pair)
            if (problem.id, frozenset((a, b))) not in done:
                self._num_shown += 1
                found = Pair(problem, pair, float(chance_M[at] * share / len(ids)), str(self._num_shown))
                head = {"benchmark": benchmark, "id": problem.id, "a": a, "b": b}
                self._drawn[found.key] = {**head, "chance": found.chance, "draw": number}
                return found
        raise UsageError(
            "no pair of right answers without a label was found; two different ones to a problem make a pair"
        )

    def keep(self, labels: Path, key: str, label: str, who: str) -> int:
        """Adds the label of a pair that was drawn to ``labels``, once, and returns how many these are now."""
        if label not in ("same", "different"):
            raise UsageError(f"label {label!r}: expected same or different")
        if key not in self._drawn:
            raise UsageError("this pair has its label, or was not drawn here; take another one")
        said = Label.model_validate({**self._drawn[key], "label": label, "who": who})
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        with os.fdopen(os.open(labels, flags, 0o644), "a+b") as stream:
            stream.seek(max(0, stream.tell() - 1))
            is_torn = stream.read() not in (b"", b"\n")  # the last line, by an editor for example
            stream.write(b"\n" * is_torn + json_line(said.model_dump()))
        del self._drawn[key]
        return len(known_labels(labels))


def known_labels(labels: Path) -> list[Label]:
    """The labels in a file; none where it is not there."""
    return read_labels(labels) if labels.is_file() and labels.stat().st_size else []


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
