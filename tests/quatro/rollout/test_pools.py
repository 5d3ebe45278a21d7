"""Which rollouts share a cache and in which order they begin: every one once, within the limits."""

import numpy as np
import pytest

from quatro.rollout.decoding import MIN_SHARE_OF_ROWS, Pool, Share, plan_pools


def plan(lengths, counts, **limits):
    return [(list(pool.waiting), pool.num_rows) for pool in plan_pools(lengths, counts, 10, **limits)]


@pytest.mark.parametrize("seed", range(20))
def test_pools_hold_every_rollout_once_within_the_limits(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 50, 12).tolist()
    counts = rng.integers(0, 30, 12).tolist()
    limits = {"max_batch_rows": int(rng.integers(1, 40)), "max_batch_tokens": int(rng.integers(1, 2000))}
    pools = plan(lengths, counts, **limits)
    dealt = [(share.prompt, j) for shares, _ in pools for share in shares for j in range(share.start, share.stop)]
    assert sorted(dealt) == [(prompt, j) for prompt, count in enumerate(counts) for j in range(count)]
    for shares, num_rows in pools:
        longest = max(lengths[share.prompt] for share in shares)
        fits = num_rows <= limits["max_batch_rows"] and num_rows * (longest + 10) <= limits["max_batch_tokens"]
        assert num_rows == 1 or fits
        assert num_rows <= sum(share.stop - share.start for share in shares)


def test_a_long_prompt_takes_few_rows_from_short_ones():
    """Ten rows of 10 + 10 tokens fit, eight of 14 + 10 (within the share), and two of 90 + 10."""
    pools = plan([90, 10, 10, 14], [8, 8, 8, 8], max_batch_rows=99, max_batch_tokens=200)
    assert MIN_SHARE_OF_ROWS == 0.8
    assert pools == [([Share(1, 0, 8), Share(2, 0, 8), Share(3, 0, 8)], 8), ([Share(0, 0, 8)], 2)]
    assert plan([90, 10], [1, 1], max_batch_rows=99, max_batch_tokens=200) == [([Share(1, 0, 1), Share(0, 0, 1)], 2)]


@pytest.mark.parametrize("seed", range(20))
def test_a_queue_gives_every_rollout_once_and_keeps_a_slot_for_a_prompt_that_is_cut(seed):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 12, 6).tolist()
    num_rows = int(rng.integers(1, 9))
    queue = Pool([Share(prompt, 0, count) for prompt, count in enumerate(counts)], num_rows)
    num_live, kept, begun = 0, None, []
    while queue.is_due(num_live) or num_live:
        if queue.is_due(num_live):
            goes_on = queue.is_kept
            shares = queue.take(num_live)
            assert shares
            assert goes_on == (kept is not None)
            assert kept in (None, shares[0].prompt)
            kept = shares[-1].prompt if queue.is_kept else None
            num_live += sum(share.stop - share.start for share in shares)
            assert num_live + queue.is_kept <= num_rows, "the kept prompt has a slot of its own"
            begun += [(share.prompt, j) for share in shares for j in range(share.start, share.stop)]
        num_live -= int(rng.integers(0, num_live + 1))
    assert begun == [(prompt, j) for prompt, count in enumerate(counts) for j in range(count)]
    assert kept is None


def test_rows_join_a_few_at_a_time():
    queue = Pool([Share(0, 0, 200)], 80)
    assert (queue.take(0), queue.is_kept) == ([Share(0, 0, 79)], True)
    assert not queue.is_due(79)
    assert not queue.is_due(71)
    assert queue.is_due(70)
    assert (queue.take(70), queue.is_kept) == ([Share(0, 79, 88)], True)
