"""Where a run stands, which is what a stop saves, and the parts that it works with.

`Position` has the finished iterations, and the `Iteration` under way as far as it has come. It is filled as the loop
proceeds and is consistent wherever the loop asks for a stop, which saves it as it is. Advantages, padding and reference
log-probabilities follow from the rollouts; after a stop they are computed again.
"""

# Axes: B rows (rollouts).
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from evals.errors import DataError
from quatro.config import Config
from quatro.loop.progress import InnerProgress, Source
from quatro.loop.trust_region import BudgetState
from quatro.policy.base import Policy, below
from quatro.processes.stop import StopCheck
from quatro.rewards import Grade, Reward
from quatro.rollout.engine import Engine
from quatro.rollout.prompts import PromptSet, PromptStream
from quatro.runs.checkpoint import bests, ends_early, is_best
from quatro.types import Prompt, Rollout, Sampling, Stage

# Where the time of an iteration goes.
PHASES = (
    "prompts",
    "generate",
    "reward",
    "dual",
    "old_logp",
    "ref_logp",
    "update",
    "audit",
    "sync",
    "eval",
    "checkpoint",
    "log",
)
OTHER = "other"  # time outside all phases


class Stopwatch:
    """``phase("dual")`` ends the phase under way and begins that one; `take` returns the seconds of each phase.

    ``tell`` is called with the `Stage` of each phase, those inside a held one included, and of each count. ``wait``
    returns when the device has done all that it was asked, so that each phase has its own work only.
    """

    def __init__(self) -> None:
        self.tell: Callable[[Stage], None] = lambda stage: None
        self.wait: Callable[[], None] = lambda: None
        self._held = ""
        self._begin()

    def _begin(self) -> None:
        self._seconds = dict.fromkeys((*PHASES, OTHER), 0.0)
        self._phase, self._stage = OTHER, Stage(OTHER)
        self._start = self._since = time.monotonic()

    def phase(self, name: str) -> None:
        """What follows counts as phase ``name``."""
        if not self._held:
            self.wait()
            now = time.monotonic()
            self._seconds[self._phase] += now - self._since
            self._phase, self._since = name, now
        self._stage = Stage(name, self._held)
        self.tell(self._stage)

    def count(self, **counts: tuple[int, int]) -> None:
        """So much of the phase is done, as `Stage.counts` has it; its other counts stay."""
        self._stage = self._stage._replace(counts={**self._stage.counts, **counts})
        self.tell(self._stage)

    @contextlib.contextmanager
    def holding(self, name: str) -> Iterator[None]:
        """Inside, all time counts as phase ``name``, whatever other phases begin."""
        self.phase(name)
        self._held = name
        try:
            yield
        finally:
            self._held = ""

    def take(self, *, num_tokens: int, num_passes: int) -> dict[str, float]:
        """Fields under perf/ since the last call: seconds of each phase and in all, and response tokens per second.

        ``num_tokens`` were drawn, and the update saw each of them ``num_passes`` times.
        """
        self.phase(OTHER)
        seconds, step_s = self._seconds, self._since - self._start
        metrics = {f"perf/{phase}_s": value for phase, value in seconds.items()}
        metrics["perf/step_s"] = step_s
        metrics["perf/tokens_per_s"] = num_tokens / step_s if step_s > 0 else 0.0
        for phase, count in (("generate", num_tokens), ("update", num_tokens * num_passes)):
            metrics[f"perf/{phase}_tokens_per_s"] = count / seconds[phase] if seconds[phase] > 0 else 0.0
        self._begin()
        return metrics


@dataclass
class Parts:
    """Everything the loop works with; `quatro/launch/saving.py` makes it."""

    config: Config
    policy: Policy
    tokenizer: Any
    engine: Engine
    stream: PromptStream
    evaluation_prompts: Sequence[PromptSet]
    reward: Reward
    sampling: Sampling
    fingerprints: dict[str, str]
    stop: StopCheck
    stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def __post_init__(self) -> None:
        self.policy.on_rows = lambda done, total: self.stopwatch.count(rows=(done, total))
        if self.policy.device.type == "cuda":
            self.stopwatch.wait = partial(torch.cuda.synchronize, self.policy.device)

    def perf(self, metrics: Mapping[str, float]) -> dict[str, float]:
        """Fields under perf/ of the iteration with these ``metrics``: its times, and the most memory of any rank."""
        perf = self.stopwatch.take(num_tokens=int(metrics["tokens"]), num_passes=int(metrics["inner/passes"]))
        return perf | {"perf/peak_memory_gib": self.policy.world.largest(self.policy.peak_memory_bytes()) / 2**30}

    def close(self) -> None:
        self.reward.close()
        self.engine.close()


@dataclass(frozen=True)
class Group:
    """A prompt with all that was ``drawn`` for it: rollouts, each with its grade.

    What could not be graded may be dropped; the loop goes on with ``rollouts`` and ``grades``, which lie at the places
    ``kept``. A group that would lose all its rollouts keeps the first, with reward 0: alone it has no advantage, and
    the batch keeps its prompts, whose number decides the minibatches and the shares of the ranks.
    """

    prompt: Prompt
    drawn: Sequence[tuple[Rollout, Grade]]

    @cached_property
    def kept(self) -> Sequence[int]:
        return [place for place, (_, grade) in enumerate(self.drawn) if not grade.is_dropped] or [0]

    @property
    def rollouts(self) -> list[Rollout]:
        return [self.drawn[place][0] for place in self.kept]

    @property
    def grades(self) -> list[Grade]:
        return [self.drawn[place][1] for place in self.kept]

    @property
    def rewards(self) -> list[float]:
        return [grade.reward for grade in self.grades]


@dataclass(frozen=True)
class Drawn:
    """Prompts with their rollouts."""

    groups: Sequence[Group]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def rollouts(self) -> list[Rollout]:
        """One for each row of the batch."""
        return [rollout for group in self.groups for rollout in group.rollouts]

    def state(self, number_of: Mapping[tuple[str, str], int]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)``; a prompt is stored as its number among the prompts of the run."""
        pairs = [pair for group in self.groups for pair in group.drawn]
        ids = [token for rollout, _ in pairs for token in rollout.token_ids]
        tensors = {"ids": torch.tensor(ids, dtype=torch.int64)}
        for name in ("logp", "entropy"):
            numbers = [number for rollout, _ in pairs for number in getattr(rollout, name) or ()]
            tensors[name] = torch.tensor(numbers, dtype=torch.float64)
        return tensors, {
            "prompts": [number_of[group.prompt.source, group.prompt.id] for group in self.groups],
            "group_sizes": [len(group.drawn) for group in self.groups],
            "rollouts": [
                [len(one.token_ids), one.text, one.finish_reason, one.thought, bool(one.logp), bool(one.entropy)]
                for one, _ in pairs
            ],
            "grades": [[getattr(grade, one.name) for one in fields(grade)] for _, grade in pairs],
        }

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], prompts: Sequence[Prompt]) -> Self:
        ids, logp, entropy = (iter(tensors[name].tolist()) for name in ("ids", "logp", "entropy"))
        rollouts = [
            Rollout(
                tuple(islice(ids, length)),
                text,
                finish_reason,
                tuple(islice(logp, length)) if has_logp else None,
                tuple(islice(entropy, length)) if has_entropy else None,
                thought,
            )
            for length, text, finish_reason, thought, has_logp, has_entropy in plain["rollouts"]
        ]
        pairs = zip(rollouts, [Grade(*values) for values in plain["grades"]], strict=True)
        groups = [
            Group(prompts[number], list(islice(pairs, size)))
            for number, size in zip(plain["prompts"], plain["group_sizes"], strict=True)
        ]
        return cls(groups)


@dataclass
class Iteration:
    """``learnt`` are the rollouts to learn from, ``drawn`` all rollouts; they differ if the method filters prompts.

    ``lr`` is the learning rate at the beginning, ``progress`` says how far learning has come on this rank (None: it
    has not begun), and ``budget`` belongs to `inner_updates: auto`. ``asked`` is what the method's `needs` ask of the
    rows, as it was before learning. All but ``progress`` is the same on all ranks.
    """

    step: int
    learnt: Drawn
    drawn: Drawn
    lr: float
    progress: InnerProgress | None = None
    budget: BudgetState | None = None
    asked: dict[str, Tensor] = field(default_factory=dict)

    @property
    def needs_entropy(self) -> bool:
        """Whether the entropy at pi_old must be computed, because the engine did not give it."""
        return any(rollout.entropy is None for rollout in self.learnt.rollouts)

    def state(self, parts: Parts) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)`` of all ranks."""
        number_of = {(prompt.source, prompt.id): number for number, prompt in enumerate(parts.stream.prompts)}
        plain: dict[str, Any] = {"step": self.step, "lr": self.lr, "progress": []}
        tensors = {f"asked/{name}": value for name, value in self.asked.items()}
        own = None if self.progress is None else self.progress.state()
        for rank, state in enumerate(parts.policy.world.gather_objects(own, "the position")):
            if state is not None:
                tensors |= {f"progress/{rank}/{name}": value for name, value in state[0].items()}
            plain["progress"].append(None if state is None else state[1])
        if self.budget is not None:
            more, plain["budget"] = self.budget.state()
            tensors |= {f"budget/{name}": value for name, value in more.items()}
        drawn = {"learnt": self.learnt} if self.drawn is self.learnt else {"learnt": self.learnt, "drawn": self.drawn}
        for name, part in drawn.items():
            more, plain[name] = part.state(number_of)
            tensors |= {f"{name}/{key}": value for key, value in more.items()}
        return tensors, plain

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], parts: Parts) -> Self:
        """The iteration that `state` described, on this rank; DataError if another number of ranks saved it."""
        world, device, prompts = parts.policy.world, parts.policy.device, parts.stream.prompts
        then = len(plain["progress"])
        if then != world.size:
            raise DataError(
                f"the run was stopped inside an iteration of {then} process{'es' if then > 1 else ''}, and now there "
                f"{'are' if world.size > 1 else 'is'} {world.size}; start {then} to go on with it. Their number may "
                "change between two iterations only, and with policy.kind local"
            )
        learnt = Drawn.from_state(below(tensors, "learnt/"), plain["learnt"], prompts)
        drawn = Drawn.from_state(below(tensors, "drawn/"), plain["drawn"], prompts) if "drawn" in plain else learnt
        it = cls(plain["step"], learnt, drawn, plain["lr"], asked=below(tensors, "asked/"))
        progress = plain["progress"][world.rank]
        if progress is not None:
            it.progress = InnerProgress.from_state(below(tensors, f"progress/{world.rank}/"), progress, device)
        if "budget" in plain:
            it.budget = BudgetState.from_state(below(tensors, "budget/"), plain["budget"], device)
        return it


@dataclass
class Learner:
    """What learning keeps from one iteration to the next.

    ``source`` is the source of log pi_old (None until it is chosen). The last ``num_skipped`` optimiser steps were not
    finite; the batch of such a step is written into ``dump_folder``.
    """

    dump_folder: Path
    source: Source | None = None
    num_skipped: int = 0

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"source": self.source, "num_skipped": self.num_skipped}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self.source, self.num_skipped = plain["source"], plain["num_skipped"]


@dataclass
class Position:
    """``step`` iterations are finished, the next gets ``carried``; ``base``: metrics of the model before training."""

    learner: Learner
    step: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    iteration: Iteration | None = None
    base: Mapping[str, float] = field(default_factory=dict)

    def finish(self, metrics: Mapping[str, float], config: Config) -> None:
        """The iteration under way is finished; what later ones need of its ``metrics`` is carried on."""
        carried = {**config.method.carry(self.carried, metrics), **bests(config, self.carried, metrics)}
        self.step, self.carried, self.iteration = self.step + 1, carried, None

    def is_over(self, config: Config) -> bool:
        """Whether no iteration is left, or the run ends early."""
        return self.step >= config.steps or ends_early(config, self.carried) is not None

    def is_kept(self, config: Config) -> bool:
        """Whether a checkpoint is due after the iteration just finished."""
        return self.is_over(config) or config.checkpoint.is_due(self.step) or is_best(config, self.carried, self.step)
