"""Partitions against slow, plain implementations of each rule, and the public vectors."""

import random
from itertools import combinations

import numpy as np
import pytest

from evals.clustering import (
    LINKAGES,
    by_first_appearance,
    cluster,
    cluster_distinct,
    cluster_sizes,
    partitions,
)
from evals.errors import UsageError
from evals.estimators import ucc_at_k, ucr
from evals.similarity import SIMILARITIES
from evals.similarity.measures import distinct, similarity_of_distinct


def similarity_of(name, texts, tokens="math"):
    """The matrix over all ``texts``, where equal ones have a row each."""
    unique = distinct(texts)
    return similarity_of_distinct(name, unique, tokens=tokens)[np.ix_(unique.which_N, unique.which_N)]


def texts_with_ties(seed):
    """Short texts over few words: many exactly equal similarities, many repeats."""
    rng = random.Random(seed)
    return [" ".join(rng.choices("abcde", k=rng.randint(1, 6))) for _ in range(24)]


def numbered(texts, groups):
    """Labels by first appearance from groups of texts."""
    place = {text: number for number, group in enumerate(groups) for text in group}
    return by_first_appearance([place[text] for text in texts])


def plain_components(texts, similar):
    groups = [{text} for text in set(texts)]
    while True:
        pair = next(((a, b) for a, b in combinations(groups, 2) if any(similar(x, y) for x in a for y in b)), None)
        if pair is None:
            return numbered(texts, groups)
        groups = [group for group in groups if group not in pair] + [pair[0] | pair[1]]


def plain_agglomeration(texts, between, threshold):
    groups = [[text] for text in sorted(set(texts))]
    while True:
        scores = [(between(a, b), -i, -j) for (i, a), (j, b) in combinations(enumerate(groups), 2)]
        if not scores or max(scores)[0] < threshold:
            return numbered(texts, groups)
        _, i, j = max(scores)
        groups[-i] = groups[-i] + groups[-j]
        del groups[-j]


def plain_greedy(texts, similar):
    leaders = []
    labels = []
    for text in texts:
        found = [number for number, leader in enumerate(leaders) if similar(text, leader)]
        if not found:
            leaders.append(text)
        labels.append(found[0] if found else len(leaders) - 1)
    return labels


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("threshold", [0.4, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("name", ["jaccard", "edit", "rouge-l"])
def test_every_linkage_equals_its_plain_form(seed, threshold, name):
    texts = texts_with_ties(seed)
    matrix = similarity_of(name, texts)
    place = {text: i for i, text in enumerate(texts)}

    def value(a, b):
        return matrix[place[a], place[b]]

    def similar(a, b):
        return value(a, b) >= threshold

    def labels(linkage):
        return cluster(texts, similarity=name, threshold=threshold, linkage=linkage)

    assert labels("components") == plain_components(texts, similar)
    assert labels("greedy") == plain_greedy(texts, similar)
    assert labels("complete") == plain_agglomeration(
        texts, lambda a, b: min(value(x, y) for x in a for y in b), threshold
    )


@pytest.mark.parametrize("seed", range(8))
def test_average_linkage_is_the_mean_over_pairs_of_samples(seed):
    # Random similarities have no ties, so that rounding cannot choose another pair than the plain form.
    texts = texts_with_ties(seed)
    matrix = similarity_of("tfidf", texts)
    place = {text: i for i, text in enumerate(texts)}

    def mean(a, b):
        pairs = [(x, y) for x in a for _ in range(texts.count(x)) for y in b for _ in range(texts.count(y))]
        return np.mean([matrix[place[x], place[y]] for x, y in pairs])

    for threshold in (0.3, 0.6, 0.9):
        expected = plain_agglomeration(texts, lambda a, b: round(mean(a, b), 12), threshold)
        assert cluster(texts, similarity="tfidf", threshold=threshold, linkage="average") == expected


@pytest.mark.parametrize("linkage", ["components", "complete", "average", "greedy"])
def test_equal_strings_share_a_cluster_and_labels_count_up(linkage):
    texts = ["b", "a", "b", "", "c d", "", "a"]
    for similarity in set(SIMILARITIES) - {"exact"}:
        assert cluster(texts, similarity=similarity, linkage=linkage) == [0, 1, 0, 2, 3, 2, 1]
    assert cluster([], similarity="edit", linkage=linkage) == []
    assert cluster(texts, similarity="exact", linkage=linkage) == [0, 1, 0, 2, 3, 2, 1]


def test_components_chain_where_complete_does_not():
    # Neighbours share 4 of 5 words (8/10 by ROUGE-L's count), ends only 3.
    texts = ["a b c d e", "b c d e f", "c d e f g"]
    assert cluster(texts, similarity="rouge-l", threshold=0.8) == [0, 0, 0]
    assert cluster(texts, similarity="rouge-l", threshold=0.8, linkage="complete") == [0, 0, 1]


@pytest.mark.parametrize("linkage", ["components", "complete", "average"])
def test_order_does_not_change_the_partition(linkage):
    texts = texts_with_ties(11)
    order = random.Random(3).sample(range(len(texts)), len(texts))
    labels = cluster(texts, similarity="jaccard", threshold=0.5, linkage=linkage)
    shuffled = cluster([texts[i] for i in order], similarity="jaccard", threshold=0.5, linkage=linkage)
    assert shuffled == by_first_appearance([labels[i] for i in order])


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.01, float("nan")])
def test_thresholds_outside_the_unit_interval_are_refused(threshold):
    with pytest.raises(UsageError, match="threshold"):
        cluster(["a"], similarity="edit", threshold=threshold)


def test_wrong_options_are_refused_with_the_choices():
    with pytest.raises(UsageError, match=r"0\.9.*exact"):
        cluster(["a"], similarity="exact", threshold=0.9)
    with pytest.raises(UsageError, match=r"'bleu'.*rouge-l"):
        cluster(["a"], similarity="bleu")
    with pytest.raises(UsageError, match=r"'bleu'.*rouge-l"):
        cluster(["a"], similarity="bleu", threshold=0.5)
    with pytest.raises(UsageError, match=r"'single'.*components"):
        cluster(["a"], similarity="edit", linkage="single")
    with pytest.raises(UsageError, match=r"'single'.*components"):
        cluster(["a"], similarity="exact", linkage="single")


@pytest.mark.parametrize("linkage", LINKAGES)
def test_a_similarity_equal_to_the_threshold_is_enough(linkage):
    matrix = np.array([[1.0, 0.5], [0.5, 1.0]])
    unique = distinct(["a", "b"])
    assert cluster_distinct(unique, matrix, threshold=0.5, linkage=linkage) == [0, 0]
    assert cluster_distinct(unique, matrix, threshold=0.5 + 1e-12, linkage=linkage) == [0, 1]


@pytest.mark.parametrize("thresholds", [(0.3, 0.7), (0.9, 0.2, 0.5, 0.7)])
def test_several_thresholds_give_what_each_gives_alone(thresholds):
    texts = texts_with_ties(3)
    together = partitions(distinct(texts), similarity="jaccard", thresholds=thresholds, linkage="components")
    assert together == {one: cluster(texts, similarity="jaccard", threshold=one) for one in thresholds}
    assert len({len(set(labels)) for labels in together.values()}) == len(thresholds)


LONG_TEXTS = 20_000  # characters of a vector, from which on one edit distance takes a tenth of a second


def test_public_vectors(text_vectors, vector_metrics):
    for vector in text_vectors:
        for metric, expected in vector["metrics"].items():
            name, tokens = vector_metrics[metric]
            unique = distinct(vector["texts"])
            matrix = similarity_of_distinct(name, unique, tokens=tokens)
            is_long = sum(map(len, vector["texts"])) > LONG_TEXTS
            asked = list(expected["clusters"])[:1] if is_long else list(expected["clusters"])
            for threshold, by_linkage in expected["clusters"].items():
                for linkage in ("components", "complete", "greedy"):
                    partition = by_linkage[linkage]
                    where = (vector["name"], metric, threshold, linkage)
                    # One matrix for all thresholds: the long texts would take half a minute otherwise.
                    labels = cluster_distinct(unique, matrix, threshold=float(threshold), linkage=linkage)
                    assert labels == partition["labels"], where
                    sizes = cluster_sizes(labels)
                    assert list(sizes) == sorted(partition["sizes"], reverse=True), where
                    assert ucr(vector["n"], sizes) == pytest.approx(partition["ucr"], abs=1e-9), where
                    for k, value in partition["ucc"].items():
                        assert ucc_at_k(vector["n"], sizes, int(k)) == pytest.approx(value, abs=1e-9), where
                    if len(vector["texts"]) <= 16 and threshold in asked:
                        options = {"similarity": name, "threshold": float(threshold), "tokens": tokens}
                        assert cluster(vector["texts"], linkage=linkage, **options) == labels, where
