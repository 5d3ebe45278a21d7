"""Vendi score, Cover@tau and distinct@k: identities, hand computations, and their rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.errors import UsageError
from evals.estimators import cover, effective_number, g_pass_at_k, ucc_at_k, vendi_score
from evals.metrics.counting import Clustering
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.samples.types import Sample, Samples
from evals.similarity.measures import distinct, similarity_of_distinct


def similarity_of(name, texts, tokens="math"):
    """The matrix over all ``texts``, where equal ones have a row each."""
    unique = distinct(texts)
    return similarity_of_distinct(name, unique, tokens=tokens)[np.ix_(unique.which_N, unique.which_N)]


def samples(texts_of, n=6):
    """For each id its correct texts; the rest of n samples is wrong."""
    rows = [
        Sample("a", id, index, texts[index] if index < len(texts) else "?", "1", correct=index < len(texts))
        for id, texts in texts_of.items()
        for index in range(n)
    ]
    return Samples(rows, [])


def rows_of(result, metric):
    return [row for row in result.rows if row.metric == metric and row.benchmark == "a"]


@given(st.integers(1, 12), st.integers(1, 5))
def test_equal_answers_score_1_and_orthogonal_ones_their_number(num, times):
    assert vendi_score(np.eye(1), [num]) == pytest.approx(1)
    assert vendi_score(np.eye(num), [times] * num) == pytest.approx(num)
    assert vendi_score(np.ones((num, num)), [times] * num) == pytest.approx(1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_with_the_identity_it_is_the_effective_number_of_the_counts(counts):
    assert vendi_score(np.eye(len(counts)), counts) == pytest.approx(effective_number(counts))


def test_two_answers_by_hand():
    # K / 2 has the eigenvalues (1 + s) / 2 and (1 - s) / 2; s = .5 gives 3/4 and 1/4.
    expected = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert vendi_score(np.array([[1, 0.5], [0.5, 1]]), [1, 1]) == pytest.approx(expected)
    assert vendi_score(np.zeros((0, 0)), []) == 0.0


@given(st.lists(st.text("ab c", max_size=6), min_size=1, max_size=8))
def test_repeated_texts_count_as_often_as_they_occur_and_the_score_is_bounded(texts):
    unique = distinct(texts)
    score = vendi_score(similarity_of_distinct("tfidf", unique), unique.count_U.tolist())
    whole = similarity_of("tfidf", texts)  # every text with a row of its own
    assert score == pytest.approx(vendi_score(whole, [1] * len(texts)), rel=1e-9)
    assert 1 - 1e-9 <= score <= len(unique.texts) + 1e-9


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), st.floats(0, 1))
def test_cover_asks_for_a_share_of_all_samples(counts, tau):
    n, c = counts
    assert cover(n, c, tau) == float(c >= 1 and c >= tau * n - 1e-9) == g_pass_at_k(n, c, n, tau)


def test_cover_is_a_share_of_problems():
    problems = samples({"p": ["x"] * 3, "q": ["x"] * 2, "r": []})
    rows = rows_of(passk_result(problems, ks=[1], also=["cover"], taus=[0.0, 0.5, 1.0]), "cover")
    assert [(row.k, row.tau, row.value) for row in rows] == [
        (None, 0.0, pytest.approx(2 / 3)),
        (None, 0.5, pytest.approx(1 / 3)),
        (None, 1.0, 0.0),
    ]


def test_distinct_draws_from_the_correct_answers_of_the_same_problems_for_every_k():
    problems = samples({"p": ["x", "x", "y"], "q": ["x"], "r": []})
    result = ucc_result(problems, Clustering(["exact"]), ks=[1, 2, 4], also=["distinct"])
    rows = {row.k: row for row in rows_of(result, "distinct@k")}
    assert set(rows) == {1, 2}  # nobody has four
    assert (rows[1].value, rows[1].num_problems) == (1.0, 1)
    assert (rows[2].value, rows[2].num_problems) == (pytest.approx(ucc_at_k(3, [2, 1], 2)), 1)


def test_distinct_stops_where_fewer_than_half_of_the_solved_problems_have_k_correct_answers():
    problems = samples({"p": ["x", "x", "y"], "q": ["x"], "r": ["y"], "s": []})
    result = ucc_result(problems, Clustering(["exact"]), ks=[1, 2, 4], also=["distinct"])
    assert [(row.k, row.num_problems) for row in rows_of(result, "distinct@k")] == [(1, 3)]
    (warning,) = (text for text in result.warnings if "distinct@k" in text)
    assert "stops at 1, since only 1 of 3 solved problems have 2 correct samples" in warning
    alone = ucc_result(problems, Clustering(["exact"]), ks=[2], also=["distinct"])
    assert [(row.k, row.num_problems) for row in rows_of(alone, "distinct@k")] == [(2, 1)]


def test_vendi_has_a_row_a_similarity_whatever_the_thresholds():
    problems = samples({"p": ["x", "y", "y"], "q": []})
    result = ucc_result(
        problems, clustering=Clustering(["tfidf", "edit"], thresholds=[0.5, 0.9]), ks=[1], also=["vendi"]
    )
    (row,) = rows_of(result, "vendi")
    assert (row.similarity, row.threshold, row.k) == ("tfidf", None, None)
    one = vendi_score(similarity_of_distinct("tfidf", distinct(["x", "y", "y"])), [1, 2])
    assert row.value == pytest.approx(one / 2)  # an unsolved problem counts 0
    assert not rows_of(ucc_result(problems, ks=[1]), "vendi")


def test_unknown_metrics_and_measures_without_a_vendi_score_are_refused():
    from evals.metrics.passk_ucc import check_beside_ucc

    with pytest.raises(UsageError, match="vendi, distinct"):
        check_beside_ucc(["vendy"], None)
    with pytest.raises(UsageError, match="semi-definite"):
        check_beside_ucc(["vendi"], ["edit", "jaccard"])
    check_beside_ucc(["vendi"], None)


@pytest.mark.parametrize("also", ["maj", "nothing"])
def test_ucc_refuses_names_that_it_does_not_know(also):
    with pytest.raises(UsageError, match=f"unknown metric '{also}'"):
        ucc_result(samples({"a": ["one"]}), also=[also])
