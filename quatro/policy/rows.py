"""Rollouts as tensors: rows padded on the right, minibatches counted in prompts, micro-batches counted in tokens."""

# Axes: B rows (rollouts), L prompt and response tokens, T response tokens.
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from quatro.types import Batch, Prompt, Rollout


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

    def select(self, index: Tensor) -> Rows:
        """Some rows, cropped to their own longest sequence and response."""
        length = int(self.total_length_B[index].max())
        width = max(1, int(self.batch.mask_BT[index].sum(dim=-1).max()))
        batch = self.batch

        def crop(value_BT: Tensor | None) -> Tensor | None:
            return None if value_BT is None else value_BT[index, :width]

        return Rows(
            ids_BL=self.ids_BL[index, :length],
            prompt_length_B=self.prompt_length_B[index],
            batch=replace(
                batch,
                old_logp_BT=batch.old_logp_BT[index, :width],
                mask_BT=batch.mask_BT[index, :width],
                advantage_B=batch.advantage_B[index],
                group_B=batch.group_B[index],
                group_size_B=batch.group_size_B[index],
                ref_logp_BT=crop(batch.ref_logp_BT),
            ),
        )

    def with_batch(self, **changes: Any) -> Rows:
        return replace(self, batch=replace(self.batch, **changes))

    def minibatches(self, num_prompts: int) -> Iterator[Tensor]:
        """Row indices of ``num_prompts`` whole groups at a time, in the order of their prompts."""
        group_B = self.batch.group_B
        num_groups = int(group_B.max()) + 1
        for start in range(0, num_groups, num_prompts):
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
        ids[row, : prompt_length[row]] = prompt.token_ids
        ids[row, prompt_length[row] : prompt_length[row] + response_length[row]] = rollout.token_ids
        if rollout.logp is not None:
            old_logp[row, : response_length[row]] = rollout.logp
    group_size = [len(group) for group in groups]
    group = np.repeat(np.arange(len(groups)), group_size)
    batch = Batch(
        old_logp_BT=torch.from_numpy(old_logp).to(device),
        mask_BT=torch.from_numpy(np.arange(width) < response_length[:, None]).to(device),
        advantage_B=advantage_B.to(device),
        group_B=torch.from_numpy(group).to(device),
        group_size_B=torch.from_numpy(np.asarray(group_size)[group]).to(device),
        max_new_tokens=max_new_tokens,
    )
    return Rows(torch.from_numpy(ids).to(device), torch.from_numpy(prompt_length).to(device), batch)
