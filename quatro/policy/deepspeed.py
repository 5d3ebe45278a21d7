"""A policy whose optimiser, gradients or weights are shards on several ranks: DeepSpeed ZeRO stage 1, 2 or 3.

In float32 it computes what `LocalPolicy` does. In bfloat16 the weights themselves are bfloat16, as are the reference's,
and the float32 master weights are part of the optimiser's shards.
"""

import contextlib
import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor

from evals.errors import DataError, MissingError, UsageError, is_out_of_memory
from quatro.config import Config
from quatro.policy import lora
from quatro.policy.base import Forward
from quatro.policy.facts import copied, hollow
from quatro.policy.rows import Rows
from quatro.policy.torch_policy import TorchPolicy
from quatro.registry import ENGINES

T = TypeVar("T")

# Under ZeRO-3 smaller tensors (norms, biases) stay whole on every rank: fetching them costs more than they take.
WHOLE_ELEMENTS = 100_000
# DeepSpeed's optimisers call a rank's master weights by one of these names: under stage 3, under stage 1 in bfloat16,
# and otherwise.
MASTERS = ("fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "single_partition_of_fp32_groups")


class _CarefulAdamW(torch.optim.AdamW):
    """Steps if it may; DeepSpeed decides when it is asked."""

    may_step: Callable[[], bool] = staticmethod(lambda: False)

    def step(self, closure: Any = None) -> Any:
        return super().step(closure) if self.may_step() else None


class DeepSpeedPolicy(TorchPolicy):
    """Every rank holds the whole of ``reference``, but under ZeRO-3 a shard.

    Under ZeRO-3 the weights of ``model`` count on the first rank alone, and may be `hollow` on the others. If an engine
    draws from the policy's own weights, ``sampling_model`` is a `hollow` copy in the format of the computation, which
    is whole on every rank from the engine's `sync` to its `rest`; otherwise it is the model itself. All ranks must
    call every method together.
    """

    is_sharded = True
    optimizer: _CarefulAdamW
    adamw = _CarefulAdamW
    reference_engine: Any = None  # under ZeRO-3

    def __init__(self, model: Any, config: Config, **options: Any) -> None:
        self.stage, self._zero_settings = config.policy.zero_stage, _zero_settings(config)
        super().__init__(model, config, **options)
        engine = ENGINES[config.rollout.engine]
        if self.stage == 3 and engine.shares_weights:
            if engine is not ENGINES["transformers"]:
                raise UsageError(
                    f"rollout.engine: found {config.rollout.engine}, which draws from the policy's own tensors; with "
                    "policy.zero_stage=3 these are shards: expected transformers, vllm, or policy.zero_stage=2"
                )
            empty = copied(model, lambda one: self._cast(one.new_empty((), device=self.device)).expand(one.shape))
            self.sampling_model = lora.detach(empty.to(self.device))
        compute: Callable[..., Forward] = super().forward
        model = self._sharded(model, model) if self.stage == 3 else model
        start = partial(_imported(self.device).initialize, config=self._zero_settings, dist_init_required=False)
        with contextlib.redirect_stdout(sys.stderr):
            if self.stage == 3 and self.reference is not None:
                self.reference_engine = start(model=_Computation(self.reference, compute))[0]
            self.engine = start(model=_Computation(model, compute), optimizer=self.optimizer)[0]
        self._is_loss_finite = False
        self.optimizer.may_step = self._may_step

    def _cast(self, weight: Tensor) -> Tensor:
        return weight.to(getattr(torch, self.dtype)) if weight.is_floating_point() else weight

    def _frozen(self, model: Any) -> Any:
        if self.stage == 3:
            return self._sharded(copied(model, hollow), model)
        return copied(model, lambda weight: self._cast(weight).to(self.device, copy=True))

    def _sharded(self, model: Any, source: Any) -> Any:
        """``model`` with its weights in shards on all ranks, one after the other: those of the first's ``source``."""
        init = _imported(self.device).zero.Init(module=torch.nn.Module(), config_dict_or_path=self._zero_settings)
        with self.world.waiting("the shards of the weights"):
            for weight, given in zip(model.parameters(), source.parameters(), strict=True):
                weight.data = self._cast(given.detach()).contiguous().to(self.device)
                init._convert_to_zero_parameters([weight])
        return model.to(self.device)

    # --- computing --------------------------------------------------------------------------------------------------

    def forward(self, rows: Rows, *, need_entropy: bool, model: Any = None, **options: Any) -> Forward:
        """As `TorchPolicy.forward`; DeepSpeed sees the trained model as one module, from ids to log-probabilities."""
        engine = self.engine if model is None or model is self.model else self.reference_engine
        if engine is None:
            return super().forward(rows, model=model, need_entropy=need_entropy, **options)
        with self.world.waiting("the shards of a forward pass"):
            found: tuple[Tensor, ...] = engine(rows, need_entropy=need_entropy, **options)
        return Forward(found[0], found[1] if need_entropy else None)

    def _passes(self, rows: Rows, *, is_learning: bool, model: Any) -> Iterator[Tensor]:
        """Ranks exchange gradients or weights in every pass, so all make as many as the one that has most to do."""
        own = list(super()._passes(rows, is_learning=is_learning, model=model))
        num_passes = self.world.largest(len(own)) if is_learning or self.stage == 3 else len(own)
        yield from own
        for _ in range(num_passes - len(own)):
            shortest = rows.select(rows.total_length_B.argmin()[None])
            logp_BT = self.forward(shortest, need_entropy=False, model=model).logp_BT
            if is_learning:
                self._backward(0.0 * logp_BT.sum())

    def _attempt(self, work: Callable[[], T]) -> T:
        """``work()``, once: the other ranks are in the middle of theirs and cannot begin again with this one.

        Raises MissingError if memory ran out.
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

    def take_step(self, loss_sum: Tensor) -> tuple[float, bool, bool]:
        self._is_loss_finite = bool(torch.isfinite(self.world.total(loss_sum)))
        for group in self.engine.optimizer.param_groups:
            group["lr"] = self.lr
        with self.world.waiting("the optimiser step"):
            self.engine.step()
        grad_norm = float(self.engine.get_global_grad_norm())
        is_finite = self._is_loss_finite and math.isfinite(grad_norm)
        is_applied = is_finite and grad_norm > 0.0
        if is_applied:
            self.num_steps += 1
        return grad_norm, is_finite, is_applied

    def _may_step(self) -> bool:
        """`LocalPolicy`'s rule inside DeepSpeed's step; by then its optimiser, which wraps ours, knows the norm."""
        grad_norm = float(self.engine.optimizer._global_grad_norm)
        return self._is_loss_finite and math.isfinite(grad_norm) and grad_norm > 0.0

    # --- weights and state ------------------------------------------------------------------------------------------

    @contextmanager
    def _whole(self, weights: list[Tensor]) -> Iterator[None]:
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
        if self.stage == 3:  # a scoring pass leaves weights whole, beside which others would be
            self.engine.empty_partition_cache()
        yield from super().named_weights()

    def _stepped(self) -> list[Tensor]:
        """This rank's part of the weights in float32, flat."""
        optimizer = self.engine.optimizer
        return next(getattr(optimizer, name) for name in MASTERS if hasattr(optimizer, name))

    def optimizer_state(self) -> dict[str, Tensor]:
        """This rank's shard: master weights and moments."""
        masters = {f"{number}/master": value.detach().cpu().clone() for number, value in enumerate(self._stepped())}
        return super().optimizer_state() | masters

    @torch.no_grad()
    def load_optimizer_state(self, tensors: dict[str, Tensor]) -> None:
        """Beside the weights, which are loaded before: rounded, they are the masters.

        Raises DataError if the shard is of another partition.
        """
        for number, master in enumerate(self._stepped()):
            saved = tensors.get(f"{number}/master")
            if saved is None or saved.shape != master.shape:
                raise DataError(
                    f"the optimiser's shard of rank {self.world.rank} does not fit: it was partitioned by another "
                    "version of DeepSpeed, or for another model"
                )
            master.copy_(saved)
        super().load_optimizer_state({name: value for name, value in tensors.items() if not name.endswith("/master")})


class _Computation(torch.nn.Module):
    """What DeepSpeed calls and hooks into: from rows to log-probabilities and, if asked for, entropies."""

    def __init__(self, model: Any, compute: Callable[..., Forward]) -> None:
        super().__init__()
        self.model = model
        self._compute = compute

    def forward(self, rows: Rows, **options: Any) -> tuple[Tensor, ...]:
        found = self._compute(rows, model=self.model, **options)
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


def _zero_settings(config: Config) -> dict[str, Any]:
    """What DeepSpeed is told."""
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
            "reduce_bucket_size": 10**8,  # of the default, five times as large, ZeRO-3 holds 2 GB for good
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
    return settings


def _imported(device: torch.device) -> Any:
    """The package, ready for the ranks of this launch; raises MissingError where it cannot be imported."""
    if device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("DEEPSPEED_LOG_LEVEL", "error")
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
        # On a CPU it compiles reductions of its own for inference, a minute of g++ that training has no use for.
        torch_backend: Any = import_module("deepspeed.comm.torch")
        if os.environ.get("DS_ACCELERATOR") == "cpu" and hasattr(torch_backend, "build_shm_op"):
            torch_backend.build_shm_op = lambda: None
        # Calls of DeepSpeed's into torch, not ours.
        warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
        if not torch.distributed.is_initialized():  # one process without a launcher
            os.environ.setdefault("LOCAL_RANK", "0")
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
    return deepspeed
