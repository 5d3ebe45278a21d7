"""What samples can decide: the variance that samples have, and whether planned comparisons find what they should."""

import math

import numpy as np
import pytest

from evals.errors import DataError
from evals.estimators import hit_table
from evals.intervals import average_paired_differences
from evals.metrics.power import power_rows, sampling_variance
from evals.results.document import ProblemEntry
from tests.kit import quatro, read_json, says, write_rows

ALONE = {"effect": None, "correlation": 0.9, "seed_spread": 0.0}
N, DELTA, T = 16, 0.06, 0.1


def entries(counts, n=N):
    return [ProblemEntry(benchmark="toy", id=f"{at}", n=n, correct=int(c)) for at, c in enumerate(counts)]


def chances(rng, num):
    """Of two models; the true difference has the mean DELTA and the standard deviation T."""
    p = rng.beta(5, 5, size=num)
    return p, np.clip(p + DELTA + T * rng.normal(size=num), 0, 1)


def found(rng, num, n=N, num_seeds=1, spread=0.0, times=600):
    """The share of comparisons with p < 0.05."""
    a, b = (np.empty((num_seeds, num, times)) for _ in range(2))
    for at in range(times):
        for values, p in zip((a, b), chances(rng, num), strict=True):
            shifted = np.clip(p + spread * rng.normal(size=(num_seeds, 1)), 0, 1)
            values[:, :, at] = rng.binomial(n, shifted) / n
    return np.mean([one.p < 0.05 for one in average_paired_differences([a], [b], [1.0] * times)])


@pytest.mark.parametrize(("k", "p"), [(1, 0.3), (4, 0.2)])
def test_the_variance_of_samples_is_that_of_other_samples(k, p):
    rng = np.random.default_rng(0)
    value = hit_table(N, [k])[0]
    counts = rng.binomial(N, p, size=4000)
    jackknife = np.mean([sampling_variance(N, [c], k) for c in counts])
    assert jackknife == pytest.approx(value[counts].var(), rel=0.06 if k == 1 else 0.15)
    assert sampling_variance(10, [3], 1) == pytest.approx(0.3 * 0.7 / 9)
    assert sampling_variance(10, [3, 2], 1) == pytest.approx(0.25 / 9)  # UCC@1 is Pass@1


def test_what_is_planned_from_one_file_is_found_in_four_of_five_cases():
    rng = np.random.default_rng(1)
    base = entries(rng.binomial(N, chances(rng, 3000)[0]))
    correlation = 1 - T**2 / (2 * 0.25 / 11)  # of Beta(5, 5), whose variance is 1 / 44
    (row,) = power_rows("pass@1", 1, base, effect=DELTA, correlation=correlation, seed_spread=0.0)
    extra = row.model_extra
    assert extra["spread"] == pytest.approx(T, rel=0.05)
    # The standard error of a share of 0.8 of 600 comparisons is 0.016.
    assert found(rng, extra["problems_needed"]) == pytest.approx(0.8, abs=0.05)
    few = base[:40]
    (row,) = power_rows("pass@1", 1, few, effect=DELTA, correlation=correlation, seed_spread=0.0)
    assert row.model_extra["samples_needed"] == math.ceil(row.model_extra["samples_needed"]) > N
    assert found(rng, 40, row.model_extra["samples_needed"]) == pytest.approx(0.8, abs=0.07)


def test_two_files_say_how_much_the_true_difference_differs():
    rng = np.random.default_rng(2)
    sides = [entries(rng.binomial(N, p)) for p in chances(rng, 3000)]
    (row,) = power_rows("pass@1", 1, *sides, **ALONE)
    assert row.model_extra["spread"] == pytest.approx(T, rel=0.06)
    # The smallest difference with problems as these, at their number: 2.8 standard errors.
    expected = 2.8 * math.sqrt((T**2 + 2 * (0.25 - 1 / 44) / N) / 3000)
    assert row.value == pytest.approx(expected, rel=0.05)


def test_where_seeds_differ_more_than_the_effect_no_number_of_problems_helps():
    base = entries([4, 8, 12, 6, 10] * 8)
    (row,) = power_rows("pass@1", 1, base, effect=0.05, correlation=1.0, seed_spread=0.03)
    assert row.model_extra["problems_needed"] == row.model_extra["samples_needed"] == 0
    assert row.model_extra["seeds_needed"] > 2 * (2.8 * 0.03 / 0.05) ** 2


def test_the_command_names_what_is_needed_and_refuses_what_cannot_be(tmp_path):
    rows = [
        {
            "benchmark": "toy",
            "id": f"{p}",
            "sample_index": i,
            "completion": f"{i % 3}",
            "answer": "1",
            "correct": i <= p,
        }
        for p in range(6)
        for i in range(8)
    ]
    base = write_rows(tmp_path / "a.jsonl", rows)
    for metric in ("pass@1", "ucc@2", "distinct@1"):
        shown = quatro("eval", "power", base, "--metric", metric, "--effect", "2", "-o", tmp_path / "p.json").stdout
        assert f"Difference in {metric}" in shown
        row = read_json(tmp_path / "p.json")["rows"][0]
        effect = 0.02 if metric == "pass@1" else 2
        assert (row["value"] > effect) == (row["problems_needed"] > row["num_problems"]) == (row["samples_needed"] != 1)
    says(quatro("eval", "power", base, "--metric", "pass@8", code=4), "toy", advice="smaller k")
    says(quatro("eval", "power", base, "--metric", "maj@1", code=2), "maj@1", advice="expected pass@K")
    other = write_rows(tmp_path / "b.jsonl", rows[8:])
    says(quatro("eval", "power", base, other, code=4), advice="the same")
    with pytest.raises(DataError):
        power_rows("pass@1", 1, entries([1]), **ALONE)
