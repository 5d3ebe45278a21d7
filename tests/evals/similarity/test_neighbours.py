"""The search for neighbours decides as the full matrix does, with every bound in play."""

import random

import numpy as np
import pytest

from evals import clustering
from evals.clustering import cluster, cluster_distinct, partitions
from evals.similarity import SIMILARITIES
from evals.similarity.measures import distinct, similarity_of_distinct

MEASURES = ["tfidf", "rouge-l", "jaccard", "edit"]


def family(rng, words, num, rate):
    """A text and mutations of it: near-duplicates, and texts that are far apart for a large ``rate``."""
    texts = [words]
    for _ in range(num):
        texts.append([rng.choice("abcdefghij") if rng.random() < rate else word for word in rng.choice(texts)])
    return [" ".join(text) for text in texts]


def texts_in_families(seed):
    rng = random.Random(seed)
    families = [
        family(rng, rng.choices(["abcdefghij", "xyz"] + list("klmnop"), k=rng.randint(20, 60)), 8, rate)
        for rate in (0.02, 0.05, 0.1, 0.3)
    ]
    return [text for texts in families for text in texts] + ["", " ", "...", "a", "解 é \ud800"]


@pytest.fixture
def every_length_is_searched(monkeypatch):
    monkeypatch.setattr(clustering, "_SHORT", 0)
    monkeypatch.setattr(clustering, "_NUM_ROWS", 3)  # forgetting rows must be harmless


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.usefixtures("every_length_is_searched")
def test_near_is_the_matrix_at_the_threshold_whatever_was_asked_before(name, seed):
    unique = distinct(texts_in_families(seed))
    matrix = similarity_of_distinct(name, unique)
    # Values that occur are ties with the threshold.
    thresholds = [0.5, 0.8, 0.9, 1.0, *random.Random(seed).sample(sorted(set(matrix[matrix > 0])), 12)]
    rng = np.random.default_rng(seed)
    for threshold in thresholds:
        near = clustering.neighbours(name, unique)
        for i in rng.permutation(len(unique.texts)):
            others = np.sort(rng.choice(len(unique.texts), size=20, replace=False))
            others = others[others != i]
            assert (near(i, others, threshold) == (matrix[i, others] >= threshold)).all()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.usefixtures("every_length_is_searched")
def test_components_by_search_are_those_of_the_matrix(name, seed):
    unique = distinct(texts_in_families(seed))
    matrix = similarity_of_distinct(name, unique)
    for pair in ([0.8], [0.9, 0.7], [1.0, 0.95]):
        found = partitions(unique, similarity=name, thresholds=pair, linkage="components")
        assert list(found) == sorted(pair, reverse=True)
        for threshold, labels in found.items():
            assert labels == cluster_distinct(unique, matrix, threshold=threshold, linkage="components")


@pytest.mark.parametrize("name", ["rouge-l", "edit"])
def test_long_texts_are_searched_and_agree(name):
    rng = random.Random(1)
    texts = family(rng, rng.choices("abcdefghij", k=700), 12, 0.01) + family(rng, rng.choices("klmno", k=500), 4, 0.2)
    unique = distinct(texts)
    matrix = similarity_of_distinct(name, unique)
    assert isinstance(clustering.neighbours(name, unique), clustering._Alignment)
    for threshold in (0.8, 0.9, 0.97):
        labels = cluster(texts, similarity=name, threshold=threshold)
        assert labels == cluster_distinct(unique, matrix, threshold=threshold, linkage="components")
        assert len(set(labels)) > 1


def test_a_collapsed_group_is_compared_with_one_text_only(monkeypatch):
    texts = family(random.Random(2), list("abcdefghij" * 30), 60, 0.001)
    asked = []
    compare = clustering._Alignment._compare

    def counted(self, i, others, cutoff):
        asked.append(len(others))
        return compare(self, i, others, cutoff)

    monkeypatch.setattr(clustering._Alignment, "_compare", counted)
    num_distinct = len(set(texts))
    assert set(cluster(texts, similarity="edit", threshold=0.8)) == {0}
    assert sum(asked) == num_distinct - 1


def test_distance_to_a_family_is_measured_at_few_of_its_members(monkeypatch):
    rng = random.Random(3)
    texts = family(rng, rng.choices("abcdefghij", k=400), 40, 0.003)
    strangers = [" ".join(rng.choices("abcdefghij", k=400)) for _ in range(20)]
    asked = []
    compare = clustering._Alignment._compare

    def counted(self, i, others, cutoff):
        asked.append(len(others))
        return compare(self, i, others, cutoff)

    monkeypatch.setattr(clustering._Alignment, "_compare", counted)
    labels = cluster(texts + texts[:1] + strangers, similarity="edit", threshold=0.8)
    assert len(set(labels)) == 21
    between_strangers = 20 * 19 / 2
    assert sum(asked) < 2 * 40 + 3 * 20 + between_strangers  # of 40 * 20 pairs from family to strangers


@pytest.mark.parametrize("thresholds", [[0.5], [0.5, 0.7], [0.5, 0.6, 0.7, 0.8]])
def test_thresholds_together_are_thresholds_one_by_one(thresholds):
    texts = texts_in_families(9)
    for name in MEASURES:
        for linkage in clustering.LINKAGES:
            together = partitions(distinct(texts), similarity=name, thresholds=thresholds, linkage=linkage)
            for threshold in thresholds:
                assert together[threshold] == cluster(texts, similarity=name, threshold=threshold, linkage=linkage)


def test_the_measures_searched_are_all_there():
    assert {*MEASURES, "exact"} == set(SIMILARITIES)


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**16 + 1])
def test_characters_of_a_long_text_are_counted_to_the_last(length):
    assert clustering._bags(["a" * length, "b"]).max() == length
