"""Which texts reach the threshold to a given one, without computing the similarity of most pairs.

ROUGE-L and edit align two texts, at a cost that grows with the product of their lengths. Three bounds spare most of it:

- what two texts can share in any order (their bags of characters) bounds what an alignment can match,
- what is left unmatched is a distance: a text far from p is far from all that is close to p, and
- rapidfuzz gives up on a pair as soon as the threshold is out of reach.

The results are those of the full matrices in `evals.similarity.measures`, ties included.
"""

# Axes: U distinct texts, M of them asked about, R remembered rows, A classes of characters.
from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel, Levenshtein
from rapidfuzz.process import cdist

from evals.similarity.measures import Distinct, Floats, similarity_of_distinct
from evals.similarity.tokens import Integers

# Up to this length a comparison costs less than the bounds that could spare it.
_SHORT = 256
_NUM_CLASSES = 128
_NUM_ROWS = 32
# A text with close neighbours is compared down to this much below the threshold: what is further away than that from
# it is then known to be far from those neighbours too.
_MARGIN = 0.04
# rapidfuzz rejects values that equal its cutoff, and some that are 1e-9 above it; what it lets through is decided here.
_SLACK = 1e-5


# Whether each of the distinct texts ``others_M`` is at least ``threshold`` similar to text ``i``.
Near = Callable[[int, Integers, float], NDArray[np.bool_]]


def neighbours(name: str, unique: Distinct, *, tokens: str = "math") -> Near:
    """The neighbour test of the measure ``name`` over the distinct texts; raises UsageError for an unknown name."""
    if name == "edit" and max(map(len, unique.texts), default=0) > _SHORT:
        return _Alignment(unique.texts, scorer=Levenshtein.normalized_similarity, capacity=np.maximum)
    if name == "rouge-l" and max(map(len, unique.rouge_strings), default=0) > _SHORT:
        # 2l / (a + b) is l / ((a + b) / 2), to the last bit: halving is exact in binary.
        return _Alignment(
            unique.rouge_strings, scorer=Indel.normalized_similarity, capacity=lambda a, b_M: (a + b_M) / 2
        )
    return near_in(similarity_of_distinct(name, unique, tokens=tokens))


def near_in(similarity_UU: Floats) -> Near:
    """The neighbour test read off a similarity matrix."""
    return lambda i, others_M, threshold: similarity_UU[i, others_M] >= threshold


class _Alignment:
    """Near where similarity = (characters matched in order) / capacity, ``capacity`` a function of the two lengths.

    Capacity - matched, the unmatched characters, is Levenshtein's distance or half of Indel's: both obey the triangle
    inequality. The last rows of comparisons are remembered, each as bounds on that distance from one text to all.
    """

    def __init__(
        self, texts: Sequence[str], *, scorer: Callable[..., float], capacity: Callable[[Floats, Floats], Floats]
    ) -> None:
        self._texts, self._scorer, self._capacity = texts, scorer, capacity
        self._length_U = np.array([len(text) for text in texts], dtype=np.float64)
        self._bag_UA = _bags(texts)
        self._at_least_RU = np.zeros((_NUM_ROWS, len(texts)))
        self._at_most_RU = np.full((_NUM_ROWS, len(texts)), np.inf)
        self._num_rows = 0

    def __call__(self, i: int, others_M: Integers, threshold: float) -> NDArray[np.bool_]:
        capacity_M = np.maximum(self._capacity(self._length_U[i], self._length_U[others_M]), 0.5)  # 0 of 0: not near
        matched_M = np.minimum(self._bag_UA[i], self._bag_UA[others_M]).sum(axis=1, dtype=np.float64)
        close_R = np.flatnonzero(np.isfinite(self._at_most_RU[:, i]))
        apart_R1 = self._at_most_RU[close_R, i][:, None]
        if len(close_R):
            known_apart_M = (self._at_least_RU[np.ix_(close_R, others_M)] - apart_R1).max(axis=0)
            matched_M = np.minimum(matched_M, capacity_M - known_apart_M)
        # Rounding is monotone: a bound below the threshold leaves no similarity at it.
        is_near_M = matched_M / capacity_M >= threshold
        possible = np.flatnonzero(is_near_M)
        if not len(possible):
            return is_near_M
        others_M, capacity_M = others_M[possible], capacity_M[possible]
        cutoff = max(threshold - (_MARGIN if len(close_R) else 0.0) - _SLACK, 0.0)
        found_M = self._compare(i, others_M, cutoff)
        unmatched_M = capacity_M - np.rint(found_M * capacity_M)  # rint undoes rapidfuzz's own rounding
        is_near_M[possible] = (capacity_M - unmatched_M) / capacity_M >= threshold

        at_least_U = (self._at_least_RU[close_R] - apart_R1).max(axis=0, initial=0.0)
        at_most_U = (self._at_most_RU[close_R] + apart_R1).min(axis=0, initial=np.inf)
        at_least_M = np.maximum(at_least_U[others_M], capacity_M * (1 - cutoff - _SLACK))
        at_least_U[others_M] = np.where(found_M > 0, unmatched_M, at_least_M)
        at_most_U[others_M] = np.where(found_M > 0, unmatched_M, at_most_U[others_M])
        at_most_U[i] = 0.0
        row = self._num_rows % _NUM_ROWS
        self._at_least_RU[row], self._at_most_RU[row] = at_least_U, at_most_U
        self._num_rows += 1
        return is_near_M

    def _compare(self, i: int, others_M: Integers, cutoff: float) -> Floats:
        """Similarities of text i to others, 0 below ``cutoff``."""
        candidates = [self._texts[other] for other in others_M]
        return cdist([self._texts[i]], candidates, scorer=self._scorer, score_cutoff=cutoff, dtype=np.float64)[0]


def _bags(texts: Sequence[str]) -> NDArray[np.unsignedinteger]:
    """How often characters occur, shape (U, A); characters that share a class only make the bound larger."""
    longest = max(map(len, texts), default=0)
    bag_UA = np.zeros((len(texts), _NUM_CLASSES), dtype=np.uint16 if longest < 2**16 else np.uint64)
    for row_A, text in zip(bag_UA, texts, strict=True):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
        row_A[:] = np.bincount(codes % _NUM_CLASSES, minlength=_NUM_CLASSES)
    return bag_UA


def connected_components(near: Near, group_U: Integers, threshold: float, *, order: Sequence[int]) -> Integers:
    """Components of "near" as a label for each text, texts of one ``group_U`` being connected from the start.

    Only texts not reached yet are looked for: a collapsed group of 256 takes one row of comparisons, not 256. ``order``
    lists all texts, those to begin with first; it changes the work, not the components.
    """
    label_U = np.full(len(group_U), -1)
    for start in order:
        if label_U[start] >= 0:
            continue
        frontier = np.flatnonzero(group_U == group_U[start]).tolist()
        label_U[frontier] = start
        while frontier:
            open_M = np.flatnonzero(label_U < 0)
            if not len(open_M):
                break
            reached = open_M[near(frontier.pop(), open_M, threshold)]
            joined = open_M[np.isin(group_U[open_M], group_U[reached])] if len(reached) else reached
            label_U[joined] = start
            frontier.extend(joined.tolist())
    return label_U
