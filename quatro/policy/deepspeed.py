"""A policy whose optimiser, gradients or weights are shards on several ranks: DeepSpeed ZeRO stage 1, 2 or 3.

In float32 it computes what `LocalPolicy` does. In bfloat16 the weights themselves are bfloat16, as are the reference's,
and the float32 master weights are part of the optimiser's shards.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from evals.errors import DataError, MissingError, is_out_of_memory
from quatro.config import Config, packages
from quatro.policy import lora
from quatro.policy.base import Forward, below
from quatro.policy.device import free_bytes
from quatro.policy.facts import cast_weights
from quatro.policy.footprint import footprint
from quatro.policy.kinds import DeepSpeed, ModelSize
from quatro.policy.local import all_weights, save_folder
from quatro.policy.rows import Rows
from quatro.policy.torch_policy import Step, TorchPolicy
from quatro.processes.world import World

T = TypeVar("T")

# Under ZeRO-3 smaller tensors (norms, biases) stay whole on every rank: fetching them costs more than they take.
WHOLE_ELEMENTS = 100_000
FILLED_SHARE = 0.9  # of the free memory: the rest is for fragmentation, and for what collectives and kernels take
# DeepSpeed's optimisers call a rank's master weights by one of these names: under stage 3, under stage 1 in bfloat16,
# and otherwise.
MASTERS = ("fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "single_partition_of_fp32_groups")


def require(device: torch.device) -> None:
    """DeepSpeed is there and knows its device; to be called before a model is loaded.

    Raises:
        MissingError: DeepSpeed, or what it needs on a CPU, is not installed.
    """
    packages.require("deepspeed", "policy.kind deepspeed")
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")


class DeepSpeedPolicy(TorchPolicy):
    """``reference`` is the frozen model of the KL term, held whole by every rank.

    Under ZeRO-3, if an engine draws from it (``is_sampled``), every rank also holds ``sampling_model``, a whole copy in
    the format of the computation that follows the weights when an engine syncs; otherwise it is the model itself. All
    ranks must call every method together.
    """

    is_sharded = True

    def __init__(
        self, model: Any, config: Config, *, world: World | None = None, reference: Any = None, is_sampled: bool = True
    ) -> None:
        super().__init__(model, config, world=world)
        self.stage = config.policy.zero_stage
        dtype = torch.float32 if config.dtype == "float32" else torch.bfloat16
        self.reference = None if reference is None else cast_weights(reference, dtype).requires_grad_(False)
        self._num_steps = 0
        self._settings, self._planned_steps = config.optimizer, config.optimizer_steps
        self._footprint = footprint(config, model.config, self.device)
        self._coming_bytes = _coming_bytes(config, model, self.world.size)
        if self.stage == 3 and is_sampled:
            whole = copy.deepcopy(model) if self.lora is None else lora.unadapted_copy(model)
            self.sampling_model = cast_weights(whole, dtype).requires_grad_(False)
        self.optimizer = _CarefulAdamW(
            self.trained,
            lr=self._settings.lr,
            betas=self._settings.betas,
            weight_decay=self._settings.weight_decay,
            fused=True,
        )
        compute: Callable[..., Forward] = super().forward
        self.engine = _initialize(_Computation(model, compute), self.optimizer, config)
        # `engine.optimizer` wraps ours; it knows the gradient's norm by the time ours is asked to step.
        self.optimizer.norm = lambda: float(self.engine.optimizer._global_grad_norm)

    @property
    def lr(self) -> float:
        """As `LocalPolicy.lr`."""
        return self._settings.lr * self._settings.lr_share(self._num_steps, self._planned_steps)

    # --- computing --------------------------------------------------------------------------------------------------

    def computing(self) -> AbstractContextManager[Any]:
        """Nothing to do: the weights have the format of the computation."""
        return nullcontext()

    def forward(
        self,
        rows: Rows,
        *,
        need_entropy: bool,
        entropy_grad: bool = False,
        model: Any = None,
        head_rows: int | None = None,
    ) -> Forward:
        """As `TorchPolicy.forward`; DeepSpeed sees the trained model as one module, from ids to log-probabilities."""
        options: dict[str, Any] = {"need_entropy": need_entropy, "entropy_grad": entropy_grad, "head_rows": head_rows}
        if model is not None and model is not self.model:
            return super().forward(rows, model=model, **options)
        with self.world.waiting("the shards of a forward pass"):
            found: tuple[Tensor, ...] = self.engine(rows, **options)
        return Forward(found[0], found[1] if need_entropy else None)

    def _passes(self, rows: Rows, *, is_learning: bool) -> Iterator[Tensor]:
        """Ranks exchange gradients or weights in every pass, so all make as many as the one that has most to do."""
        if not self.microbatch.is_settled:
            self.microbatch.settle(self._fitting_tokens(), self.world)
        own = list(super()._passes(rows, is_learning=is_learning))
        num_passes = self.world.largest(len(own)) if is_learning or self.stage == 3 else len(own)
        yield from own
        for _ in range(num_passes - len(own)):
            shortest = rows.select(rows.total_length_B.argmin()[None])
            logp_BT = self.forward(shortest, need_entropy=False).logp_BT
            if is_learning:
                self._backward(0.0 * logp_BT.sum())

    def _fitting_tokens(self) -> int:
        """The largest micro-batch that this rank has memory for, by the estimate; ranks on CPUs share the machine's."""
        free = free_bytes(self.device)
        if free is None:
            return self.microbatch.tokens
        share = free if self.device.type == "cuda" else free // self.world.size
        return self._footprint.fitting_tokens(int(FILLED_SHARE * share) - self._coming_bytes)

    def _attempt(self, work: Callable[[], T]) -> T:
        """``work()``, once: the other ranks are in the middle of theirs and cannot begin again with this one.

        Raises:
            MissingError: memory ran out.
        """
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise MissingError(
                f"rank {self.world.rank} ran out of memory with microbatch_tokens={self.microbatch.tokens}; the last "
                "checkpoint is intact. Begin a run that needs less: `quatro train RUN/config.yaml -s "
                f"microbatch_tokens={max(1, self.microbatch.tokens // 2)}`, a higher policy.zero_stage, "
                "policy.gradient_checkpointing=true, or more ranks"
            ) from error

    # --- one optimiser step -----------------------------------------------------------------------------------------

    def _zero_gradients(self) -> None:
        self.engine.optimizer.zero_grad()

    def _backward(self, loss: Tensor) -> None:
        if self.stage == 1 and self.world.size > 1:
            loss = _ReachingAll.apply(loss, *self.trained)  # type: ignore[no-untyped-call]
        # DeepSpeed divides by the number of ranks; our losses are shares of one sum.
        with self.world.waiting("the gradients"):
            self.engine.backward(loss * self.world.size)

    def _step(self, loss_sum: Tensor) -> Step:
        is_finite = bool(torch.isfinite(self.world.total(loss_sum)))
        self.optimizer.may_step = is_finite
        for group in self.engine.optimizer.param_groups:
            group["lr"] = self.lr
        with self.world.waiting("the optimiser step"):
            self.engine.step()
        grad_norm = float(self.engine.get_global_grad_norm())
        is_finite = is_finite and math.isfinite(grad_norm)
        is_applied = is_finite and grad_norm > 0.0
        if is_applied:
            self._num_steps += 1
        return Step(grad_norm, is_finite, is_applied)

    # --- weights and state ------------------------------------------------------------------------------------------

    @contextmanager
    def _whole(self, weights: list[Tensor]) -> Iterator[None]:
        """Inside, every rank has the whole of ``weights``."""
        if self.stage < 3:
            yield
            return
        import deepspeed

        with self.world.waiting("the whole weights"):
            gathered = deepspeed.zero.GatheredParameters(weights)
            gathered.__enter__()
        try:
            yield
        finally:
            gathered.__exit__(None, None, None)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Under ZeRO-3 each weight is gathered when it is asked for; what an engine keeps of it stays as it is."""
        return all_weights(self.model, self.lora, self._whole)

    def save_model(self, folder: Path, tokenizer: Any) -> None:
        """In the format of the computation: bfloat16 where that is bfloat16."""
        with self._whole(list(self.model.parameters()) if self.lora is None else self.trained):
            if self.world.is_first:
                save_folder(self.model, folder, tokenizer, adapter_of=self.base_model if self.lora else None)

    @property
    def _masters(self) -> list[Tensor]:
        """This rank's part of the weights in float32, flat: what the optimiser steps on."""
        optimizer = self.engine.optimizer
        masters: list[Tensor] = next(getattr(optimizer, name) for name in MASTERS if hasattr(optimizer, name))
        return masters

    def optimizer_state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """This rank's shard: master weights and moments."""
        tensors = {}
        for number, master in enumerate(self._masters):
            tensors[f"{number}/master"] = master.detach()
            tensors |= {f"{number}/{name}": value for name, value in self.optimizer.state.get(master, {}).items()}
        return {name: value.cpu().clone() for name, value in tensors.items()}, {"schedule_steps": self._num_steps}

    @torch.no_grad()
    def load_optimizer_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Beside the weights, which are loaded before: rounded, they are the masters.

        Raises:
            DataError: the shard is of another partition.
        """
        for number, master in enumerate(self._masters):
            own = below(tensors, f"{number}/")
            if "master" not in own or own["master"].shape != master.shape:
                raise DataError(
                    f"the optimiser's shard of rank {self.world.rank} does not fit: it was partitioned by another "
                    "version of DeepSpeed, or for another model"
                )
            master.copy_(own.pop("master"))
            if own:
                # `step` is a counter that the fused kernel expects beside the moments.
                self.optimizer.state[master] = {name: value.to(master.device) for name, value in own.items()}
        self._num_steps = plain["schedule_steps"]


def _coming_bytes(config: Config, model: Any, num_ranks: int) -> int:
    """What the first optimiser step allocates on each rank and keeps: gradients, and two moments beside the masters."""
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    num_trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    memory = DeepSpeed.memory(config, ModelSize(num_parameters, num_trained, num_ranks, is_sampled=False))
    return memory["gradients"] + 2 * memory["optimizer"] // 3


class _Computation(torch.nn.Module):
    """What DeepSpeed calls and hooks into: from rows to log-probabilities and, if asked for, entropies."""

    def __init__(self, model: Any, compute: Callable[..., Forward]) -> None:
        super().__init__()
        self.model = model
        self._compute = compute

    def forward(self, rows: Rows, **options: Any) -> tuple[Tensor, ...]:
        found = self._compute(rows, **options)
        return (found.logp_BT,) if found.entropy_BT is None else (found.logp_BT, found.entropy_BT)


class _ReachingAll(torch.autograd.Function):
    """A loss that gives every parameter a gradient, of 0 where it has none, as an expert without a token.

    DeepSpeed exchanges the gradients that there are, so ranks would wait for different ones. Stage 1 does it in the
    order of the parameters; stages 2 and 3 do it in that in which gradients and weights come, which this cannot change.
    """

    @staticmethod
    def forward(ctx: Any, loss: Tensor, *parameters: Tensor) -> Tensor:
        ctx.parameters = parameters
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, *(one.new_zeros(()).expand_as(one) for one in ctx.parameters)


class _CarefulAdamW(torch.optim.AdamW):
    """Steps if it may and the gradient is neither 0 nor unknown: `LocalPolicy`'s rule inside DeepSpeed's step."""

    may_step = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.norm: Callable[[], float] = lambda: math.nan

    def step(self, closure: Any = None) -> Any:
        norm = self.norm() if self.may_step else math.nan
        return super().step(closure) if math.isfinite(norm) and norm > 0.0 else None


def _initialize(module: _Computation, optimizer: _CarefulAdamW, config: Config) -> Any:
    """DeepSpeed's engine around ``module``.

    Raises:
        MissingError: it cannot start on this machine.
    """
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,  # rows are ours to count
        "gradient_accumulation_steps": 1,
        # As many backward passes as there are micro-batches; a call of `step` ends the minibatch. There stage 1
        # exchanges gradients. Stages 2 and 3 keep shards of them and so exchange them in every backward pass.
        # DeepSpeed's `coalesce_grad_reduction` would put that off, and then each rank holds them whole as in stage 1,
        # in bfloat16 where that is the format of the weights: sums of many micro-batches would be rounded.
        "managed_gradient_accumulation": False,
        "gradient_clipping": config.optimizer.max_grad_norm,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {
            "stage": config.policy.zero_stage,
            "overlap_comm": False,
            "stage3_param_persistence_threshold": WHOLE_ELEMENTS,
        },
        "wall_clock_breakdown": False,
        "steps_per_print": None,
    }
    if config.policy.offload_optimizer:
        settings["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if config.dtype == "bfloat16":
        # Under stage 1 a weight's bfloat16 gradient goes into the float32 sum as soon as it is there.
        settings["bf16"] = {"enabled": True, "check_grad_overflow": True, "immediate_grad_update": True}
        settings["data_types"] = {"grad_accum_dtype": "fp32"}
        settings["communication_data_type"] = "fp32"
    # What DeepSpeed says while starting goes to stdout, which is for data.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            import deepspeed
        except (ImportError, RuntimeError, OSError) as error:
            raise MissingError(
                f"DeepSpeed is installed and cannot be imported ({type(error).__name__}: {error}); use -s "
                "policy.kind=local"
            ) from error
        logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
        _without_compiler()
        # Calls of DeepSpeed's into torch, not ours.
        warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
        if not torch.distributed.is_initialized():  # one process without a launcher
            os.environ.setdefault("LOCAL_RANK", "0")
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
        engine, *_ = deepspeed.initialize(model=module, optimizer=optimizer, config=settings, dist_init_required=False)
    return engine


def _without_compiler() -> None:
    """On a CPU DeepSpeed compiles reductions of its own for inference, a minute of g++ that training has no use for."""
    backend: Any = import_module("deepspeed.comm.torch")
    if os.environ.get("DS_ACCELERATOR") == "cpu" and hasattr(backend, "build_shm_op"):
        backend.build_shm_op = lambda: None
