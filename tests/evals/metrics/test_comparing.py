"""Paired comparisons: what is refused, what differences are, and that pairing is what makes them sharp."""

import numpy as np
import pytest

from evals.errors import DataError, UsageError
from evals.estimators import effective_number, pass_at_k
from evals.metrics.comparing import compare_passk, compare_ucc
from evals.metrics.counting import Clustering
from evals.samples.types import Sample, Samples

NAMES = ("base", "tuned")


def samples(counts, *, benchmark="a", n=8):
    """Problems with ``counts`` correct samples of ``n``, each correct one a solution of its own."""
    rows = [
        Sample(benchmark, f"p{number}", index, f"ok {index}" if index < count else "no", "7", correct=index < count)
        for number, count in enumerate(counts)
        for index in range(n)
    ]
    return Samples(rows, [])


def test_differences_are_means_over_problems_and_the_average_is_unweighted():
    counts_a, counts_b, counts_c = [0, 2, 4], [1, 2, 8], [3]
    a = Samples([*samples(counts_a).rows, *samples(counts_c, benchmark="b").rows], [])
    b = Samples([*samples(counts_b).rows, *samples([0], benchmark="b").rows], [])
    rows = {(row.benchmark, row.k): row for row in compare_passk(a, b, names=NAMES, ks=[1, 4]).rows}
    for k in (1, 4):
        mean_a = np.mean([pass_at_k(8, count, k) for count in counts_a])
        mean_b = np.mean([pass_at_k(8, count, k) for count in counts_b])
        assert rows["a", k].a == pytest.approx(mean_a)
        assert rows["a", k].difference == pytest.approx(mean_b - mean_a)
        assert rows["b", k].difference == pytest.approx(-pass_at_k(8, 3, k))
        assert rows["average", k].difference == pytest.approx((mean_b - mean_a - pass_at_k(8, 3, k)) / 2)
        assert rows["average", k].a == pytest.approx((mean_a + pass_at_k(8, 3, k)) / 2)
        assert rows["average", k].b == pytest.approx(mean_b / 2)
        assert rows["average", k].num_problems == 4


def test_benchmarks_are_resampled_independently():
    first, second = [1, 2, 3, 0, 5], [2, 2, 5, 0, 4]
    a = Samples([*samples(first).rows, *samples(second, benchmark="b").rows], [], ["of a", "of both"])
    b = Samples([*samples(second).rows, *samples(first, benchmark="b").rows], [], ["of both", "of b"])
    comparison = compare_passk(a, b, names=NAMES, ks=[1])
    average = comparison.rows[-1]
    # Of equal draws the second benchmark would always lose what the first one wins.
    assert average.ci_low < average.difference == 0 < average.ci_high
    assert comparison.warnings[:3] == ["base: of a", "of both", "tuned: of b"]


def test_pairing_finds_what_the_spread_of_problems_hides():
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 7, size=60)
    better = compare_passk(samples(counts), samples(counts + (rng.random(60) < 0.3)), names=NAMES, ks=[1]).rows[0]
    assert better.p < 0.001
    assert 0 < better.ci_low < better.difference < better.ci_high
    same = compare_passk(samples(counts), samples(counts), names=NAMES, ks=[1]).rows[0]
    assert (same.difference, same.ci_low, same.ci_high, same.p) == (0, 0, 0, 1)


def test_swapping_the_sides_turns_the_signs():
    a, b = samples([1, 2, 3, 0, 5]), samples([2, 2, 5, 0, 4])
    forth = compare_passk(a, b, names=NAMES, ks=[1, 8], also=["g-pass"], taus=[0.25]).rows
    back = compare_passk(b, a, names=NAMES, ks=[1, 8], also=["g-pass"], taus=[0.25]).rows
    assert {row.metric for row in forth} == {"pass@k", "g-pass@k"}
    for one, other in zip(forth, back, strict=True):
        assert (one.difference, one.ci_low, one.p) == pytest.approx((-other.difference, -other.ci_high, other.p))


def test_ucc_and_what_goes_with_it_are_compared():
    document = compare_ucc(
        samples([2, 2]), samples([6, 2]), names=NAMES, clustering=Clustering(["exact"]), ks=[8]
    ).document()
    difference = {row["metric"]: row["difference"] for row in document["rows"]}
    effective = (effective_number([1] * 6) - effective_number([1] * 2)) / 2
    expected = {"ucc@k": 2, "pairs": 0, "ucr": 0.25, "num_clusters": 2, "effective_number": effective}
    assert difference == pytest.approx(expected)
    ((covered_a, covered_b),) = {(row["coverage_a"], row["coverage_b"]) for row in document["rows"] if row["k"]}
    assert (covered_a, covered_b) == (0, 0)
    assert {(row["similarity"], row["threshold"]) for row in document["rows"]} == {("exact", None)}
    assert (document["a"], document["b"]) == NAMES


def test_other_problems_and_other_n_are_refused_by_name():
    for compare in (compare_passk, compare_ucc):
        with pytest.raises(DataError, match="base holds 'p1' of a and tuned does not"):
            compare(samples([1, 2]), samples([1]), names=NAMES)
        with pytest.raises(DataError, match="tuned holds 'p1' of a and base does not"):
            compare(samples([1]), samples([1, 2]), names=NAMES)
        with pytest.raises(DataError, match="'p0' of a has n = 8 samples in base and n = 9 in tuned"):
            compare(samples([1]), samples([1], n=9), names=NAMES)
        with pytest.raises(UsageError, match="k = 9"):
            compare(samples([1]), samples([1]), names=NAMES, ks=[9])
    with pytest.raises(UsageError, match=r"'major'.*maj"):
        compare_passk(samples([1]), samples([1]), names=NAMES, also=["major"])


def test_a_comparison_is_written_whole(tmp_path):
    comparison = compare_passk(samples([1]), samples([2]), names=NAMES)
    comparison.write(tmp_path / "new" / "c.json")
    assert (tmp_path / "new" / "c.json").read_text(encoding="utf-8") == comparison.to_json()
