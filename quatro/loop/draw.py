"""The rollouts that an iteration learns from: drawn, graded, and drawn again if dynamic sampling asks for more."""

# Axes: B rows (rollouts), Q prompts, N rollouts of a prompt.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from evals.errors import UsageError
from quatro.loop.parts import Parts
from quatro.policy.rows import Rows, collate
from quatro.processes.stop import Stopped
from quatro.rewards import Grade, Reward, Scored
from quatro.rollout.engine import Seeds
from quatro.rollout.streams import rollout_seed
from quatro.types import Needs, Prompt, Rollout, Sampling

T = TypeVar("T")


class Dropped(NamedTuple):
    """A rollout that was taken out of its group, where it had the number ``place``."""

    place: int
    rollout: Rollout
    grade: Grade


@dataclass
class Drawn:
    """Prompts with their rollouts and grades, side by side; ``dropped`` has those taken out of each group, if any."""

    prompts: list[Prompt] = field(default_factory=list)
    groups: list[list[Rollout]] = field(default_factory=list)
    scored: Scored = field(default_factory=lambda: Scored([]))
    dropped: list[list[Dropped]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.dropped = self.dropped or [[] for _ in self.prompts]

    def __len__(self) -> int:
        return len(self.prompts)

    def add(self, other: Drawn) -> Drawn:
        """Both, one behind the other."""
        scored = Scored(
            self.scored.grades + other.scored.grades,
            self.scored.num_errors + other.scored.num_errors,
            self.scored.num_timeouts + other.scored.num_timeouts,
        )
        dropped = self.dropped + other.dropped
        return Drawn(self.prompts + other.prompts, self.groups + other.groups, scored, dropped)

    def pick(self, positions: Sequence[int]) -> Drawn:
        """The prompts at ``positions``, without the counts of failures, which belong to everything drawn."""
        return Drawn(
            [self.prompts[i] for i in positions],
            [self.groups[i] for i in positions],
            Scored([self.scored.grades[i] for i in positions]),
            [self.dropped[i] for i in positions],
        )

    def without_dropped(self) -> Drawn:
        """Without the rollouts that could not be graded.

        A prompt that would lose them all keeps its first, with reward 0: alone in its group it has no advantage, and
        the batch keeps its prompts, whose number decides the minibatches and the shares of the ranks.
        """
        grades_QN = self.scored.grades
        kept_Q = [[place for place, grade in enumerate(group) if not grade.is_dropped] or [0] for group in grades_QN]

        def kept(values_QN: list[list[T]]) -> list[list[T]]:
            return [[group[place] for place in places] for group, places in zip(values_QN, kept_Q, strict=True)]

        dropped = [
            [Dropped(*one) for one in zip(range(len(group)), group, grades, strict=True) if one[0] not in places]
            for group, grades, places in zip(self.groups, grades_QN, kept_Q, strict=True)
        ]
        return Drawn(self.prompts, kept(self.groups), replace(self.scored, grades=kept(grades_QN)), dropped)


def draw(step: int, parts: Parts) -> tuple[Drawn, Drawn]:
    """``(rollouts to learn from, all rollouts)`` of an iteration; they differ only if the method filters prompts.

    A stop while responses are drawn puts prompts and engine back, so that a resume draws the same responses again.

    Raises:
        UsageError: dynamic sampling did not fill the batch within its rounds.
        Stopped: a stop was requested of any rank while responses were drawn.
    """
    position, engine, reward = parts.stream.position, parts.engine.state(), parts.reward.state()
    try:
        return _draw(step, parts)
    except Stopped:
        parts.stream.position = position
        parts.engine.load_state(*engine)
        parts.reward.load_state(*reward)
        raise


def _draw(step: int, parts: Parts) -> tuple[Drawn, Drawn]:
    config, needs = parts.config, parts.config.method.needs
    kept, everything = Drawn(), Drawn()
    for number in range(needs.max_sampling_rounds if needs.dynamic_sampling else 1):
        batch = _draw_batch(step, number, parts)
        everything = everything.add(batch)
        if not needs.dynamic_sampling:
            return batch, batch
        kept = kept.add(batch.pick([i for i, rewards in enumerate(batch.scored.reward) if has_signal(rewards)]))
        if len(kept) >= config.prompts_per_step:
            return kept.pick(range(config.prompts_per_step)), everything
    raise UsageError(
        f"iteration {step}: dynamic sampling drew {needs.max_sampling_rounds} rounds of {config.prompts_per_step} "
        f"prompts, and only {len(kept)} of the {config.prompts_per_step} needed have rewards that differ; raise "
        "method.max_sampling_rounds or rollouts_per_prompt, lower prompts_per_step, take prompts that suit the model, "
        "or switch dynamic sampling off with -s method.dynamic_sampling=false"
    )


def _draw_batch(step: int, number: int, parts: Parts) -> Drawn:
    config = parts.config
    parts.stopwatch.phase("prompts")
    prompts = parts.stream.next(config.prompts_per_step)
    keys = [f"{number}/{i}" if number else str(i) for i in range(len(prompts))]
    seeds = [[rollout_seed(config.seed, step, key, j) for j in range(config.rollouts_per_prompt)] for key in keys]
    return draw_and_grade(parts, prompts, seeds, parts.sampling, parts.reward)


def draw_and_grade(parts: Parts, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, reward: Reward) -> Drawn:
    """Responses to ``prompts`` and their grades; one rank draws and grades each group, and all ranks get it.

    So what is measured or decided on a batch is the same on every rank and for every number of ranks. Exchanging a
    batch of 2 million tokens takes 30 MB. Rollouts that the reward dropped are not among them.

    Raises:
        Stopped: a stop was requested of a rank before it had all its responses.
    """
    world, stop, phase = parts.policy.world, parts.stop, parts.stopwatch.phase
    own = world.share(len(prompts))
    own_prompts = [prompts[i] for i in own]
    groups, scored, is_cut = [], Scored([]), False
    if own_prompts:
        phase("generate")
        try:
            own_seeds = [seeds[i] for i in own]
            drawn = parts.engine.generate(own_prompts, own_seeds, sampling, progress=lambda *_: stop.poll())
            markers = parts.config.rollout.thinking
            groups = [
                [rollout.without_thought(markers, prompt) for rollout in group]
                for prompt, group in zip(own_prompts, drawn, strict=True)
            ]
        except Stopped:
            is_cut = True
    stop.end_of_work(is_cut=is_cut)
    phase("reward")
    if own_prompts:
        scored = reward.score(own_prompts, groups)
    if world.size == 1:
        return Drawn(own_prompts, groups, scored).without_dropped()
    shares = world.gather_objects((groups, scored), "responses and rewards")
    return _interleaved(prompts, shares).without_dropped()


def _interleaved(prompts: Sequence[Prompt], shares: Sequence[tuple[list[list[Rollout]], Scored]]) -> Drawn:
    """The shares of all ranks in the order of the prompts; rank r of W had the prompts r, r + W, ..."""
    size = len(shares)
    places = [(i % size, i // size) for i in range(len(prompts))]
    return Drawn(
        list(prompts),
        [shares[rank][0][place] for rank, place in places],
        Scored(
            [shares[rank][1].grades[place] for rank, place in places],
            sum(scored.num_errors for _, scored in shares),
            sum(scored.num_timeouts for _, scored in shares),
        ),
    )


def own_rows(drawn: Drawn, advantage_B: Tensor, parts: Parts) -> Rows:
    """The rows of every ``world.size``-th prompt, from which this rank learns; prompts are numbered as in the batch."""
    world = parts.policy.world
    own = world.share(len(drawn))
    size_Q = [len(group) for group in drawn.groups]
    advantage_Q = advantage_B.split(size_Q)
    rows = collate(
        [drawn.prompts[i] for i in own],
        [drawn.groups[i] for i in own],
        torch.cat([advantage_Q[i] for i in own]),
        max_new_tokens=parts.sampling.max_new_tokens,
        device=parts.policy.device,
    )
    return rows.with_batch(group_B=rows.batch.group_B * world.size + world.rank)


def has_signal(rewards: Sequence[float]) -> bool:
    """Whether dynamic sampling keeps a prompt: its rewards differ, or it has only one (verl's rule)."""
    return len(rewards) == 1 or min(rewards) != max(rewards)


def shaped_rewards(drawn: Drawn, needs: Needs, max_new_tokens: int) -> list[list[float]]:
    """The rewards that advantages are made of: with the overlong penalty, if there is one."""
    buffer = max_new_tokens // 5 if needs.overlong_buffer is None else needs.overlong_buffer
    return [
        [
            reward + overlong_penalty(len(rollout.token_ids), max_new_tokens, buffer, needs.overlong_factor)
            for reward, rollout in zip(rewards, group, strict=True)
        ]
        for rewards, group in zip(drawn.scored.reward, drawn.groups, strict=True)
    ]


def overlong_penalty(length: int, max_new_tokens: int, buffer: int, factor: float) -> float:
    """0 up to ``max_new_tokens - buffer`` tokens, then falling linearly to ``-factor`` at the limit (DAPO)."""
    if buffer == 0:
        return 0.0
    return min(-(length - (max_new_tokens - buffer)) / buffer * factor, 0.0)
