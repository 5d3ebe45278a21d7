"""Flips: the estimator against every pair of subsets, buckets at their bounds, and what is refused."""

from itertools import combinations

import pytest

from evals.errors import DataError, UsageError
from evals.metrics.flips import BUCKETS, Pair, bucket_bounds, bucket_of, flip_at_k, flip_rows, flips_result
from evals.results.document import About
from evals.samples.types import Sample, Samples


def samples(correct_of, n=4):
    """Each problem of ``correct_of`` with so many correct samples of ``n``."""
    rows = [
        Sample(benchmark, id, index, "text", "1", correct=index < correct)
        for (benchmark, id), correct in sorted(correct_of.items())
        for index in range(n)
    ]
    return Samples(rows, [])


def value(rows, metric, bucket, k, benchmark="a"):
    found = [row for row in rows if (row.metric, row.bucket, row.k, row.benchmark) == (metric, bucket, k, benchmark)]
    assert len(found) == 1
    return found[0].value


@pytest.mark.parametrize("n", [1, 4, 5])
def test_flip_at_k_is_the_share_of_pairs_of_draws_that_flip(n):
    draws = {k: list(combinations(range(n), k)) for k in range(1, n + 1)}
    for k, subsets in draws.items():
        for base in range(n + 1):
            for tuned in range(n + 1):
                # The first `base` (`tuned`) samples are the correct ones.
                flipped = [min(a) >= base and min(b) < tuned for a in subsets for b in subsets]
                assert flip_at_k(n, base, tuned, k) == pytest.approx(sum(flipped) / len(flipped), abs=1e-12)


@pytest.mark.parametrize(
    ("n", "bounds"),
    [
        (256, ["0-8", "9-32", "33-128", "129-256"]),
        (8, ["0", "1", "2-4", "5-8"]),
        (4, ["0", "-", "1-2", "3-4"]),
        (1, ["0", "-", "-", "1"]),
    ],
)
def test_the_bounds_of_the_buckets_are_counts_of_n(n, bounds):
    assert list(bucket_bounds(n).values()) == bounds


def test_buckets_take_the_counts_of_256_that_the_paper_says():
    bounds = {"very hard": (0, 8), "hard": (9, 32), "medium": (33, 128), "easy": (129, 256)}
    for count in range(257):
        low, high = bounds[bucket_of(256, count)]
        assert low <= count <= high


@pytest.mark.parametrize(
    ("n", "counts"),
    [
        (8, ["very hard", "hard", "medium", "medium", "medium", "easy", "easy", "easy", "easy"]),
        (1, ["very hard", "easy"]),
    ],
)
def test_buckets_of_another_n_hold_the_same_shares(n, counts):
    # 1/32, 1/8 and 1/2 of 8 are 0.25, 1 and 4.
    assert [bucket_of(n, count) for count in range(n + 1)] == counts


def test_newly_solved_and_flip_at_k_and_the_number_of_problems_of_each_bucket():
    pairs = [
        Pair("a", "never, solved", 256, 0, 3),
        Pair("a", "never, not solved", 256, 0, 0),
        Pair("a", "very hard", 256, 1, 200),
        Pair("a", "medium", 256, 100, 0),
    ]
    rows = flip_rows(pairs, ks=[1, 256])
    assert value(rows, "flip", "very hard", None) == 1 / 2
    assert value(rows, "flip@k", "very hard", 256) == pytest.approx(1 / 3)  # newly solved over the bucket
    assert value(rows, "flip@k", "very hard", 1) == pytest.approx((3 / 256 + 255 / 256 * 200 / 256) / 3)
    assert value(rows, "flip@k", "medium", 1) == 0
    assert value(rows, "flip@k", "all", 256) == pytest.approx(1 / 4)
    held = {row.bucket: row.num_problems for row in rows if row.k == 1 and row.benchmark == "a"}
    assert held == {"very hard": 3, "medium": 1, "all": 4}  # nothing is said of buckets without problems
    assert {row.num_problems for row in rows if row.metric == "flip"} == {2}


def test_at_n_only_problems_that_were_never_solved_flip():
    pairs = [Pair("a", str(base), 16, base, 16) for base in range(17)]
    rows = flip_rows(pairs, ks=[16])
    flips = {name: value(rows, "flip@k", name, 16) for name in BUCKETS}
    assert flips == pytest.approx({"very hard": 1, "hard": 0, "medium": 0, "easy": 0})


def test_the_mean_over_benchmarks_needs_the_bucket_in_all_of_them():
    pairs = [Pair("a", "1", 4, 0, 4), Pair("b", "1", 4, 0, 0), Pair("b", "2", 4, 4, 4)]
    rows = flip_rows(pairs, ks=[2])
    assert value(rows, "flip@k", "very hard", 2, "average") == 1 / 2
    assert value(rows, "flip@k", "all", 2, "average") == 1 / 2
    assert not [row for row in rows if row.bucket == "easy" and row.benchmark == "average"]


def test_intervals_are_those_of_the_bucket_s_problems():
    pairs = [Pair("a", str(place), 4, 0, 4 * (place % 2)) for place in range(40)]
    row = next(row for row in flip_rows(pairs, ks=[1], ci=True) if row.metric == "flip@k")
    # A share of 1/2 over 40 problems: 1.96 standard errors are 0.155.
    assert row.ci_low == pytest.approx(0.5 - 0.155, abs=0.03)
    assert row.ci_high == pytest.approx(0.5 + 0.155, abs=0.03)


def test_samples_of_both_sides_meet_by_problem():
    base, tuned = samples({("a", "x"): 0, ("a", "y"): 4}), samples({("a", "y"): 0, ("a", "x"): 2})
    result = flips_result(base, tuned, names=("b", "t"), ks=[4], per_problem=True, about=About(label="Ours"))
    assert value(result.rows, "flip", "very hard", None) == 1
    document = result.document()
    assert (document["label"], document["base"], document["tuned"]) == ("Ours", "b", "t")
    assert document["problems"][0] == {
        "benchmark": "a", "id": "x", "n": 4, "correct": 2, "base_correct": 0, "bucket": "very hard"
    }  # fmt: skip


def test_the_default_k_is_16_or_a_smaller_n():
    few, many = samples({("a", "x"): 0}), samples({("a", "x"): 0}, n=20)
    assert {row.k for row in flips_result(few, few, names=("b", "t")).rows} == {None, 4}
    assert {row.k for row in flips_result(many, many, names=("b", "t")).rows} == {None, 16}


def test_sides_that_do_not_match_are_refused_by_name():
    base = samples({("a", "x"): 1, ("a", "y"): 1})
    with pytest.raises(DataError, match=r"n = 4 samples of 'y' \(a\), and tuned\.jsonl no sample; 1 of 2 problems"):
        flips_result(base, samples({("a", "x"): 1}), names=("base.jsonl", "tuned.jsonl"))
    with pytest.raises(DataError, match=r"n = 4 samples of 'x' \(a\), and tuned\.jsonl n = 5 .*2 of 2"):
        flips_result(base, samples({("a", "x"): 1, ("a", "y"): 1}, n=5), names=("base.jsonl", "tuned.jsonl"))
    with pytest.raises(UsageError, match="k = 5"):
        flips_result(base, base, names=("b", "t"), ks=[5])


@pytest.mark.parametrize("counts", [(4, 5, 0, 1), (4, 0, -1, 1), (4, 0, 0, 5), (0, 0, 0, 1)])
def test_counts_that_cannot_be_are_errors(counts):
    with pytest.raises(ValueError):
        flip_at_k(*counts)
