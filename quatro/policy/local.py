"""A policy held by one process: its optimiser, its weights, saving and loading."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evals.errors import DivergedError
from evals.files.whole import naming
from quatro.config import Config
from quatro.config.blocks import LoraConfig
from quatro.policy import lora
from quatro.policy.facts import cast_products
from quatro.policy.torch_policy import Step, TorchPolicy
from quatro.processes.world import World


class LocalPolicy(TorchPolicy):
    """Trained weights and AdamW in float32 on one device; several ranks hold a copy each and add up their gradients.

    ``reference`` is float32, but for the weights of its matrix products, which have the format of the computation.
    """

    def __init__(self, model: Any, config: Config, *, world: World | None = None) -> None:
        super().__init__(model, config, world=world)
        if self.has_reference and self.lora is None:
            self.reference = copy.deepcopy(model).requires_grad_(False)
            if self.dtype == "bfloat16":
                cast_products(self.reference, torch.bfloat16)

        settings = config.optimizer
        self.optimizer = torch.optim.AdamW(
            self.trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: settings.lr_share(step, config.optimizer_steps)
        )

    @property
    def lr(self) -> float:
        return float(self.schedule.get_last_lr()[0])

    # --- one optimiser step -----------------------------------------------------------------------------------------

    def _zero_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, loss: Tensor) -> None:
        loss.backward()

    def _step(self, loss_sum: Tensor) -> Step:
        self._reduce_gradients()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.trained, self.max_grad_norm)
        # Every rank must come to the same decision.
        is_finite = bool(torch.isfinite(grad_norm)) and bool(torch.isfinite(self.world.total(loss_sum)))
        is_applied = is_finite and float(grad_norm) > 0.0
        if is_applied:
            self.optimizer.step()
            self.schedule.step()
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

    # --- weights and state ------------------------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return all_weights(self.model, self.lora)

    @torch.no_grad()
    def snapshot(self) -> list[Tensor]:
        return [parameter.detach().clone() for parameter in self.trained]

    @torch.no_grad()
    def scale_move(self, before: Sequence[Tensor], factor: float) -> None:
        for start, weight in zip(before, self.trained, strict=True):
            weight.copy_(torch.lerp(start, weight, factor) if factor else start)

    def save_model(self, folder: Path, tokenizer: Any) -> None:
        if self.world.is_first:
            save_folder(self.model, folder, tokenizer, adapter_of=self.base_model if self.lora else None)

    def optimizer_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, plain values)`` of optimiser and schedule; parameters are numbered as the optimiser has them."""
        state = self.optimizer.state_dict()
        tensors, scalars = {}, {}
        for number, entries in state["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"{number}/{name}"] = value.detach().cpu().contiguous()
                else:
                    scalars[f"{number}/{name}"] = value
        return tensors, {"scalars": scalars, "schedule_steps": self.schedule.last_epoch}

    def load_optimizer_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        state = self.optimizer.state_dict()
        entries: dict[int, dict[str, Any]] = {}
        for key, value in [*tensors.items(), *plain["scalars"].items()]:
            number, name = key.split("/", 1)
            entries.setdefault(int(number), {})[name] = value.clone() if isinstance(value, Tensor) else value
        self.optimizer.load_state_dict({"state": entries, "param_groups": state["param_groups"]})
        self.schedule.last_epoch = plain["schedule_steps"]
        pairs = zip(self.schedule.base_lrs, self.schedule.lr_lambdas, strict=True)
        lrs = [base * function(self.schedule.last_epoch) for base, function in pairs]
        for group, lr in zip(self.optimizer.param_groups, lrs, strict=True):
            group["lr"] = lr
        self.schedule._last_lr = lrs


def all_weights(
    model: Any, adapter: LoraConfig | None, whole: lora.Whole = lora.in_one_piece
) -> Iterator[tuple[str, Tensor]]:
    """Every weight of ``model`` under its Hugging Face name; an adapter is added in.

    Inside ``whole(parameters)`` these are whole; it is entered for one weight after the other.
    """
    if adapter is not None:
        yield from lora.merged_weights(model, whole)
        return
    for name, parameter in model.named_parameters():
        with whole([parameter]):
            weight = parameter.detach()
        yield name, weight


def save_folder(model: Any, folder: Path, tokenizer: Any, *, adapter_of: str | None = None) -> None:
    """A plain Hugging Face folder of ``model``, whose weights are all there; or only its adapter of that model.

    Raises:
        DivergedError: a weight is not finite; nothing is written.
        OSError: it cannot be written.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as hf_logging

    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            raise DivergedError(f"weight {name} holds NaN or infinity: no checkpoint is written")

    hf_logging.disable_progress_bar()
    try:
        with naming(folder):
            if adapter_of is not None:
                lora.save(model, folder, base_model=adapter_of)
            else:
                model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    except Exception as error:
        # Of a full disk safetensors tells with a type of its own, and tokenizers with a bare Exception.
        if type(error) not in (SafetensorError, Exception):
            raise
        raise OSError(f"{folder} cannot be written: {error}") from error
