"""Rollouts by a decode loop over the policy's own forward, for any decoder-only Hugging Face model.

The engine shares the policy's model object, so there are no weights to sync. Against ``model.generate`` it saves:
a prompt is prefilled once per group, rows with the same tokens so far share one row of the forward pass
(`kv_cache.py`), finished rows leave the batch, and a step makes no attention mask where all prompts are equally long
and repeats no keys where they are not (`attention.py`).
"""

# Axes: B rows (rollouts) of a batch, L rows still drawing, S slots of the KV cache, V vocabulary, T response tokens.
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evals.errors import DivergedError, UsageError
from quatro.policy.loading import context_limit, has_plain_head
from quatro.rollout.attention import attending_up_to
from quatro.rollout.engine import Engine, RolloutProgress, Share
from quatro.rollout.kv_cache import PreallocatedCache, branch
from quatro.rollout.limits import response_limits
from quatro.rollout.sampling import DrawnTokens, draw_tokens
from quatro.rollout.stops import ResponseTexts
from quatro.rollout.streams import uniforms
from quatro.types import FinishReason, Prompt, Rollout, Sampling

# The KV cache of 2^17 tokens takes 3.8 GB for Qwen2.5-1.5B in bfloat16 (28 KiB a token).
MAX_BATCH_TOKENS = 1 << 17
MAX_BATCH_ROWS = 2048

# Prompts go through the model together if the longest has at most so many times the tokens of the shortest.
MAX_PREFILL_SPREAD = 1.25

# Logits of more entries than this are sampled in slices: log-probs, probabilities and their float64 sums of one
# slice are what the engine holds beside the model (16 bytes an entry).
MAX_SAMPLED_LOGITS = 1 << 24


def plan_batches(
    prompt_tokens: Sequence[int],
    num_rollouts: Sequence[int],
    max_new_tokens: int,
    *,
    max_batch_rows: int,
    max_batch_tokens: int,
) -> list[list[Share]]:
    """Batches in which rows x (longest prompt + max_new_tokens) stays within the limits (one row always fits).

    Prompts of similar length come together. A group is cut only if it does not fit into a batch of its own.
    """
    batches: list[list[Share]] = []
    batch: list[Share] = []
    room = 0
    for prompt in sorted(range(len(prompt_tokens)), key=lambda i: prompt_tokens[i]):
        # Ascending lengths: the prompt at hand is the longest of its batch.
        row_limit = max(1, min(max_batch_rows, max_batch_tokens // (prompt_tokens[prompt] + max_new_tokens)))
        start = 0
        while start < num_rollouts[prompt]:
            missing = num_rollouts[prompt] - start
            room = row_limit - sum(share.stop - share.start for share in batch)
            if batch and (room <= 0 or room < missing <= row_limit):
                batches.append(batch)
                batch, room = [], row_limit
            stop = start + min(missing, room)
            batch.append(Share(prompt, start, stop))
            start = stop
    return [*batches, batch] if batch else batches


@dataclass
class _Rows:
    """What a batch has drawn so far; column t of the (B, T) arrays holds the t-th response token."""

    prompt_B: NDArray[np.int64]  # which prompt of the batch
    rollout_B: NDArray[np.int64]
    seed_B: NDArray[np.uint64]
    limit_B: NDArray[np.int64]  # response tokens a row may have
    token_BT: NDArray[np.int64]
    logp_BT: NDArray[np.float32]
    entropy_BT: NDArray[np.float32] | None
    length_B: NDArray[np.int64]
    is_stopped_B: NDArray[np.bool_]


class TransformersEngine(Engine):
    """Draws from ``model`` as it is at the time of the call; train/eval mode of its modules is put back afterwards.

    ``max_batch_tokens`` bounds rows x (prompt + response tokens) of the KV cache, ``max_batch_rows`` the rows.
    ``collect_entropy`` asks for the exact entropy of every next-token distribution at temperature 1. ``compute`` is
    the context in which the model computes (autocast, if the policy trains under it).

    Raises:
        UsageError: no eos id, or layers that do not keep keys and values.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        eos_ids: Sequence[int],
        device: torch.device | str | None = None,
        max_batch_tokens: int = MAX_BATCH_TOKENS,
        max_batch_rows: int = MAX_BATCH_ROWS,
        collect_entropy: bool = True,
        compute: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.device = torch.device(device) if device is not None else next(model.parameters()).device
        self.eos_ids = tuple(eos_ids)
        self.max_batch_tokens = max_batch_tokens
        self.max_batch_rows = max_batch_rows
        self.collect_entropy = collect_entropy
        self.compute = compute
        if not self.eos_ids:
            raise UsageError("the engine has no stop token: every response would run to max_new_tokens; pass eos_ids")
        layer_types = set(getattr(model.config, "layer_types", None) or ())
        unknown = layer_types - {"full_attention", "sliding_attention", "chunked_attention"}
        if unknown:
            raise UsageError(
                f"model type {model.config.model_type!r} has layers of type {', '.join(sorted(unknown))}, "
                "for which the transformers engine has no cache; set rollout.engine=vllm"
            )
        accepted = inspect.signature(_unwrapped(model).forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._keep_last = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        # For a tiny model the outer forward is a tenth of a step: call what is inside it.
        with compute():
            self._has_plain_head = has_plain_head(model)

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Nothing to take over: the engine draws from the policy's own tensors."""
        return {}

    def generate(
        self,
        prompts: Sequence[Prompt],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        progress: RolloutProgress | None = None,
    ) -> list[list[Rollout]]:
        """See `engine.Engine.generate`. An eos id, a stop string, ``max_new_tokens`` or the context ends a response.

        Raises:
            DataError: a prompt fills the model's context.
            DivergedError: the model's logits are not finite.
        """
        limits = response_limits(prompts, sampling.max_new_tokens, context=context_limit(self.model))
        results: list[list[Rollout | None]] = [[None] * len(group) for group in seeds]
        report = _Reporter(progress)
        texts = ResponseTexts(self.tokenizer, sampling.stop)
        batches = plan_batches(
            [len(p.token_ids) for p in prompts],
            [len(group) for group in seeds],
            sampling.max_new_tokens,
            max_batch_rows=self.max_batch_rows,
            max_batch_tokens=self.max_batch_tokens,
        )
        with _eval_mode(self.model), _without_graph(self.model), self.compute():
            for shares in batches:
                rows = _new_rows(shares, seeds, limits, with_entropy=self.collect_entropy)
                self._decode([prompts[share.prompt] for share in shares], rows, sampling, texts, report)
                for row, rollout in enumerate(self._rollouts(rows, texts)):
                    share = shares[rows.prompt_B[row]]
                    results[share.prompt][int(rows.rollout_B[row])] = rollout
        return [[rollout for rollout in group if rollout is not None] for group in results]

    def _decode(
        self, prompts: Sequence[Prompt], rows: _Rows, sampling: Sampling, texts: ResponseTexts, report: _Reporter
    ) -> None:
        """Fills ``rows``."""
        num_slots = len(prompts)
        prompt_tokens_B = np.array([len(prompt.token_ids) for prompt in prompts])[rows.prompt_B]
        num_layers = self.model.config.get_text_config().num_hidden_layers
        cache = PreallocatedCache(num_layers, len(rows.seed_B), int((prompt_tokens_B + rows.limit_B).max()))
        logits_SV = self._prefill(prompts, cache)
        is_stop_id = np.zeros(logits_SV.shape[-1], dtype=bool)
        is_stop_id[[i for i in self.eos_ids if i < len(is_stop_id)]] = True

        live_L = np.arange(len(rows.seed_B))
        slot_L = rows.prompt_B
        for step in range(int(rows.limit_B.max())):
            token_L, logp_L, entropy_L = self._draw(logits_SV, slot_L, uniforms(rows.seed_B[live_L], step), sampling)
            rows.token_BT[live_L, step] = token_L
            rows.logp_BT[live_L, step] = logp_L
            if rows.entropy_BT is not None:
                rows.entropy_BT[live_L, step] = entropy_L
            is_stopped_L = is_stop_id[token_L]
            if sampling.stop:
                for i in np.flatnonzero(~is_stopped_L):
                    is_stopped_L[i] = texts.meets_stop(rows.token_BT[live_L[i], : step + 1])
            is_done_L = is_stopped_L | (rows.limit_B[live_L] == step + 1)
            if is_done_L.any():
                rows.is_stopped_B[live_L[is_stopped_L]] = True
                rows.length_B[live_L[is_done_L]] = step + 1
                live_L, slot_L, token_L = live_L[~is_done_L], slot_L[~is_done_L], token_L[~is_done_L]
            report(int(is_done_L.sum()), len(is_done_L))
            if len(live_L) == 0:
                return
            slot_L, num_slots, source, target = branch(slot_L, token_L, num_slots)
            column_L = prompt_tokens_B[live_L] + step
            cache.copy_slots(source, target, int(column_L.max()))
            logits_SV = self._append(token_L, column_L, slot_L, num_slots, cache)

    def _prefill(self, prompts: Sequence[Prompt], cache: PreallocatedCache) -> Tensor:
        """Next-token logits (S, V) after each prompt; slot i of the cache then holds prompt i.

        Prompts of similar length go through the model together, padded on the right, where no token sees the padding.
        """
        lengths = np.array([len(prompt.token_ids) for prompt in prompts])
        # Without a plain head only the logits of the last position can be asked for: equal lengths only.
        spread = MAX_PREFILL_SPREAD if self._has_plain_head else 1.0
        logits = []
        first = 0
        while first < len(prompts):
            stop = first + 1
            while stop < len(prompts) and lengths[first] <= lengths[stop] <= spread * lengths[first]:
                stop += 1
            longest = int(lengths[first:stop].max())
            input_ids = np.zeros((stop - first, longest), dtype=np.int64)
            for slot, prompt in enumerate(prompts[first:stop]):
                input_ids[slot, : lengths[first + slot]] = prompt.token_ids
            cache.hold(first, stop - first, longest)
            last_S = lengths[first:stop] - 1
            position = np.arange(longest)[None, :]
            logits.append(self._forward(input_ids, position, cache, None if (last_S == longest - 1).all() else last_S))
            first = stop
        return logits[0] if len(logits) == 1 else torch.cat(logits)

    def _append(
        self,
        token_L: NDArray[np.int64],
        column_L: NDArray[np.int64],
        slot_L: NDArray[np.int64],
        num_slots: int,
        cache: PreallocatedCache,
    ) -> Tensor:
        """Next-token logits (S, V) after ``token_L`` of the live rows in columns ``column_L`` of their slots."""
        input_ids = np.zeros((num_slots, 1), dtype=np.int64)
        input_ids[slot_L, 0] = token_L
        column_S = np.full(num_slots, column_L[0])  # a slot without a row may hold anything, where others have room
        column_S[slot_L] = column_L
        columns = cache.append(column_S)
        with attending_up_to(columns):
            return self._forward(input_ids, column_S[:1, None] if columns is None else column_S[:, None], cache)

    def _forward(
        self,
        input_ids: NDArray[np.int64],
        position: NDArray[np.int64],
        cache: PreallocatedCache,
        last_S: NDArray[np.int64] | None = None,
    ) -> Tensor:
        """Next-token logits (S, V) after feeding ``input_ids`` (S, n), or only its columns up to ``last_S``."""
        extra: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if self._takes_positions:
            extra["position_ids"] = torch.from_numpy(position).to(self.device)
        ids = torch.from_numpy(input_ids).to(self.device)
        if self._has_plain_head:
            hidden = self.model.base_model(input_ids=ids, **extra).last_hidden_state
            hidden = hidden[:, -1] if last_S is None else hidden[torch.arange(len(last_S)), torch.from_numpy(last_S)]
            logits_SV: Tensor = self.model.get_output_embeddings()(hidden)
        else:
            logits_SV = self.model(input_ids=ids, **extra, **self._keep_last).logits[:, -1]
        return logits_SV

    def _draw(
        self, logits_SV: Tensor, slot_L: NDArray[np.int64], uniform_L: NDArray[np.float64], sampling: Sampling
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]:
        """Token, log-prob and entropy (None if not asked for) of each live row."""
        num_slots, vocabulary = logits_SV.shape
        slots_at_once = max(1, MAX_SAMPLED_LOGITS // vocabulary)
        if num_slots <= slots_at_once:
            return self._draw_slice(logits_SV, slot_L, uniform_L, sampling)
        token_L = np.empty(len(slot_L), dtype=np.int64)
        logp_L = np.empty(len(slot_L), dtype=np.float32)
        entropy_L = np.empty(len(slot_L), dtype=np.float32) if self.collect_entropy else None
        for start in range(0, num_slots, slots_at_once):
            here = np.flatnonzero((slot_L >= start) & (slot_L < start + slots_at_once))
            slice_SV = logits_SV[start : start + slots_at_once]
            drawn = self._draw_slice(slice_SV, slot_L[here] - start, uniform_L[here], sampling)
            token_L[here], logp_L[here] = drawn[0], drawn[1]
            if entropy_L is not None:
                entropy_L[here] = drawn[2]
        return token_L, logp_L, entropy_L

    def _draw_slice(
        self, logits_SV: Tensor, slot_L: NDArray[np.int64], uniform_L: NDArray[np.float64], sampling: Sampling
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]:
        slots = torch.from_numpy(slot_L).to(self.device)
        uniform = torch.from_numpy(uniform_L).to(self.device)
        drawn: DrawnTokens = draw_tokens(logits_SV, slots, uniform, sampling, with_entropy=self.collect_entropy)
        if not drawn.is_finite.item():
            raise DivergedError(
                "the policy's logits are not finite while sampling; resume from an earlier checkpoint, "
                "or lower optimizer.lr"
            )
        entropy_L = None if drawn.entropy_S is None else drawn.entropy_S[slots].cpu().numpy()
        return drawn.token_B.cpu().numpy(), drawn.logp_B.cpu().numpy(), entropy_L

    def _rollouts(self, rows: _Rows, texts: ResponseTexts) -> Iterator[Rollout]:
        tokens, logps = rows.token_BT.tolist(), rows.logp_BT.tolist()
        entropies = None if rows.entropy_BT is None else rows.entropy_BT.tolist()
        ends = zip(rows.length_B.tolist(), rows.is_stopped_B.tolist(), strict=True)
        for row, (length, is_stopped) in enumerate(ends):
            ids = tuple(tokens[row][:length])
            said = ids[:-1] if ids[-1] in self.eos_ids else ids
            reason: FinishReason = "stop" if is_stopped else "length"
            entropy = None if entropies is None else tuple(entropies[row][:length])
            yield Rollout(ids, texts.text(said), reason, tuple(logps[row][:length]), entropy)


def _new_rows(
    shares: Sequence[Share], seeds: Sequence[Sequence[int]], limits: Sequence[int], *, with_entropy: bool
) -> _Rows:
    counts = [share.stop - share.start for share in shares]
    shape = (sum(counts), max(limits[share.prompt] for share in shares))
    return _Rows(
        prompt_B=np.repeat(np.arange(len(shares)), counts),
        rollout_B=np.concatenate([np.arange(share.start, share.stop) for share in shares]),
        seed_B=np.concatenate([np.array(seeds[s.prompt][s.start : s.stop], dtype=np.uint64) for s in shares]),
        limit_B=np.repeat([limits[share.prompt] for share in shares], counts),
        token_BT=np.zeros(shape, dtype=np.int64),
        logp_BT=np.zeros(shape, dtype=np.float32),
        entropy_BT=np.zeros(shape, dtype=np.float32) if with_entropy else None,
        length_B=np.zeros(shape[0], dtype=np.int64),
        is_stopped_B=np.zeros(shape[0], dtype=bool),
    )


class _Reporter:
    """Adds up what batches report and passes the totals on."""

    def __init__(self, progress: RolloutProgress | None) -> None:
        self.progress = progress
        self.num_finished = self.num_tokens = 0

    def __call__(self, num_finished: int, num_tokens: int) -> None:
        self.num_finished += num_finished
        self.num_tokens += num_tokens
        if self.progress is not None:
            self.progress(self.num_finished, self.num_tokens)


@contextmanager
def _eval_mode(model: torch.nn.Module) -> Iterator[None]:
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _without_graph(model: Any) -> AbstractContextManager[Any]:
    """inference_mode, a fifth faster on tiny models, unless the forward leaves tensors behind that training meets.

    These rotary embeddings replace their own buffer during a forward pass, and DeepSpeed ZeRO-3 gathers parameters.
    """
    rope = getattr(model.config, "rope_parameters", None) or {}
    is_kept = rope.get("rope_type") in ("dynamic", "longrope") or any(hasattr(p, "ds_id") for p in model.parameters())
    return torch.no_grad() if is_kept else torch.inference_mode()


def _unwrapped(model: Any) -> Any:
    """The Hugging Face model inside DeepSpeed's or DDP's engine and peft's adapter model."""
    model = getattr(model, "module", model)
    return model.get_base_model() if hasattr(model, "get_base_model") else model
