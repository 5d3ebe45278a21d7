"""The slow reference against the fast way: every public vector, ties, random texts; and that a difference is seen."""

import random
from itertools import product

import numpy as np
import pytest

from evals.clustering import LINKAGES
from evals.similarity import SIMILARITIES, Setting
from evals.similarity.measures import TOKENISERS, distinct
from tests.evals.metrics.studies import reference
from tests.evals.metrics.studies.reference import TOLERANCE, agreement

HAS_TOKENS = ("tfidf", "jaccard")


def settings_of(name, thresholds):
    if name == "exact":
        return [Setting(name, None, "components", "math")]
    tokens = TOKENISERS if name in HAS_TOKENS else ["math"]
    return [Setting(name, *values) for values in product(thresholds, LINKAGES, tokens)]


def is_small(vector, name):
    """Whether all pairs take a quarter of a second: rouge_score and the plain edit distance are slow."""
    texts = set(vector["texts"])
    longest = max(map(len, texts), default=0)
    return len(texts) ** 2 * longest**2 < (1e8 if name == "rouge-l" else 5e9) or name in HAS_TOKENS


def check(vectors, name):
    found = agreement([distinct(vector["texts"]) for vector in vectors], settings_of(name, (0.8, 0.9)))
    assert found.num_pairs > 0
    assert found.largest_difference <= TOLERANCE
    assert found.num_wrong == 0


@pytest.mark.parametrize("name", ["tfidf", "rouge-l", "jaccard", "edit"])
def test_the_libraries_agree_with_us_on_every_small_vector(text_vectors, name):
    check([vector for vector in text_vectors if is_small(vector, name)], name)


@pytest.mark.parametrize(
    ("name", "every"),
    [
        pytest.param("edit", 1, marks=pytest.mark.slow),
        pytest.param("rouge-l", 3, marks=pytest.mark.slow),  # a ninth of the pairs: rouge_score takes minutes for all
        pytest.param("rouge-l", 1, marks=pytest.mark.long),
    ],
)
def test_the_libraries_agree_with_us_on_every_large_vector(text_vectors, name, every):
    large = [vector for vector in text_vectors if not is_small(vector, name)]
    check([{"texts": list(dict.fromkeys(vector["texts"]))[::every]} for vector in large], name)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_the_libraries_agree_with_us_on_texts_full_of_ties(name):
    rng = random.Random(3)
    groups = [distinct([" ".join(rng.choices("abcde", k=rng.randint(0, 6))) for _ in range(24)]) for _ in range(4)]
    found = agreement([*groups, distinct([]), distinct(["", " ", "...", "..."])], settings_of(name, (0.5, 0.8, 1.0)))
    assert found.is_good, found
    assert found.num_ties > 0 or name == "exact"


def test_a_value_that_is_off_is_seen(monkeypatch):
    groups = [distinct(["a b c d", "a b c e", "f"])]
    settings = settings_of("jaccard", (0.6,))
    assert agreement(groups, settings).is_good
    right = reference.similarity_of_distinct

    def off(*args, **kwargs):
        return np.minimum(right(*args, **kwargs) + 1e-11, 1.0)

    monkeypatch.setattr(reference, "similarity_of_distinct", off)
    assert not agreement(groups, settings).is_good


def test_a_partition_that_is_off_is_seen_unless_a_pair_lies_at_the_threshold(monkeypatch):
    def everyone_alone(unique, *, thresholds, **how):
        return {threshold: list(range(len(unique.which_N))) for threshold in thresholds}

    monkeypatch.setattr(reference, "partitions", everyone_alone)
    groups = [distinct(["a b c d", "a b c e", "f"])]  # 3 of 5 tokens are shared
    wrong = agreement(groups, settings_of("jaccard", (0.55,)))
    assert wrong.num_wrong > 0
    assert not wrong.is_good
    tied = agreement(groups, settings_of("jaccard", (0.6,)))
    assert tied.num_wrong == 0
    assert tied.num_tied > 0


def test_pairs_whose_similarity_rounding_decides_are_counted():
    # Six words of 7 and 8 are shared, which is 0.8 to rouge-l: rouge_score's 2pr / (p + r) comes out a little lower.
    group = distinct(["a b c d e f g", "a b c d e f h i", "x y", "a b c d e f g", "x y z w"])
    found = agreement([group], [Setting("rouge-l", 0.8, "components", "math")])
    assert (found.num_ties, found.num_tied, found.num_wrong) == (1, 1, 0)
