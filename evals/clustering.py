"""Which responses count as the same solution: similarity + threshold + linkage -> labels.

- ``components`` (default): connected components of "similarity >= threshold". Order and ties do not
  matter, but chains grow with n: the two ends of a chain may have little in common.
- ``complete``: every pair inside a cluster reaches the threshold.
- ``average``: the mean over all pairs of samples of two clusters reaches it.
- ``greedy``: each response joins the first leader it is similar to, or becomes a leader. Depends on sample order.

UCC is unbiased only given the partition, so models are compared at equal n.
"""

# Axes: N texts, U distinct texts (sorted by code point).
from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evals.code.programs import normal_solution
from evals.errors import UsageError
from evals.similarity.catalogue import default_threshold
from evals.similarity.measures import Distinct, Floats, check_similarity, distinct, similarity_of_distinct
from evals.similarity.neighbours import connected_components, near_in, neighbours
from evals.similarity.tokens import check_tokens

LINKAGES = ("components", "complete", "average", "greedy")

# From the third threshold on, all similarities at once cost less than a search for each.
_SEARCHED_THRESHOLDS = 2


def cluster(
    texts: Sequence[str],
    *,
    similarity: str,
    threshold: float | None = None,
    linkage: str = "components",
    tokens: str = "math",
) -> list[int]:
    """The cluster of each text, numbered from 0 by first appearance; see `solutions_in` on the tokens ``code``.

    Raises:
        UsageError: (a ValueError) an unknown name, a threshold outside (0, 1], or a threshold with `exact`.
    """
    threshold = resolve_threshold(similarity, threshold)
    check_tokens(tokens)
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
    return distinct(texts)


def partitions(
    unique: Distinct, *, similarity: str, thresholds: Sequence[float | None], linkage: str, tokens: str = "math"
) -> dict[float | None, list[int]]:
    """`cluster` for several thresholds of one measure (None with `exact`), which share its work."""
    check_tokens(tokens)
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
    similarity_UU = similarity_of_distinct(similarity, unique, tokens=tokens)
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

    Raises:
        UsageError: as `cluster`, or a similarity of the user's own without a threshold.
    """
    if similarity == "exact":
        if threshold is not None:
            raise UsageError(
                f"threshold {threshold} has no meaning for similarity 'exact', which is the default for short answers; "
                "leave it out, or name other similarities alone"
            )
        return None
    check_similarity(similarity)
    threshold = default_threshold(similarity) if threshold is None else threshold
    if threshold is None:
        raise UsageError(
            f"similarity {similarity!r} has no default threshold; choose one with --threshold, after a look at "
            f"`quatro eval similarity FILES --similarity {similarity}`"
        )
    if not 0 < threshold <= 1:  # NaN fails this too
        raise UsageError(f"the threshold must be a similarity in (0, 1], found {threshold}")
    return threshold


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
