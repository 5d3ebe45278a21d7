"""The interval of a mean over seeds and problems: its formula, its scale, and how often it holds the truth."""

import math

import numpy as np
import pytest
from scipy.stats import t, ttest_rel

from evals.intervals import average_paired_differences, holm, kinds_text, mean_intervals, mean_of_seeds


def interval(*tables, largest=1.0):
    (found,) = mean_intervals([np.array(table, dtype=np.float64)[:, :, None] for table in tables], [largest])
    return found


def test_it_is_student_s_on_the_logit_scale_by_mean_squares_of_rows_columns_and_the_rest():
    table = [[0.1, 0.5, 0.6], [0.2, 0.5, 0.8]]
    # Means of rows 0.4 and 0.5, of columns 0.15, 0.5 and 0.7; the rest is 0, -0.05 and 0.05, with both signs.
    ms_s, ms_p, ms_e = 3 * 0.005, 2 * 0.0775, 2 * 2 * 0.0025 / 2 + 0.0
    rest = np.array(table) - np.mean(table, 1, keepdims=True) - np.mean(table, 0, keepdims=True) + 0.45
    assert (rest**2).sum() / 2 == pytest.approx(ms_e)
    error = math.sqrt((ms_s + ms_p - ms_e) / 6)
    freedom = (ms_s + ms_p - ms_e) ** 2 / (ms_s**2 / 1 + ms_p**2 / 2 + ms_e**2 / 2)
    half = t.ppf(0.975, max(1.0, min(freedom, 5))) * error / (0.45 * 0.55)
    logit = math.log(0.45 / 0.55)
    found = interval(table)
    assert (found.mean, found.low, found.high) == pytest.approx(
        (0.45, 1 / (1 + math.exp(half - logit)), 1 / (1 + math.exp(-half - logit)))
    )
    assert found.over == "seeds and problems"


@pytest.mark.parametrize("largest", [1.0, 16.0])
def test_it_never_leaves_the_scale_and_grows_with_it(largest):
    found = interval(largest * np.array([[1.0, 1.0, 0.9], [1.0, 1.0, 1.0]]), largest=largest)
    assert 0 < found.low < found.mean < found.high < largest
    one = interval([[1.0, 1.0, 0.9], [1.0, 1.0, 1.0]])
    assert (found.low, found.high) == pytest.approx((largest * one.low, largest * one.high))


def test_seeds_that_solve_everything_have_the_exact_interval_of_the_problems():
    found = interval(np.ones((3, 20)))
    assert (found.low, found.high) == pytest.approx((0.025 ** (1 / 20), 1.0))


def test_benchmarks_are_drawn_apart_and_their_seeds_are_not():
    rng = np.random.default_rng(0)
    problems = rng.random((1, 40)) * np.ones((3, 1))
    alone, four = interval(problems), interval(*[problems] * 4)
    assert four.error == pytest.approx(alone.error / 2)  # of independent problems
    seeds = 0.5 + np.array([[-0.1], [0.0], [0.1]]) + np.zeros((3, 40))
    assert interval(*[seeds] * 4).error == pytest.approx(interval(seeds).error)  # the same seeds everywhere


def test_without_the_same_problems_it_is_over_seeds_only_and_needs_three():
    known = [{"a": 0.2, "b": 0.6}, {"a": 0.4, "b": 0.4}, {"a": 0.6, "b": 0.8}]
    values = [0.4, 0.4, 0.7]
    assert mean_of_seeds(values, [known], 1.0).over == "seeds and problems"
    for by_problem in ([[{**known[0], "c": 1.0}, *known[1:]]], [[{}] * 3], [known, [{}] * 3], []):
        found = mean_of_seeds(values, by_problem, 1.0)
        assert found.over == "seeds only"
        assert 0 < found.low < 0.5 < found.high < 1
    assert mean_of_seeds(values[1:], [], 1.0).low is None
    assert mean_of_seeds([0.4] * 3, [], 1.0).low is None  # equal by chance


def test_the_words_name_what_most_labels_have_and_then_the_others():
    both, problems = "seeds and problems", "problems only"
    assert (
        kinds_text({"A": [both, None], "Base": [problems]})
        == "95 %, over seeds and problems (Base: over problems only)"
    )
    assert kinds_text({"A": [both], "B": [problems], "C": [problems]}).startswith("95 %, over problems only (A: ")
    assert kinds_text({"A": [None], "B": []}) == ""


@pytest.mark.parametrize("num_seeds", [3, 5])
@pytest.mark.parametrize(("beta", "num_problems", "seed_std"), [((0.5, 0.5), 30, 0.3), ((0.3, 2.0), 200, 0.2)])
def test_it_holds_the_truth_in_about_95_of_100_cases(num_seeds, beta, num_problems, seed_std):
    """Problems are solved with a chance from a Beta; seeds and their way with each problem shift its logit."""
    rng = np.random.default_rng(num_seeds)

    def chances(num_seeds, num_problems):
        p = np.clip(rng.beta(*beta, size=(1, num_problems)), 1e-6, 1 - 1e-6)
        shifts = seed_std * rng.normal(size=(num_seeds, 1)) + 0.3 * rng.normal(size=(num_seeds, num_problems))
        return 1 / (1 + np.exp(-np.log(p / (1 - p)) - shifts))

    truth = np.mean([chances(200, 400).mean() for _ in range(20)])
    held = 0
    for _ in range(300):
        found = interval(rng.binomial(8, chances(num_seeds, num_problems)) / 8)
        held += found.low <= truth <= found.high
    assert 0.91 <= held / 300 <= 0.98


def test_holm_is_that_of_statsmodels_or_of_a_hand():
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1, none below the one before.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    ps = np.random.default_rng(0).random(50) ** 4
    np.testing.assert_allclose(holm(ps), multitest.multipletests(ps, method="holm")[1])


@pytest.mark.parametrize("largest", [1.0, 16.0])
def test_a_difference_is_student_s_where_many_problems_differ(largest):
    rng = np.random.default_rng(1)
    a, b = largest * rng.random((2, 1, 40, 1))
    (found,) = average_paired_differences([a], [b], [largest])
    expected = ttest_rel(b[0, :, 0], a[0, :, 0])
    assert found.p == pytest.approx(expected.pvalue)
    assert found[1:3] == pytest.approx(tuple(expected.confidence_interval()))


def test_a_difference_in_few_problems_is_as_unsure_as_its_sides():
    a = np.ones((1, 20, 1))
    b = np.where(np.arange(20) < 2, 0.2, a[..., 0])[..., None]
    (found,) = average_paired_differences([a], [b], [1.0])
    side = mean_intervals([b], [1.0])[0]
    assert found.mean == pytest.approx(-0.08)
    assert found.low <= side.low - side.mean - 0.08 + 1e-9  # a lies at its end, and tells nothing of b
    assert found.p > ttest_rel(b[0, :, 0], a[0, :, 0]).pvalue
    (same,) = average_paired_differences([a], [a], [1.0])
    assert same[:4] == (0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("size", [1, 4])
def test_problems_of_a_family_are_drawn_together(size):
    """Copies of a problem tell no more than one of them."""
    value = np.random.default_rng(2).random((1, 12, 1))
    copies, family = np.repeat(value, size, axis=1), np.repeat(np.arange(12), size)
    (one,), (other,) = mean_intervals([value], [1.0]), mean_intervals([copies], [1.0], families=[family])
    assert other[:3] == pytest.approx(one[:3])
    assert (other.error, other.freedom) == pytest.approx((one.error, one.freedom))
    others = value[:, ::-1]
    (one,) = average_paired_differences([value], [others], [1.0])
    (other,) = average_paired_differences([copies], [np.repeat(others, size, axis=1)], [1.0], families=[family])
    assert other[:4] == pytest.approx(one[:4])
