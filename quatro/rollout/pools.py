"""Which rollouts share a KV cache, and which of them are drawn next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

# A pool ends before a prompt for whose length the limits leave fewer rows than this share of the pool's first prompt's.
MIN_SHARE_OF_ROWS = 0.8
# Rows join once this share of a pool's rows is free: each time costs a forward pass over the new prompts.
MIN_SHARE_FREE = 0.125


class Share(NamedTuple):
    """Rollouts ``start`` to ``stop`` (exclusive) of prompt number ``prompt``."""

    prompt: int
    start: int
    stop: int


class Pool(NamedTuple):
    """Rollouts of which ``num_rows`` are drawn at once; those to come take the rows of those that end."""

    shares: list[Share]
    num_rows: int


def plan_pools(
    prompt_tokens: Sequence[int],
    num_rollouts: Sequence[int],
    max_new_tokens: int,
    *,
    max_batch_rows: int,
    max_batch_tokens: int,
) -> list[Pool]:
    """Pools in which num_rows x (longest prompt + max_new_tokens) stays within the limits (one row always fits).

    Prompts of similar length come together, the shorter ones first.
    """
    pools: list[Pool] = []
    most_rows = total = 0
    for prompt in sorted(range(len(prompt_tokens)), key=lambda i: prompt_tokens[i]):
        count = num_rollouts[prompt]
        if count == 0:
            continue
        # Ascending lengths: the prompt at hand is the longest of its pool.
        row_limit = max(1, min(max_batch_rows, max_batch_tokens // (prompt_tokens[prompt] + max_new_tokens)))
        share = Share(prompt, 0, count)
        if pools and (total + count <= row_limit or row_limit >= MIN_SHARE_OF_ROWS * most_rows):
            total += count
            pools[-1] = Pool([*pools[-1].shares, share], min(row_limit, total))
        else:
            most_rows, total = row_limit, count
            pools.append(Pool([share], min(row_limit, total)))
    return pools


class Taken(NamedTuple):
    """Shares whose rows begin together. The first ``goes_on`` with a prompt that was kept; the last's is to be kept."""

    shares: list[Share]
    goes_on: bool
    keeps_last: bool


class Queue:
    """The rollouts of ``pool`` that have not begun.

    Where a prompt's rollouts do not all fit, one row less is drawn, and its slot keeps the prompt for those that wait.
    """

    def __init__(self, pool: Pool) -> None:
        self.num_rows = pool.num_rows
        self._waiting = deque(pool.shares)
        self._is_kept = False

    def is_due(self, num_live: int) -> bool:
        """Whether rows are to join ``num_live`` others."""
        num_free = self.num_rows - num_live
        return bool(self._waiting) and (num_live == 0 or num_free >= max(2, MIN_SHARE_FREE * self.num_rows))

    def take(self, num_live: int) -> Taken:
        """What joins ``num_live`` rows; there is something if it `is_due`."""
        num_free = self.num_rows - num_live
        shares: list[Share] = []
        goes_on, self._is_kept = self._is_kept, False
        while self._waiting and num_free > 0:
            prompt, start, stop = self._waiting[0]
            if stop - start <= num_free:
                shares.append(self._waiting.popleft())
                num_free -= stop - start
                continue
            cut = start + (num_free - 1 if self.num_rows > 1 else num_free)
            if cut > start:
                shares.append(Share(prompt, start, cut))
                self._waiting[0] = Share(prompt, cut, stop)
                self._is_kept = self.num_rows > 1
            break
        return Taken(shares, goes_on, self._is_kept)
