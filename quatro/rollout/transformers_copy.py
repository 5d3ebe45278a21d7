"""Rollouts from a whole copy of a policy whose weights are in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from quatro.rollout.transformers import TransformersEngine


class CopyEngine(TransformersEngine):
    """Samples from ``model``, a copy that takes over the policy's weights at every `sync`."""

    @torch.no_grad()
    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        own = dict(self.model.named_parameters())
        for name, weight in named_weights():
            own[name].copy_(weight)
        return {}
