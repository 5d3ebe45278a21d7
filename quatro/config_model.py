"""Every key of a training configuration: its type, its default and what it means, with its unit.

Whose a default is, the paper's, verl's or ours, stands in `quatro.provenance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from evals.errors import UsageError
from evals.prompts import TEMPLATES
from quatro.methods import METHODS
from quatro.methods.base import Aggregate
from quatro.methods.base import Method as MethodBase
from quatro.methods.scheduled import needs_audit
from quatro.policy import POLICIES
from quatro.rewards import REWARDS
from quatro.rollout import ENGINES
from quatro.types import KlEstimator

if TYPE_CHECKING:
    Method = MethodBase
else:
    # At run time any object: the field below builds it from the class that `method.name` names.
    Method = Any

EMBEDDED_MODELS = ("embedded:countdown", "embedded:countdown-hard")


class ConfigProblems(ValueError):
    """What is wrong with a configuration as a whole: pairs of key and problem."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{key}: {problem}" for key, problem in problems))
        self.problems = problems


def _clean_text(value: str) -> str:
    if not value or value != value.strip():
        raise ValueError("expected text without white space at either end")
    return value


Text = Annotated[str, AfterValidator(_clean_text)]


def _known_model(value: str) -> str:
    if value.startswith("embedded:") and value not in EMBEDDED_MODELS:
        raise ValueError(f"expected one of {', '.join(EMBEDDED_MODELS)}, a folder or a Hub id")
    return value


def _known_template(value: str) -> str:
    if value not in TEMPLATES:
        raise ValueError(f"expected one of {', '.join(TEMPLATES)}")
    return value


def _targets(value: Any) -> Any:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) and name for name in value):
        return tuple(value)
    if value != "all-linear":
        raise ValueError("expected all-linear, or a list of layer names such as [q_proj, v_proj]")
    return value


def _known_reward(value: str) -> str:
    module, separator, function = value.partition(":")
    if value in REWARDS or (separator and module and function.isidentifier()):
        return value
    raise ValueError(f"expected {', '.join(REWARDS)} or module:function")


def _one_of(table: Mapping[str, Any]) -> tuple[BeforeValidator, WithJsonSchema]:
    """What makes a field one of the names in ``table``: as a Literal would, but asked when a value is given."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in table:
            raise PydanticCustomError(
                "literal_error", "Input should be {expected}", {"expected": " or ".join(map(repr, table))}
            )
        return value

    return BeforeValidator(check), WithJsonSchema({"enum": list(table), "type": "string"})


def _passes(value: Any) -> Any:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    if not is_count and value != "auto":
        raise ValueError("expected a whole number of at least 1, or auto")
    return value


def method_class(name: str) -> type[Method]:
    """The class that ``name`` names.

    Raises:
        UsageError: no such method, or a name of one's own that is not a Method.
    """
    found: Any = METHODS[name]
    if not (isinstance(found, type) and issubclass(found, MethodBase)):
        raise UsageError(f"{name} is not a method: derive it from quatro.methods.base.Method")
    return found


def build_method(value: Any) -> Any:
    """The method that a block of keys describes; a method passes through."""
    if not isinstance(value, Mapping):
        if hasattr(value, "advantages") and hasattr(value, "loss"):
            return value
        raise ValueError("expected a block with a name, such as {name: quatro}")
    name = value.get("name")
    if not isinstance(name, str):
        raise ConfigProblems([("method.name", f"missing, expected one of {', '.join(METHODS)}")])
    return method_class(name)(**value)


class Block(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """The block of keys that a field holds, or may hold beside null; None where it is a plain value."""
    choices = [choice for choice in (get_args(field.annotation) or (field.annotation,)) if choice is not type(None)]
    found = choices[0] if len(choices) == 1 else None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


class DataConfig(Block):
    prompts: Text = Field("math_train", description="prompts to train on: math_train, countdown, or a .jsonl file")
    template: Annotated[str, AfterValidator(_known_template)] = Field(
        "qwen-boxed", description="how a problem becomes a prompt; countdown prompts take `plain`"
    )
    max_prompt_tokens: int = Field(1024, ge=1, description="longest prompt, in tokens; verl's default is 512")
    too_long: Literal["refuse", "skip"] = Field(
        "refuse", description="a longer prompt stops the run, or is left out and counted; it is never cut"
    )

    @model_validator(mode="before")
    @classmethod
    def _countdown_is_plain(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and data.get("prompts") == "countdown" and "template" not in data:
            return {**data, "template": "plain"}
        return data


class RolloutConfig(Block):
    engine: Annotated[str, *_one_of(ENGINES)] = Field(
        "transformers", description="what draws responses; replay reads them from `replay_file`"
    )
    temperature: float = Field(1.0, gt=0, description="sampling temperature, applied by sampler and trainer alike")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass; 1 keeps every token")
    top_k: int = Field(0, ge=0, description="most likely tokens kept; 0 keeps every token")
    max_new_tokens: int = Field(1024, ge=1, description="longest response, in tokens, the stop token included")
    gpu_memory_utilization: float = Field(0.8, gt=0, le=1, description="share of GPU memory that vLLM may take")
    replay_file: Text | None = Field(None, description="recorded responses (.jsonl), for engine replay only")


class OptimizerConfig(Block):
    name: Literal["adamw"] = Field("adamw", description="the optimiser")
    lr: float = Field(1e-6, gt=0, description="learning rate after the warm-up, constant from there")
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = Field((0.9, 0.999), description="decay of AdamW's first and second moments")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, per unit of learning rate")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this L2 norm")
    warmup_steps: int = Field(0, ge=0, description="optimiser steps over which lr rises linearly")


class KlConfig(Block):
    beta: float = Field(0.001, ge=0, description="coefficient of the KL to the model the run began with; 0 is off")
    estimator: KlEstimator = Field(
        "k3", description="estimator of that KL; sequence-exact has the gradient of the reverse KL over sequences"
    )
    aggregate: Aggregate = Field("token-mean", description="how its token values become one number")


class LoraConfig(Block):
    rank: int = Field(16, ge=1, description="rank of the change to each adapted weight matrix")
    alpha: int = Field(32, ge=1, description="the change is alpha / rank times the product of the two matrices")
    target_modules: Annotated[tuple[str, ...] | Literal["all-linear"], BeforeValidator(_targets)] = Field(
        "all-linear", description="names of the layers to adapt, such as [q_proj, v_proj]; all-linear: all but the head"
    )


class PolicyConfig(Block):
    kind: Annotated[str, *_one_of(POLICIES)] = Field(
        "local", description="one process, or DeepSpeed ZeRO under torchrun"
    )
    zero_stage: int = Field(2, ge=1, le=3, description="ZeRO stage: 1 optimiser, 2 + gradients, 3 + weights sharded")
    offload_optimizer: bool = Field(
        False, description="keep DeepSpeed's optimiser in the CPU's memory: less on the device, slower steps"
    )
    gradient_checkpointing: bool = Field(
        False, description="compute a layer again for its gradient: less memory for a third more computation"
    )
    lora: LoraConfig | None = Field(
        None,
        description="train a low-rank adapter and freeze the model (LoRA); null trains all weights. The learning rate "
        "that suits it is about ten times the one that suits all weights",
    )


class EvalConfig(Block):
    every: int = Field(0, ge=0, description="iterations between evaluations; 0 is never")
    benchmark: Text | None = Field(None, description="name of the benchmark to evaluate on, or a .jsonl file")
    n: int = Field(16, ge=1, description="responses per problem")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of evaluations")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass of evaluations; 1 keeps every token")


class CheckpointConfig(Block):
    every: int = Field(20, ge=0, description="iterations between checkpoints; the last one is always saved")
    keep: int = Field(3, ge=1, description="newest checkpoints kept")

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after iteration ``step``."""
        return self.every > 0 and step % self.every == 0


class TrackingConfig(Block):
    tensorboard: bool = Field(False, description="write metrics to RUN/tensorboard too")
    wandb: Literal["online", "offline"] | None = Field(
        None, description="send metrics to Weights & Biases too; offline keeps them in RUN/wandb for `wandb sync`"
    )
    project: Text = Field("quatro", description="project of the run there")
    name: Text | None = Field(None, description="name of the run there; null is that of the run directory")


class Config(Block):
    """One training run. Frozen; equal configurations give equal runs on one machine."""

    model: Annotated[Text, AfterValidator(_known_model)] = Field(
        description="what to fine-tune: a folder, a Hub id, embedded:countdown or embedded:countdown-hard"
    )
    dtype: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="number format of the computation; trained weights and updates are kept in float32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where to compute; auto is cuda if there is one")
    threads: int | None = Field(None, ge=1, description="CPU threads; null leaves PyTorch's choice")
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of data order, sampling and a new adapter")
    steps: int = Field(
        100,
        ge=1,
        description="iterations; each draws one batch of rollouts. The paper states no number; verl's default, 30 "
        "epochs, is about 870 of its 256 prompts",
    )
    method: Annotated[Method, BeforeValidator(build_method)] = Field(
        description="the policy-gradient method and its own keys"
    )
    data: DataConfig = Field(default_factory=DataConfig, description="where prompts come from")
    reward: Annotated[Text, AfterValidator(_known_reward)] = Field(
        "math", description="how responses are judged: math, countdown or module:function"
    )
    prompts_per_step: int = Field(256, ge=1, description="prompts per iteration")
    rollouts_per_prompt: int = Field(8, ge=2, description="responses per prompt (N)")
    minibatch_prompts: int = Field(64, ge=1, description="prompts per optimiser step")
    inner_updates: Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(_passes)] = Field(
        1,
        description="passes over each batch of rollouts (K); auto (experimental, not in the paper) goes on until the "
        "realised KL has used up the method's radius, and takes a step back that overshoots it",
    )
    max_inner_updates: int = Field(20, ge=1, description="with inner_updates auto: passes at most")
    microbatch_tokens: int = Field(
        16384, ge=1, description="tokens per forward pass; changes memory and speed, never a gradient"
    )
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, description="how training responses are drawn")
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="the optimiser")
    kl: KlConfig = Field(default_factory=KlConfig, description="pull towards the model the run began with")
    entropy_coefficient: float = Field(0.0, ge=0, description="coefficient of the token entropy that is rewarded")
    policy: PolicyConfig = Field(default_factory=PolicyConfig, description="how the model is held and updated")
    eval: EvalConfig = Field(default_factory=EvalConfig, description="evaluation during training")
    audit: bool = Field(
        True, description="measure the realised KL to the rollout policy after each iteration, by one forward pass"
    )
    audit_rollouts: int = Field(0, ge=0, description="fresh responses per prompt for that audit; 0 reuses the batch")
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig, description="when to save")
    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="metrics beside metrics.jsonl")
    save_rollouts: bool = Field(True, description="write every training response to rollouts/")
    on_nonfinite: Literal["stop", "skip"] = Field(
        "stop",
        description="an optimiser step whose loss or gradient is not finite stops the run, or is skipped",
    )

    @property
    def most_inner_updates(self) -> int:
        """Passes over each batch of rollouts, at most."""
        return self.max_inner_updates if self.inner_updates == "auto" else self.inner_updates

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Config:
        problems = [(key, problem) for check in _CHECKS for key, problem in check(self)]
        if problems:
            raise ConfigProblems(problems)
        return self


def _check_batch(config: Config) -> list[tuple[str, str]]:
    prompts, minibatch = config.prompts_per_step, config.minibatch_prompts
    if minibatch > prompts:
        return [
            (
                "minibatch_prompts",
                f"found {minibatch}, expected at most prompts_per_step ({prompts}); "
                f"set minibatch_prompts to {prompts} for one optimiser step per pass",
            )
        ]
    if prompts % minibatch:
        return [
            (
                "minibatch_prompts",
                f"found {minibatch}, expected a divisor of prompts_per_step ({prompts}), such as "
                f"{_largest_divisor(prompts, minibatch)}",
            )
        ]
    return []


def _largest_divisor(number: int, limit: int) -> int:
    """The largest divisor of ``number`` below ``limit``, looked for among the small ones and their partners only."""
    found = 1
    for small in range(1, min(math.isqrt(number), 100_000) + 1):
        if number % small == 0:
            found = max([found, *(divisor for divisor in (small, number // small) if divisor < limit)])
    return found


def _check_data(config: Config) -> list[tuple[str, str]]:
    problems = []
    data, is_embedded = config.data, config.model in EMBEDDED_MODELS
    if data.prompts == "countdown" and data.template != "plain":
        problems.append(("data.template", f"found {data.template}, expected plain: countdown prompts are not wrapped"))
    if data.prompts == "countdown" and config.reward == "math":
        problems.append(("reward", "found math, expected countdown: the prompts are countdown's"))
    if data.prompts == "math_train" and config.reward == "countdown":
        problems.append(("reward", "found countdown, expected math: the prompts are math_train's"))
    if is_embedded and data.prompts == "math_train":
        problems.append(("data.prompts", f"found math_train, expected countdown: {config.model} knows no other words"))
    return problems


def _check_overlong(config: Config) -> list[tuple[str, str]]:
    needs = getattr(config.method, "needs", None)
    limit = config.rollout.max_new_tokens
    if needs is not None and needs.overlong_buffer is not None and needs.overlong_buffer > limit:
        return [
            (
                "method.overlong_buffer",
                f"found {needs.overlong_buffer}, expected at most rollout.max_new_tokens ({limit})",
            )
        ]
    return []


def _check_radius(config: Config) -> list[tuple[str, str]]:
    problems = []
    if config.inner_updates == "auto" and getattr(config.method, "kl_radius", 1.0) is None:
        problems.append(
            (
                "inner_updates",
                f"found auto, expected a whole number: method {config.method.name} has no KL radius to go on to; "
                "use -m quatro, or set inner_updates to 1",
            )
        )
    if needs_audit(config.method) and not config.audit:
        problems.append(("audit", "found false, expected true: the method steers by the realised KL"))
    return problems


def _check_recorded(config: Config) -> list[tuple[str, str]]:
    rollout = config.rollout
    engine, evaluations = f"engine {rollout.engine}", config.eval.every
    if not ENGINES[rollout.engine].is_recorded:
        file = rollout.replay_file
        unread = ("rollout.replay_file", f"found {file}, expected null: only engine replay reads it")
        return [] if file is None else [unread]
    if rollout.replay_file is None:
        return [("rollout.replay_file", f"missing: {engine} needs a file of recorded responses")]
    if config.audit_rollouts:
        return [("audit_rollouts", f"found {config.audit_rollouts}, expected 0: {engine} cannot draw fresh responses")]
    if evaluations:
        return [("eval.every", f"found {evaluations}, expected 0: {engine} cannot draw samples to evaluate")]
    return []


def _check_measuring(config: Config) -> list[tuple[str, str]]:
    problems = []
    if config.eval.every and config.eval.benchmark is None:
        problems.append(("eval.benchmark", f"missing: eval.every is {config.eval.every}; name a benchmark"))
    if config.audit_rollouts and not config.audit:
        problems.append(("audit_rollouts", f"found {config.audit_rollouts}, expected 0: audit is false"))
    return problems


def _check_policy(config: Config) -> list[tuple[str, str]]:
    if not POLICIES[config.policy.kind].is_sharded:
        if config.policy.offload_optimizer:
            return [("policy.offload_optimizer", "found true, expected false: only policy.kind deepspeed does it")]
        return []
    problems = []
    if config.audit_rollouts:
        problems.append(
            (
                "audit_rollouts",
                f"found {config.audit_rollouts}, expected 0: it compares with a second set of weights, which "
                "policy.kind deepspeed does not keep",
            )
        )
    if config.inner_updates == "auto":
        problems.append(
            (
                "inner_updates",
                "found auto, expected a whole number: steps are taken back to a second set of weights, which "
                "policy.kind deepspeed does not keep",
            )
        )
    return problems


_CHECKS: tuple[Callable[[Config], list[tuple[str, str]]], ...] = (
    _check_batch,
    _check_data,
    _check_overlong,
    _check_radius,
    _check_recorded,
    _check_measuring,
    _check_policy,
)
