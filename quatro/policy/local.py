"""A policy held by one process: weights and optimiser are whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quatro.config import Config
from quatro.policy.facts import cast_products
from quatro.policy.torch_policy import Step, TorchPolicy
from quatro.processes.world import World


class LocalPolicy(TorchPolicy):
    """Trained weights and AdamW in float32 on one device; several ranks hold a copy each and add up their gradients.

    ``reference`` is float32, but for the weights of its matrix products, which have the format of the computation.
    """

    def __init__(self, model: Any, config: Config, *, world: World | None = None, weights: Path | None = None) -> None:
        super().__init__(model, config, world=world, weights=weights)
        if self.reference is not None and self.dtype == "bfloat16":
            cast_products(self.reference, torch.bfloat16)
        settings = config.optimizer
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )

    # --- one optimiser step -----------------------------------------------------------------------------------------

    def _zero_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, loss: Tensor) -> None:
        loss.backward()

    def take_step(self, loss_sum: Tensor) -> Step:
        self._reduce_gradients()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.trained, self.max_grad_norm)
        # Every rank must come to the same decision.
        is_finite = bool(torch.isfinite(grad_norm)) and bool(torch.isfinite(self.world.total(loss_sum)))
        is_applied = is_finite and float(grad_norm) > 0.0
        if is_applied:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr
            self.optimizer.step()
            self.num_steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        return Step(float(grad_norm), is_finite, is_applied)

    def _reduce_gradients(self) -> None:
        """Adds up the gradients of all ranks.

        A parameter may have none on some ranks, as an expert without a token: there it counts as 0. One that has none
        on any rank keeps none, and is not moved.
        """
        if self.world.size == 1:
            return
        with self.world.waiting("the gradients"):
            is_used = torch.tensor([parameter.grad is not None for parameter in self.trained], dtype=torch.uint8)
            torch.distributed.all_reduce(is_used, op=torch.distributed.ReduceOp.MAX)
            for parameter in (one for one, used in zip(self.trained, is_used.tolist(), strict=True) if used):
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                torch.distributed.all_reduce(parameter.grad)

    # --- moves of the weights ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def snapshot(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.trained]

    @torch.no_grad()
    def scale_move(self, before: Sequence[Tensor], factor: float) -> None:
        for start, weight in zip(before, self.trained, strict=True):
            weight.copy_(torch.lerp(start, weight, factor) if factor else start)
