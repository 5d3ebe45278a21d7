"""The decode loop: rows of a pool are drawn side by side, and those that wait take the places of those that end.

`SlotModel` gives the next-token logits of any decoder-only Hugging Face model for many prefixes, each in a slot of the
KV cache.
"""

# Axes: R places of rows (rollouts), L rows still drawing, S slots of the KV cache, V vocabulary, T response tokens.
import inspect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evals.errors import UsageError
from quatro.policy.device import PREFILL_TOKENS, upload
from quatro.policy.facts import has_plain_head
from quatro.rollout.engine import RolloutProgress, Seeds, uniforms
from quatro.rollout.kv_cache import Ints, PreallocatedCache, attending_up_to, branch
from quatro.rollout.sampling import draw_rows
from quatro.rollout.stops import ResponseTexts
from quatro.types import FinishReason, Prompt, Rollout, Sampling

# Prompts go through the model together if the longest has at most so many times the tokens of the shortest, or if they
# are padded with at most so many tokens, which cost less than another forward pass.
MAX_PREFILL_SPREAD = 1.25
MAX_PREFILL_PADDING = 512
# A pool ends before a prompt for whose length the limits leave fewer rows than this share of the pool's first prompt's.
MIN_SHARE_OF_ROWS = 0.8
# Rows join once this share of a pool's rows is free: each time costs a forward pass over the new prompts.
MIN_SHARE_FREE = 0.125


class SlotModel:
    """``model`` as it is at the time of a call, on ``device``; UsageError for layers that keep no keys and values."""

    def __init__(self, model: Any, device: torch.device) -> None:
        self.model = model
        self.device = device
        layer_types = set(getattr(model.config, "layer_types", None) or ())
        unknown = layer_types - {"full_attention", "sliding_attention", "chunked_attention"}
        if unknown:
            raise UsageError(
                f"model type {model.config.model_type!r} has layers of type {', '.join(sorted(unknown))}, "
                "for which the transformers engine has no cache; set rollout.engine=vllm"
            )
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keep_last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}

    @cached_property
    def _has_plain_head(self) -> bool:
        """Asked when something is drawn: before, the weights may not be there yet.

        For a tiny model the outer forward is a tenth of a step: call what is inside it.
        """
        return has_plain_head(self.model)

    def prefill(self, prompts: Sequence[Sequence[int]], first_slot: int, cache: PreallocatedCache) -> Tensor:
        """Next-token logits (S, V) after each prompt; slots ``first_slot``, ``first_slot`` + 1, ... then hold them.

        Prompts of similar length go through the model together, padded on the right, where no token sees the padding.
        """
        lengths = np.array([len(ids) for ids in prompts])
        # Without a plain head only the logits of the last position can be asked for: equal lengths only.
        spread, padding = (MAX_PREFILL_SPREAD, MAX_PREFILL_PADDING) if self._has_plain_head else (1.0, 0)
        logits = []
        first = 0
        while first < len(prompts):
            stop = first + 1
            longest = int(lengths[first])
            while stop < len(prompts):
                longer = max(longest, int(lengths[stop]))
                num_padded = longer * (stop + 1 - first) - int(lengths[first : stop + 1].sum())
                is_spread = num_padded > padding and longer > spread * lengths[first : stop + 1].min()
                if is_spread or longer * (stop + 1 - first) > PREFILL_TOKENS[self.device.type]:
                    break
                longest, stop = longer, stop + 1
            input_ids = np.zeros((stop - first, longest), dtype=np.int64)
            for slot, ids in enumerate(prompts[first:stop]):
                input_ids[slot, : len(ids)] = ids
            cache.hold(first_slot + first, stop - first, longest)
            last_S = lengths[first:stop] - 1
            position = np.arange(longest)[None, :]
            logits.append(self._forward(input_ids, position, cache, None if (last_S == longest - 1).all() else last_S))
            first = stop
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def append(self, token_L: Ints, column_L: Ints, slot_L: Ints, num_slots: int, cache: PreallocatedCache) -> Tensor:
        """Next-token logits (S, V) after ``token_L`` of the live rows in columns ``column_L`` of their slots."""
        input_ids = np.zeros((num_slots, 1), dtype=np.int64)
        input_ids[slot_L, 0] = token_L
        column_S = np.full(num_slots, column_L[0])  # a slot without a row may hold anything, where others have room
        column_S[slot_L] = column_L
        columns = cache.append(column_S)
        with attending_up_to(columns):
            return self._forward(input_ids, column_S[:1, None] if columns is None else column_S[:, None], cache)

    def _forward(
        self, input_ids: Ints, position: Ints, cache: PreallocatedCache, last_S: NDArray[np.int64] | None = None
    ) -> Tensor:
        """Next-token logits (S, V) after feeding ``input_ids`` (S, n), or only its columns up to ``last_S``."""
        extra: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if self._takes_positions:
            extra["position_ids"] = upload(position, self.device)
        ids = upload(input_ids, self.device)
        if self._has_plain_head:
            hidden = self.model.base_model(input_ids=ids, **extra).last_hidden_state
            if last_S is None:
                hidden = hidden[:, -1]
            else:
                hidden = hidden[torch.arange(len(last_S), device=self.device), upload(last_S, self.device)]
            logits_SV: Tensor = self.model.get_output_embeddings()(hidden)
        else:
            logits_SV = self.model(input_ids=ids, **extra, **self._keep_last).logits[:, -1]
        return logits_SV


class Share(NamedTuple):
    """Rollouts ``start`` to ``stop`` (exclusive) of prompt number ``prompt``."""

    prompt: int
    start: int
    stop: int


class Pool:
    """Rollouts of which ``num_rows`` are drawn at once; those ``waiting`` take the rows of those that end.

    Where a prompt's rollouts do not all fit, one row less is drawn, and its slot keeps the prompt for those that wait.
    """

    def __init__(self, shares: Sequence[Share], num_rows: int) -> None:
        self.num_rows = num_rows
        self.waiting = deque(shares)
        self.is_kept = False

    def is_due(self, num_live: int) -> bool:
        """Whether rows are to join ``num_live`` others."""
        num_free = self.num_rows - num_live
        return bool(self.waiting) and (num_live == 0 or num_free >= max(2, MIN_SHARE_FREE * self.num_rows))

    def take(self, num_live: int) -> list[Share]:
        """What joins ``num_live`` rows; there is something if it `is_due`. Then `is_kept` is about the last prompt."""
        num_free = self.num_rows - num_live
        shares: list[Share] = []
        self.is_kept = False
        while self.waiting and num_free > 0:
            prompt, start, stop = self.waiting[0]
            if stop - start <= num_free:
                shares.append(self.waiting.popleft())
                num_free -= stop - start
                continue
            cut = start + (num_free - 1 if self.num_rows > 1 else num_free)
            if cut > start:
                shares.append(Share(prompt, start, cut))
                self.waiting[0] = Share(prompt, cut, stop)
                self.is_kept = self.num_rows > 1
            break
        return shares


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
            pools[-1].waiting.append(share)
            pools[-1].num_rows = min(row_limit, total)
        else:
            most_rows, total = row_limit, count
            pools.append(Pool([share], min(row_limit, total)))
    return pools


@dataclass
class Request:
    """What one call of the engine asks for, and what it has drawn so far.

    ``limits`` are the response tokens that each prompt leaves room for. ``results`` has each prompt's rollouts by seed.
    """

    prompts: Sequence[Prompt]
    seeds: Seeds
    limits: Sequence[int]
    sampling: Sampling
    eos_ids: Sequence[int]
    with_entropy: bool
    texts: ResponseTexts
    progress: RolloutProgress | None
    results: list[dict[int, Rollout]]
    num_finished: int = 0
    num_tokens: int = 0


class Rows:
    """Places of ``num_rows`` rows; column t of the (R, T) arrays holds the t-th response token."""

    def __init__(self, num_rows: int, max_tokens: int, *, with_entropy: bool) -> None:
        self.prompt_R = np.zeros(num_rows, dtype=np.int64)
        self.rollout_R = np.zeros(num_rows, dtype=np.int64)
        self.seed_R = np.zeros(num_rows, dtype=np.uint64)
        self.limit_R = np.zeros(num_rows, dtype=np.int64)  # response tokens a row may have
        self.prompt_tokens_R = np.zeros(num_rows, dtype=np.int64)
        self.length_R = np.zeros(num_rows, dtype=np.int64)  # response tokens drawn so far
        self.token_RT = np.zeros((num_rows, max_tokens), dtype=np.int64)
        self.logp_RT = np.zeros((num_rows, max_tokens), dtype=np.float32)
        self.entropy_RT = np.zeros((num_rows, max_tokens), dtype=np.float32) if with_entropy else None
        self._is_free_R = np.ones(num_rows, dtype=bool)

    def begin(self, shares: Sequence[Share], request: Request) -> Ints:
        """Free places, given to the rows of ``shares``, one share after the other."""
        prompts = [share.prompt for share in shares for _ in range(share.start, share.stop)]
        row_L = np.flatnonzero(self._is_free_R)[: len(prompts)]
        self._is_free_R[row_L] = False
        self.prompt_R[row_L] = prompts
        self.rollout_R[row_L] = [number for share in shares for number in range(share.start, share.stop)]
        seeds = [seed for share in shares for seed in request.seeds[share.prompt][share.start : share.stop]]
        self.seed_R[row_L] = np.array(seeds, dtype=np.uint64)
        self.limit_R[row_L] = [request.limits[prompt] for prompt in prompts]
        self.prompt_tokens_R[row_L] = [len(request.prompts[prompt].token_ids) for prompt in prompts]
        self.length_R[row_L] = 0
        return row_L

    def column(self, row_L: Ints) -> Ints:
        """Where the last token of each row belongs in its slot."""
        return self.prompt_tokens_R[row_L] + self.length_R[row_L] - 1

    def end(self, row_L: Ints, is_stopped_L: NDArray[np.bool_], request: Request) -> None:
        """Hand on what the rows have drawn, and free their places."""
        self._is_free_R[row_L] = True
        tokens, logps = self.token_RT[row_L].tolist(), self.logp_RT[row_L].tolist()
        entropies = None if self.entropy_RT is None else self.entropy_RT[row_L].tolist()
        places = (self.prompt_R[row_L], self.rollout_R[row_L], self.length_R[row_L], is_stopped_L)
        for i, (prompt, number, length, is_stopped) in enumerate(zip(*(p.tolist() for p in places), strict=True)):
            ids = tuple(tokens[i][:length])
            said = ids[:-1] if ids[-1] in request.eos_ids else ids
            reason: FinishReason = "stop" if is_stopped else "length"
            entropy = None if entropies is None else tuple(entropies[i][:length])
            rollout = Rollout(ids, request.texts.text(said), reason, tuple(logps[i][:length]), entropy)
            request.results[prompt][request.seeds[prompt][number]] = rollout


@dataclass(frozen=True)
class Live:
    """Rows that go on, with the slots of their prefixes and the tokens drawn after those, which no slot holds yet."""

    row_L: Ints
    slot_L: Ints
    token_L: Ints

    def __len__(self) -> int:
        return len(self.row_L)

    def __add__(self, other: "Live") -> "Live":
        pairs = zip((self.row_L, self.slot_L, self.token_L), (other.row_L, other.slot_L, other.token_L), strict=True)
        return Live(*(np.concatenate(pair) for pair in pairs))


NONE = Live(*(np.zeros(0, dtype=np.int64) for _ in range(3)))


class Decoding:
    """Draws the rollouts of ``pool``. The last slot of the cache keeps a prompt of which some rollouts wait."""

    def __init__(self, model: SlotModel, pool: Pool, request: Request) -> None:
        self.model = model
        self.request = request
        self.pool = pool
        limits = [request.limits[share.prompt] for share in pool.waiting]
        prompt_tokens = [len(request.prompts[share.prompt].token_ids) for share in pool.waiting]
        self.rows = Rows(pool.num_rows, max(limits), with_entropy=request.with_entropy)
        most_tokens = max(limit + tokens for limit, tokens in zip(limits, prompt_tokens, strict=True))
        num_layers = model.model.config.get_text_config().num_hidden_layers
        self.cache = PreallocatedCache(num_layers, pool.num_rows, most_tokens)
        self.num_slots = 0
        self._kept: tuple[int, Tensor] | None = None  # tokens and logits of the prompt that is kept
        self._is_eos = np.zeros(max(request.eos_ids) + 2, dtype=bool)  # the last entry stands for all higher ids
        self._is_eos[list(request.eos_ids)] = True

    def run(self) -> None:
        """Draw them all."""
        live = NONE
        while True:
            while self.pool.is_due(len(live)):
                live = self._join(live)
            if len(live) == 0:
                return
            live = self._part(live)
            column_L = self.rows.column(live.row_L)
            append = partial(self.model.append, live.token_L, column_L, live.slot_L, self.num_slots, self.cache)
            live = self._draw(live.row_L, live.slot_L, append())  # no name keeps the logits beside the next ones

    def _part(self, live: Live, *, is_dense: bool = False) -> Live:
        """A slot of its own for every distinct prefix, the tokens drawn last included."""
        slot_L, self.num_slots, source, target = branch(live.slot_L, live.token_L, self.num_slots, is_dense=is_dense)
        if len(source):
            self.cache.copy_slots(source, target, int(self.rows.column(live.row_L).max()))
        return Live(live.row_L, slot_L, live.token_L)

    def _join(self, live: Live) -> Live:
        """``live`` and rows that were waiting, which have drawn their first token."""
        live = self._part(live, is_dense=True)
        shares = self.pool.take(len(live))
        first, last_slot = self.num_slots, self.pool.num_rows - 1
        prompts = [self.request.prompts[share.prompt].token_ids for share in shares]
        logits = []
        if self._kept is not None:  # the first share goes on with it
            num_tokens, kept_logits_SV = self._kept
            self.cache.copy_slots(np.array([last_slot]), np.array([first]), num_tokens)
            logits.append(kept_logits_SV)
        if len(prompts) > len(logits):
            logits.append(self.model.prefill(prompts[len(logits) :], first + len(logits), self.cache))
        logits_SV = logits[0] if len(logits) == 1 else torch.cat(logits)
        self.num_slots = first + len(prompts)
        self._kept = None
        if self.pool.is_kept:
            self._kept = (len(prompts[-1]), logits_SV[-1:].clone())
            self.cache.copy_slots(np.array([self.num_slots - 1]), np.array([last_slot]), len(prompts[-1]))
        slot_L = np.repeat(np.arange(len(prompts)), [share.stop - share.start for share in shares])
        joined = self._draw(self.rows.begin(shares, self.request), slot_L, logits_SV)
        return live + Live(joined.row_L, joined.slot_L + first, joined.token_L)

    def _draw(self, row_L: Ints, slot_L: Ints, logits_SV: Tensor) -> Live:
        """Draws a token for each row from the logits of its slot; the rows that go on."""
        rows, request = self.rows, self.request
        num_drawn_L = rows.length_R[row_L]
        uniform_L = uniforms(rows.seed_R[row_L], num_drawn_L.view(np.uint64))
        token_L, logp_L, entropy_L = draw_rows(
            logits_SV, slot_L, uniform_L, request.sampling, with_entropy=request.with_entropy
        )
        rows.token_RT[row_L, num_drawn_L] = token_L
        rows.logp_RT[row_L, num_drawn_L] = logp_L
        if rows.entropy_RT is not None:
            rows.entropy_RT[row_L, num_drawn_L] = entropy_L
        rows.length_R[row_L] = num_drawn_L + 1
        is_stopped_L = self._is_eos[np.minimum(token_L, len(self._is_eos) - 1)]
        if request.sampling.stop:
            for i in np.flatnonzero(~is_stopped_L):
                is_stopped_L[i] = request.texts.meets_stop(rows.token_RT[row_L[i], : num_drawn_L[i] + 1])
        is_done_L = is_stopped_L | (rows.limit_R[row_L] == num_drawn_L + 1)
        if is_done_L.any():
            rows.end(row_L[is_done_L], is_stopped_L[is_done_L], request)
            row_L, slot_L, token_L = row_L[~is_done_L], slot_L[~is_done_L], token_L[~is_done_L]
        request.num_finished += int(is_done_L.sum())
        request.num_tokens += len(is_done_L)
        if request.progress is not None:
            request.progress(request.num_finished, request.num_tokens)
        return Live(row_L, slot_L, token_L)
