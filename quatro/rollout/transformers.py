"""Rollouts by a decode loop over the policy's own forward, for any decoder-only Hugging Face model.

The engine shares the policy's model object, so there are no weights to sync. Against ``model.generate`` it saves:
a prompt is prefilled once per group, rows with the same tokens so far share one row of the forward pass
(`kv_cache.py`), rows that wait take the places of finished ones (`decoding.py`), and a step makes no attention mask
where all prefixes are equally long and repeats no keys where they are not (`kv_cache.py`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from evals.errors import is_out_of_memory, reason_of
from quatro.config.blocks import CPU_SIZES
from quatro.policy.facts import context_limit, hollow, in_mode
from quatro.rollout.decoding import Decoding, Request, SlotModel, plan_pools
from quatro.rollout.engine import Engine, RolloutProgress, Seeds
from quatro.rollout.stops import ResponseTexts, response_limits
from quatro.types import Prompt, Rollout, Sampling

logger = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class TransformersEngine(Engine):
    """Draws from ``model`` as it is at the time of the call; train/eval mode of its modules is put back afterwards.

    ``max_batch_tokens`` bounds rows x (prompt + response tokens) of the KV cache, ``max_batch_rows`` the rows; when
    memory runs out, it becomes half of those that were drawn at once, and what was not finished is drawn again.
    ``collect_entropy`` asks for the exact entropy of every next-token distribution at temperature 1. ``compute`` is
    the context in which the model computes (autocast, if the policy trains under it).

    Raises UsageError for layers that do not keep keys and values.
    """

    model: Any
    tokenizer: Any
    _: KW_ONLY
    eos_ids: Sequence[int]
    max_batch_tokens: int = CPU_SIZES.cache_tokens
    max_batch_rows: int = CPU_SIZES.rows_at_once
    collect_entropy: bool = True
    compute: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __post_init__(self) -> None:
        self.device = next(self.model.parameters()).device
        self._slots = SlotModel(self.model, self.device)

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Nothing to take over: the engine draws from the policy's own tensors."""
        return {}

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """See `engine.Engine.generate`. An eos id, a stop string, ``max_new_tokens`` or the context ends a response.

        Raises:
            DataError: a prompt fills the model's context.
            DivergedError: the model's logits are not finite.
        """
        request = Request(
            prompts=prompts,
            seeds=seeds,
            limits=response_limits(prompts, sampling.max_new_tokens, context=context_limit(self.model)),
            sampling=sampling,
            eos_ids=self.eos_ids,
            with_entropy=self.collect_entropy,
            texts=ResponseTexts(self.tokenizer, sampling.stop),
            progress=progress,
            results=[{} for _ in seeds],
        )
        while True:
            todo = zip(seeds, request.results, strict=True)
            request = replace(request, seeds=[[seed for seed in group if seed not in found] for group, found in todo])
            pools = plan_pools(
                [len(p.token_ids) for p in prompts],
                [len(group) for group in request.seeds],
                sampling.max_new_tokens,
                max_batch_rows=self.max_batch_rows,
                max_batch_tokens=self.max_batch_tokens,
            )
            training = [module for module in self.model.modules() if module.training]
            try:
                with in_mode(training, training=False), _without_graph(self.model), self.compute():
                    for pool in pools:
                        Decoding(self._slots, pool, request).run()
                return [[found[seed] for seed in group] for group, found in zip(seeds, request.results, strict=True)]
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error) or pool.num_rows == 1:
                    raise
                self.max_batch_rows = pool.num_rows // 2
                said = "out of memory while drawing %d responses at once (%s); from here on %d (rollout.rows_at_once)"
                logger.warning(said, pool.num_rows, reason_of(error), self.max_batch_rows)
            torch.cuda.empty_cache()  # outside the handler: the error's traceback held on to the keys and values


class CopyEngine(TransformersEngine):
    """Samples from ``model``, a copy of a policy whose weights are in shards; it is whole from `sync` to `rest`."""

    @torch.no_grad()
    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        own = dict(self.model.named_parameters())
        for name, weight in named_weights():
            own[name].data = own[name].contiguous()
            own[name].copy_(weight)
        return {}

    def rest(self) -> None:
        for weight in self.model.parameters():
            weight.data = hollow(weight)


def _without_graph(model: Any) -> AbstractContextManager[Any]:
    """inference_mode, a fifth faster on tiny models, unless the forward leaves tensors behind that training meets.

    These rotary embeddings replace their own buffer during a forward pass, and DeepSpeed ZeRO-3 gathers parameters.
    """
    rope = getattr(model.config, "rope_parameters", None) or {}
    is_kept = rope.get("rope_type") in ("dynamic", "longrope") or any(hasattr(p, "ds_id") for p in model.parameters())
    return torch.no_grad() if is_kept else torch.inference_mode()
