"""Blocks of a training configuration, such as `rollout` and `optimizer`: type, default and meaning of each key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from evals.benchmarks.prompts import TEMPLATES
from quatro.methods.base import Aggregate
from quatro.tables import ENGINES, POLICIES
from quatro.types import KlEstimator


def _clean_text(value: str) -> str:
    if not value or value != value.strip():
        raise ValueError("expected text without white space at either end")
    return value


Text = Annotated[str, AfterValidator(_clean_text)]


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


def _one_of(table: Mapping[str, Any]) -> tuple[BeforeValidator, WithJsonSchema]:
    """What makes a field one of the names in ``table``: as a Literal would, but asked when a value is given."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or value not in table:
            raise PydanticCustomError(
                "literal_error", "Input should be {expected}", {"expected": " or ".join(map(repr, table))}
            )
        return value

    return BeforeValidator(check), WithJsonSchema({"enum": list(table), "type": "string"})


class Block(BaseModel):
    """A block of keys: frozen, and strict about names and types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """The block of keys that a field holds, or may hold beside null; None where it is a plain value."""
    choices = [choice for choice in (get_args(field.annotation) or (field.annotation,)) if choice is not type(None)]
    found = choices[0] if len(choices) == 1 else None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


class DataConfig(Block):
    """Where prompts come from."""

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
    """How training responses are drawn."""

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
    """The optimiser and its step."""

    name: Literal["adamw"] = Field("adamw", description="the optimiser")
    lr: float = Field(1e-6, gt=0, description="learning rate after the warm-up, constant from there")
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = Field((0.9, 0.999), description="decay of AdamW's first and second moments")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, per unit of learning rate")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this L2 norm")
    warmup_steps: int = Field(0, ge=0, description="optimiser steps over which lr rises linearly")


class KlConfig(Block):
    """The pull towards the model that the run began with."""

    beta: float = Field(0.001, ge=0, description="coefficient of the KL to the model the run began with; 0 is off")
    estimator: KlEstimator = Field(
        "k3", description="estimator of that KL; sequence-exact has the gradient of the reverse KL over sequences"
    )
    aggregate: Aggregate = Field("token-mean", description="how its token values become one number")


class LoraConfig(Block):
    """A low-rank adapter."""

    rank: int = Field(16, ge=1, description="rank of the change to each adapted weight matrix")
    alpha: int = Field(32, ge=1, description="the change is alpha / rank times the product of the two matrices")
    target_modules: Annotated[tuple[str, ...] | Literal["all-linear"], BeforeValidator(_targets)] = Field(
        "all-linear", description="names of the layers to adapt, such as [q_proj, v_proj]; all-linear: all but the head"
    )


class PolicyConfig(Block):
    """How the model is held and updated."""

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
    """Evaluation during training."""

    every: int = Field(0, ge=0, description="iterations between evaluations; 0 is never")
    benchmark: Text | None = Field(None, description="name of the benchmark to evaluate on, or a .jsonl file")
    n: int = Field(16, ge=1, description="responses per problem")
    temperature: float = Field(1.0, gt=0, description="sampling temperature of evaluations")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass of evaluations; 1 keeps every token")


class CheckpointConfig(Block):
    """When to save, and how many checkpoints to keep."""

    every: int = Field(20, ge=0, description="iterations between checkpoints; the last one is always saved")
    keep: int = Field(3, ge=1, description="newest checkpoints kept")

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after iteration ``step``."""
        return self.every > 0 and step % self.every == 0


class TrackingConfig(Block):
    """Where metrics go beside metrics.jsonl."""

    tensorboard: bool = Field(False, description="write metrics to RUN/tensorboard too")
    wandb: Literal["online", "offline"] | None = Field(
        None, description="send metrics to Weights & Biases too; offline keeps them in RUN/wandb for `wandb sync`"
    )
    project: Text = Field("quatro", description="project of the run there")
    name: Text | None = Field(None, description="name of the run there; null is that of the run directory")
