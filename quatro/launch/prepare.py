"""Finds, checks and reads what a run needs beside its weights: once, for a dry run and for the run itself.

`prepare` refuses whatever can be refused before torch is loaded, in the words and with the exit code of the module
that would refuse later, after seconds of imports. What needs torch is made on first use.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evals.benchmarks.catalogue import grader_of
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem
from evals.errors import UsageError
from evals.training_metrics import EVALUATED
from quatro.config import Config
from quatro.config.packages import require
from quatro.methods.absent import AbsentMethod
from quatro.policy import embedded
from quatro.policy.adapters import base_of
from quatro.policy.model_files import require_model
from quatro.processes.launcher import Launch, torchrun_options
from quatro.registry import ENGINES, POLICIES
from quatro.rewards import Reward, RewardConfig, check_prompts, make_reward
from quatro.rollout.prompts import PromptSet, tokenize_problems, training_problems
from quatro.runs.trackers import require_trackers

if TYPE_CHECKING:
    import torch


@dataclass
class Prepared:
    """``is_there`` is False for an embedded model that is still to be made. `close` closes the ``reward``.

    ``sizes_note`` is what `sizes.fix_sizes` has put in place of `auto`.
    """

    config: Config
    launch: Launch
    problems: list[Problem]
    evaluated: list[Problem]
    reward: Reward
    is_there: bool
    sizes_note: str = ""

    @cached_property
    def device(self) -> torch.device:
        """Raises MissingError if it is not on this machine."""
        from quatro.policy.device import find_device

        return find_device(self.config.device, self.launch.local_rank if self.launch.size > 1 else None)

    @cached_property
    def tokenizer(self) -> Any:
        from quatro.policy.loading import load_tokenizer

        if self.is_there:
            return load_tokenizer(embedded.resolve_model(self.config.model))
        return embedded.recipe_of(self.config.model).make_tokenizer()

    @cached_property
    def shape(self) -> Any:
        """The model without memory behind its weights."""
        import torch

        from quatro.policy.loading import load_shape

        if self.is_there:
            return load_shape(embedded.resolve_model(self.config.model))
        with torch.device("meta"):
            return embedded.make_model(embedded.recipe_of(self.config.model))

    @cached_property
    def num_parameters(self) -> tuple[int, int]:
        """The parameters of ``shape``, which then has the run's adapter, and how many of them are trained."""
        if self.config.policy.lora is not None:
            from quatro.policy import lora

            lora.attach(self.shape, self.config.policy.lora, seed=self.config.seed)
        parameters = list(self.shape.parameters())
        return sum(p.numel() for p in parameters), sum(p.numel() for p in parameters if p.requires_grad)

    @cached_property
    def prompts(self) -> PromptSet:
        """Raises DataError if there are none, or one is too long or cannot be graded by the reward."""
        return self._tokenized(self.problems, self.config.reward)

    @cached_property
    def evaluation_prompts(self) -> PromptSet | None:
        """The prompts of `eval.benchmark`; None without evaluation. Raises as `prompts`, for the benchmark's grader."""
        if not self.evaluated:
            return None
        # The benchmark's own grader, whatever the training reward is.
        return self._tokenized(self.evaluated, grader_of(self.evaluated[0].benchmark))

    def _tokenized(self, problems: list[Problem], reward: RewardConfig | str) -> PromptSet:
        from quatro.policy.facts import context_limit, vocabulary_size

        limit, size = context_limit(self.shape), vocabulary_size(self.shape)
        found = tokenize_problems(problems, self.config.data, self.tokenizer, context_limit=limit, vocabulary_size=size)
        check_prompts(found.prompts, reward)
        return found

    def close(self) -> None:
        self.reward.close()


def prepare(config: Config, launch: Launch | None = None) -> Prepared:
    """What a run of ``launch`` (default: a single process) begins with.

    Raises:
        MissingError: the model, the data or a package is not on this machine.
        DataError: a file of problems or of recorded responses is unreadable.
        UsageError: there is no such model, benchmark or reward, the reward cannot be imported or called, vLLM
            does not sample at a temperature, or the batch is too small for the ranks.
    """
    launch = launch or Launch()
    if isinstance(config.method, AbsentMethod):
        raise config.method.refuse()
    check_ranks(config, launch.size)
    _check_watched(config)
    POLICIES[config.policy.kind].check()
    for name in (config.model, config.kl.reference):
        if name is not None:
            require_model(name)
    if config.policy.lora is not None or base_of(config.model) != config.model:
        require("peft", "policy.lora")
    temperatures = {"rollout.temperature": config.rollout.temperature, "eval.temperature": config.eval.temperature}
    ENGINES[config.rollout.engine].check(temperatures=temperatures, replay_file=config.rollout.replay_file)
    problems = training_problems(config.data)
    evaluated = load_problems(str(config.eval.benchmark)) if config.eval.every else []
    require_trackers(config.tracking)
    is_there = embedded.is_cached(config.model)
    return Prepared(config, launch, problems, evaluated, make_reward(config.reward), is_there)


def _check_watched(config: Config) -> None:
    """Raises UsageError if an evaluation will never measure what chooses the best checkpoint or ends the run."""
    measured = [f"{EVALUATED}{name}" for name in ("pass@1", f"pass@{config.eval.n}", "distinct_correct")]
    for key, metric in config.watched.items():
        if metric not in measured and (metric.startswith(EVALUATED) or f"{EVALUATED}{metric}" in measured):
            raise UsageError(
                f"{key}: found {metric}; with eval.n {config.eval.n} evaluations measure "
                f"{', '.join(dict.fromkeys(measured))}"
            )


def check_processes(config: Config, size: int, *, source: str) -> None:
    """Refuse to begin with fewer processes than the configuration, which was read from ``source``, is made for.

    Raises:
        UsageError: there are fewer.
    """
    if config.processes is not None and size < config.processes:
        raise UsageError(
            f"processes is {config.processes} in this configuration, and {size} started; begin with `torchrun "
            f"{' '.join(torchrun_options(config.processes))} -m quatro_cli train {source}`, or add -s processes={size}"
        )


def check_ranks(config: Config, size: int) -> None:
    """Refuse what ``size`` ranks cannot train.

    Raises:
        UsageError: a rank would have no prompt of a minibatch, or the engine deals out recorded responses.
    """
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
