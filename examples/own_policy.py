"""A policy of your own: its weights lie in another process, and this one holds none.

    quatro train quickstart -s policy.kind=examples.own_policy:Remote -s rollout.engine=examples.own_policy:Draws -o r

The other process (`Trainer`) has the model, the reference, the optimiser and a sampler. It is sent prompts and rows of
tokens, and returns responses and log-probabilities. The loss is computed here, by the method and with its dual. Then
the other process is sent the gradient of the loss by the log-probabilities, and takes an optimiser step. For a trainer
on another machine put its client in the place of `RemotePolicy.ask`.

With REMOTE_MODEL=FOLDER the other process reads the model there; `model` then needs a tokenizer and config.json only.
"""

# Axes: B rows (rollouts), T response tokens.
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quatro.config import Config
from quatro.policy.base import Forward, Objective, Policy, Update, total_loss
from quatro.policy.embedded import resolve_model
from quatro.policy.facts import context_limit
from quatro.policy.kinds import PolicyKind
from quatro.policy.loading import load_model, load_shape, load_tokenizer
from quatro.policy.rows import Rows
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.world import World
from quatro.rollout.engine import Engine, EngineKind, Recipe, RolloutProgress, Seeds, Transformers
from quatro.types import Metric, Prompt, Rollout, Sampling


class Remote(PolicyKind):
    """The class that `policy.kind` names."""

    @classmethod
    def open(cls, config: Config, world: World, *, device: torch.device, weights: Path | None) -> Policy:
        return RemotePolicy(config, world, device, weights)


class RemotePolicy(Policy):
    """Asks the other process for everything that needs weights, and computes the loss here."""

    def __init__(self, config: Config, world: World, device: torch.device, weights: Path | None) -> None:
        self.world, self.device, self.temperature = world, device, config.rollout.temperature
        self.has_reference = config.kl.beta > 0
        self.needs_entropy_grad = config.entropy_coefficient > 0
        self.context = context_limit(load_shape(resolve_model(config.model)))
        spawning = multiprocessing.get_context("spawn")
        self.connection, other = spawning.Pipe()
        self.process = spawning.Process(target=serve, args=(other, config, weights), daemon=True)
        self.process.start()
        other.close()
        self.ask("lr")  # returns when the model is loaded

    def ask(self, what: str, *arguments: Any, **options: Any) -> Any:
        """The property ``what`` of `Trainer`, or what this method returns; what it raises is raised here."""
        self.connection.send((what, arguments, options))
        found = self.connection.recv()
        if isinstance(found, BaseException):
            raise found
        return found

    @property
    def lr(self) -> float:
        return float(self.ask("lr"))

    def score(self, rows: Rows, *, need_entropy: bool = False, use_reference: bool = False) -> Forward:
        found: Forward = self.ask("score", rows, need_entropy=need_entropy, use_reference=use_reference)
        return found

    def update(self, rows: Rows, objective: Objective, *, use_own_logp: bool, need_entropy: bool) -> Update:
        sums = self.weight_sums(rows, objective)
        whole: Forward = self.ask("learn", rows, need_entropy or self.needs_entropy_grad)
        logp_BT, entropy_BT = whole.logp_BT.clone().requires_grad_(), whole.entropy_BT
        if self.needs_entropy_grad and entropy_BT is not None:
            entropy_BT = entropy_BT.clone().requires_grad_()
        part = rows.with_batch(old_logp_BT=whole.logp_BT) if use_own_logp else rows
        loss, metrics = total_loss(objective, Forward(logp_BT, entropy_BT), part.batch, sums)
        loss.backward()
        entropy_grad_BT = None if entropy_BT is None else entropy_BT.grad
        norm, is_finite, is_applied = self.ask("step", logp_BT.grad, entropy_grad_BT, float(loss.detach()))
        logp_max = whole.logp_BT.masked_fill(~rows.batch.mask_BT, -torch.inf).max()
        metrics |= {"loss": Metric("sum", loss.detach().double()), "logp_max": Metric("max", logp_max)}
        return Update(metrics, norm, is_finite, is_applied, whole)

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.ask("weights")

    def snapshot(self) -> list[Tensor]:
        found: list[Tensor] = self.ask("snapshot")
        return found

    def scale_move(self, before: Sequence[Tensor], factor: float) -> None:
        self.ask("scale_move", before, factor)

    def save_model(self, folder: Path, tokenizer: Any) -> None:
        self.ask("save_model", folder, tokenizer)  # the two processes see one file system

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        found: tuple[dict[str, Tensor], dict[str, Any]] = self.ask("state")
        return found

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self.ask("load_state", tensors, plain)


class Draws(EngineKind):
    """The class that `rollout.engine` names: responses are drawn where the weights are."""

    shares_weights = True

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Any = None) -> Engine:
        if isinstance(policy, RemotePolicy):
            return RemoteEngine(policy)
        return Transformers.open(recipe, tokenizer, policy)  # the dry run and `quatro sample` have a model here


class RemoteEngine(Engine):
    def __init__(self, policy: RemotePolicy) -> None:
        self.policy = policy

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        return {}

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        groups: list[list[Rollout]] = self.policy.ask("generate", prompts, seeds, sampling)
        if progress is not None:
            drawn = [rollout for group in groups for rollout in group]
            progress(len(drawn), sum(len(rollout.token_ids) for rollout in drawn))
        return groups

    def close(self) -> None:
        self.policy.process.kill()


class Trainer(LocalPolicy):
    """The other process: a policy with its optimiser, and what draws from it; `RemotePolicy.ask` may name its methods.

    `learn` and `step` are the two halves of `update`: between them the loss is computed elsewhere.
    """

    def __init__(self, config: Config, weights: Path | None) -> None:
        folder, sizes = os.environ.get("REMOTE_MODEL") or resolve_model(config.model), config.sizes
        super().__init__(load_model(folder, torch.float32, "cpu"), config, weights=weights)
        limits: dict[str, Any] = {"rows_at_once": sizes.rows_at_once, "cache_tokens": sizes.cache_tokens}
        recipe = Recipe("transformers", folder, config.dtype, "cpu", 0, **limits)
        self.sampler = Transformers.open(recipe, load_tokenizer(folder), self)
        self.waiting: Forward | None = None  # the pass whose gradient is computed elsewhere

    def learn(self, rows: Rows, need_entropy: bool) -> Forward:
        """Log-probabilities; the graph of their gradient stays here until `step`."""
        self.waiting = self.forward(rows, need_entropy=need_entropy, entropy_grad=self.needs_entropy_grad)
        entropy_BT = self.waiting.entropy_BT
        return Forward(self.waiting.logp_BT.detach(), None if entropy_BT is None else entropy_BT.detach())

    def step(self, logp_grad_BT: Tensor, entropy_grad_BT: Tensor | None, loss: float) -> tuple[float, bool, bool]:
        """One optimiser step, given the gradient by what `learn` returned: norm, whether finite, whether taken."""
        passed = self.waiting
        assert passed is not None
        given = [(passed.logp_BT, logp_grad_BT), (passed.entropy_BT, entropy_grad_BT)]
        pairs = [(value, grad) for value, grad in given if value is not None and grad is not None]
        torch.autograd.backward([value for value, _ in pairs], [grad for _, grad in pairs])
        self.waiting = None
        return self.take_step(torch.tensor(loss))

    def generate(self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling) -> list[list[Rollout]]:
        return self.sampler.generate(prompts, seeds, sampling)

    def weights(self) -> list[tuple[str, Tensor]]:
        return list(self.named_weights())


def serve(connection: Connection, config: Config, weights: Path | None) -> None:
    """Answer questions until the process that asks them is gone."""
    torch.set_num_threads(config.threads or torch.get_num_threads())
    trainer: Trainer | None = None
    while True:
        try:
            what, arguments, options = connection.recv()
        except EOFError:
            return
        try:
            trainer = trainer or Trainer(config, weights)
            found = getattr(trainer, what)
            connection.send(found(*arguments, **options) if callable(found) else found)
        except Exception as error:
            connection.send(error)
