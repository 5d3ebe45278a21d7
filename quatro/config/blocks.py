"""The blocks of a training configuration, such as `rollout` and `optimizer`, with each key's type and default."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, WithJsonSchema, create_model, model_validator
from pydantic.fields import FieldInfo
from pydantic.functional_serializers import PlainSerializer
from pydantic.types import Discriminator, Tag
from pydantic_core import PydanticCustomError

from evals.benchmarks.gym import PREFIX
from evals.benchmarks.problems import benchmark_name
from evals.benchmarks.prompts import (
    OWN_TEMPLATES,
    TEMPLATES,
    Template,
    check_markers,
    checked_kwargs,
    find_template,
    template_text,
)
from quatro.methods.base import Aggregate
from quatro.registry import ENGINES, POLICIES, TRACKERS, LazyTable
from quatro.rewards.settings import RewardConfig, reward_block
from quatro.tasks.characters import FORMS
from quatro.tasks.word_problems import WORD_PROBLEMS
from quatro.types import Block, KlEstimator, checked_stop


class Sizes(NamedTuple):
    """Numbers for `SIZE_KEYS`, in their order: sizes that depend on the machine, `auto` until a run is made."""

    microbatch_tokens: int
    rows_at_once: int
    cache_tokens: int


SIZE_KEYS = ("microbatch_tokens", "rollout.rows_at_once", "rollout.cache_tokens")
# A KV cache of 2^17 tokens takes 3.8 GB for Qwen2.5-1.5B in bfloat16 (28 KiB a token).
CPU_SIZES = Sizes(microbatch_tokens=16384, rows_at_once=2048, cache_tokens=1 << 17)
OWN = "module:Class"  # how code of the user's own is named
# The embedded benchmarks, and the reward of each.
EMBEDDED_PROMPTS = {"countdown": "countdown", "codegrammar": "code", **dict.fromkeys(FORMS, "reasoning-gym")}


def _clean_text(value: str) -> str:
    if not value or value != value.strip():
        raise ValueError("expected text without white space at either end")
    return value


Text = Annotated[str, AfterValidator(_clean_text)]


def _targets(value: Any) -> Any:
    if isinstance(value, list | tuple) and value and all(isinstance(name, str) and name for name in value):
        return tuple(value)
    if value != "all-linear":
        raise ValueError("expected all-linear, or a list of layer names such as [q_proj, v_proj]")
    return value


def _count_or(word: str, least: int, value: Any) -> Any:
    """``value``, if it is a whole number of at least ``least``, or ``word``; else raises ValueError."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= least
    if not is_count and value != word:
        raise ValueError(f"expected a whole number of at least {least}, or {word}")
    return value


AutoCount = Annotated[Annotated[int, Field(ge=1)] | Literal["auto"], BeforeValidator(partial(_count_or, "auto", 1))]


def _one_of(table: LazyTable) -> tuple[BeforeValidator, WithJsonSchema]:
    """Annotations that allow the names in ``table``, like a Literal, but look at the table when a value is given."""
    own = [OWN] if table.own else []

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not table.takes(value):
            raise PydanticCustomError(
                "literal_error", "Input should be {expected}", {"expected": " or ".join(map(repr, [*table, *own]))}
            )
        return value

    named = {"enum": list(table), "type": "string"}
    schema = {"anyOf": [named, {"type": "string", "pattern": ":", "title": OWN}]} if own else named
    return BeforeValidator(check), WithJsonSchema(schema)


def block_of(field: FieldInfo) -> type[BaseModel] | None:
    """The block of keys that a field holds, null or not; None for a plain value."""
    choices = [choice for choice in (get_args(field.annotation) or (field.annotation,)) if choice is not type(None)]
    found = choices[0] if len(choices) == 1 else None
    return found if isinstance(found, type) and issubclass(found, BaseModel) else None


def own_template(source: str) -> str | None:
    """The prompt template of an embedded benchmark or a task of reasoning-gym; None for prompts of other sources."""
    own = {**dict.fromkeys(EMBEDDED_PROMPTS, "plain"), WORD_PROBLEMS: "question"}
    return own.get(source) or ("reasoning-gym" if source.startswith(PREFIX) else None)


PromptTemplate = Annotated[str, AfterValidator(template_text)]


class SourceConfig(Block):
    """One of several sources of prompts."""

    name: Text = Field("", description='what metrics call it; "" is the benchmark, or the file without its ending')
    source: Text = Field(description="where its prompts come from: whatever data.prompts may name")
    weight: float = Field(1.0, ge=0, description="its share of each batch is its weight / the sum of all weights")
    template: PromptTemplate | None = Field(
        None, description="its prompt template; null: the embedded benchmark's or task's, else data.template"
    )
    system: str | None = Field(
        None, description="its system prompt; null: the template's, or with data.template data.system"
    )
    reward: Annotated[RewardConfig, BeforeValidator(reward_block, json_schema_input_type=Any)] | None = Field(
        None, description="how its responses are graded; null: as `reward` says"
    )

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        source = value.get("source") if isinstance(value, Mapping) and not value.get("name") else None
        return {**value, "name": benchmark_name(source)} if isinstance(source, str) else value


def source_blocks(value: Any) -> Any:
    """A list with the block that each name in it is short for; what is no list passes through."""
    are_several = isinstance(value, list | tuple)
    return [{"source": one} if isinstance(one, str) else one for one in value] if are_several else value


def _sources(value: tuple[SourceConfig, ...]) -> tuple[SourceConfig, ...]:
    if twice := [name for name, count in Counter(one.name for one in value).items() if count > 1]:
        raise ValueError(f"expected different names, and {', '.join(twice)} is given twice: give each source a `name`")
    if not sum(one.weight for one in value):
        raise ValueError("expected a source with a weight above 0")
    return value


TAGS = ("[one]", "[several]")  # of what `data.prompts` is: steps of pydantic's, no keys
_Prompts = Annotated[
    Annotated[Text, Tag(TAGS[0])]
    | Annotated[
        tuple[SourceConfig, ...],
        Field(strict=False),
        BeforeValidator(source_blocks, json_schema_input_type=list[str | SourceConfig]),
        AfterValidator(_sources),
        PlainSerializer(lambda several: [one.model_dump(exclude_unset=True) for one in several]),
        Tag(TAGS[1]),
    ],
    Discriminator(lambda value: TAGS[isinstance(value, list | tuple)]),
]


class _Bounds(Block):
    """Which prompts are kept, by how often a model solved them."""

    min: float = Field(0.05, ge=0, le=1, description="smallest share of correct responses")
    max: float = Field(0.95, ge=0, le=1, description="largest share of correct responses")


_MEASURED = "graded samples of the prompts: a file or folder that `quatro sample --grade` or `quatro eval grade` wrote"
_from: dict[str, Any] = {"from": (Text, Field(description=_MEASURED))}  # a word of Python's
PassRate = create_model("PassRate", __base__=_Bounds, **_from)


class DataConfig(Block):
    """Where prompts come from."""

    prompts: _Prompts = Field(
        "math_train",
        description="prompts to train on: math_train, word-problems, countdown, codegrammar, palindrome, "
        "shortest-path, spell-backward, reasoning-gym:TASK, a .jsonl, .csv or .parquet file, or a data set of the Hub "
        "as OWNER/NAME:SPLIT or OWNER/NAME:CONFIG:SPLIT; or a list of these or of blocks with the keys of "
        "data.prompts.0 below (docs/data.md)",
    )
    template: PromptTemplate = Field(
        "qwen-boxed",
        description=f"how a problem becomes a prompt: one of the names below, or your own: {OWN_TEMPLATES}. Embedded "
        "benchmarks take `plain`; the default of reasoning-gym:TASK is `reasoning-gym`, of word-problems `question`",
        json_schema_extra={"meanings": {name: template.about for name, template in TEMPLATES.items()}},
    )
    system: str | None = Field(None, description='system prompt of a chat; "" is none; null is the template\'s')
    chat_template_kwargs: Annotated[dict[str, Any], AfterValidator(checked_kwargs)] = Field(
        {}, description="what the model's chat template is told by name, such as {enable_thinking: false}"
    )
    pass_rate: PassRate | None = Field(
        None, description="keep prompts by how often a model solved them (docs/data.md); null keeps all"
    )
    max_prompt_tokens: int = Field(1024, ge=1, description="longest prompt, in tokens; verl's default is 512")
    too_long: Literal["refuse", "skip"] = Field(
        "refuse", description="refuse to train with prompts longer than data.max_prompt_tokens, or skip them"
    )

    @property
    def sources(self) -> tuple[SourceConfig, ...]:
        """Where prompts come from, each with the template and system prompt in force; a single one has no name."""
        if isinstance(self.prompts, str):
            return (self.asked_as(self.prompts),)
        return tuple(map(self._in_force, self.prompts))

    @property
    def shares(self) -> dict[str, float]:
        """The share that each source has of a batch, by its name; a single one has no name."""
        sources = self.sources
        return {one.name: one.weight / sum(other.weight for other in sources) for one in sources}

    @property
    def said(self) -> str:
        """Where prompts come from, for a person: of several sources each with its share of a batch."""
        named = [f"{name} ({share:.3g})" for name, share in self.shares.items()]
        return self.prompts if isinstance(self.prompts, str) else ", ".join(named)

    def asked_as(self, benchmark: str) -> SourceConfig:
        """How problems of ``benchmark`` are asked: as these keys say, but of several sources as the one that it is."""
        alone = SourceConfig.model_construct(name="", source=benchmark, template=self.template, system=self.system)
        if isinstance(self.prompts, str):
            return alone
        names = {benchmark, benchmark_name(benchmark)}
        same = (one for one in self.sources if names & {one.name, one.source, benchmark_name(one.source)})
        return next(same, self._in_force(alone.model_copy(update={"template": None, "system": None})))

    def _in_force(self, one: SourceConfig) -> SourceConfig:
        own = one.template or own_template(one.source)
        system = one.system if own or one.system is not None else self.system
        return one.model_copy(update={"template": own or self.template, "system": system})

    def template_of(self, one: SourceConfig) -> Template:
        """The prompt template of one of ``sources``, with its system prompt and what the chat template is told."""
        found = find_template(str(one.template), one.system)
        return find_template(found, kwargs=self.chat_template_kwargs) if found.is_chat else found

    @model_validator(mode="before")
    @classmethod
    def _own_template(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or "template" in data:
            return data
        template = own_template(str(data.get("prompts", "")))
        return {**data, "template": template} if template else data


class CorrectionConfig(Block):
    """Importance weights that make up for a sampler whose probabilities are not the trainer's."""

    level: Literal["token", "sequence"] = Field(
        "sequence",
        description="a weight pi_old / pi_sampler for each token (biased, little variance), or their product for each "
        "response (unbiased below the cap, more variance)",
    )
    kind: Literal["truncate", "mask"] = Field(
        "truncate", description="a weight above the cap becomes the cap (truncate) or 0 (mask)"
    )
    cap: float = Field(2.0, ge=1, description="largest weight; default: 2 with truncate (verl's), 3 with mask (TRL's)")

    @model_validator(mode="before")
    @classmethod
    def _cap_of_kind(cls, data: Any) -> Any:
        return {"cap": 3.0, **data} if isinstance(data, Mapping) and data.get("kind") == "mask" else data


class RolloutConfig(Block):
    """How training responses are drawn."""

    engine: Annotated[str, *_one_of(ENGINES)] = Field(
        "transformers",
        description="what draws responses; replay takes them from replay_file; module:Class is an engine of your own "
        "(docs/extending.md)",
    )
    temperature: float = Field(1.0, gt=0, description="sampling temperature; the trainer scores at the same one")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass; 1 keeps every token")
    top_k: int = Field(0, ge=0, description="number of likeliest tokens that are kept; 0 keeps every token")
    max_new_tokens: int = Field(1024, ge=1, description="longest response, in tokens, the stop token included")
    stop: Annotated[tuple[str, ...], Field(strict=False), AfterValidator(checked_stop)] | None = Field(
        None,
        description='strings such as "\\ndef": a response ends before the first of them; the token that completes it '
        "is learnt from. null: those of data.template",
    )
    thinking: Annotated[str, AfterValidator(check_markers)] | None = Field(
        None,
        description="markers of a thought before the answer: its end, such as `</think>`, or start and end, "
        "`<think> </think>`. Only the text after the last end marker is judged (docs/data.md#models-that-think). "
        "null: the whole response",
    )
    dynamic_sampling: bool = Field(
        False,
        description="draw until prompts_per_step prompts have rewards that differ; others are not learnt from (DAPO; "
        "docs/methods.md says what it changes for QUATRO)",
    )
    max_sampling_rounds: int = Field(10, ge=1, description="most batches of an iteration with dynamic_sampling")
    mask_truncated: bool = Field(
        False, description="a response that was cut at max_new_tokens has no loss; its reward still counts"
    )
    correction: CorrectionConfig | None = Field(
        None,
        description="importance weights where the engine's probabilities differ from the trainer's "
        "(docs/methods.md#sampler-and-trainer); null: none",
    )
    rows_at_once: AutoCount = Field(
        "auto",
        description="most responses that engine transformers draws at once; auto: 2048 on a CPU; on a GPU what fits",
    )
    cache_tokens: AutoCount = Field(
        "auto", description="most tokens in the cache of engine transformers; auto: 131072 on a CPU; on a GPU what fits"
    )
    gpu_memory_utilization: float = Field(0.8, gt=0, le=1, description="share of GPU memory that vLLM may take")
    replay_file: Text | None = Field(None, description="file of recorded responses (.jsonl) for engine replay")


class OptimizerConfig(Block):
    """The optimiser."""

    name: Literal["adamw"] = Field("adamw", description="the optimiser")
    lr: float = Field(1e-6, gt=0, description="learning rate; the largest value of its schedule")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="how the learning rate falls to min_lr between the warm-up and the end of the run"
    )
    min_lr: float = Field(0.0, ge=0, description="learning rate at the end of a linear or cosine schedule")
    betas: Annotated[
        tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]], Field(strict=False)
    ] = Field((0.9, 0.999), description="decay of AdamW's first and second moments")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay, per unit of learning rate")
    max_grad_norm: float = Field(1.0, gt=0, description="a gradient with a larger L2 norm is scaled down to this one")
    warmup_steps: int = Field(0, ge=0, description="lr rises linearly over this many optimiser steps")

    def lr_share(self, step: int, num_steps: int) -> float:
        """The learning rate of optimiser step ``step`` (from 0) of ``num_steps``, as a share of ``lr``."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        done = min(1.0, (step - self.warmup_steps) / max(1, num_steps - self.warmup_steps))
        falling = {"constant": 1.0, "linear": 1.0 - done, "cosine": 0.5 + 0.5 * math.cos(math.pi * done)}
        end = self.min_lr / self.lr if self.schedule != "constant" else 0.0
        return end + (1.0 - end) * falling[self.schedule]


class KlConfig(Block):
    """The KL penalty towards the model that the run began with, or another reference."""

    beta: float = Field(0.001, ge=0, description="beta, the coefficient of the KL to the reference; 0 is off")
    reference: Text | None = Field(
        None,
        description="reference model of the KL penalty, named like `model`, with the same architecture and "
        "tokenizer. null: the model that the run began with",
    )
    estimator: KlEstimator = Field(
        "k3", description="estimator of that KL; sequence-exact has the gradient of the reverse KL over sequences"
    )
    aggregate: Aggregate = Field("token-mean", description="how the token values of that KL are averaged")


class LoraConfig(Block):
    """A low-rank adapter."""

    rank: int = Field(16, ge=1, description="rank of the change to each adapted weight matrix")
    alpha: int = Field(32, ge=1, description="the change is alpha / rank times the product of the two matrices")
    target_modules: Annotated[tuple[str, ...] | Literal["all-linear"], BeforeValidator(_targets)] = Field(
        "all-linear",
        description="layers to adapt, such as [q_proj, v_proj]; all-linear: all linear layers except the head",
    )


class PolicyConfig(Block):
    """How the model is held and updated."""

    kind: Annotated[str, *_one_of(POLICIES)] = Field(
        "local",
        description="local: each process holds the whole model; deepspeed: ZeRO shards under torchrun; module:Class: "
        "a policy of your own (docs/extending.md)",
    )
    zero_stage: int = Field(
        1,
        ge=1,
        le=3,
        description="what ZeRO shards: 1, the optimiser; 2, also the gradients; 3, also the weights. 2 and 3 exchange "
        "gradients after each micro-batch",
    )
    offload_optimizer: bool = Field(
        False, description="keep DeepSpeed's optimiser in CPU memory: less memory on the device, slower steps"
    )
    gradient_checkpointing: bool = Field(
        False, description="compute each layer again for its gradient: less memory, a third more computation"
    )
    lora: LoraConfig | None = Field(
        None,
        description="train a low-rank adapter (LoRA), with about ten times the learning rate; null trains all weights",
    )


def _one_or_several(expected: str, is_one: Callable[[Any], bool], value: Any) -> Any:
    """One value or a tuple of several; raises ValueError unless each ``is_one``."""
    several = value if isinstance(value, list | tuple) and value else (value,)
    if not all(map(is_one, several)):
        raise ValueError(f"expected {expected}, or a list of them")
    return tuple(several) if len(several) > 1 else several[0]


_Count = Annotated[int, Field(ge=1)]
_benchmarks = partial(_one_or_several, "a benchmark", lambda one: isinstance(one, str) and one.strip() == one != "")
_counts = partial(_one_or_several, "a whole number of at least 1", lambda one: type(one) is int and one >= 1)


class EvalConfig(Block):
    """Evaluation during training."""

    every: int = Field(0, ge=0, description="iterations between evaluations; 0 is never")
    at_start: bool = Field(
        True, description="evaluate before training too (metrics under base/), if there are evaluations"
    )
    benchmark: Annotated[str | tuple[str, ...], BeforeValidator(_benchmarks)] | None = Field(
        None,
        description="what to evaluate on: a benchmark, a file or a data set of the Hub; or a list of them, each with "
        "eval/NAME/pass@1, whose mean is eval/pass@1",
    )
    n: Annotated[_Count | tuple[_Count, ...], BeforeValidator(_counts)] = Field(
        16, description="responses per problem; a list has one number for each benchmark"
    )
    temperature: float = Field(1.0, gt=0, description="sampling temperature of evaluations")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus mass of evaluations; 1 keeps every token")


class AuditConfig(Block):
    """Of which prompts the realised KL is measured after an iteration."""

    # With 8 rollouts each the standard error is about a seventh of the KL, and warnings begin at three times delta; of
    # the paper's 256 prompts they cost an eighth of a forward pass.
    prompts: Annotated[Annotated[int, Field(ge=0)] | Literal["all"], BeforeValidator(partial(_count_or, "all", 0))] = (
        Field(
            32,
            description="on how many prompts of an iteration its realised KL is measured, by one more forward pass. "
            "`audit: true` is short for all, `audit: false` for 0",
        )
    )


class KeepConfig(Block):
    """Which checkpoints are kept."""

    last: int = Field(3, ge=1, description="how many of the newest checkpoints are kept, besides the best")
    best: Text | None = Field(
        None,
        description="a metric, such as eval/pass@1: whenever it is larger than before a checkpoint is saved, and "
        "the best is kept; null: none",
    )


def keep_block(value: Any) -> Any:
    """The block that a number is short for; a block passes through."""
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


def audit_block(value: Any) -> Any:
    """The block that true or false is short for; a block passes through."""
    if isinstance(value, bool):
        return {"prompts": "all" if value else 0}
    if not isinstance(value, Mapping | AuditConfig):
        raise ValueError("expected true, false or a block such as {prompts: 32}")
    return value


class EarlyStopConfig(Block):
    """When a run ends before its last iteration."""

    metric: Text = Field("eval/pass@1", description="the metric that decides when the run ends; larger is better")
    patience: int = Field(
        0,
        ge=0,
        description="the run ends when this many measurements in a row do not exceed the largest before (that before "
        "training does not count); 0 is never",
    )
    min_delta: float = Field(0.0, ge=0, description="a measurement must exceed the largest by more than this")


class CheckpointConfig(Block):
    """When to save, and how many checkpoints to keep."""

    every: int = Field(20, ge=0, description="iterations between checkpoints; the last iteration is always saved")
    keep: Annotated[KeepConfig, BeforeValidator(keep_block, json_schema_input_type=int | KeepConfig)] = Field(
        default_factory=KeepConfig, description="which checkpoints are kept; `keep: 3` is short for {last: 3}"
    )

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be saved after iteration ``step``."""
        return self.every > 0 and step % self.every == 0


class TrackingConfig(Block):
    """Where metrics go beside metrics.jsonl."""

    trackers: Annotated[tuple[Annotated[str, *_one_of(TRACKERS)], ...], Field(strict=False)] = Field(
        (),
        description="tensorboard, wandb (online unless tracking.wandb is offline), trackio, or module:Class of your "
        "own (docs/extending.md); `tracking: [trackio]` is short for {trackers: [trackio]}",
    )
    tensorboard: bool = Field(False, description="also write metrics to RUN/tensorboard")
    wandb: Literal["online", "offline"] | None = Field(
        None, description="also send metrics to Weights & Biases; offline keeps them in RUN/wandb for `wandb sync`"
    )
    project: Text = Field("quatro", description="project of the run at its trackers")
    name: Text | None = Field(None, description="name of the run at its trackers; null: the run directory's name")

    @property
    def enabled(self) -> list[str]:
        """The trackers that are asked for, each once."""
        asked = {"tensorboard": self.tensorboard, "wandb": self.wandb is not None}
        return list(dict.fromkeys([*(name for name, is_on in asked.items() if is_on), *self.trackers]))


def tracking_block(value: Any) -> Any:
    """The block that a list of trackers is short for; a block passes through."""
    return {"trackers": value} if isinstance(value, list) else value
