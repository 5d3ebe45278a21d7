"""A training configuration: each key with its type, default and meaning, and the rules between keys.

Defaults: K is `inner_updates` and beta `kl.beta`; lr is in `blocks.py`, delta in `quatro/methods/quatro.py`.
`load.py` says which defaults are the paper's, which are verl's and which are ours.
"""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from evals.benchmarks.problems import benchmark_name
from evals.benchmarks.prompts import find_template
from evals.errors import UsageError
from evals.files.own_code import file_of, is_own, place_of
from evals.files.strict_json import shown
from evals.results.training_metrics import EVALUATED
from quatro.config.blocks import (
    CPU_SIZES,
    EMBEDDED_PROMPTS,
    SIZE_KEYS,
    AuditConfig,
    AutoCount,
    CheckpointConfig,
    DataConfig,
    EarlyStopConfig,
    EvalConfig,
    KlConfig,
    OptimizerConfig,
    PolicyConfig,
    RolloutConfig,
    Sizes,
    Text,
    TrackingConfig,
    audit_block,
)
from quatro.config.paths import Recorded, places_in
from quatro.methods.base import Method as MethodBase
from quatro.registry import ENGINES, METHODS, POLICIES
from quatro.rewards.settings import RewardConfig, reward_block
from quatro.tasks.characters import FORMS
from quatro.tasks.word_problems import MODELS
from quatro.types import Block, Needs

if TYPE_CHECKING:
    Method = MethodBase
else:
    # At run time any object: the field below builds it from the class that `method.name` names.
    Method = Any

Problems = Iterator[tuple[str, str]]  # key and problem
# The embedded models, and the benchmark whose words each knows.
EMBEDDED_MODELS = {
    "embedded:countdown": "countdown",
    "embedded:countdown-hard": "countdown",
    "embedded:code": "codegrammar",
    **{f"embedded:{name}": name for name in FORMS},
}


class ConfigProblems(ValueError):
    """Keys of a configuration that do not fit together: pairs of key and problem."""

    def __init__(self, problems: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{key}: {problem}" for key, problem in problems))
        self.problems = problems


def known_model(value: str) -> str:
    """``value``; raises UsageError if it begins as the name of an embedded model and is none."""
    if value.startswith("embedded:") and embedded_benchmark(value) is None:
        raise UsageError(
            f"unknown embedded model {value!r}; expected one of {', '.join(EMBEDDED_MODELS)} (with @1, @2, ... of "
            "another seed), a folder or a Hub id"
        )
    return value


def embedded_benchmark(model: str) -> str | None:
    """The benchmark whose words an embedded model knows, whatever its seed; None for any other model."""
    return EMBEDDED_MODELS.get(re.sub("@(0|[1-9][0-9]{0,8})$", "", model))


def method_class(name: str) -> type[Method]:
    """The class that ``name`` names.

    Raises UsageError if there is no such method, or your own class is not a Method, lacks one of its functions or has
    an `__init__`, whose arguments no configuration would know.
    """
    found: Any = METHODS[name]
    if not (isinstance(found, type) and issubclass(found, MethodBase)):
        raise UsageError(f"{name} is not a method; derive the class from quatro.methods.base.Method")
    if lacking := sorted(found.__abstractmethods__):
        texts = [f"{one}({', '.join([*inspect.signature(getattr(found, one)).parameters][1:])})" for one in lacking]
        raise UsageError(f"method {name} lacks {' and '.join(texts)}; add them in {file_of(name)}")
    if found.__init__ is not MethodBase.__init__:
        raise UsageError(
            f"method {name} has an __init__; make a field of the class of each of its arguments and remove it: "
            f"`scale: float = 1.0` is set by -s method.scale=2, and is recorded with the run\n"
            f"  {place_of(found.__init__) or file_of(name)}"
        )
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


class Config(Block):
    """One training run. Frozen; equal configurations give equal runs on one machine."""

    model: Annotated[Text, AfterValidator(known_model)] = Field(
        description=f"what to fine-tune: a folder, a Hub id, a run (RUN for its newest checkpoint, RUN@STEP, "
        f"RUN@best), a GGUF file, {' or '.join(MODELS)} (docs/real-model.md), or one of {', '.join(EMBEDDED_MODELS)} "
        "(@1, @2, ... after the name: other seeds)"
    )
    dtype: Literal["bfloat16", "float32"] = Field(
        "bfloat16", description="number format of the computation; trained weights and updates stay in float32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where to compute; auto is cuda if there is a device"
    )
    deterministic: bool = Field(False, description="a run on one GPU repeats bit by bit, as on a CPU; it is slower")
    threads: int | None = Field(None, ge=1, description="CPU threads; null leaves PyTorch's choice")
    processes: int | None = Field(
        None,
        ge=1,
        description="processes that train together, one per GPU: `quatro sweep` starts them, `quatro train` refuses "
        "fewer; null: one, or as many as torchrun started",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="seed of the data order, of sampling and of a new adapter")
    steps: int = Field(
        100,
        ge=1,
        description="number of iterations, each of one batch of rollouts; verl's default of 30 epochs is about 870",
    )
    method: Annotated[Method, BeforeValidator(build_method)] = Field(
        description="the policy-gradient method and its own keys"
    )
    data: DataConfig = Field(default_factory=DataConfig, description="where prompts come from")
    reward: Annotated[RewardConfig, BeforeValidator(reward_block)] = Field(
        default_factory=RewardConfig,
        description="how responses are graded: a reward's name, a block, or a list of them",
    )
    prompts_per_step: int = Field(256, ge=1, description="prompts per iteration")
    rollouts_per_prompt: int = Field(8, ge=2, description="responses per prompt (N)")
    minibatch_prompts: int = Field(64, ge=1, description="prompts per optimiser step")
    inner_updates: AutoCount = Field(
        1,
        description="passes over each batch of rollouts (K). auto (not in the paper): until the realised KL reaches "
        "0.8 of the radius; a part of a pass that overshoots is taken back",
    )
    max_inner_updates: int = Field(20, ge=1, description="largest number of passes with inner_updates auto")
    microbatch_tokens: AutoCount = Field(
        "auto",
        description="tokens per forward pass, lowered if memory runs out; it never changes a gradient. auto: 16384 on "
        "a CPU; on a GPU what fits at the start",
    )
    rollout: RolloutConfig = Field(default_factory=RolloutConfig, description="how training responses are drawn")
    old_policy: Literal["trainer", "sampler"] = Field(
        "trainer",
        description="whose log-probabilities are log pi_old: the trainer's, or the engine's "
        "(docs/methods.md#sampler-and-trainer)",
    )
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig, description="the optimiser")
    kl: KlConfig = Field(default_factory=KlConfig, description="KL penalty towards a reference model")
    entropy_coefficient: float = Field(0.0, ge=0, description="coefficient of the entropy bonus; 0 is off")
    policy: PolicyConfig = Field(default_factory=PolicyConfig, description="how the model is held and updated")
    eval: EvalConfig = Field(default_factory=EvalConfig, description="evaluation during training")
    audit: Annotated[AuditConfig, BeforeValidator(audit_block, json_schema_input_type=bool | AuditConfig)] = Field(
        default_factory=AuditConfig, description="of which prompts the realised KL of an iteration is measured"
    )
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig, description="when to save")
    early_stop: EarlyStopConfig = Field(
        default_factory=EarlyStopConfig, description="when the run ends before its last iteration"
    )
    tracking: TrackingConfig = Field(default_factory=TrackingConfig, description="metrics beside metrics.jsonl")
    save_rollouts: bool = Field(True, description="write every training response to rollouts/")
    on_nonfinite: Literal["stop", "skip"] = Field(
        "stop", description="at an optimiser step whose loss or gradient is not finite: stop the run, or skip the step"
    )
    _paths: dict[str, Recorded] = PrivateAttr(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and dict(self) == dict(other)

    @property
    def paths(self) -> Mapping[str, Recorded]:
        """What the paths of a run or of a sweep's point named, by key. It is no key: it makes no two unequal."""
        return self._paths

    @property
    def digests(self) -> dict[str, str]:
        """The digests of ``paths``, by key."""
        return {key: one.digest for key, one in self._paths.items()}

    def with_paths(self, texts: Mapping[str, str], paths: Mapping[str, Recorded]) -> Self:
        """The same configuration with other ``texts`` in place of its paths, by key, and with what ``paths`` named."""
        values: dict[str, Any] = {key: text for key, text in texts.items() if key.count(".") < 2}
        if values.keys() != texts.keys():  # some are inside lists or blocks of blocks
            tree = self.model_dump(mode="python")
            for key, holder, at in places_in(tree):
                holder[at] = texts.get(key, holder[at])
            values["reward"] = RewardConfig.model_validate(tree["reward"])
            values["data"] = DataConfig.model_validate(tree["data"])
            values["eval"] = EvalConfig.model_validate(tree["eval"])
        changed = self.with_values(values).model_copy()
        changed._paths = dict(paths)
        return changed

    @property
    def stop(self) -> tuple[str, ...]:
        """The strings at which a response ends."""
        return (
            find_template(str(self.data.sources[0].template)).stop if self.rollout.stop is None else self.rollout.stop
        )

    @property
    def rewards(self) -> dict[str, RewardConfig]:
        """What grades the responses to each source of prompts, by its name; a single source has none."""
        return {one.name: one.reward or self.reward for one in self.data.sources}

    @property
    def needs_sampler(self) -> str | None:
        """The key that needs the engine's log-probability of every token, if there is one."""
        if self.old_policy == "sampler":
            return "old_policy"
        return None if self.rollout.correction is None else "rollout.correction"

    @property
    def watched(self) -> dict[str, str]:
        """The metrics that choose the best checkpoint and that end the run early, by the keys that name them."""
        stops_by = self.early_stop.metric if self.early_stop.patience else None
        found = {"checkpoint.keep.best": self.checkpoint.keep.best, "early_stop.metric": stops_by}
        return {key: metric for key, metric in found.items() if metric is not None}

    @property
    def evaluated(self) -> dict[str, tuple[str, int]]:
        """The benchmarks by what metrics call them, each with its n; a file keeps the name that it had at first."""
        several, n = self.eval.benchmark or (), self.eval.n
        keys = ["eval.benchmark"] if isinstance(several, str) else [f"eval.benchmark.{i}" for i in range(len(several))]
        several = (several,) if isinstance(several, str) else several
        typed = [self.paths[key].typed if key in self.paths else one for key, one in zip(keys, several, strict=True)]
        counts = n if isinstance(n, tuple) else (n,) * len(several)
        return dict(zip(map(benchmark_name, typed), zip(several, counts, strict=False), strict=False))

    @property
    def optimizer_steps(self) -> int:
        """Optimiser steps of the whole run, at most."""
        return self.steps * (self.prompts_per_step // self.minibatch_prompts) * self.most_inner_updates

    @property
    def most_inner_updates(self) -> int:
        """Passes over each batch of rollouts, at most."""
        return self.max_inner_updates if self.inner_updates == "auto" else self.inner_updates

    @property
    def sizes(self) -> Sizes:
        """The sizes in numbers; `auto` for which no machine has been asked is what it is on a CPU."""
        return self._sizes_or(CPU_SIZES)

    def with_sizes(self, sizes: Sizes) -> Self:
        """The same configuration with the numbers of ``sizes`` in place of `auto`."""
        return self.with_values(dict(zip(SIZE_KEYS, self._sizes_or(sizes), strict=True)))

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The same configuration with other values of dotted keys, which are not checked."""
        config = self
        for key, value in values.items():
            block, _, field = key.rpartition(".")
            changed = {field: value}
            if block:
                changed = {block: getattr(config, block).model_copy(update=changed)}
            config = config.model_copy(update=changed)
        return config

    def _sizes_or(self, other: Sizes) -> Sizes:
        own = (self.microbatch_tokens, self.rollout.rows_at_once, self.rollout.cache_tokens)
        return Sizes(*(number if size == "auto" else size for size, number in zip(own, other, strict=True)))

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        problems = [(key, problem) for check in _CHECKS for key, problem in check(self)]
        if problems:
            raise ConfigProblems(problems)
        return self


def _check_batch(config: Config) -> Problems:
    prompts, minibatch = config.prompts_per_step, config.minibatch_prompts
    if minibatch > prompts:
        yield "minibatch_prompts", f"found {minibatch}, expected at most prompts_per_step ({prompts})"
    elif prompts % minibatch:
        yield "minibatch_prompts", f"found {minibatch}, expected a divisor of prompts_per_step ({prompts})"


def _check_data(config: Config) -> Problems:
    known = {**EMBEDDED_PROMPTS, "math_train": "math"}  # and the benchmark that grades each
    data, are_several = config.data, not isinstance(config.data.prompts, str)
    asked = [("data", data.template, data.system)]
    for number, one in enumerate(data.sources):
        prompts, block = one.source, f"data.prompts.{number}" if are_several else "data"
        asked += [(block, str(one.template), one.system)] if are_several else []
        if prompts in EMBEDDED_PROMPTS and one.template != "plain":
            yield f"{block}.template", f"found {one.template}, expected plain: {prompts} prompts take no template"
        for reward in config.rewards[one.name].names:
            graded = "countdown" if reward == "countdown-distance" else reward
            if prompts in known and graded in known.values() and graded != known[prompts]:
                key = f"{block}.reward" if one.reward else "reward"
                yield key, f"found {reward}, expected {known[prompts]}: the prompts are {prompts}'s"
        words = embedded_benchmark(config.model) or prompts
        if prompts in known and prompts != words:
            key = f"{block}.source" if are_several else "data.prompts"
            yield key, f"found {prompts}, expected {words}: {config.model} knows no other words"
    for block, template, system in asked:
        if system is not None and not find_template(template).is_chat:
            why = f"the prompt template {shown(template)} makes no chat"
            yield f"{block}.system", f"found {shown(system)}, expected null: {why}"
    found = [find_template(template) for _, template, _ in asked]
    if data.chat_template_kwargs and not any(template.is_chat for template in found):
        why = f"the prompt template {shown(data.template)} makes no chat"
        yield "data.chat_template_kwargs", f"found {shown(data.chat_template_kwargs)}, expected {{}}: {why}"
    if config.rollout.stop is None and any(template.stop != found[-1].stop for template in found[are_several:]):
        yield "rollout.stop", "missing: the prompt templates of data.prompts end responses at different strings"
    if data.pass_rate and data.pass_rate.min > (most := data.pass_rate.max):
        yield "data.pass_rate.min", f"found {data.pass_rate.min:g}, expected at most data.pass_rate.max ({most:g})"


def _check_schedule(config: Config) -> Problems:
    optimizer = config.optimizer
    if optimizer.min_lr > (optimizer.lr if optimizer.schedule != "constant" else 0.0):
        limit = f"at most optimizer.lr ({optimizer.lr:g})" if optimizer.schedule != "constant" else "0: lr is constant"
        yield "optimizer.min_lr", f"found {optimizer.min_lr:g}, expected {limit}"


def _check_needs(config: Config) -> Problems:
    try:
        needs: Needs = config.method.needs
    except TypeError as error:
        if "Needs.__init__" not in str(error):
            raise
        why = "Needs takes keywords only; of dynamic sampling it has none: it is rollout.dynamic_sampling now"
        yield "method.name", f"found {config.method.name}: {error}; {why}"
        return
    limit = config.rollout.max_new_tokens
    if needs.overlong_buffer is not None and needs.overlong_buffer > limit:
        found = needs.overlong_buffer
        yield "method.overlong_buffer", f"found {found}, expected at most rollout.max_new_tokens ({limit})"
    if needs.min_rollouts > config.rollouts_per_prompt:
        found, asked = config.rollouts_per_prompt, needs.min_rollouts
        yield "rollouts_per_prompt", f"found {found}, expected at least {asked}, as method {config.method.name} asks"


def _check_radius(config: Config) -> Problems:
    if config.inner_updates == "auto" and config.method.kl_radius is None:
        why = f"method {config.method.name} has no KL radius that could end the passes"
        yield "inner_updates", f"found auto, expected a whole number: {why}; use -m quatro, or set inner_updates to 1"


def _check_recorded(config: Config) -> Problems:
    rollout = config.rollout
    engine, evaluations = f"engine {rollout.engine}", config.eval.every
    if config.deterministic and rollout.engine == "vllm":
        yield "deterministic", "found true, expected false: the engine vllm computes in no fixed order"
    if is_own(rollout.engine) or not ENGINES[rollout.engine].is_recorded:  # a run is read where its own code is not
        if rollout.replay_file is not None:
            yield "rollout.replay_file", f"found {rollout.replay_file}, expected null: only engine replay reads it"
    elif rollout.replay_file is None:
        yield "rollout.replay_file", f"missing: {engine} needs a file of recorded responses"
    elif rollout.stop:
        yield "rollout.stop", f"found {list(rollout.stop)}, expected []: {engine} deals out responses as they are"
    elif evaluations:
        yield "eval.every", f"found {evaluations}, expected 0: {engine} cannot draw samples to evaluate"


def _check_sampler(config: Config) -> Problems:
    rollout, key = config.rollout, config.needs_sampler
    if key is None:
        return
    found = "found sampler, expected trainer" if key == "old_policy" else "expected null"
    if not is_own(rollout.engine) and ENGINES[rollout.engine].is_recorded:
        yield key, f"{found}: engine {rollout.engine} knows no log-probabilities"
    if rollout.top_p < 1 or rollout.top_k > 0:
        yield key, f"{found}: with top_p or top_k the engine draws from another distribution than its log-probabilities"
    if key == "old_policy" and config.inner_updates == "auto":
        why = "with old_policy sampler the KL is not 0 before the first pass"
        yield "inner_updates", f"found auto, expected a whole number: {why}"
    if key == "old_policy" and rollout.correction is not None:
        yield "rollout.correction", "expected null: with old_policy sampler the ratios are those to the sampler already"


def _check_measuring(config: Config) -> Problems:
    if config.eval.every and config.eval.benchmark is None:
        yield "eval.benchmark", f"missing: eval.every is {config.eval.every}; name a benchmark"
    benchmark, n = config.eval.benchmark, config.eval.n
    if isinstance(n, tuple) and not (isinstance(benchmark, tuple) and len(n) == len(benchmark)):
        yield "eval.n", f"found {list(n)}, expected one number, or one for each benchmark"
    elif isinstance(benchmark, tuple) and len(config.evaluated) < len(benchmark):
        yield "eval.benchmark", f"found {', '.join(benchmark)}, expected benchmarks of different names"
    for key, metric in config.watched.items():
        if metric.startswith(EVALUATED) and not config.eval.every:
            yield key, f"found {metric}, and nothing is evaluated: set eval.every and eval.benchmark"


def _check_reference(config: Config) -> Problems:
    why = None
    if config.kl.beta == 0:
        why = "kl.beta is 0"
    elif config.policy.lora is not None:
        why = "with an adapter (policy.lora) the reference is the model without it"
    if config.kl.reference is not None and why is not None:
        yield "kl.reference", f"found {shown(config.kl.reference)}, expected null: {why}"


def _check_policy(config: Config) -> Problems:
    # A run with a policy of the user's own is read where that code is not.
    if is_own(config.policy.kind) or not POLICIES[config.policy.kind].is_sharded:
        if config.policy.offload_optimizer:
            yield "policy.offload_optimizer", "found true, expected false: only policy.kind deepspeed offloads"
        return
    if config.deterministic:
        yield "deterministic", f"found true, expected false: policy.kind {config.policy.kind} adds in no fixed order"
    if config.inner_updates == "auto":
        why = "taking back a pass needs the weights before it, which policy.kind deepspeed does not keep"
        yield "inner_updates", f"found auto, expected a whole number: {why}"


_CHECKS: tuple[Callable[[Config], Problems], ...] = (
    _check_batch,
    _check_data,
    _check_schedule,
    _check_needs,
    _check_radius,
    _check_recorded,
    _check_sampler,
    _check_measuring,
    _check_reference,
    _check_policy,
)
