"""Which responses count as the same solution: similarity + threshold + linkage -> labels.

- ``components`` (default): connected components of "similarity >= threshold". Order and ties do not
  matter, but chains grow with n: the two ends of a chain may have little in common.
- ``complete``: every pair inside a cluster reaches the threshold.
- ``average``: the mean over all pairs of samples of two clusters reaches it.
- ``greedy``: each response joins the first leader it is similar to, or becomes a leader. Depends on sample order.

UCC is unbiased only given the partition, so models are compared at equal n.

Components need no matrix: which texts reach the threshold to a given one is found without computing the similarity of
most pairs. ROUGE-L and edit align two texts, at a cost that grows with the product of their lengths. Three bounds spare
most of it:

- what two texts can share in any order (their bags of characters) bounds what an alignment can match,
- what is left unmatched is a distance: a text far from p is far from all that is close to p, and
- rapidfuzz gives up on a pair as soon as the threshold is out of reach.

The results are those of the full matrices in `evals.similarity.measures`, ties included.
"""

# Axes: N texts, U distinct texts (sorted by code point), M of them asked about, R remembered rows, A classes of
# characters.

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import Indel, Levenshtein
from rapidfuzz.process import cdist

from evals.code.programs import normal_solution
from evals.errors import UsageError
from evals.similarity import default_threshold, measures
from evals.similarity.measures import Distinct, Floats, Integers

LINKAGES = ("components", "complete", "average", "greedy")

# From the third threshold on, all similarities at once cost less than a search for each.
_SEARCHED_THRESHOLDS = 2
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


def cluster(
    texts: Sequence[str],
    *,
    similarity: str,
    threshold: float | None = None,
    linkage: str = "components",
    tokens: str = "math",
) -> list[int]:
    """The cluster of each text, numbered from 0 by first appearance; see `solutions_in` on the tokens ``code``.

    Raises UsageError (a ValueError) for an unknown name, a threshold outside (0, 1], or a threshold with `exact`.
    """
    threshold = resolve_threshold(similarity, threshold)
    unique = solutions_in(texts, tokens=tokens)
    return partitions(unique, similarity=similarity, thresholds=[threshold], linkage=linkage, tokens=tokens)[threshold]


def solutions_in(
    texts: Sequence[str], *, tokens: str, prompt: str | None = None, entry_point: str | None = None
) -> Distinct:
    """The distinct solutions among ``texts``, in whatever similarity they are compared.

    With the tokens ``code`` they are the normal forms of the programs in the texts (`normal_solution`, which takes
    ``prompt`` and ``entry_point``), so that comments and layout make no difference; else the texts themselves.
    """
    if tokens == "code":
        normal = {text: normal_solution(text, prompt=prompt, entry_point=entry_point) for text in set(texts)}
        texts = [normal[text] for text in texts]
    return measures.distinct(texts)


def partitions(
    unique: Distinct, *, similarity: str, thresholds: Sequence[float | None], linkage: str, tokens: str = "math"
) -> dict[float | None, list[int]]:
    """`cluster` for several thresholds of one measure (None with `exact`), which share its work."""
    measures.check_tokens(tokens)
    check_linkage(linkage)
    if similarity == "exact":
        return {None: by_first_appearance(unique.which_N)}
    numbers = sorted({threshold for threshold in thresholds if threshold is not None}, reverse=True)
    if linkage == "components" and len(numbers) <= _SEARCHED_THRESHOLDS:
        near = neighbours(similarity, unique, tokens=tokens)
        label_U = np.arange(len(unique.texts))
        by_frequency = np.argsort(-unique.count_U, kind="stable").tolist()  # what occurs often has many neighbours
        labels: dict[float | None, list[int]] = {}
        for threshold in numbers:  # falling: what a higher threshold connected stays connected
            label_U = connected_components(near, label_U, threshold, order=by_frequency)
            labels[threshold] = by_first_appearance(label_U[unique.which_N])
        return labels
    similarity_UU = measures.similarity_of_distinct(similarity, unique, tokens=tokens)
    return {
        threshold: cluster_distinct(unique, similarity_UU, threshold=threshold, linkage=linkage)
        for threshold in numbers
    }


def cluster_distinct(unique: Distinct, similarity_UU: Floats, *, threshold: float, linkage: str) -> list[int]:
    """`cluster` from a similarity matrix over the distinct texts, for several thresholds on one matrix."""
    check_linkage(linkage)
    if linkage == "components":
        everyone = np.arange(len(unique.texts))
        label_U = connected_components(near_in(similarity_UU), everyone, threshold, order=everyone.tolist())
    elif linkage == "greedy":
        label_U = _greedy(similarity_UU >= threshold, order=list(dict.fromkeys(unique.which_N.tolist())))
    else:
        label_U = _agglomerated(similarity_UU, unique.count_U, threshold, linkage)
    return by_first_appearance(label_U[unique.which_N])


def resolve_threshold(similarity: str, threshold: float | None) -> float | None:
    """The threshold to use: the one given, the measure's default, or None for `exact`.

    Raises UsageError as `cluster`, or for a similarity of the user's own without a threshold.
    """
    if similarity == "exact":
        if threshold is not None:
            raise UsageError(
                f"threshold {threshold} has no meaning for similarity 'exact', which is the default for short answers; "
                "leave it out, or name other similarities alone"
            )
        return None
    measures.check_similarity(similarity)
    threshold = default_threshold(similarity) if threshold is None else threshold
    if threshold is None:
        raise UsageError(
            f"similarity {similarity!r} has no default threshold; choose one with --threshold, after a look at "
            f"`quatro eval similarity FILES --similarity {similarity}`"
        )
    if not 0 < threshold <= 1:  # NaN fails this too
        raise UsageError(f"the threshold must be a similarity in (0, 1], found {threshold}")
    return threshold


def neighbours(name: str, unique: Distinct, *, tokens: str = "math") -> Near:
    """The neighbour test of the measure ``name`` over the distinct texts; raises UsageError for an unknown name."""
    if name == "edit" and max(map(len, unique.texts), default=0) > _SHORT:
        return _Alignment(unique.texts, scorer=Levenshtein.normalized_similarity, capacity=np.maximum)
    if name == "rouge-l" and max(map(len, unique.rouge_strings), default=0) > _SHORT:
        # 2l / (a + b) is l / ((a + b) / 2), to the last bit: halving is exact in binary.
        return _Alignment(
            unique.rouge_strings, scorer=Indel.normalized_similarity, capacity=lambda a, b_M: (a + b_M) / 2
        )
    return near_in(measures.similarity_of_distinct(name, unique, tokens=tokens))


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


def by_first_appearance(labels: Sequence[int] | NDArray[np.int64]) -> list[int]:
    """The same partition with labels 0, 1, 2, ... in the order in which they first appear."""
    number: dict[int, int] = {}
    return [number.setdefault(int(label), len(number)) for label in labels]


def cluster_sizes(labels: Sequence[int]) -> tuple[int, ...]:
    """Sizes in descending order."""
    return tuple(sorted(np.bincount(labels).tolist(), reverse=True)) if len(labels) else ()


def check_linkage(linkage: str) -> None:
    """Raises UsageError for an unknown ``linkage``."""
    if linkage not in LINKAGES:
        raise UsageError(f"unknown linkage {linkage!r}; choose from {', '.join(LINKAGES)}")


def _greedy(is_near_UU: NDArray[np.bool_], order: Sequence[int]) -> NDArray[np.int64]:
    label_U = np.full(len(is_near_UU), -1)
    leaders: list[int] = []
    for text in order:
        leader = next((leader for leader in leaders if is_near_UU[text, leader]), None)
        if leader is None:
            leader = text
            leaders.append(text)
        label_U[text] = leader
    return label_U


def _agglomerated(
    similarity_UU: Floats, count_U: NDArray[np.int64], threshold: float, linkage: str
) -> NDArray[np.int64]:
    """Merges the most similar pair of clusters again and again; among equals the pair (i, j), i < j, that comes first.

    The similarity of two clusters is the lowest of a pair of texts for ``complete``, and the mean over all pairs of
    samples for ``average``, where equal texts count as often as they occur. The merged cluster keeps index i. scipy's
    nearest-neighbour chain breaks exact ties differently.
    """
    upper_UU = similarity_UU.copy()
    label_U = np.arange(len(upper_UU))
    size_U = count_U.astype(np.float64)
    upper_UU[np.tril_indices_from(upper_UU)] = -math.inf
    while len(label_U):
        i, j = divmod(int(upper_UU.argmax()), len(label_U))
        if upper_UU[i, j] < threshold:
            break
        label_U[label_U == j] = i
        one_U, other_U = _row(upper_UU, i), _row(upper_UU, j)
        if linkage == "complete":
            merged_U = np.minimum(one_U, other_U)
        else:
            merged_U = (size_U[i] * one_U + size_U[j] * other_U) / (size_U[i] + size_U[j])
        size_U[i] += size_U[j]
        merged_U[[i, j]] = -math.inf
        upper_UU[:i, i] = merged_U[:i]
        upper_UU[i, i:] = merged_U[i:]
        upper_UU[:j, j] = -math.inf
        upper_UU[j, j:] = -math.inf
    return label_U


def _row(upper_UU: Floats, i: int) -> Floats:
    """Row i of the symmetric matrix whose strict upper triangle is ``upper_UU``; -inf for itself and merged rows."""
    return np.concatenate([upper_UU[:i, i], upper_UU[i, i:]])
