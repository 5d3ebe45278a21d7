"""Estimators against enumeration of every draw, and against identities that hold for any counts."""

import math
from collections import Counter
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import estimators as est

SMALL = [
    (n, sizes) for n in (1, 2, 5, 7) for sizes in ((), (1,), (2, 1), (2, 2, 1), (5,), (3, 2, 2)) if sum(sizes) <= n
]


def draws(n, k):
    """Every set of k of n samples, equally likely."""
    return list(combinations(range(n), k))


def cluster_of(n, sizes):
    """The cluster of each sample, None for a wrong one."""
    labels = [label for label, size in enumerate(sizes) for _ in range(size)]
    return labels + [None] * (n - len(labels))


def expectation(n, k, value):
    chosen = draws(n, k)
    return sum((Fraction(value(draw)) for draw in chosen), Fraction(0)) / len(chosen)


@pytest.mark.parametrize(("n", "sizes"), SMALL)
def test_pass_and_ucc_are_expectations_over_all_draws(n, sizes):
    label = cluster_of(n, sizes)
    for k in range(1, n + 1):
        hit = expectation(n, k, lambda draw: any(label[i] is not None for i in draw))
        met = expectation(n, k, lambda draw: len({label[i] for i in draw} - {None}))
        assert est.pass_at_k(n, sum(sizes), k) == pytest.approx(float(hit), abs=1e-14)
        assert est.ucc_at_k(n, sizes, k) == pytest.approx(float(met), abs=1e-14)


@pytest.mark.parametrize(("n", "sizes"), SMALL)
@pytest.mark.parametrize("tau", [0.0, 0.25, 0.5, 2 / 3, 1.0])
def test_g_pass_is_the_share_of_draws_with_enough_successes(n, sizes, tau):
    label = cluster_of(n, sizes)
    for k in range(1, n + 1):
        needed = max(1, tau * k - 1e-9)
        enough = expectation(n, k, lambda draw, needed=needed: sum(label[i] is not None for i in draw) >= needed)
        assert est.g_pass_at_k(n, sum(sizes), k, tau) == pytest.approx(float(enough), abs=1e-14)


def test_g_pass_does_not_ask_for_one_more_because_of_binary_fractions():
    assert 0.07 * 100 > 7
    assert est.g_pass_at_k(100, 7, 100, 0.07) == 1.0
    assert est.g_pass_at_k(100, 6, 100, 0.07) == 0.0


@pytest.mark.parametrize(
    ("n", "c", "wrong"), [(1, 1, ()), (4, 2, (2,)), (5, 2, (1, 1)), (7, 2, (2, 2, 1)), (8, 3, (2, 1)), (6, 0, (4,))]
)
def test_majority_vote_is_an_expectation_over_all_draws(n, c, wrong):
    answer = ["right"] * c + [f"wrong {i}" for i, size in enumerate(wrong) for _ in range(size)]
    answer += [None] * (n - len(answer))

    def vote(draw):
        counts = Counter(answer[i] for i in draw if answer[i] is not None)
        winners = [name for name, count in counts.items() if count == max(counts.values())]
        return Fraction("right" in winners, len(winners)) if winners else 0

    for k in range(1, n + 1):
        assert est.maj_at_k(n, c, wrong, k) == pytest.approx(float(expectation(n, k, vote)), abs=1e-12)


def test_majority_vote_over_many_samples_stays_a_probability():
    assert est.maj_at_k(256, 128, [1] * 128, 64) == pytest.approx(1.0, abs=1e-9)
    assert est.maj_at_k(256, 100, [100, 56], 255) == pytest.approx(0.5, abs=1e-9)
    assert est.maj_at_k(256, 100, [101], 256) == 0.0


def test_the_table_keeps_its_digits_for_many_samples():
    n, ks = 100_000, (1, 7, 4096)
    table = est.hit_table(n, ks)
    for row, k in zip(table, ks, strict=True):
        for s in (0, 1, 3, 1000, n):
            exact = 1 - Fraction(math.comb(n - s, k), math.comb(n, k))
            assert row[s] == pytest.approx(float(exact), rel=1e-12, abs=0)
    np.testing.assert_allclose(est.fail_table(n, ks), 1 - table, atol=1e-15)


def test_a_draw_larger_than_the_wrong_answers_cannot_miss():
    assert est.pass_at_k(256, 1, 256) == 1.0
    assert est.pass_at_k(10, 3, 8) == 1.0
    assert est.pass_at_k(10, 0, 10) == 0.0


def test_many_problems_at_once_equal_one_by_one():
    many = [(one % 3) + 1 for one in range(25)]  # so that a sum in another order would have another last digit
    n_P, sizes_P, ks = [5, 7, 9, 64], [(2, 1), (), (3, 3, 3), many], [4, 1, 5]
    pass_PK = est.pass_at_ks(n_P, [sum(sizes) for sizes in sizes_P], ks)
    ucc_PK = est.ucc_at_ks(n_P, sizes_P, ks)
    for p, (n, sizes) in enumerate(zip(n_P, sizes_P, strict=True)):
        for j, k in enumerate(ks):
            assert pass_PK[p, j] == est.pass_at_k(n, sum(sizes), k)
            assert ucc_PK[p, j] == est.ucc_at_k(n, sizes, k)


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda: est.pass_at_k(8, 3, 9), ["9", "8"]),
        (lambda: est.pass_at_k(8, 3, 0), ["0"]),
        (lambda: est.pass_at_k(8, 9, 1), ["9", "8"]),
        (lambda: est.pass_at_k(8, -1, 1), ["-1"]),
        (lambda: est.pass_at_k(0, 0, 1), ["0"]),
        (lambda: est.ucc_at_k(8, [5, 4], 2), ["9", "8"]),
        (lambda: est.ucc_at_k(8, [5, -1], 2), ["-1"]),
        (lambda: est.ucc_at_k(8, [5], 9), ["9", "8"]),
        (lambda: est.ucr(0, []), ["0"]),
        (lambda: est.ucr(2, [3]), ["3", "2"]),
        (lambda: est.pass_at_ks([4, 2], [1, 1], [3]), ["3", "2"]),
        (lambda: est.ucc_at_ks([4], [[5]], [3]), ["5", "4"]),
        (lambda: est.hit_table(4, [5]), ["5", "4"]),
        (lambda: est.g_pass_at_k(4, 1, 2, 1.5), ["1.5"]),
        (lambda: est.g_pass_at_k(4, 1, 2, math.nan), ["nan"]),
        (lambda: est.maj_at_k(4, 3, [2], 2), ["5", "4"]),
        (lambda: est.effective_number([-1]), ["-1"]),
        (lambda: est.pairs([1]), ["found 1"]),
        (lambda: est.coverage([]), ["found 0"]),
    ],
)
def test_impossible_counts_are_refused_by_value(call, names):
    with pytest.raises(ValueError) as caught:
        call()
    assert all(name in str(caught.value) for name in names)


def chao_shen(sizes, single):
    c = sum(sizes)
    shares = [(1 - single / c) * size / c for size in sizes]
    return math.exp(-sum(share * math.log(share) / (1 - (1 - share) ** c) for share in shares))


def test_effective_numbers_by_hand():
    assert (
        est.effective_number([3, 2])
        == pytest.approx(chao_shen([3, 2], 0))
        == pytest.approx(math.exp(-0.6 * math.log(0.6) / (1 - 0.4**5) - 0.4 * math.log(0.4) / (1 - 0.6**5)))
    )
    assert est.effective_number([5, 1, 1, 0]) == pytest.approx(chao_shen([5, 1, 1], 2))
    assert est.effective_number([1, 1, 1]) == pytest.approx(chao_shen([1, 1, 1], 2))  # C = 1 / 3, not 0
    assert [est.effective_number(sizes) for sizes in ([], [1], [9])] == [0.0, 1.0, 1.0]


def test_the_effective_number_does_not_grow_with_the_samples_as_that_of_the_shares_does():
    rng, share = np.random.default_rng(0), 0.7 ** np.arange(20)
    share /= share.sum()
    truth = math.exp(-(share * np.log(share)).sum())
    drawn = {c: [[size for size in rng.multinomial(c, share).tolist() if size] for _ in range(2000)] for c in (8, 98)}
    few, many = (np.mean([est.effective_number(sizes) for sizes in drawn[c]]) for c in (8, 98))
    assert few == pytest.approx(truth, rel=0.1)
    assert many == pytest.approx(truth, rel=0.02)
    plain = {c: np.mean([math.exp(-sum(s / c * math.log(s / c) for s in sizes)) for sizes in drawn[c]]) for c in drawn}
    assert plain[8] < 0.6 * truth < 0.9 * truth < plain[98]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 1))
def test_pairs_are_the_share_of_all_pairs_in_two_clusters(sizes):
    labels = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
    different = [one != other for one, other in combinations(labels, 2)]
    assert est.pairs(sizes) == pytest.approx(np.mean(different))
    assert est.pairs(sizes) == pytest.approx(est.ucc_at_k(len(labels), sizes, 2) - 1)


@st.composite
def two_partitions(draw):
    n = draw(st.integers(1, 12))
    sizes = st.lists(st.integers(1, 6), max_size=6).filter(lambda sizes: sum(sizes) <= n)
    return n, draw(sizes), draw(sizes)


@given(two_partitions())
def test_parts_add_up_and_nothing_is_left_where_both_have_k_correct_answers(case):
    n, a, b = case
    ks = list(range(1, n + 1))
    part_K3 = np.diff(est.ucc_parts(n, a, b, ks), axis=2)[:, :, 0]
    difference_K = np.subtract(*est.ucc_at_ks([n, n], [b, a], ks))
    np.testing.assert_allclose(part_K3.sum(axis=1), difference_K, atol=1e-9)
    shared = [k <= max(1, min(sum(a), sum(b))) for k in ks]
    assert np.abs(part_K3[shared, est.PARTS.index("rest")]).max() == 0
    turned_K3 = np.diff(est.ucc_parts(n, b, a, ks), axis=2)[:, :, 0]
    np.testing.assert_allclose(turned_K3, -part_K3, atol=1e-9)


def test_coverage_is_the_mean_chance_that_an_answer_left_out_is_of_a_known_cluster():
    for sizes in ([1], [5, 1, 1], [2, 2], [1, 1]):
        labels = [cluster for cluster, size in enumerate(sizes) for _ in range(size)]
        known = [label in labels[:at] + labels[at + 1 :] for at, label in enumerate(labels)]
        assert est.coverage(sizes) == pytest.approx(np.mean(known))


@given(st.lists(st.integers(1, 20), min_size=1, max_size=12), st.integers(0, 30))
def test_the_identities_hold_for_any_partition(sizes, num_wrong):
    n, c = sum(sizes) + num_wrong, sum(sizes)
    ks = np.arange(1, n + 1)
    passed_K, ucc_K = est.pass_at_ks([n], [c], ks.tolist())[0], est.ucc_at_ks([n], [sizes], ks.tolist())[0]
    assert ucc_K[0] == pytest.approx(passed_K[0]) == pytest.approx(c / n)
    assert ucc_K[-1] == pytest.approx(len(sizes)) == pytest.approx(n * est.ucr(n, sizes))
    slack = 1e-9 * len(sizes)
    assert (passed_K <= ucc_K + slack).all()
    assert (ucc_K <= np.minimum(ks * c / n, len(sizes)) + slack).all()
    slope_K = np.diff(ucc_K, prepend=0.0)
    assert (slope_K >= -slack).all()  # rising
    assert (np.diff(slope_K) <= slack).all()  # and concave


def test_an_empty_cluster_is_no_solution():
    assert est.ucr(4, [2, 0, 1]) == 0.5


def test_public_vectors(ucc_vectors):
    for vector in ucc_vectors("pass_at_k"):
        for n, c, k, value in vector["pass_at_k"]:
            assert est.pass_at_k(n, c, k) == pytest.approx(float(value), rel=1e-12, abs=1e-13)
        for n, sizes, k, value in vector.get("ucc_at_k", []):
            assert est.ucc_at_k(n, sizes, k) == pytest.approx(float(value), rel=1e-12, abs=1e-13)
        for n, c, k, _ in vector.get("errors", []):
            with pytest.raises(ValueError):
                est.pass_at_k(n, c, k)
