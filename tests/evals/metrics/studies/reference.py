"""A slow way that everybody can check: similarities by scikit-learn and rouge_score, clusters by definition.

The tests beside it compare with this module what `evals.similarity` and `evals.clustering` compute fast. Every pair
of texts is compared, and every rule is written as it is stated.
"""

# Axes: N texts, U distinct texts (sorted by code point), G clusters.
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from evals.clustering import by_first_appearance, partitions
from evals.similarity import Setting
from evals.similarity.measures import TOKENISERS, Distinct, Floats, similarity_of_distinct

# How far the two ways may be apart: both round each of a few hundred operations to 1e-16.
TOLERANCE = 1e-12


class Partition(NamedTuple):
    """The cluster of each text, and how many pairs lie within `TOLERANCE` of the threshold."""

    labels: list[int]
    num_ties: int = 0


def similarities(name: str, unique: Distinct, *, tokens: str = "math") -> Floats:
    """The (U, U) matrix of the measure ``name``; equal texts are 1, and a text without tokens is 0 to any other."""
    texts = unique.texts
    if name == "tfidf":
        return _tfidf(unique, tokens)
    value = _VALUE_OF[name](texts, tokens)
    similarity_UU = np.eye(len(texts))
    for i, j in combinations(range(len(texts)), 2):
        similarity_UU[i, j] = similarity_UU[j, i] = value(i, j)
    return similarity_UU


def cluster(unique: Distinct, similarity_UU: Floats, setting: Setting) -> Partition:
    """The cluster of each text, numbered by first appearance, under ``setting``'s linkage and threshold."""
    threshold = setting.threshold
    if threshold is None:
        return Partition(by_first_appearance(unique.which_N))
    if setting.linkage == "components":
        from scipy.sparse.csgraph import connected_components

        label_U = connected_components(similarity_UU >= threshold, directed=False)[1]
    elif setting.linkage == "greedy":
        label_U = _greedy(similarity_UU >= threshold, list(dict.fromkeys(unique.which_N.tolist())))
    else:
        label_U = _agglomerated(similarity_UU, unique.count_U, setting.linkage, threshold)
    value_pairs = similarity_UU[np.triu_indices(len(similarity_UU), 1)]
    num_ties = int((np.abs(value_pairs - threshold) <= TOLERANCE).sum())
    return Partition(by_first_appearance(label_U[unique.which_N]), num_ties)


def _tfidf(unique: Distinct, tokens: str) -> Floats:
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not any(TOKENISERS[tokens](text) for text in unique.texts):  # the vectoriser refuses an empty vocabulary
        return np.eye(len(unique.texts))
    vectorizer = TfidfVectorizer(tokenizer=TOKENISERS[tokens], token_pattern=None, lowercase=False)
    vectorizer.fit([unique.texts[i] for i in unique.which_N])  # a repeated text is that many documents
    vectors = vectorizer.transform(unique.texts)
    similarity_UU = (vectors @ vectors.T).toarray()
    np.fill_diagonal(similarity_UU, 1.0)
    return similarity_UU


def _rouge_l(texts: Sequence[str], tokens: str) -> Callable[[int, int], float]:
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(["rougeL"], use_stemmer=False)
    return lambda i, j: scorer.score(texts[i], texts[j])["rougeL"].fmeasure


def _jaccard(texts: Sequence[str], tokens: str) -> Callable[[int, int], float]:
    sets = [set(TOKENISERS[tokens](text)) for text in texts]
    return lambda i, j: len(sets[i] & sets[j]) / len(sets[i] | sets[j]) if sets[i] | sets[j] else 0.0


def _edit(texts: Sequence[str], tokens: str) -> Callable[[int, int], float]:
    from rapidfuzz.distance import Levenshtein

    def value(i: int, j: int) -> float:
        longest = max(len(texts[i]), len(texts[j]))
        return (longest - Levenshtein.distance(texts[i], texts[j])) / longest

    return value


_VALUE_OF: dict[str, Callable[[Sequence[str], str], Callable[[int, int], float]]] = {
    "exact": lambda texts, tokens: lambda i, j: 0.0,
    "rouge-l": _rouge_l,
    "jaccard": _jaccard,
    "edit": _edit,
}


def _greedy(is_near_UU: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """Each text, in ``order``, joins the first leader that it is near to, or becomes a leader."""
    label_U = np.zeros(len(is_near_UU), dtype=np.int64)
    leaders: list[int] = []
    for text in order:
        near = [leader for leader in leaders if is_near_UU[text, leader]]
        if not near:
            leaders.append(text)
        label_U[text] = near[0] if near else text
    return label_U


def _agglomerated(similarity_UU: Floats, count_U: np.ndarray, linkage: str, threshold: float) -> np.ndarray:
    """Merges the two most similar clusters until none reach ``threshold``; the first pair among equals.

    `complete`: the least similar pair of texts of two clusters counts; `average`: the mean over all pairs of samples.
    """
    groups = [[text] for text in range(len(similarity_UU))]
    while len(groups) > 1:
        order_U = np.concatenate(groups)
        starts_G = np.cumsum([0] + [len(group) for group in groups[:-1]])
        if linkage == "complete":
            rows_GU = np.minimum.reduceat(similarity_UU[order_U][:, order_U], starts_G, axis=0)
            between_GG = np.minimum.reduceat(rows_GU, starts_G, axis=1)
        else:
            weight_U = count_U[order_U].astype(np.float64)
            weighted_UU = similarity_UU[order_U][:, order_U] * np.outer(weight_U, weight_U)
            size_G = np.add.reduceat(weight_U, starts_G)
            sum_GG = np.add.reduceat(np.add.reduceat(weighted_UU, starts_G, axis=0), starts_G, axis=1)
            between_GG = sum_GG / np.outer(size_G, size_G)
        between_GG[np.tril_indices_from(between_GG)] = -np.inf
        i, j = divmod(int(between_GG.argmax()), len(groups))
        if between_GG[i, j] < threshold:
            break
        groups[i] = groups[i] + groups.pop(j)
    label_U = np.zeros(len(similarity_UU), dtype=np.int64)
    for number, group in enumerate(groups):
        label_U[group] = number
    return label_U


class Agreement(NamedTuple):
    """How far the fast way and this one differ over ``num_pairs`` pairs of texts and ``num_partitions`` partitions.

    ``num_ties`` pairs lie within `TOLERANCE` of their threshold, where rounding may decide; ``num_tied`` partitions
    differ and have such a pair, ``num_wrong`` differ and have none.
    """

    largest_difference: float
    num_pairs: int
    num_partitions: int
    num_ties: int
    num_tied: int
    num_wrong: int

    @property
    def is_good(self) -> bool:
        return self.largest_difference <= TOLERANCE and not self.num_wrong


def agreement(groups: Sequence[Distinct], settings: Sequence[Setting]) -> Agreement:
    """The two ways beside each other on every group of texts under every setting."""
    largest, num_pairs, num_tied, num_wrong, ties = 0.0, 0, 0, 0, Counter[tuple[int, Setting]]()
    for number, unique in enumerate(groups):
        matrices = {}
        for name, tokens in dict.fromkeys((setting.similarity, setting.tokens) for setting in settings):
            matrices[name, tokens] = similarities(name, unique, tokens=tokens)
            difference_UU = similarity_of_distinct(name, unique, tokens=tokens) - matrices[name, tokens]
            largest = max(largest, float(np.abs(difference_UU).max(initial=0.0)))
            num_pairs += len(unique.texts) * (len(unique.texts) - 1) // 2
        for setting in settings:
            name, threshold, linkage, tokens = setting
            expected = cluster(unique, matrices[name, tokens], setting)
            ties[number, setting._replace(linkage="")] = expected.num_ties
            found = partitions(unique, similarity=name, thresholds=[threshold], linkage=linkage, tokens=tokens)
            if found[threshold] != expected.labels:
                num_tied, num_wrong = num_tied + (expected.num_ties > 0), num_wrong + (not expected.num_ties)
    return Agreement(largest, num_pairs, len(groups) * len(settings), ties.total(), num_tied, num_wrong)
