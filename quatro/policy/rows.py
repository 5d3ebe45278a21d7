"""Rollouts as tensors: rows padded on the right, minibatches counted in prompts, micro-batches counted in tokens.

At the end: how many tokens a micro-batch holds, and what happens when memory runs out.
"""

# Axes: B rows (rollouts), L prompt and response tokens, T response tokens.
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from evals.errors import MissingError, is_out_of_memory, reason_of
from quatro.policy.device import upload
from quatro.types import Batch, Prompt, Rollout

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """A batch together with what the model reads.

    ``ids_BL`` prompt then response, padded on the right with 0: under causal attention nothing real ever looks at
    padding, so no attention mask is needed. ``prompt_length_B`` tokens come before the response.
    """

    ids_BL: Tensor
    prompt_length_B: Tensor
    batch: Batch

    def __len__(self) -> int:
        return self.ids_BL.shape[0]

    @property
    def total_length_B(self) -> Tensor:
        return self.prompt_length_B + self.batch.mask_BT.sum(dim=-1)

    def select(self, index: Tensor) -> Self:
        """Some rows, cropped to their own longest sequence and response."""
        length = int(self.total_length_B[index].max())
        width = max(1, int(self.batch.mask_BT[index].sum(dim=-1).max()))
        selected: dict[str, Any] = {
            name: value[index, :width] if name.endswith("_BT") else value[index]
            for name, value in vars(self.batch).items()
            if isinstance(value, Tensor)
        }
        return type(self)(self.ids_BL[index, :length], self.prompt_length_B[index], replace(self.batch, **selected))

    def with_batch(self, **changes: Any) -> Self:
        return replace(self, batch=replace(self.batch, **changes))

    def minibatches(self, num_prompts: int) -> Iterator[Tensor]:
        """Row indices of ``num_prompts`` whole groups at a time, in the order of their prompts."""
        group_B = self.batch.group_B
        for start in range(0, int(group_B.max()) + 1, num_prompts):
            yield torch.nonzero((group_B >= start) & (group_B < start + num_prompts)).squeeze(-1)

    def microbatches(self, max_tokens: int) -> Iterator[Tensor]:
        """Row indices sorted by length and cut so that rows x longest row stays within ``max_tokens``.

        A single row that is longer is a micro-batch of its own.
        """
        length_B = self.total_length_B.cpu()
        order_B = torch.argsort(length_B, descending=True, stable=True)
        start = 0
        while start < len(order_B):
            num_rows = max(1, max_tokens // int(length_B[order_B[start]]))
            yield order_B[start : start + num_rows].to(self.ids_BL.device)
            start += num_rows


def collate(
    prompts: Sequence[Prompt],
    groups: Sequence[Sequence[Rollout]],
    advantage_B: Tensor,
    *,
    max_new_tokens: int,
    device: torch.device | str = "cpu",
) -> Rows:
    """Rows in the order prompt by prompt, rollout by rollout; group ids are positions in ``prompts``.

    ``old_logp_BT`` holds the engine's log-probabilities, NaN where it gave none: the trainer replaces them.
    """
    rollouts = [(prompt, rollout) for prompt, group in zip(prompts, groups, strict=True) for rollout in group]
    prompt_length = np.array([len(prompt.token_ids) for prompt, _ in rollouts])
    response_length = np.array([len(rollout.token_ids) for _, rollout in rollouts])
    width = max(1, int(response_length.max()))
    ids = np.zeros((len(rollouts), int((prompt_length + response_length).max())), dtype=np.int64)
    old_logp = np.full((len(rollouts), width), np.nan, dtype=np.float32)
    for row, (prompt, rollout) in enumerate(rollouts):
        ids[row, : prompt_length[row] + response_length[row]] = (*prompt.token_ids, *rollout.token_ids)
        if rollout.logp is not None:
            old_logp[row, : response_length[row]] = rollout.logp
    group_size = [len(group) for group in groups]
    group = np.repeat(np.arange(len(groups)), group_size)
    device = torch.device(device)
    batch = Batch(
        old_logp_BT=upload(old_logp, device),
        mask_BT=upload(np.arange(width) < response_length[:, None], device),
        advantage_B=advantage_B.to(device),
        group_B=upload(group, device),
        group_size_B=upload(np.asarray(group_size)[group], device),
        max_new_tokens=max_new_tokens,
    )
    return Rows(upload(ids, device), upload(prompt_length, device), batch)


class MicrobatchSize:
    """``tokens`` of a micro-batch: as ``configured``, and fewer once memory has run out.

    The number decides the order of sums, so it is part of a run's state. ``under_way`` is the shape of the pass that is
    being made, (rows, tokens of each), which tells whether a smaller number can help.
    """

    def __init__(self, configured: int) -> None:
        self.configured = self.tokens = configured
        self.under_way = (0, 0)

    def attempt(self, work: Callable[[], T], device: torch.device) -> T:
        """``work()``. Whenever memory runs out, ``work`` is done again from its beginning in smaller micro-batches.

        Raises MissingError if memory ran out in a pass over a single row.
        """
        while True:
            self.under_way = (0, 0)
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(error)
            # Outside the handler: the error's traceback held on to the tensors of the failed pass. So does what
            # autograd has queued of other branches, until the next backward pass of this thread, which drops it.
            with torch.enable_grad():
                torch.zeros((), requires_grad=True).mul(1).backward()
            if device.type == "cuda":
                torch.cuda.empty_cache()

    def _halve(self, error: BaseException) -> None:
        """Halve ``tokens`` until the pass that failed would be cut."""
        reason = reason_of(error)
        num_rows, length = self.under_way
        if num_rows == 1 or self.tokens == 1:
            raise MissingError(
                f"out of memory with a single response of {length} tokens, its prompt included, in a micro-batch "
                f"({reason}); the last checkpoint is intact. Begin a run that needs less: `quatro train "
                "RUN/config.yaml -s policy.gradient_checkpointing=true`, -s dtype=bfloat16, -s policy.lora.rank=16, or "
                "a lower rollout.max_new_tokens; `--dry-run` predicts what each of them needs"
            ) from error
        half, needed = self.tokens // 2, num_rows * length or self.tokens
        while half >= needed:
            half //= 2
        logger.warning(
            "out of memory with microbatch_tokens=%d (%s); the run goes on with %d and begins this optimiser step "
            "again",
            self.tokens,
            reason,
            half,
        )
        self.tokens = half

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps."""
        return {"configured": self.configured, "used": self.tokens}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Take over a number that memory has lowered, unless another number has been configured since."""
        if state["configured"] == self.configured:
            self.tokens = state["used"]
