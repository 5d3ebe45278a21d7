"""What the clusters of one problem look like."""

import pytest

from evals.errors import UsageError
from evals.metrics.counting import Clustering
from evals.metrics.studies.clusters import clusters_of
from evals.samples.types import Sample, Samples

TEXTS = ["a b c d", "a b c d e", "x y z", "a b c d e", "wrong", "w"]
ROWS = [
    Sample(benchmark, "p1", index, text, "7", correct=text != "wrong")
    for benchmark in ("a", "b")
    for index, text in enumerate(TEXTS)
]
SAMPLES = Samples([*ROWS, Sample("a", "q", 0, "x", "7", correct=False)], [])


def clusters(id, clustering):
    problems = SAMPLES.of_problem(id).graded()
    return [found for one in problems for found in clusters_of(one, clustering.settings(one.benchmark, one.kind))]


def test_the_most_frequent_text_stands_for_its_cluster_largest_first():
    found = clusters("p1", Clustering(["jaccard"], thresholds=[0.8]))
    assert [(one.benchmark, one.n, one.correct) for one in found] == [("a", 6, 5), ("b", 6, 5)]
    assert [cluster[:4] for cluster in found[0].clusters] == [
        (3, 2, 2, "a b c d e"),
        (1, 1, 1, "x y z"),
        (1, 1, 1, "w"),
    ]
    document = found[0].document()
    assert document["sizes"] == [3, 1, 1]
    assert [cluster["text"] for cluster in document["clusters"]] == ["a b c d e", "x y z", "w"]
    assert (document["similarity"], document["threshold"]) == ("jaccard", 0.8)


def test_every_setting_is_shown_and_a_problem_may_have_no_cluster():
    found = clusters("q", Clustering(["exact", "edit"]))
    assert [(one.setting.similarity, one.clusters) for one in found] == [("exact", []), ("edit", [])]


def test_an_unknown_id_names_its_neighbours():
    with pytest.raises(UsageError, match=r"'p2' .* 2, such as .*'p1'"):
        SAMPLES.of_problem("p2")
