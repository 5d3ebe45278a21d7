"""A policy held by one process: forward passes over response tokens, optimiser steps, saving and loading."""

# Axes: B rows (rollouts), T response tokens, C response tokens of all rows, V vocabulary.
from __future__ import annotations

import copy
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evals.errors import DivergedError
from quatro import ops
from quatro.collate import Rows
from quatro.config import Config
from quatro.policy.loading import has_plain_head
from quatro.types import Batch, Loss, Metric
from quatro.world import World, merge

Snapshot = list[Tensor]
# Called with (logp_BT, batch, entropy_BT or None).
Objective = Callable[[Tensor, Batch, Tensor | None], Loss]


@dataclass(frozen=True)
class Forward:
    """``logp_BT`` of response tokens at the rollout temperature (0 in padding), ``entropy_BT`` at temperature 1."""

    logp_BT: Tensor
    entropy_BT: Tensor | None


@dataclass(frozen=True)
class Update:
    """One optimiser step: metrics of the loss, the gradient's norm before clipping, whether the step was taken.

    A step is not taken if a loss or gradient is not finite, or if the gradient is exactly zero: momentum alone would
    move the policy without any evidence. ``forward`` is the pass BEFORE the step, rows in the order given.
    """

    metrics: dict[str, Metric]
    grad_norm: float
    is_finite: bool
    is_applied: bool
    forward: Forward


class LocalPolicy:
    """``model`` is any Hugging Face causal language model; the reference is a frozen copy of it where beta > 0."""

    def __init__(self, model: Any, config: Config, *, world: World | None = None) -> None:
        self.model = model.eval()  # no dropout: the same weights must give the same log-probabilities
        self.world = world or World()
        self.device = next(model.parameters()).device
        self.dtype = config.dtype
        self._has_plain_head = has_plain_head(self.model)
        self.temperature = config.rollout.temperature
        self.microbatch_tokens = config.microbatch_tokens
        self.max_grad_norm = config.optimizer.max_grad_norm
        self.needs_entropy_grad = config.entropy_coefficient > 0
        self.reference = copy.deepcopy(model).requires_grad_(False) if config.kl.beta > 0 else None

        settings = config.optimizer
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )
        warmup = settings.warmup_steps
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / warmup) if warmup else 1.0
        )

    @property
    def lr(self) -> float:
        """Learning rate of the next optimiser step."""
        return float(self.schedule.get_last_lr()[0])

    def peak_memory_bytes(self) -> int:
        """Most memory held so far: on the device, or by this process where the device is the CPU."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def computing(self) -> AbstractContextManager[Any]:
        """The context in which this policy computes: autocast to bfloat16 where the configuration asks for it."""
        return nullcontext() if self.dtype == "float32" else torch.autocast(self.device.type, dtype=torch.bfloat16)

    # --- log-probabilities ------------------------------------------------------------------------------------------

    def forward(self, rows: Rows, *, need_entropy: bool, entropy_grad: bool = False, model: Any = None) -> Forward:
        """One forward pass over ``rows``, gradient and all; only response positions reach the vocabulary."""
        model = self.model if model is None else model
        mask_BT = rows.batch.mask_BT
        row_C, time_C = torch.nonzero(mask_BT, as_tuple=True)
        position_C = rows.prompt_length_B[row_C] + time_C
        with self.computing():
            if self._has_plain_head:
                hidden = model.base_model(input_ids=rows.ids_BL, use_cache=False).last_hidden_state
                logits_CV = model.get_output_embeddings()(hidden[row_C, position_C - 1])
            else:
                logits_CV = model(input_ids=rows.ids_BL, use_cache=False).logits[row_C, position_C - 1]
        logp_C, entropy_C = ops.logp_and_entropy(
            logits_CV,
            rows.ids_BL[row_C, position_C],
            temperature=self.temperature,
            entropy_grad=entropy_grad,
            need_entropy=need_entropy,
        )

        def scatter(value_C: Tensor) -> Tensor:
            return torch.zeros(mask_BT.shape, dtype=value_C.dtype, device=value_C.device).index_put(
                (row_C, time_C), value_C
            )

        return Forward(scatter(logp_C), None if entropy_C is None else scatter(entropy_C))

    @torch.no_grad()
    def score(self, rows: Rows, *, need_entropy: bool = False, use_reference: bool = False) -> Forward:
        """Log-probabilities without gradient, in the micro-batches in which `update` will see the same rows."""
        model = self.reference if use_reference else self.model
        logp_BT = torch.zeros(rows.batch.mask_BT.shape, dtype=torch.float32, device=self.device)
        entropy_BT = torch.zeros_like(logp_BT) if need_entropy else None
        for index in rows.microbatches(self.microbatch_tokens):
            result = self.forward(rows.select(index), need_entropy=need_entropy, model=model)
            width = result.logp_BT.shape[1]
            logp_BT[index, :width] = result.logp_BT
            if entropy_BT is not None and result.entropy_BT is not None:
                entropy_BT[index, :width] = result.entropy_BT
        return Forward(logp_BT, entropy_BT)

    # --- learning ---------------------------------------------------------------------------------------------------

    def update(self, rows: Rows, objective: Objective, *, use_own_logp: bool, need_entropy: bool) -> Update:
        """One optimiser step on all of ``rows``, micro-batch by micro-batch.

        Every loss term is divided by its weight over the whole minibatch and all ranks, so the gradient depends on
        neither micro-batch size nor world size. ``use_own_logp``: take this pass's own detached log-probabilities as
        the old ones, which is right as long as the policy still is pi_old.
        """
        weight_sums = self._weight_sums(rows, objective)
        self.optimizer.zero_grad(set_to_none=True)
        logp_BT = torch.zeros(rows.batch.mask_BT.shape, dtype=torch.float32, device=self.device)
        entropy_BT = torch.zeros_like(logp_BT) if need_entropy else None
        metrics: dict[str, Metric] = {}
        loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
        for index in rows.microbatches(self.microbatch_tokens):
            part = rows.select(index)
            result = self.forward(
                part,
                need_entropy=need_entropy or self.needs_entropy_grad,
                entropy_grad=self.needs_entropy_grad,
            )
            width = result.logp_BT.shape[1]
            logp_BT[index, :width] = result.logp_BT.detach().float()
            if entropy_BT is not None and result.entropy_BT is not None:
                entropy_BT[index, :width] = result.entropy_BT.detach().float()
            if use_own_logp:
                part = part.with_batch(old_logp_BT=result.logp_BT.detach())
            loss = objective(result.logp_BT, part.batch, result.entropy_BT)
            total = ops.total_loss(loss.terms, weight_sums)
            total.backward()
            loss_sum += total.detach().double()
            metrics = merge(metrics, loss.metrics)
            metrics = merge(metrics, _term_metrics(loss))
        self._reduce_gradients()
        grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        is_finite = bool(torch.isfinite(grad_norm)) and bool(torch.isfinite(loss_sum))
        is_applied = is_finite and float(grad_norm) > 0.0
        if is_applied:
            self.optimizer.step()
            self.schedule.step()
        self.optimizer.zero_grad(set_to_none=True)
        metrics["loss"] = Metric("sum", loss_sum)
        return Update(metrics, float(grad_norm), is_finite, is_applied, Forward(logp_BT, entropy_BT))

    @torch.no_grad()
    def _weight_sums(self, rows: Rows, objective: Objective) -> dict[str, Tensor]:
        """Weights never depend on the policy, so any log-probabilities serve to ask for them."""
        zeros_BT = torch.zeros(rows.batch.mask_BT.shape, dtype=torch.float32, device=self.device)
        terms = objective(zeros_BT, rows.with_batch(old_logp_BT=zeros_BT).batch, zeros_BT).terms
        return self.world.sums({term.name: term.weight.sum() for term in terms})

    def _reduce_gradients(self) -> None:
        if self.world.size > 1:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    torch.distributed.all_reduce(parameter.grad)

    # --- weights and state ------------------------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight under its Hugging Face name, for engines that hold a copy."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    @torch.no_grad()
    def snapshot(self) -> Snapshot:
        """A copy of the weights as they are."""
        return [parameter.detach().clone() for parameter in self.model.parameters()]

    @contextmanager
    def weights_of(self, snapshot: Snapshot) -> Iterator[None]:
        """Inside, the policy has the weights of ``snapshot``; afterwards its own again."""
        own = self.snapshot()
        self._put(snapshot)
        try:
            yield
        finally:
            self._put(own)

    @torch.no_grad()
    def _put(self, snapshot: Snapshot) -> None:
        for parameter, value in zip(self.model.parameters(), snapshot, strict=True):
            parameter.copy_(value)

    def save_model(self, folder: Path, tokenizer: Any) -> None:
        """A plain Hugging Face folder: anything that loads models loads it.

        Raises:
            DivergedError: a weight is not finite; nothing is written.
        """
        from safetensors import SafetensorError
        from transformers.utils import logging as hf_logging

        for name, parameter in self.model.named_parameters():
            if not bool(parameter.isfinite().all()):
                raise DivergedError(f"weight {name} holds NaN or infinity: no checkpoint is written")

        hf_logging.disable_progress_bar()
        try:
            self.model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        except SafetensorError as error:
            raise OSError(f"{folder} cannot be written: {error}") from error

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


def _term_metrics(loss: Loss) -> dict[str, Metric]:
    """Each term's own average, before its coefficient."""
    return {f"loss/{term.name}": ops.mean_of(term.value, term.weight) for term in loss.terms}
