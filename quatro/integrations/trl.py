"""QUATRO on TRL 1.16's GRPOTrainer. TRL draws, shuffles and steps; dual, advantages, loss and audit are quatro's own.

`QuatroTrainer` overrides three private methods, which any other release may change: the extra `trl` pins this one.
docs/trl.md has an example, and says what stands in the log.
"""

# Axes: B rows (rollouts), T response tokens, L prompt and response tokens, F reward functions.
from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from accelerate.utils import gather_object
from pydantic import ValidationError
from torch import Tensor
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from evals.clustering import cluster, cluster_sizes
from evals.errors import DivergedError, UsageError
from evals.estimators import OF_COUNTS
from evals.metrics.counting import Counts
from evals.metrics.passk_ucc import resolve_ks
from evals.results.shown import metric_at
from evals.samples.fields import reply_text
from evals.similarity import DEFAULT
from evals.text import table_beside
from quatro import ops
from quatro.config.blocks import KlConfig
from quatro.loop.audit import audit
from quatro.loop.trust_region import sequence_log_ratio
from quatro.methods.budgeted import Budgeted
from quatro.methods.quatro import Quatro
from quatro.types import Advantages, Batch, LossTerm

logger = logging.getLogger(__name__)

# What to do instead -> options of GRPOConfig that would be ignored, or would break the trust region.
_REFUSED = table_beside(__file__, "refused.toml")


def _of(block: Any, name: str) -> Any:
    """A dataclass field with the default and the description of a key of quatro's own configuration."""
    found = block.model_fields[name]
    return field(default=found.default, metadata={"help": found.description})


@dataclass
class QuatroConfig(GRPOConfig):  # type: ignore[misc]
    """TRL's `GRPOConfig` with the keys of QUATRO; `delta` there is a clip, so the radius is called ``kl_radius``.

    Raises UsageError, with its name, for an option of GRPOConfig that cannot be honoured, or an impossible value.
    """

    kl_radius: float = _of(Quatro, "delta")
    log_ratio: str = _of(Quatro, "log_ratio")
    max_log_ratio: float | None = _of(Quatro, "max_log_ratio")
    boundary_cap: float | None = _of(Quatro, "boundary_cap")
    advantage_floor: float | None = _of(Quatro, "advantage_floor")
    centred: bool = _of(Quatro, "centred")
    spread: float = field(default=1.0, metadata={"help": Budgeted.model_fields["spread"].description})
    kl_estimator: str = _of(KlConfig, "estimator")
    audit: bool = field(default=True, metadata={"help": "measure the realised KL after the last update of a batch"})

    # Defaults of TRL's that cannot be honoured.
    vllm_importance_sampling_correction: bool = False
    use_bias_correction_kl: bool = False
    disable_dropout: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults = {one.name: one.default for one in fields(self)}
        wrong = [
            f"{name}={getattr(self, name)!r} ({instead})"
            for instead, names in _REFUSED.items()
            for name in names
            if getattr(self, name) != defaults[name]
        ]
        if wrong:
            raise UsageError(
                f"QUATRO cannot honour {'; '.join(wrong)}. Leave {'it' if len(wrong) == 1 else 'them'} out"
            )
        self.method()
        _checked(KlConfig, {"beta": "beta", "estimator": "kl_estimator"}, self)

    def method(self) -> Quatro:
        """The method that these options describe."""
        same = ("log_ratio", "max_log_ratio", "boundary_cap", "advantage_floor", "centred")
        kind, further = (Quatro, ()) if self.spread == 1 else (Budgeted, ("spread",))
        method: Quatro = _checked(kind, {"delta": "kl_radius", **{name: name for name in (*same, *further)}}, self)
        return method


def _checked(block: Any, option_of: Mapping[str, str], config: QuatroConfig) -> Any:
    """A block of quatro's made from options; an error names the option, which may have another name there."""
    try:
        return block(**{key: getattr(config, option) for key, option in option_of.items()})
    except ValidationError as error:
        first = error.errors()[0]
        option = option_of[str(first["loc"][0])] if first["loc"] else ", ".join(option_of.values())
        raise UsageError(f"QuatroConfig: {option}: found {first['input']!r}; {first['msg']}") from error


class QuatroTrainer(GRPOTrainer):  # type: ignore[misc]
    """TRL's `GRPOTrainer` with the advantages and the loss of QUATRO. ``args`` is a `QuatroConfig`.

    An evaluation logs Pass@k, UCC@k and pairs of its completions. Correct is what the first reward function gives 1.
    """

    _tag_names = ("trl", "quatro")
    _name = "QUATRO"
    _paper: Mapping[str, str] = {}  # a model card does not cite GRPO's

    def __init__(self, model: Any, reward_funcs: Any = None, args: QuatroConfig | None = None, **options: Any) -> None:
        if not isinstance(args, QuatroConfig):
            raise UsageError(f"args is a {type(args).__name__}; QuatroTrainer needs a QuatroConfig(kl_radius=...)")
        self.method = args.method()
        super().__init__(model, reward_funcs, args, **options)
        if args.audit:
            self.add_callback(_AuditAfterUpdate(self))
        if args.gradient_accumulation_steps % (args.steps_per_generation * args.num_iterations) == 0:
            logger.warning(
                "kl_radius hardly acts: every optimiser step is strictly on-policy, the log-ratio is 0, and Adam "
                "ignores the scale of the advantages, whose shape depends on kl_radius only a little; set "
                "num_iterations above 1, or steps_per_generation above gradient_accumulation_steps"
            )

    # ---- advantages, from the rewards of all processes

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, *more: Any) -> Tensor:
        # Gathered, one column a function.
        reward_BF: Tensor = super()._calculate_rewards(inputs, prompts, completions, *more)
        self._reward_BF = reward_BF
        if not self.model.training:
            self._measure([str(reply_text(one)) for one in gather_object(completions)], (reward_BF[:, 0] == 1).tolist())
        return reward_BF

    def _measure(self, text_B: Sequence[str], is_correct_B: Sequence[bool]) -> None:
        """Logs the numbers of each prompt, of which TRL logs the means: those of `quatro eval` by default."""
        n, problems = self._group_size, []
        for at in range(0, len(text_B), n):
            graded = zip(text_B[at : at + n], is_correct_B[at : at + n], strict=True)
            right = [text for text, correct in graded if correct]
            problems.append(Counts("", str(at), n, len(right), cluster_sizes(cluster(right, similarity=DEFAULT))))
        wanted = [(metric, k) for k in resolve_ks(problems, None) for metric in ("pass@k", "ucc@k")]
        for one in problems:
            for metric, k in (*wanted, ("pairs", 1)):
                value = OF_COUNTS[metric](n, one.correct, one.sizes or (), k)
                self._log[metric_at(metric, k)].append(value)

    def _generate_and_score_completions(self, inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        rows: dict[str, Any] = super()._generate_and_score_completions(inputs)
        reward_BF = self._reward_BF.cpu().double()
        group_B = torch.arange(len(reward_BF)) // self._group_size
        found = solve(self.method, reward_BF, self.reward_weights.cpu().double(), group_B)
        for name, value in found.metrics.items():
            self._log[name].append(value)
        # TRL has put its own advantages of these responses at the end of the table of completions.
        table = self._logs["advantages"]
        for _ in range(min(len(table), len(group_B))):
            table.pop()
        table.extend(found.value_B.tolist())

        own = slice(self.accelerator.process_index * len(inputs), (self.accelerator.process_index + 1) * len(inputs))
        rows["advantages"] = found.value_B[own].to(rows["advantages"])
        rows["group"] = group_B[own].to(rows["advantages"].device)
        return rows

    @property
    def _group_size(self) -> int:
        size: int = self.num_generations if self.model.training else self.num_generations_eval
        return size

    # ---- loss

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """The loss of a micro-batch: summed over the micro-batches of a step it is the loss of all of their rows."""
        logp_BT, entropy_BT, aux_loss = self._forward(
            model, inputs, compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        # TRL computes log pi_old where a batch is used for several steps; elsewhere this pass is on-policy.
        inputs.setdefault("old_per_token_logps", logp_BT.detach())
        batch = self._batch(inputs)
        loss = self.method.loss(logp_BT, batch)
        terms = list(loss.terms)
        if self.beta:
            kl = {"beta": self.beta, "estimator": self.args.kl_estimator, "how": "token-mean"}
            terms.append(ops.kl_term(logp_BT, batch, **kl))
        if self.args.entropy_coef:
            terms.append(ops.entropy_term(entropy_BT, batch, coefficient=self.args.entropy_coef))

        is_training = self.model.training
        num_parts = self.current_gradient_accumulation_steps if is_training else 1
        # A process has as many rows in each micro-batch. Of tokens TRL knows the number in the whole generation batch:
        # this is exact where that is one step, and the mean over its steps elsewhere.
        share = num_parts / self.args.steps_per_generation if is_training else 1.0
        num_tokens = inputs["num_items_in_batch"] * share / self.accelerator.num_processes
        weight_sums = {one.name: num_tokens if one.weight.ndim == 2 else one.weight.sum() * num_parts for one in terms}
        total = ops.total_loss(terms, weight_sums)
        if aux_loss is not None:
            total = total + self.router_aux_loss_coef * aux_loss / num_parts

        self._log_means(
            {"kl" if one.name == "kl" else f"loss/{one.name}": _sums(one) for one in terms}
            | {name: (metric.value, metric.count) for name, metric in loss.metrics.items()}
            | {"entropy": (ops.masked_sum(entropy_BT.detach(), batch.mask_BT).sum(), batch.mask_BT.sum())}
        )
        log_ratio_B = self.accelerator.gather(_log_ratio(logp_BT, batch))
        for name, extreme in (("log_ratio/min", min), ("log_ratio/max", max)):
            # TRL logs the mean of a list: the extreme of all micro-batches is a list of one.
            self._log[name] = [extreme([extreme(log_ratio_B.tolist()), *self._log[name]])]
        return total

    def _forward(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> tuple[Tensor, Tensor, Tensor | None]:
        """Log-probabilities of the responses, their entropies and the auxiliary loss, the last two if asked for."""
        forward = self._get_per_token_logps_and_entropies
        images = {name: inputs[name] for name in inspect.signature(forward).parameters if name in inputs}
        ids_BL = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask_BL = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        found: tuple[Tensor, Tensor, Tensor | None] = forward(
            model, ids_BL, mask_BL, inputs["completion_ids"].shape[1], **images, **options
        )
        return found

    def _batch(self, inputs: Mapping[str, Any]) -> Batch:
        mask_BT = inputs["completion_mask"].bool()
        if "tool_mask" in inputs:
            mask_BT = mask_BT & inputs["tool_mask"].bool()
        return Batch(
            old_logp_BT=inputs["old_per_token_logps"],
            mask_BT=mask_BT,
            advantage_B=inputs["advantages"],
            group_B=inputs["group"],
            group_size_B=torch.full_like(inputs["group"], self._group_size),
            max_new_tokens=self.max_completion_length,
            ref_logp_BT=inputs.get("ref_per_token_logps"),
        )

    # ---- what the update did

    @torch.no_grad()
    def audit(self) -> None:
        """Logs how far the policy has moved from the one that drew the current batch, if no update of it is left."""
        if self._step % (self.args.steps_per_generation * self.num_iterations):
            return
        parts = []
        for inputs in self._buffered_inputs:
            batch = self._batch(inputs)
            parts.append((_log_ratio(self._forward(self.model, inputs)[0], batch), batch.advantage_B, batch.group_B))
        log_ratio_B, advantage_B, group_B = (
            self.accelerator.gather(torch.cat(one)) for one in zip(*parts, strict=True)
        )
        # The audit looks at sums over responses alone, so a response may be one token here.
        old_B1 = torch.zeros_like(log_ratio_B)[:, None]
        batch = Batch(old_B1, torch.ones_like(old_B1, dtype=torch.bool), advantage_B, group_B, group_B, 1)
        for name, value in audit(log_ratio_B[:, None], batch, self.method.kl_radius).items():
            self._log[name].append(value)

    @property
    def _log(self) -> dict[str, list[float]]:
        log: dict[str, list[float]] = self._metrics["train" if self.model.training else "eval"]
        return log

    def _log_means(self, sums: Mapping[str, tuple[Any, Any]]) -> None:
        """Logs value / count of each, both summed over the processes."""
        pairs = torch.tensor([[float(value), float(count)] for value, count in sums.values()])
        totals = self.accelerator.reduce(pairs.to(self.accelerator.device), reduction="sum")
        for name, (value, count) in zip(sums, totals.tolist(), strict=True):
            self._log[name].append(value / (count or 1.0))


class _AuditAfterUpdate(TrainerCallback):
    """The audit stands in the log of the step that it is about: TRL logs after `on_step_end`."""

    def __init__(self, trainer: QuatroTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.trainer.audit()


def solve(method: Quatro, reward_BF: Tensor, weight_F: Tensor, group_B: Tensor) -> Advantages:
    """Advantages of all rows from the weighted sum of their rewards; NaN means that a function did not score a row.

    A row that none scored has advantage 0 and no part in its prompt's dual; raises DivergedError if no row is scored.
    """
    is_scored_B = ~reward_BF.isnan().all(dim=1)
    if not is_scored_B.any():
        raise DivergedError(f"no reward function returned a number for any of {len(reward_BF)} responses")
    found = method.advantages((reward_BF * weight_F).nansum(dim=1)[is_scored_B], group_B[is_scored_B])
    value_B = torch.zeros(len(reward_BF), dtype=torch.float64)
    value_B[is_scored_B] = found.value_B
    return Advantages(value_B, found.metrics)


def _log_ratio(logp_BT: Tensor, batch: Batch) -> Tensor:
    return sequence_log_ratio(logp_BT.detach(), batch.old_logp_BT, batch.mask_BT)


def _sums(term: LossTerm) -> tuple[Tensor, Tensor]:
    return (term.value * term.weight).detach().sum(), term.weight.sum()
