"""distinct@k by hand, its rows, and what can no longer be asked for."""

import pytest

from evals.errors import UsageError
from evals.estimators import ucc_at_k
from evals.metrics.counting import Clustering, Counted
from evals.metrics.passk_ucc import ucc_result
from evals.samples.types import Sample, Samples


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


def test_pairs_are_over_problems_with_two_correct_answers_and_coverage_over_solved_ones():
    problems = samples({"p": ["x", "x", "y"], "q": ["x"], "r": ["x", "x"], "s": []})
    result = ucc_result(problems, Clustering(["exact"]), ks=[1, 2], also=["distinct"])
    (row,) = rows_of(result, "pairs")
    assert (row.value, row.num_problems) == (pytest.approx((2 / 3 + 0) / 2), 2)
    for metric, coverage in (("ucc@k", (2 / 3 + 0 + 1) / 3), ("distinct@k", (2 / 3 + 1) / 2)):
        assert [row.coverage for row in rows_of(result, metric)] == pytest.approx([coverage] * 2)
    (warning,) = (text for text in result.warnings if "coverage" in text)
    assert "below 0.9: 0.56 on a (exact)" in warning
    shown = str(result)
    assert "pairs: over the problems with two or more correct samples (a 2)" in shown
    assert shown.splitlines()[1].split()[-5:] == ["pairs", "UCR", "clusters", "effective", "coverage"]
    assert "coverage" not in "".join(ucc_result(samples({"p": ["x", "x"]}), Clustering(["exact"])).warnings)


def test_numbers_of_some_problems_are_over_those_that_every_seed_has():
    one, other = (samples(texts) for texts in ({"p": ["x", "y"], "q": ["x", "x"]}, {"p": ["x", "y"], "q": ["x"]}))
    seeds = [Counted.of(one), Counted.of(other)]
    result = ucc_result(seeds, Clustering(["exact"]), ks=[2], also=["distinct"])
    for metric, value in (("pairs", 1.0), ("distinct@k", 2.0)):
        (row,) = rows_of(result, metric)
        assert (row.value, row.num_problems, row.num_seeds) == (value, 1, 2)


@pytest.mark.parametrize("also", ["maj", "nothing"])
def test_ucc_refuses_names_that_it_does_not_know(also):
    with pytest.raises(UsageError, match=f"unknown metric '{also}'"):
        ucc_result(samples({"a": ["one"]}), also=[also])
