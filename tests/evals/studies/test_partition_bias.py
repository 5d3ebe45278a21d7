"""UCC against the threshold, and clusters of k drawn answers beside the estimator."""

from itertools import combinations

import numpy as np
import pytest

from evals.clustering import cluster
from evals.metrics.counting import Clustering
from evals.metrics.passk_ucc import ucc_result
from evals.samples.types import Sample, Samples
from evals.similarity.catalogue import Setting
from evals.studies.partition_bias import RECLUSTERED, reclustered_result

# Neighbours share 4 of 5 words, ends only 3: a chain.
CHAIN = ["a b c d e", "b c d e f", "c d e f g"]


def samples(texts, *, num_wrong=0, benchmark="a"):
    rows = [Sample(benchmark, "p", index, text, "7", correct=True) for index, text in enumerate(texts)]
    rows += [Sample(benchmark, "p", len(texts) + index, "no", "7", correct=False) for index in range(num_wrong)]
    return Samples(rows, [])


def values(rows, metric):
    return {row.k: row.value for row in rows if row.metric == metric and row.benchmark == "a"}


def test_several_thresholds_give_rising_rows_each_as_if_alone():
    drawn = samples(["a b c d", "a b c e", "x y", "a b c d"], num_wrong=2)
    rows = ucc_result(drawn, Clustering(["jaccard"], thresholds=[0.9, 0.3, 0.6]), ks=[4]).rows
    own = {row.threshold: row.value for row in rows if row.benchmark == "a" and row.metric == "ucc@k"}
    assert list(own) == [0.9, 0.3, 0.6]
    assert own[0.3] <= own[0.6] <= own[0.9]
    assert own[0.6] == ucc_result(drawn, Clustering(["jaccard"], thresholds=[0.6]), ks=[4]).rows[0].value


@pytest.mark.parametrize("setting", [
    Setting("rouge-l", 0.8, "components", "math"),
    Setting("tfidf", 0.4, "complete", "math"),
    Setting("exact", None, "components", "math"),
])  # fmt: skip
def test_reclustering_is_the_mean_over_draws_and_exact_at_n(setting):
    texts = [*CHAIN, "a b c d e"]
    rows = reclustered_result(samples(texts, num_wrong=2), setting=setting, seed=0, ks=[1, 3, 6], num_draws=800).rows
    estimated, found = values(rows, "ucc@k"), values(rows, RECLUSTERED)
    assert found[6] == pytest.approx(estimated[6])
    for k in (1, 3):
        counts = [
            len(set(cluster([texts[i] for i in draw if i < 4], **setting._asdict())))
            for draw in combinations(range(6), k)
        ]
        # The mean of 800 draws with a standard deviation below 1.
        assert found[k] == pytest.approx(np.mean(counts), abs=0.13)


def test_a_chain_falls_apart_when_its_middle_is_not_drawn():
    setting = Setting("rouge-l", 0.8, "components", "math")
    rows = reclustered_result(samples(CHAIN), setting=setting, seed=1, ks=[2], num_draws=3000).rows
    assert values(rows, "ucc@k")[2] == pytest.approx(1)
    assert values(rows, RECLUSTERED)[2] == pytest.approx(4 / 3, abs=0.05)


def test_the_same_seed_gives_the_same_rows():
    def rows():
        setting = Setting("edit", 0.8, "components", "math")
        return reclustered_result(samples(CHAIN, num_wrong=3), setting=setting, seed=5).rows

    assert rows() == rows()
