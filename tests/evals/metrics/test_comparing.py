"""Paired comparisons: what is refused, what differences are, and that pairing is what makes them sharp."""

import io

import numpy as np
import pandas as pd
import pytest

from evals.errors import DataError, UsageError
from evals.estimators import effective_number, pass_at_k
from evals.intervals import holm
from evals.metrics.comparing import compare_passk, compare_ucc
from evals.metrics.counting import Clustering
from evals.samples.types import Sample, Samples
from evals.tables.formats import to_csv
from evals.tables.layouts import comparison_table

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
    difference = {row["metric"]: row["difference"] for row in document["rows"] if "/" not in row["metric"]}
    effective = (effective_number([1] * 6) - effective_number([1] * 2)) / 2
    expected = {"ucc@k": 2, "pairs": 0, "ucr": 0.25, "num_clusters": 2, "effective_number": effective}
    assert difference == pytest.approx(expected)
    ((covered_a, covered_b),) = {
        (row["coverage_a"], row["coverage_b"]) for row in document["rows"] if row["metric"] == "ucc@k"
    }
    assert (covered_a, covered_b) == (0, 0)
    assert {(row["similarity"], row["threshold"]) for row in document["rows"]} == {("exact", None)}
    assert (document["a"], document["b"]) == NAMES


def drawn(clusters, n=16):
    """For each problem the sizes of its clusters of correct samples; the rest of ``n`` is wrong."""
    texts = [[f"{at}" for at, size in enumerate(sizes) for _ in range(size)] for sizes in clusters]
    return Samples(
        [
            Sample(
                "a", f"p{number}", index, right[index] if index < len(right) else "no", "7", correct=index < len(right)
            )
            for number, right in enumerate(texts)
            for index in range(n)
        ],
        [],
    )


def parts_of(a, b, k=4):
    found = compare_ucc(drawn(a), drawn(b), names=NAMES, clustering=Clustering(["exact"]), ks=[k])
    (whole,) = (row.difference for row in found.rows if row.metric == "ucc@k")
    parts = {row.metric.partition("/")[2]: row.difference for row in found.rows if "/" in row.metric}
    assert sum(parts.values()) == pytest.approx(whole, abs=1e-12)
    return parts, whole, found


def test_where_only_accuracy_differs_it_is_the_whole_difference():
    parts, whole, found = parts_of([[1] * 4, [1] * 6], [[1] * 12, [1] * 8])  # every correct sample is a solution
    assert parts == pytest.approx({"accuracy": whole, "diversity": 0, "rest": 0}, abs=1e-12)
    assert whole == pytest.approx(4 * (10 - 5) / 16)
    assert not any("rest" in warning for warning in found.warnings)
    parts, whole, _ = parts_of([[3], [9]], [[5, 1], [4, 4, 4]], k=1)  # UCC@1 is Pass@1
    assert parts == pytest.approx({"accuracy": whole, "diversity": 0, "rest": 0}, abs=1e-12)


def test_where_only_diversity_differs_it_is_the_whole_difference():
    parts, whole, _ = parts_of([[8], [6]], [[1] * 8, [3, 3]])
    assert parts == pytest.approx({"accuracy": 0, "diversity": whole, "rest": 0}, abs=1e-12)
    assert whole > 0


def test_where_both_differ_each_part_is_the_mean_of_both_orders():
    # One solution in 8 correct samples against 12 solutions in 12, k = 4 of n = 16. Of a only the first correct draw
    # adds a solution, of b each of them does, and 4 c / 16 draws are correct on average.
    solved_a, solved_b = pass_at_k(16, 8, 4), pass_at_k(16, 12, 4)
    parts, whole, found = parts_of([[8]] * 12, [[1] * 12] * 12)
    accuracy_first = solved_b - solved_a, 3 - solved_b
    diversity_first = 3 - 2, 2 - solved_a
    both = dict(zip(("accuracy", "diversity"), np.mean([accuracy_first, diversity_first], axis=0), strict=True))
    assert parts == pytest.approx({**both, "rest": 0}, abs=1e-12)
    (row,) = (row for row in found.rows if row.metric == "ucc@k/diversity")
    assert row.ci_low == pytest.approx(row.difference) == pytest.approx(row.ci_high)
    shown = str(found).splitlines()
    at = next(at for at, line in enumerate(shown) if line.startswith("What a change in UCC@k is made of (exact)"))
    assert shown[at + 1].split() == ["benchmark", "problems", "n", "UCC@k", "change", "accuracy", "diversity", "rest"]
    assert shown[at + 2].split()[:5] == ["a", "12", "16", "k=4", f"{whole:+.2f}"]


def test_what_cannot_be_compared_at_equal_numbers_is_the_rest_and_warned_of():
    parts, _, found = parts_of([[8], []], [[8], [1] * 8])
    solved = pass_at_k(16, 8, 4)
    assert parts == pytest.approx({"accuracy": solved / 2, "diversity": 0, "rest": (2 - solved) / 2}, abs=1e-12)
    assert sum("is `rest`, a at k = 4 (exact)" in warning for warning in found.warnings) == 1


def test_distinct_is_compared_on_the_problems_that_both_have():
    a, b = [[2, 2], [1], [4]], [[1, 1, 1, 1], [2, 2], [1]]
    found = compare_ucc(drawn(a), drawn(b), names=NAMES, clustering=Clustering(["exact"]), ks=[2, 8])
    (row,) = (row for row in found.rows if row.metric == "distinct@k")
    assert (row.k, row.num_problems, row.a, row.b) == (2, 1, pytest.approx(1 + 2 / 3), pytest.approx(2))
    (pairs,) = (row for row in found.rows if row.metric == "pairs")
    assert (pairs.num_problems, pairs.difference) == (1, pytest.approx(1 / 3))


@pytest.mark.parametrize("compare", [compare_passk, compare_ucc])
def test_of_several_each_is_compared_with_the_first_and_p_is_adjusted_for_all(compare):
    rng = np.random.default_rng(1)
    sides = [samples(rng.integers(3, high, size=40)) for high in (5, 6, 8)]
    found = compare(*sides, names=("base", "b", "c"), ks=[2])
    alone = [compare(sides[0], side, names=("base", name), ks=[2]) for side, name in zip(sides[1:], "bc", strict=True)]
    for one, own in zip(found.each(), alone, strict=True):
        assert (one.a, one.b) == (own.a, own.b)
        assert [{**row.model_dump(exclude={"samples_b"}), "p_adjusted": 0} for row in own.rows] == [
            {**row.model_dump(exclude={"samples_b"}), "p_adjusted": 0} for row in one.rows
        ]
    ps = [row.p for row in found.rows if row.p_adjusted is not None]
    assert [row.p_adjusted for row in found.rows if row.p_adjusted is not None] == holm(ps)
    assert set(found.frame()["samples_b"]) == {"b", "c"}
    table = pd.read_csv(io.StringIO(to_csv(comparison_table(found), with_ci=False)))
    for one in alone:  # no row of one B stands beside the difference of another
        own = pd.read_csv(io.StringIO(to_csv(comparison_table(one), with_ci=False)))
        assert list(table[table[one.b].notna()]["difference"]) == list(own["difference"])


def test_other_problems_and_other_n_are_refused_by_name():
    for compare in (compare_passk, compare_ucc):
        with pytest.raises(DataError, match=r"base holds n = 8 samples of 'p1' \(a\), and tuned no sample; 1 of 2"):
            compare(samples([1, 2]), samples([1]), names=NAMES)
        with pytest.raises(DataError, match=r"base holds no sample of 'p1' \(a\), and tuned n = 8 samples"):
            compare(samples([1]), samples([1, 2]), names=NAMES)
        with pytest.raises(DataError, match=r"base holds n = 8 samples of 'p0' \(a\), and tuned n = 9"):
            compare(samples([1]), samples([1], n=9), names=NAMES)
        with pytest.raises(UsageError, match="k = 9"):
            compare(samples([1]), samples([1]), names=NAMES, ks=[9])
    with pytest.raises(UsageError, match=r"'major'.*maj"):
        compare_passk(samples([1]), samples([1]), names=NAMES, also=["major"])


def test_a_comparison_is_written_whole(tmp_path):
    comparison = compare_passk(samples([1]), samples([2]), names=NAMES)
    comparison.write(tmp_path / "new" / "c.json")
    assert (tmp_path / "new" / "c.json").read_text(encoding="utf-8") == comparison.to_json()
