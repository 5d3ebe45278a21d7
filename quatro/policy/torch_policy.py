"""A policy whose model is in this process: log-probabilities of responses, and the gradient of one optimiser step.

A subclass (`LocalPolicy`, and that of `deepspeed.py`) holds the optimiser. It says how gradients are zeroed, how a loss
is passed back and how a step is taken.
"""

# Axes: B rows (rollouts), T response tokens, C response tokens of all rows, V vocabulary.
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from evals.errors import DivergedError
from quatro import ops
from quatro.config import Config
from quatro.policy import lora
from quatro.policy.base import Forward, Objective, Policy, Update, below, total_loss
from quatro.policy.casts import cast_once
from quatro.policy.device import release_freed
from quatro.policy.facts import context_limit, copied, enable_checkpointing, has_plain_head, in_mode, product_weights
from quatro.policy.head import response_logp
from quatro.policy.loading import load_model, save_folder
from quatro.policy.rows import MicrobatchSize, Rows, collate
from quatro.processes.world import World, merge
from quatro.types import Metric, Prompt, Rollout

T = TypeVar("T")

# Nats a token. In bfloat16 the shape of a matrix product alone moves a log-probability by 0.05 (sd; trl#6789).
HEAD_TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}
CHECKED_PROMPTS, CHECKED_TOKENS = 2, 64
# From so many parameters on a CPU gives freed memory back before each pass: what one of another shape left lies in
# pieces between the gradients, too small for the next. A model of 100,000 would learn a fifth more slowly for it.
LARGE = 10_000_000


class TorchPolicy(Policy):
    """``model`` is any Hugging Face causal language model, ``reference`` a frozen copy of it where beta > 0.

    Or one of the model that the argument ``reference`` returns. ``device`` is where to compute, ``model``'s by default.
    With an adapter (`lora.py`) no copy is made: the reference is the model with its adapter switched off.
    ``sampling_model`` is what an engine without weights of its own draws from. ``num_steps`` optimiser steps were
    applied. If ``weights``, the model folder of a checkpoint, are given, they replace those of ``model`` once the
    reference is made.
    """

    reference: Any = None
    optimizer: torch.optim.Optimizer
    adamw: type[torch.optim.AdamW] = torch.optim.AdamW

    def __init__(
        self,
        model: Any,
        config: Config,
        *,
        world: World | None = None,
        weights: Path | None = None,
        device: torch.device | None = None,
        reference: Callable[[], Any] | None = None,
    ) -> None:
        self.world, self.device, self.dtype = world or World(), device or model.device, config.dtype
        self.lora, self.base_model = config.policy.lora, config.model
        self.has_reference = config.kl.beta > 0
        model.eval()  # no dropout: the same weights must give the same log-probabilities
        if self.has_reference and self.lora is None:
            self.reference = self._frozen(model if reference is None else reference()).to(self.device)
        if weights is not None and self.lora is not None:
            lora.load(model, weights)
        elif weights is not None:
            model.load_state_dict(load_model(str(weights), torch.float32, "cpu").state_dict())
        # DeepSpeed brings the model to the device itself, and casts it before.
        self.model = self.sampling_model = model if self.is_sharded else model.to(self.device)
        self.trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        is_large = self.device.type == "cpu" and sum(one.numel() for one in model.parameters()) >= LARGE
        self.release_freed = release_freed if is_large else lambda: None
        self.is_cast = self.dtype == "bfloat16" and not self.is_sharded
        self._casting: Any = cast_once if self.is_cast else nullcontext
        self.context = context_limit(model)
        with self.computing():
            self._has_plain_head = self.world.from_first(lambda: has_plain_head(self.model), "what the head is")
        self.temperature = config.rollout.temperature
        self.microbatch = MicrobatchSize(config.sizes.microbatch_tokens)
        self.max_grad_norm = config.optimizer.max_grad_norm
        self.num_steps = 0
        self._settings = settings = config.optimizer
        self._planned_steps = config.optimizer_steps
        self.optimizer = self.adamw(
            self.trained, lr=settings.lr, betas=settings.betas, weight_decay=settings.weight_decay, fused=True
        )
        self.needs_entropy_grad = config.entropy_coefficient > 0
        self._checkpointed = enable_checkpointing(model) if config.policy.gradient_checkpointing else []

    @property
    def lr(self) -> float:
        return self._settings.lr * self._settings.lr_share(self.num_steps, self._planned_steps)

    # --- what a subclass says ---------------------------------------------------------------------------------------

    @abstractmethod
    def _frozen(self, model: Any) -> Any:
        """A copy of ``model`` whose weights are on the device, where they come in the format of the computation."""

    @abstractmethod
    def _zero_gradients(self) -> None:
        """No gradient is left, whatever an interrupted pass has added up."""

    @abstractmethod
    def _backward(self, loss: Tensor) -> None:
        """Adds the gradient of one micro-batch."""

    @abstractmethod
    def take_step(self, loss_sum: Tensor) -> tuple[float, bool, bool]:
        """Takes the step if loss and gradient are finite and the gradient is not 0; leaves no gradient behind.

        ``(the gradient's norm before clipping, whether both are finite, whether the step was taken)``
        """

    def _stepped(self) -> list[Tensor]:
        """The tensors that this rank's optimiser steps on."""
        return self.trained

    def _whole(self, weights: list[Tensor]) -> AbstractContextManager[None]:
        """Inside, every rank has the whole of ``weights``."""
        return nullcontext()

    # --- log-probabilities ------------------------------------------------------------------------------------------

    def computing(self) -> AbstractContextManager[Any]:
        """The context in which this policy computes: autocast where the weights have not the format of `dtype`."""
        return torch.autocast(self.device.type, dtype=torch.bfloat16) if self.is_cast else nullcontext()

    def forward(
        self,
        rows: Rows,
        *,
        need_entropy: bool,
        entropy_grad: bool = False,
        model: Any = None,
        head_rows: int | None = None,
    ) -> Forward:
        """One forward pass over ``rows``, gradient and all; only response positions reach the vocabulary.

        ``head_rows`` at a time; the default suits the device.
        """
        model = self.model if model is None else model
        self.microbatch.under_way = (rows.ids_BL.shape[0], rows.ids_BL.shape[1])
        mask_BT = rows.batch.mask_BT
        row_C, time_C = torch.nonzero(mask_BT, as_tuple=True)
        position_C = rows.prompt_length_B[row_C] + time_C
        target_C = rows.ids_BL[row_C, position_C]
        options: dict[str, Any] = {"entropy_grad": entropy_grad, "need_entropy": need_entropy}
        options["temperature"] = self.temperature
        with self.computing(), self._recomputing():
            if self._has_plain_head:
                hidden = model.base_model(input_ids=rows.ids_BL, use_cache=False).last_hidden_state
                head, vocabulary = model.get_output_embeddings(), model.get_input_embeddings().num_embeddings
                logp_C, entropy_C = response_logp(
                    head, hidden[row_C, position_C - 1], target_C, vocabulary=vocabulary, max_rows=head_rows, **options
                )
            else:
                logits_CV = model(input_ids=rows.ids_BL, use_cache=False).logits[row_C, position_C - 1]
                logp_C, entropy_C = ops.logp_and_entropy(logits_CV, target_C, **options)

        def scatter(value_C: Tensor) -> Tensor:
            return value_C.new_zeros(mask_BT.shape).index_put((row_C, time_C), value_C)

        return Forward(scatter(logp_C), None if entropy_C is None else scatter(entropy_C))

    @torch.no_grad()
    def score(self, rows: Rows, *, need_entropy: bool = False, use_reference: bool = False) -> Forward:
        model = self.reference if use_reference and self.lora is None else self.model
        turned = lora.switched_off(model) if use_reference and self.lora is not None else nullcontext()

        def attempt() -> Forward:
            whole = self._empty_forward(rows, need_entropy)
            for index in self._counted_passes(rows, is_learning=False, model=model):
                _put(whole, index, self.forward(rows.select(index), need_entropy=need_entropy, model=model))
            return whole

        with turned, self._casting(model):
            return self._attempt(attempt)

    def check_head(self, prompts: Sequence[Prompt]) -> float:
        """Compares the head in chunks with the model's own logits on real tokens; returns the largest difference.

        The pass is the one that learning makes, gradient and all, so it also shows dropout that stayed on.

        Raises DivergedError if they differ by more than `HEAD_TOLERANCE` nats, or a log-probability is above 0.
        """
        texts = [one.token_ids[: CHECKED_TOKENS + 1] for one in prompts if len(one.token_ids) > 1][:CHECKED_PROMPTS]
        if not texts:
            return 0.0
        starts = [replace(prompts[0], token_ids=ids[:1]) for ids in texts]
        groups = [[Rollout(ids[1:], "", "length")] for ids in texts]
        rows = collate(starts, groups, torch.zeros(len(texts)), max_new_tokens=CHECKED_TOKENS, device=self.device)
        mask_BT = rows.batch.mask_BT
        fast = self.forward(rows, need_entropy=True, head_rows=max(1, int(mask_BT.sum()) // 3))
        with torch.no_grad(), self.computing():
            logits = self.model(input_ids=rows.ids_BL, use_cache=False).logits
            drawn = (logits[:, :-1][mask_BT], rows.ids_BL[:, 1:][mask_BT])
            plain = ops.logp_and_entropy(*drawn, temperature=self.temperature, entropy_grad=False, need_entropy=True)
        assert fast.entropy_BT is not None
        assert plain[1] is not None
        differences = (fast.logp_BT[mask_BT] - plain[0], fast.entropy_BT[mask_BT] - plain[1])
        largest = max(float(difference.detach().abs().max()) for difference in differences)
        allowed = HEAD_TOLERANCE[self.dtype]
        if not largest <= allowed:
            raise DivergedError(
                f"log-probabilities and entropies of the first prompts differ by {largest:.3g} nats a token between "
                f"the fast path and the model's own logits (allowed in {self.dtype}: {allowed:g}): training would "
                "follow a wrong gradient; try -s dtype=float32, and report the model type "
                f"{self.model.config.model_type!r}"
            )
        _refuse_positive(float(fast.logp_BT.detach()[mask_BT].max()))
        return largest

    # --- learning ---------------------------------------------------------------------------------------------------

    def update(self, rows: Rows, objective: Objective, *, use_own_logp: bool, need_entropy: bool) -> Update:
        weight_sums = self.weight_sums(rows, objective)

        def attempt() -> tuple[Forward, Tensor, dict[str, Metric]]:
            self._zero_gradients()
            whole = self._empty_forward(rows, need_entropy)
            metrics: dict[str, Metric] = {}
            loss_sum = torch.zeros((), dtype=torch.float64, device=self.device)
            for index in self._counted_passes(rows, is_learning=True):
                part = rows.select(index)
                has_grad = self.needs_entropy_grad
                result = self.forward(part, need_entropy=need_entropy or has_grad, entropy_grad=has_grad)
                _put(whole, index, result)
                if use_own_logp:
                    part = part.with_batch(old_logp_BT=result.logp_BT.detach())
                total, found = total_loss(objective, result, part.batch, weight_sums)
                self.release_freed()
                self._backward(total)
                loss_sum += total.detach().double()
                metrics = merge(metrics, found)
            return whole, loss_sum, metrics

        with self._casting(self.model):
            whole, loss_sum, metrics = self._attempt(attempt)
        logp_max = whole.logp_BT.masked_fill(~rows.batch.mask_BT, -torch.inf).max()
        _refuse_positive(float(logp_max))
        metrics |= {"loss": Metric("sum", loss_sum), "logp_max": Metric("max", logp_max)}
        return Update(metrics, *self.take_step(loss_sum), whole)

    def microbatches(self, rows: Rows) -> Iterator[Tensor]:
        yield from rows.microbatches(self.microbatch.tokens)

    def _passes(self, rows: Rows, *, is_learning: bool, model: Any) -> Iterator[Tensor]:
        """Row indices of each micro-batch. A subclass adds passes where all ranks must make equally many."""
        yield from self.microbatches(rows)

    def _counted_passes(self, rows: Rows, *, is_learning: bool, model: Any = None) -> Iterator[Tensor]:
        """Those of `_passes`, and `on_rows` hears of them."""
        num_done = 0
        self.on_rows(num_done, len(rows))
        for index in self._passes(rows, is_learning=is_learning, model=model):
            self.release_freed()
            yield index
            num_done += len(index)
            self.on_rows(num_done, len(rows))

    def _empty_forward(self, rows: Rows, need_entropy: bool) -> Forward:
        logp_BT = torch.zeros(rows.batch.mask_BT.shape, dtype=torch.float32, device=self.device)
        return Forward(logp_BT, torch.zeros_like(logp_BT) if need_entropy else None)

    def _recomputing(self) -> AbstractContextManager[None]:
        """With gradient checkpointing on: inside, the layers keep their inputs only.

        They look at their own `training`; that of what is inside them stays False, and so dropout off.
        """
        return in_mode(self._checkpointed if torch.is_grad_enabled() else [], training=True)

    def _attempt(self, work: Callable[[], T]) -> T:
        """``work()``, which is done again with smaller micro-batches if memory runs out."""
        return self.microbatch.attempt(work, self.device)

    # --- weights and state ------------------------------------------------------------------------------------------

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        return lora.merged_weights(self.model, self._whole)

    def save_model(self, folder: Path, tokenizer: Any) -> None:
        with self._whole(list(self.model.parameters()) if self.lora is None else self.trained):
            if self.world.is_first:
                save_folder(self.model, folder, tokenizer, adapter_of=self.base_model if self.lora else None)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All ranks must call it; their micro-batches may differ."""
        sizes = self.world.gather_objects(self.microbatch.state(), "the sizes of micro-batches")
        plain = {"optimizer": {"schedule_steps": self.num_steps}, "microbatch_tokens": sizes}
        return self.optimizer_state(), plain

    def optimizer_state(self) -> dict[str, Tensor]:
        """What this rank holds of the optimiser: moments and counters under the number of what is stepped on."""
        return {
            f"{number}/{name}": value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for number, weight in enumerate(self._stepped())
            for name, value in self.optimizer.state.get(weight, {}).items()
        }

    def load_optimizer_state(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what `optimizer_state` returned."""
        for number, weight in enumerate(self._stepped()):
            if own := below(tensors, f"{number}/"):
                self.optimizer.state[weight] = {name: value.to(weight.device, copy=True) for name, value in own.items()}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from what `state` returned; with another number of ranks, micro-batches are as configured."""
        self.load_optimizer_state(tensors)
        self.num_steps = plain["optimizer"]["schedule_steps"]
        sizes = plain["microbatch_tokens"]
        if len(sizes) == self.world.size:
            self.microbatch.load_state(sizes[self.world.rank])


def _put(whole: Forward, index: Tensor, part: Forward) -> None:
    width = part.logp_BT.shape[1]
    whole.logp_BT[index, :width] = part.logp_BT.detach().float()
    if whole.entropy_BT is not None and part.entropy_BT is not None:
        whole.entropy_BT[index, :width] = part.entropy_BT.detach().float()


def _refuse_positive(logp_max: float) -> None:
    if logp_max > HEAD_TOLERANCE["float32"]:
        raise DivergedError(
            f"a token has the log-probability {logp_max:.3g}, above 0: the model's head or a kernel on this device "
            "computes something else; nothing was updated. Try -s dtype=float32 or -s device=cpu"
        )


class LocalPolicy(TorchPolicy):
    """A policy held by one process: weights and optimiser are whole.

    Trained weights and AdamW in float32 on one device; several ranks hold a copy each and add up their gradients.

    ``reference`` is float32, but for the weights of its matrix products, which have the format of the computation.
    """

    def _frozen(self, model: Any) -> Any:
        cast = product_weights(model) if self.dtype == "bfloat16" else set()
        return copied(model, lambda one: one.to(self.device, torch.bfloat16 if one in cast else one.dtype, copy=True))

    # --- one optimiser step -----------------------------------------------------------------------------------------

    def _zero_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, loss: Tensor) -> None:
        loss.backward()

    def take_step(self, loss_sum: Tensor) -> tuple[float, bool, bool]:
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
        return float(grad_norm), is_finite, is_applied

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
