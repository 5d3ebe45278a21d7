"""Intervals where all problems have the same score: resampling would give no width at all."""

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from evals.intervals import mean_intervals
from tests.kit import quatro


def measured(path, command, right, *options):
    """The rows by (metric, benchmark, k); ``right`` says which samples of each problem are correct."""
    with path.open("w", encoding="utf-8") as stream:
        for benchmark, problems in right.items():
            for id, corrects in enumerate(problems):
                for index, correct in enumerate(corrects):
                    row = {"benchmark": benchmark, "id": str(id), "sample_index": index, "answer": "1"}
                    row |= {"completion": f"text {index}", "correct": bool(correct)}
                    stream.write(json.dumps(row) + "\n")
    result = quatro("eval", command, path, "--ci", "--json", *options)
    return {(row["metric"], row["benchmark"], row["k"]): row for row in json.loads(result.stdout)["rows"]}


@pytest.mark.parametrize("correct", [1, 0])
def test_all_right_or_all_wrong_has_the_exact_interval_of_that_many_problems(tmp_path, correct):
    rows = measured(tmp_path / "s.jsonl", "passk", {"toy": [[correct] * 2] * 12}, "--k", "1,2")
    exact = binomtest(12 * correct, 12).proportion_ci(method="exact")
    for k in (1, 2):
        row = rows["pass@k", "toy", k]
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(exact))


@pytest.mark.parametrize("other", [0.999, 0.5, 0.001])
def test_where_problems_differ_a_little_it_is_hardly_another(other):
    """Student's t of nearly equal values has nearly no width: the room for problems that were not drawn stays."""
    values = np.array([1.0] * 11 + [other])
    (found,) = mean_intervals([values[None, :, None]], [1.0])
    assert found.low <= 0.025 ** (1 / 12) * found.mean + 1e-12
    assert found.mean < found.high < 1


def test_counts_of_solutions_allow_for_problems_with_k_of_them(tmp_path):
    rows = measured(tmp_path / "s.jsonl", "ucc", {"toy": [[1, 0]] * 12}, "--k", "2")
    seen = binomtest(12, 12).proportion_ci(method="exact").low
    row = rows["ucc@k", "toy", 2]
    assert (row["value"], row["ci_low"], row["ci_high"]) == pytest.approx((1, seen, seen + 2 * (1 - seen)))
    assert rows["ucr", "toy", None]["ci_high"] == pytest.approx(0.5 * seen + 1 - seen)


def test_an_average_of_ceilings_counts_the_problems_of_all_benchmarks(tmp_path):
    right = {"a": [[1]] * 12, "b": [[1]] * 20}
    low = measured(tmp_path / "s.jsonl", "passk", right)["pass@k", "average", 1]["ci_low"]
    assert low == pytest.approx(binomtest(24, 24).proportion_ci(method="exact").low)  # as if both had the fewer


def test_ceilings_at_two_heights_have_an_interval_that_holds_their_mean():
    (found,) = mean_intervals([np.ones((1, 12, 1)), np.zeros((1, 20, 1))], [1.0])
    assert 0.2 < found.low < 0.5 < found.high < 0.8
    assert found.low == pytest.approx(0.5 * 0.025 ** (1 / 12))  # what is unseen may all be among the 12


def test_the_interval_covers_the_truth_however_problems_are_distributed():
    rng = np.random.default_rng(0)
    for share in (0.9, 0.97, 0.99):  # of problems that everybody solves; the others are solved half of the time
        missed = 0
        for _ in range(2000):
            values = np.where(rng.random(30) < share, 1.0, 0.5)
            (found,) = mean_intervals([values[None, :, None]], [1.0])
            missed += not found.low <= share + 0.5 * (1 - share) <= found.high
        assert missed <= 0.07 * 2000
