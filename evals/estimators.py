"""What k draws would have shown, from n draws: unbiased estimators that need only counts.

A model is asked the same problem n times and c answers are correct. How often would k answers hold a correct one?
Drawing k of the n answers without replacement, all k miss with probability C(n-c, k) / C(n, k), therefore

    pass@k = 1 - C(n-c, k) / C(n, k).

The estimate is unbiased: its average over repeated experiments is the true success rate of k draws (Chen et al. 2021).
Put "an answer of cluster j" for "a correct answer" and add up, and the same question counts different solutions: how
many clusters of correct answers would k draws have met?

    UCC@k = sum over clusters j of 1 - C(n-s_j, k) / C(n, k),        s_j the size of cluster j

So everything here reads one small table, `hit_table`: the probability that k draws of n hit a marked set of size s.
"""

# Axes: P problems, K values of k, S set sizes 0..n, J clusters, M numbers of correct answers, 2 models.

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import index

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PARTS = ("accuracy", "diversity", "rest")  # of a difference in UCC@k, see `ucc_parts`
_NEGLIGIBLE = 1e-20


def fail_table(n: int, ks: Sequence[int]) -> Floats:
    """C(n-s, k) / C(n, k) for every k in ``ks`` (rows) and s = 0..n (columns): all k draws miss a set of size s."""
    return np.exp(_log_fail_table(n, tuple(ks)))


def hit_table(n: int, ks: Sequence[int]) -> Floats:
    """1 - C(n-s, k) / C(n, k), shape (len(ks), n + 1): at least one of k draws hits a set of size s."""
    return -np.expm1(_log_fail_table(n, tuple(ks)))


@lru_cache(maxsize=64)
def _log_fail_table(n: int, ks: tuple[int, ...]) -> Floats:
    for k in ks:
        _check_draws(n, k)
    # C(n-s, k) / C(n, k) = prod over i < s of (1 - k / (n-i)): the i-th marked item escapes the k draws given that
    # those before it did. A sum of log1p keeps 1e-16 where a difference of log-gammas loses ten digits.
    left_S = np.arange(n, 0, -1, dtype=np.float64)
    k_K1 = np.asarray(ks, dtype=np.float64)[:, None]
    with np.errstate(divide="ignore"):  # log1p(-1) = -inf says it exactly: a hit is certain
        log_escape_KS = np.log1p(-np.minimum(k_K1 / left_S, 1.0))
    log_fail_KS = np.zeros((len(ks), n + 1))
    np.cumsum(log_escape_KS, axis=1, out=log_fail_KS[:, 1:])
    log_fail_KS.setflags(write=False)
    return log_fail_KS


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n draws hold one of the c correct ones.

    Raises ValueError if n < 1, k is outside 1..n, or c outside 0..n.
    """
    _check_draws(n, k)
    _check_count(n, c)
    return float(-np.expm1(_log_fail_table(index(n), (index(k),))[0, c]))


def ucc_at_k(n: int, sizes: Sequence[int], k: int) -> float:
    """The expected number of clusters of correct answers that k of n draws meet; ``sizes`` are the cluster sizes.

    Raises ValueError if n < 1, k is outside 1..n, a size is negative, or more answers are clustered than n.
    """
    _check_draws(n, k)
    _check_sizes(n, sizes)
    log_fail_S = _log_fail_table(index(n), (index(k),))[0]
    return math.fsum(-np.expm1(log_fail_S[np.asarray(sizes, dtype=np.int64)]))


def ucr(n: int, sizes: Sequence[int]) -> float:
    """Unique correct rate: clusters of correct answers per draw, UCC@n / n."""
    _check_draws(n, n)
    _check_sizes(n, sizes)
    return sum(size > 0 for size in sizes) / n


def pass_at_ks(n_P: Sequence[int], c_P: Sequence[int], ks: Sequence[int]) -> Floats:
    """pass@k of many problems at once, shape (P, K)."""
    for n, c in zip(n_P, c_P, strict=True):
        _check_count(n, c)
    table_of = {n: hit_table(index(n), ks) for n in dict.fromkeys(n_P)}  # usually one table
    return np.array([table_of[n][:, c] for n, c in zip(n_P, c_P, strict=True)]).reshape(len(n_P), len(ks))


def ucc_at_ks(n_P: Sequence[int], sizes_P: Sequence[Sequence[int]], ks: Sequence[int]) -> Floats:
    """UCC@k of many problems at once, shape (P, K)."""
    value_PK = np.empty((len(n_P), len(ks)))
    for row_K, n, sizes in zip(value_PK, n_P, sizes_P, strict=True):
        _check_sizes(n, sizes)
        log_fail_KS = _log_fail_table(index(n), tuple(ks))
        hit_KJ = -np.expm1(log_fail_KS[:, np.asarray(sizes, dtype=np.int64)])
        row_K[:] = [math.fsum(hit_J) for hit_J in hit_KJ.tolist()]
    return value_PK


def g_pass_at_k(n: int, c: int, k: int, tau: float) -> float:
    """G-Pass@k: the chance that at least a share ``tau`` of k draws, and at least one, is correct (Liu et al. 2024).

    The count of correct draws is hypergeometric; integers keep the sum exact. ``tau`` near 0 is pass@k, 1 asks that
    every draw be correct.
    """
    _check_draws(n, k)
    _check_count(n, c)
    if not 0 <= tau <= 1:
        raise ValueError(f"tau is the required share of correct draws, in [0, 1]; found {tau}")
    # 0.1 * 30 is a little more than 3 in binary, and must not ask for 4.
    needed = max(1, math.ceil(tau * k - 1e-9))
    ways = sum(math.comb(c, hits) * math.comb(n - c, k - hits) for hits in range(needed, min(c, k) + 1))
    return ways / math.comb(n, k)


def maj_at_k(n: int, c: int, wrong: Sequence[int], k: int) -> float:
    """The chance that the most frequent answer among k of n draws is the correct one; a tie is broken by a fair die.

    ``c`` draws gave the correct answer, ``wrong`` counts the draws of each different wrong answer, and the rest of the
    n gave no answer, which is no vote. This is the exact expectation over all C(n, k) choices, not a simulation.
    """
    _check_draws(n, k)
    _check_sizes(n, [c, *wrong])
    # Let every draw be kept independently with probability k/n. Given that k are kept, each choice of k is equally
    # likely, and until then the answers are independent: their counts are binomial and simply convolve.
    keep = k / n
    won = 0.0
    for votes, chance in enumerate(_binomial(c, keep, k)):
        if votes == 0 or chance < _NEGLIGIBLE:
            continue
        # A wrong answer given less often than this cannot come level, however it is kept: it is as good as silent.
        rivals = [size for size in wrong if size >= votes]
        # kept_TK[t, m]: m wrong or silent draws kept, no wrong answer above `votes`, exactly t of them level with it.
        kept_TK = np.zeros((min(k // votes, len(rivals)) + 1, k + 1))
        kept_TK[0] = _binomial(n - c - sum(rivals), keep, k)
        for size in rivals:
            kept_TK = _add_rival(kept_TK, _binomial(size, keep, k), votes)
        won += chance * float(kept_TK[:, k - votes] @ (1 / np.arange(1, len(kept_TK) + 1)))
    return min(1.0, won / float(_binomial(n, keep, k)[k]))


def _add_rival(kept_TK: Floats, chance_K: Floats, votes: int) -> Floats:
    total_TK = np.zeros_like(kept_TK)
    width = kept_TK.shape[1]
    for count in range(min(votes - 1, int(np.flatnonzero(chance_K)[-1])) + 1):
        total_TK[:, count:] += chance_K[count] * kept_TK[:, : width - count]
    if votes < width:
        total_TK[1:, votes:] += chance_K[votes] * kept_TK[:-1, : width - votes]
    return total_TK


@lru_cache(maxsize=4096)
def _binomial(size: int, keep: float, largest: int) -> Floats:
    """Probabilities of 0..largest successes in ``size`` trials; zero beyond ``size``."""
    if keep == 1.0:
        chance_K = (np.arange(largest + 1) == size).astype(np.float64)
    else:
        log_choose = [math.log(math.comb(size, hits)) if hits <= size else -np.inf for hits in range(largest + 1)]
        hits_K = np.arange(largest + 1)
        with np.errstate(under="ignore"):
            chance_K = np.exp(np.array(log_choose) + hits_K * math.log(keep) + (size - hits_K) * math.log1p(-keep))
    chance_K.setflags(write=False)
    return chance_K


@lru_cache(maxsize=4096)
def chance_of_at_least(n: int, c: int, k: int) -> Floats:
    """The chance that at least m of k draws are correct, for m = 1..k: a tail of the hypergeometric distribution."""
    exactly_M = [math.comb(c, m) * math.comb(n - c, k - m) / math.comb(n, k) for m in range(1, k + 1)]
    return np.cumsum(exactly_M[::-1])[::-1]


def ucc_parts(n: int, sizes_a: Sequence[int], sizes_b: Sequence[int], ks: Sequence[int]) -> Floats:
    """Why UCC@k of two models differs on a problem: shape (K, 3, 2), the three `PARTS` by what a and b have of each.

    If the m-th correct answer adds distinct@m - distinct@(m-1) solutions to those before it, then

        UCC@k = sum over m of  P(at least m of k draws are correct) * (distinct@m - distinct@(m-1)).

    The first factor is accuracy and the second is diversity. Each part changes one of them from a to b beside the mean
    of the other, as the mean of both orders does (Kitagawa 1955, doi 10.1080/01621459.1955.10501299). Both models know
    an m up to the smaller number of correct answers, and m = 1, since one answer is one solution; the rest is all
    other m. So b - a of the parts add up to that of UCC@k. Raises ValueError as `ucc_at_k`.
    """
    sizes_2, c_2 = [sizes_a, sizes_b], [sum(sizes_a), sum(sizes_b)]
    ucc_K2 = ucc_at_ks([n, n], sizes_2, ks).T
    ms = range(1, max(1, min(*c_2, max(ks))) + 1)
    added_2M = np.diff(ucc_at_ks(c_2, sizes_2, ms), axis=1, prepend=0.0) if min(c_2) else np.ones((2, 1))
    value_K32 = np.empty((len(ks), 3, 2))
    for value_32, ucc_2, k in zip(value_K32, ucc_K2, ks, strict=True):
        reach_2M = np.array([chance_of_at_least(n, c, k)[: len(ms)] for c in c_2])
        add_2M = added_2M[:, :k]
        value_32[:2] = (reach_2M * add_2M.mean(axis=0)).sum(axis=1), (reach_2M.mean(axis=0) * add_2M).sum(axis=1)
        value_32[2] = ucc_2 - (reach_2M * add_2M).sum(axis=1)
    return value_K32.round(12) + 0.0  # a difference of 1e-17, or of -0, is none


def pairs(sizes: Sequence[int]) -> float:
    """The chance that two of the correct answers, drawn without replacement, are different solutions.

    It is distinct@2 - 1, unbiased, and no k, n or accuracy enters it (Simpson 1949, doi 10.1038/163688a0). Rao's
    quadratic entropy is the same for a graded difference. Raises ValueError if there are no two answers.
    """
    c = sum(sizes)
    _check_sizes(c, sizes)
    if c < 2:
        raise ValueError(f"a pair needs two correct answers, found {c}")
    return 1 - sum(size * (size - 1) for size in sizes) / (c * (c - 1))


def coverage(sizes: Sequence[int]) -> float:
    """The chance that one more correct answer is of a cluster that was met: Good and Turing's 1 - f1 / c.

    f1 of the c answers are alone in their cluster (Good 1953, doi 10.1093/biomet/40.3-4.237). Where it is low,
    counts of clusters say more about c than about the model. Raises ValueError if there is no answer.
    """
    c = sum(sizes)
    _check_sizes(c, sizes)
    if c < 1:
        raise ValueError("coverage needs a correct answer, found 0")
    return 1 - tuple(sizes).count(1) / c


def effective_number(sizes: Sequence[int]) -> float:
    """How many equally frequent solutions are as diverse, unseen ones included: e to Chao and Shen's entropy.

    The entropy of the shares s_j / c is too low while solutions are unseen, and rises with c. Chao and Shen (2003, doi
    10.1023/A:1026096204727) shrink the shares to the coverage C, and weight what was met by the chance to be met:

        H = - sum over clusters j of p_j ln p_j / (1 - (1 - p_j)^c),        p_j = C s_j / c

    If all c answers are alone, C would be 0; then C = 1 / c, as in the R package `entropy`. Without answers it is 0.
    """
    c = sum(sizes)
    _check_sizes(c, sizes)
    if not c:
        return 0.0
    size_J = np.array([size for size in sizes if size > 0], dtype=np.float64)
    share_J = size_J / c * (1 - min(tuple(sizes).count(1), c - 1) / c)
    return float(np.exp(-(share_J * np.log(share_J) / (1 - (1 - share_J) ** c)).sum()))


def _check_draws(n: int, k: int) -> None:
    if index(n) < 1:
        raise ValueError(f"n is the number of samples of a problem and at least 1, found {n}")
    if index(k) < 1:
        raise ValueError(f"k is the number of draws and at least 1, found {k}")
    if k > n:
        raise ValueError(f"k = {k} draws need at least {k} samples of a problem, found n = {n}")


def _check_count(n: int, c: int) -> None:
    if not 0 <= index(c) <= n:
        raise ValueError(f"c = {c} correct samples of n = {n}: c lies between 0 and n")


def _check_sizes(n: int, sizes: Sequence[int]) -> None:
    if (smallest := min(map(index, sizes), default=0)) < 0:
        raise ValueError(f"a cluster of {smallest} samples: sizes are at least 0")
    if sum(sizes) > n:
        raise ValueError(f"clusters of {sum(sizes)} samples in total, but n = {n}")


# By metric, the number of a problem from its n samples, c correct ones, sizes of clusters and k; NaN: it has none.
OF_COUNTS: Mapping[str, Callable[[int, int, Sequence[int], int], float]] = {
    "pass@k": lambda n, c, sizes, k: pass_at_k(n, c, k),
    "ucc@k": lambda n, c, sizes, k: ucc_at_k(n, sizes, k),
    "ucr": lambda n, c, sizes, k: ucr(n, sizes),
    "num_clusters": lambda n, c, sizes, k: len(sizes),
    "effective_number": lambda n, c, sizes, k: effective_number(sizes),
    "pairs": lambda n, c, sizes, k: pairs(sizes) if sum(sizes) > 1 else math.nan,
}
