"""Distributions of similarity: the pairs, their values, the counts; the heatmap's order."""

from itertools import combinations

import numpy as np
import pytest

from evals.errors import DataError, UsageError
from evals.metrics.counting import Clustering
from evals.metrics.studies.similarity import chosen_pairs, heatmap_of, pair_similarities, similarity_result
from evals.results.reading import labels_of
from evals.samples.types import Sample, Samples
from evals.similarity import SIMILARITIES
from evals.similarity.measures import distinct, similarity_of_distinct

TEXTS = ["a b c d", "a b c d", "a b c e", "x y z", "", "a b c d e f g"]


def similarity_of(name, texts, tokens="math"):
    """The matrix over all ``texts``, where equal ones have a row each."""
    unique = distinct(texts)
    return similarity_of_distinct(name, unique, tokens=tokens)[np.ix_(unique.which_N, unique.which_N)]


def samples(texts, *, num_wrong=0, benchmark="a", id="p"):
    rows = [Sample(benchmark, id, index, text, "7", correct=True) for index, text in enumerate(texts)]
    rows += [Sample(benchmark, id, len(texts) + index, "no", "7", correct=False) for index in range(num_wrong)]
    return Samples(rows, [])


def joined(*parts):
    return Samples([row for part in parts for row in part.rows], [])


@pytest.mark.parametrize("num_texts", [2, 3, 9])
def test_all_pairs_come_in_order_where_they_are_few(num_texts):
    i, j = chosen_pairs(num_texts, 1000, np.random.default_rng(0))
    assert list(zip(i.tolist(), j.tolist(), strict=True)) == list(combinations(range(num_texts), 2))


def test_drawn_pairs_are_different_pairs_and_every_pair_has_the_same_chance():
    times = dict.fromkeys(combinations(range(5), 2), 0)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        drawn = list(zip(*(side.tolist() for side in chosen_pairs(5, 4, rng)), strict=True))
        assert len(set(drawn)) == 4
        for pair in drawn:
            times[pair] += 1
    # 2000 * 4 / 10 with a standard deviation of 22.
    assert all(abs(count - 800) < 110 for count in times.values())


@pytest.mark.parametrize("name", SIMILARITIES)
def test_values_of_pairs_are_those_of_the_whole_matrix(name):
    i, j = chosen_pairs(len(TEXTS), 1000, np.random.default_rng(0))
    expected = similarity_of(name, TEXTS)[i, j]
    assert pair_similarities(name, distinct(TEXTS), i, j).tolist() == expected.tolist()


def test_a_row_holds_the_distribution_of_its_pairs():
    row = similarity_result(samples(["a b c d", "a b c d", "a b c e"], num_wrong=5), similarities=["jaccard"]).rows[0]
    # Similarities 1, 3/5, 3/5.
    assert row.value == pytest.approx(3 / 5)
    assert row.mean == pytest.approx(11 / 15)
    assert row.quantiles == pytest.approx({"0.05": 0.6, "0.25": 0.6, "0.5": 0.6, "0.75": 0.8, "0.95": 0.96})
    assert row.equal_share == pytest.approx(1 / 3)
    assert {place: count for place, count in enumerate(row.histogram) if count} == {30: 2, 49: 1}
    assert (row.num_pairs, row.num_pairs_total, row.num_problems, row.n) == (3, 3, 1, 8)


@pytest.mark.parametrize("place", range(50))
def test_a_value_at_the_edge_of_a_bin_belongs_to_the_bin_it_opens(place):
    shared = [f"s{token}" for token in range(place)]
    other = [f"o{token}" for token in range(50 - place)]
    row = similarity_result(
        samples([" ".join(shared), " ".join(shared + other)] if place else ["a", "b"]),
        similarities=["jaccard"],
        tokens="whitespace",
    ).rows[0]
    assert row.histogram.index(1) == place


def test_problems_are_pooled_within_a_benchmark_and_never_across():
    drawn = joined(samples(["a", "a"]), samples(["b", "c"], id="q"), samples(["d", "d"], benchmark="b"))
    rows = {row.benchmark: row for row in similarity_result(drawn, similarities=["exact"]).rows}
    assert (rows["a"].mean, rows["a"].num_pairs) == (0.5, 2)
    assert (rows["b"].mean, rows["b"].num_pairs) == (1.0, 1)


def test_many_pairs_are_drawn_by_seed_and_problem_only():
    texts = [f"{word} b c {word} {number}" for number, word in enumerate("abcdefghijkl")]
    alone = similarity_result(samples(texts), max_pairs=20, seed=3)
    again = similarity_result(joined(samples(texts), samples(["x y", "x"], benchmark="b")), max_pairs=20, seed=3)
    other = similarity_result(samples(texts), max_pairs=20, seed=4)
    assert alone.rows[0].num_pairs == 20
    assert alone.rows[0].num_pairs_total == 66
    assert alone.rows == [row for row in again.rows if row.benchmark == "a"]
    assert alone.rows != other.rows
    assert alone.rows != similarity_result(samples(texts, id="q"), max_pairs=20, seed=3).rows


def test_a_benchmark_without_pairs_is_warned_of_and_nothing_at_all_is_an_error():
    found = similarity_result(joined(samples(["x", "y"]), samples(["z"], benchmark="b")))
    assert {row.benchmark for row in found.rows} == {"a"}
    assert any("'b': no problem has two correct" in warning for warning in found.warnings)
    with pytest.raises(DataError, match="nothing to compare"):
        similarity_result(samples(["x"], num_wrong=3))
    with pytest.raises(UsageError, match="cosine"):
        similarity_result(samples(["x", "y"]), similarities=["cosine"])


def test_the_heatmap_puts_clusters_side_by_side_the_largest_first():
    texts = ["p q r s", "a b c d", "p q r s t", "a b c d e", "z", "a b c d f"]
    found = heatmap_of(samples(texts, num_wrong=2), "p", Clustering(["jaccard"], [0.6]))
    assert found.sizes == (3, 2, 1)
    assert [set(part.tolist()) for part in np.split(found.order_A, [3, 5])] == [{1, 3, 5}, {0, 2}, {4}]
    assert found.n == 8
    expected = similarity_of("jaccard", texts)[np.ix_(found.order_A, found.order_A)]
    np.testing.assert_array_equal(found.similarity_AA, expected)


def test_wrong_answers_stand_behind_the_clusters_of_correct_ones():
    texts = ["p q r s", "a b c d", "a b c d e", "p q r s t", "z"]
    held = samples(texts, num_wrong=3)
    found = heatmap_of(held, "p", Clustering(["jaccard"], [0.6]), with_wrong=True)
    alone = heatmap_of(held, "p", Clustering(["jaccard"], [0.6]))
    is_correct = [row.correct for row in held.rows]
    assert [is_correct[place] for place in found.order_A] == [True] * 5 + [False] * 3
    assert sorted(found.order_A) == list(range(8))
    assert (found.sizes, found.num_correct) == (alone.sizes, alone.num_correct) == ((2, 2, 1), 5)
    everything = [row.completion for row in held.rows]
    expected = similarity_of("jaccard", everything)[np.ix_(found.order_A, found.order_A)]
    np.testing.assert_array_equal(found.similarity_AA, expected)
    nothing = heatmap_of(samples([], num_wrong=2), "p", with_wrong=True)
    assert (nothing.sizes, nothing.num_correct, len(nothing.order_A)) == ((), 0, 2)


def test_a_heatmap_without_a_problem_or_with_too_many_is_refused():
    with pytest.raises(UsageError, match="no problem 'x'"):
        heatmap_of(samples(["a", "b"]), "x")
    with pytest.raises(UsageError, match="choose one with -b"):
        heatmap_of(joined(samples(["a", "b"]), samples(["a", "b"], benchmark="b")), "p")
    with pytest.raises(DataError, match="1 correct of 3"):
        heatmap_of(samples(["a"], num_wrong=2), "p")


def test_names_of_paths_are_what_tells_them_apart(tmp_path):
    inside = [tmp_path / name / "samples" / "math.jsonl" for name in ("base", "tuned")]
    assert labels_of(inside) == ["base", "tuned"]
    assert labels_of([tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"]) == ["a", "b"]
    assert labels_of([tmp_path / "a.jsonl"]) == ["a"]
    with pytest.raises(UsageError, match="named twice"):
        labels_of([inside[0], inside[0]])
