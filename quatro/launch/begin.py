"""What a run begins with, or goes on with: found, read and checked once, for a dry run and for the run itself.

`prepare` refuses whatever can be refused before torch is loaded, in the words and with the exit code of the module
that would refuse later, after seconds of imports. `model` and `kl.reference` may name another run.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.benchmarks.catalogue import grader_of
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem, benchmark_name
from evals.errors import UsageError, require
from evals.files.own_code import also_from
from evals.results.training_metrics import EVALUATED
from quatro.config import Config, differing_keys, load_config, pinned
from quatro.config.load import MAY_CHANGE, may_change, path_texts, refuse_lost
from quatro.config.yaml_text import scalar_text
from quatro.launch.health import prompt_warnings
from quatro.methods.base import AbsentMethod
from quatro.policy import embedded
from quatro.policy.model_files import require_model, unread_kwargs
from quatro.processes.launcher import Launch, torchrun_options
from quatro.registry import ENGINES, POLICIES
from quatro.rewards import Reward, SourceRewards, check_prompts, make_reward
from quatro.rollout.prompts import Loaded, PromptSet, load_sources, tokenize_problems
from quatro.runs.checkpoint import MANIFEST, load, run_and_step
from quatro.runs.directory import FollowedRun, RunDir
from quatro.runs.identity import load_from, planned_differences, why_finished
from quatro.runs.status import read_environment
from quatro.runs.trackers import require_trackers

if TYPE_CHECKING:
    import torch

    from quatro.processes.world import World

logger = logging.getLogger(__name__)

HOW = "to train on from its weights with other settings, name it (or RUN@best, RUN@STEP) as the model of a new run"


@dataclass(frozen=True)
class Prepared:
    """What a run begins with beside its weights; `close` closes the ``reward``.

    ``is_there`` is False for an embedded model that is still to be made. ``shape`` is the configuration of the model,
    which has ``num_parameters`` with the run's adapter, of which ``num_trained`` are trained. ``evaluation_prompts``
    are those of each benchmark. ``warnings`` are about prompts and problems, and ``sizes_note`` says what
    `memory.with_sizes` has put in place of `auto`.
    """

    config: Config
    launch: Launch
    reward: Reward
    is_there: bool
    device: torch.device
    tokenizer: Any
    shape: Any
    num_parameters: int
    num_trained: int
    prompts: PromptSet
    evaluation_prompts: Sequence[PromptSet]
    warnings: Sequence[str]
    sizes_note: str = ""

    def close(self) -> None:
        self.reward.close()


def prepare(config: Config, launch: Launch | None = None) -> Prepared:
    """What a run of ``launch`` (default: a single process) begins with; whatever it can be refused for is refused.

    Raises:
        MissingError: the model, the data, a package or the device is not on this machine.
        DataError: a file of problems or of recorded responses is unreadable; the prompts are empty, too long or
            cannot be graded.
        UsageError: there is no such model, benchmark or reward, the reward cannot be imported or called, vLLM
            supports neither the temperature nor the model, or the batch is too small for the ranks.
    """
    launch = launch or Launch()
    if isinstance(config.method, AbsentMethod):
        raise config.method.refuse()
    check_ranks(config, launch.size)
    _check_watched(config)
    policy = POLICIES[config.policy.kind]
    policy.check()
    for name in (config.model, config.kl.reference):
        if name is not None:
            require_model(name, weights=policy.loads_model)
    for note in unread_kwargs(config.model, config.data.chat_template_kwargs):
        logger.warning("data.%s", note)
    if config.policy.lora is not None:
        require("peft", "policy.lora")
    temperatures = {"rollout.temperature": config.rollout.temperature, "eval.temperature": config.eval.temperature}
    ENGINES[config.rollout.engine].check(temperatures=temperatures, replay_file=config.rollout.replay_file)
    # A file that was renamed keeps its first name, which seeds the responses to its problems.
    names = {key: benchmark_name(one.typed) for key, one in config.paths.items()}
    sources = load_sources(config.data, names)
    benchmarks = config.evaluated if config.eval.every else {}
    evaluated = [load_problems(benchmark, name=name) for name, (benchmark, _) in benchmarks.items()]
    require_trackers(config.tracking)
    are_several = not isinstance(config.data.prompts, str)
    reward = SourceRewards(config.rewards) if are_several else make_reward(config.reward)
    try:
        return _with_torch(config, launch, reward, sources, evaluated)
    except BaseException:
        reward.close()
        raise


def _with_torch(
    config: Config, launch: Launch, reward: Reward, sources: list[Loaded], evaluated: list[list[Problem]]
) -> Prepared:
    """The rest of `prepare`: the model is read without memory behind its weights, and the prompts are tokenised."""
    from quatro.policy import lora
    from quatro.policy.device import find_device
    from quatro.policy.facts import context_limit, vocabulary_size
    from quatro.policy.loading import shape_of, tokenizer_of

    device = find_device(config.device, launch.local_rank if launch.size > 1 else None)
    is_there = embedded.is_cached(config.model)
    tokenizer, model = tokenizer_of(config.model), shape_of(config.model)
    ENGINES[config.rollout.engine].check_model(model.config)
    limits = {"context_limit": context_limit(model), "vocabulary_size": vocabulary_size(model)}
    prompts, evaluation_prompts = tokenize_problems(sources, config.data, tokenizer, **limits), list[PromptSet]()
    for name, own in prompts.by_source.items():
        check_prompts(own, config.rewards[name])
    # By the benchmark's own grader, whatever the training reward is.
    for (benchmark, _), some in zip(config.evaluated.values(), evaluated, strict=False):
        asked = Loaded(config.data.asked_as(benchmark), some)
        evaluation_prompts.append(tokenize_problems([asked], config.data, tokenizer, **limits))
        check_prompts(evaluation_prompts[-1].prompts, grader_of(some[0].benchmark))
    if config.policy.lora is not None:
        lora.attach(model, config.policy.lora, seed=config.seed)
    return Prepared(
        config=config,
        launch=launch,
        reward=reward,
        is_there=is_there,
        device=device,
        tokenizer=tokenizer,
        shape=model.config,
        num_parameters=model.num_parameters(),
        num_trained=model.num_parameters(only_trainable=True),
        prompts=prompts,
        evaluation_prompts=evaluation_prompts,
        warnings=[*prompts.warnings, *prompt_warnings(config, prompts, sources, evaluated)],
    )


def _check_watched(config: Config) -> None:
    """Raises UsageError if an evaluation will never measure what chooses the best checkpoint or ends the run."""
    measured, several = [f"{EVALUATED}pass@1"], config.evaluated
    for name, (_, n) in several.items():
        of = f"{EVALUATED}{name}/" if len(several) > 1 else EVALUATED
        measured += [f"{of}pass@1", f"{of}pass@{n}", f"{of}distinct_correct"]
    for key, metric in config.watched.items():
        if metric not in measured and (metric.startswith(EVALUATED) or f"{EVALUATED}{metric}" in measured):
            raise UsageError(
                f"{key}: found {metric}; with eval.n {scalar_text(config.eval.n)} evaluations measure "
                f"{', '.join(dict.fromkeys(measured))}"
            )


def check_processes(config: Config, size: int, *, source: str) -> None:
    """Raises UsageError for fewer processes than the configuration, read from ``source``, is made for."""
    if config.processes is not None and size < config.processes:
        raise UsageError(
            f"processes is {config.processes} in this configuration, and {size} started; begin with `torchrun "
            f"{' '.join(torchrun_options(config.processes))} -m quatro_cli train {source}`, or add -s processes={size}"
        )


def check_ranks(config: Config, size: int) -> None:
    """Raises UsageError if a rank would have no prompt of a minibatch, or the engine deals out recorded responses."""
    if config.minibatch_prompts < size:
        raise UsageError(
            f"minibatch_prompts is {config.minibatch_prompts} and there are {size} ranks, so some ranks would have no "
            f"prompt of a minibatch; set minibatch_prompts to {size} or more, or start fewer processes"
        )
    if size > 1 and ENGINES[config.rollout.engine].is_recorded:
        raise UsageError(
            f"engine {config.rollout.engine} deals out recorded responses in the order of one process, and there are "
            f"{size}; start it without torchrun"
        )


def open_run(prepared: Prepared, path: Path, world: World, *, resume: bool) -> RunDir:
    """The run's folder, new or to go on with, which rank 0 alone makes and writes to; raises as `create` and `open`."""
    if not world.is_first:
        run: RunDir = FollowedRun(path, prepared.config)
    elif resume:
        run = RunDir.open(path, config=prepared.config, argv=sys.argv)
    else:
        run = RunDir.create(path, prepared.config, argv=sys.argv)
    world.barrier("the run directory")
    return run


# --- a run that goes on -----------------------------------------------------------------------------------------


def config_to_resume(run: Path, overrides: Sequence[str] = ()) -> Config:
    """The configuration with which ``run`` goes on: its own, with ``overrides`` of keys that a resume may change.

    They may also say where the run's model or data are. Code of the user's own is found where it lay when the run
    began.

    Raises:
        UsageError: an override changes another key, or names another model or other data.
        MissingError, DataError: what the run began with is not there any more, or is something else.
    """
    also_from(read_environment(run).get("folder"))
    own = load_config(run)
    changed = pinned(load_config(run, overrides=overrides), only=own.paths) if overrides else own
    refused = [key for key in differing_keys([own, changed]) if not may_change(key)]
    for key in (key for key in refused if key in own.paths):
        found = changed.digests.get(key, "none: nothing is there")
        raise UsageError(
            f"-s {key}={path_texts(changed).get(key)} has the digest {found}, and what {run} began with has "
            f"{own.digests[key]}; name that, or begin a new run from {run}/config.yaml"
        )
    if refused:
        raise UsageError(
            f"--resume goes on with the run's own configuration, and {', '.join(refused)} would be another; what may "
            f"change is {', '.join(MAY_CHANGE)}. For anything else begin a new run from {run}/config.yaml; {HOW}: "
            f"`{command_for(run)}`"
        )
    if not why_finished(run, changed):
        refuse_lost(changed, f"quatro train {run} --resume")
    return changed.with_paths({}, {**changed.paths, **own.paths})


def refuse_other_run(run: Path, own: Config, wanted: Config) -> None:
    """Raises UsageError if ``own``, the configuration of ``run``, is not ``wanted``, as `planned_differences` says."""
    if differing := planned_differences(wanted, own, only_lasting=False):
        raise UsageError(f"{run} holds a run of other settings: {', '.join(differing)}; choose another folder")


# --- a run that begins with the weights of another one ----------------------------------------------------------


def begin_with_weights(config: Config) -> tuple[Config, list[str]]:
    """``config`` as `pinned` and with the model folders of the runs that it names, and what to know about them.

    `model` and `kl.reference` name a run (its newest checkpoint counts), RUN@STEP, RUN@best, or the folder of a
    checkpoint. Any other model is left as it is.

    Raises:
        DataError: the run has no checkpoint, or a file of it was changed or is of another run.
        UsageError: the run has no checkpoint of that step, or keeps no best one.
    """
    notes = []
    if config.kl.reference is not None:
        reference, _ = _weights_of(config.kl.reference)
        notes.append(f"kl.reference: the KL penalty is towards {config.kl.reference}")
        config = config.with_values({"kl.reference": reference})
    name, folder = _weights_of(config.model)
    if folder is not None:
        same = ", and the reference of the KL penalty is that model (kl.reference names another)"
        towards = same if config.kl.reference is None and config.kl.beta else ""
        begins = f"model: begins with the weights of {folder}; the optimiser and the warm-up begin anew{towards}"
        notes.insert(0, begins)
    return pinned(config.with_values({"model": name})), notes


def _weights_of(name: str) -> tuple[str, Path | None]:
    """The model folder of the checkpoint that ``name`` names, and the checkpoint; ``name`` and None for others."""
    place = Path(name)
    if (place / "config.yaml").is_file():
        found = load_from(place)
    elif (place / MANIFEST).is_file():
        found = load(place)
    elif (named := run_and_step(name)) is not None:
        found = load_from(*named)
    else:
        return name, None
    return str(found.model), found.path


def command_for(run: Path | str) -> str:
    """What to type for such a run."""
    return f"quatro train {run}/config.yaml -s model={run} -s optimizer.lr=1e-4 -s seed=1"
