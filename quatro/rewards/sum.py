"""Several rewards as one: `reward: [math, {name: model, weight: 0.1, ...}]` earns the sum of weight times reward.

`rarity` multiplies such a sum by how rare the solution of a response is. Where sources of prompts have rewards of their
own, each source is graded by its own.
"""

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextvars import copy_context
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, field_serializer, model_validator

from quatro.registry import REWARDS
from quatro.rewards.base import ITERATION, Grade, Grades, Groups, Reward, require_usable
from quatro.rewards.settings import RewardConfig, reward_block
from quatro.types import Block, Prompt, Rollout, SameSolution, rarity


def _label(value: str) -> str:
    if not value.replace("-", "_").isidentifier():
        raise ValueError("expected letters, digits, `_` and `-`")
    return value


class PartConfig(RewardConfig):
    """One reward of a sum."""

    weight: float = Field(1.0, description="what the reward is multiplied by")
    label: Annotated[str, AfterValidator(_label)] | None = Field(
        None, description="its name in the metrics, `reward/parts/LABEL`; null: the reward's name, or the function's"
    )

    @property
    def shown(self) -> str:
        return self.label or self.name.rpartition(":")[2]


def _parts(parts: tuple[PartConfig, ...]) -> tuple[PartConfig, ...]:
    if not parts:
        raise ValueError("expected at least one reward")
    if any(part.name == "sum" for part in parts):
        raise ValueError("expected no list inside a list: write all rewards into one")
    twice = [label for label, count in Counter(part.shown for part in parts).items() if count > 1]
    if twice:
        raise ValueError(f"expected different labels, and {', '.join(twice)} is given twice: give each a `label`")
    return parts


class SumOptions(Block):
    """The keys of `reward.options` of `reward: sum`, for which a list is short."""

    rewards: Annotated[
        tuple[Annotated[PartConfig, BeforeValidator(reward_block)], ...], Field(strict=False), AfterValidator(_parts)
    ] = Field(
        description="the rewards: each a name, or a block that may also have `weight` and `label`",
        json_schema_extra={"items": {"type": "object"}},
    )

    @field_serializer("rewards")
    def _short(self, parts: tuple[PartConfig, ...]) -> list[dict[str, Any]]:
        """Each with its name and what is not a default, as one would write it."""
        return [{"name": part.name, **part.changed} for part in parts]


def _opened(configs: Sequence[RewardConfig]) -> list[Reward]:
    with contextlib.ExitStack() as opened:
        rewards = [opened.enter_context(contextlib.closing(REWARDS[one.name](one))) for one in configs]
        opened.pop_all()
    return rewards


class SourceRewards(Reward):
    """Grades the responses to prompts of each source by its own reward; sources that agree on it share one."""

    def __init__(self, rewards: Mapping[str, RewardConfig]) -> None:
        found = list(rewards.values())
        different = [one for place, one in enumerate(found) if one not in found[:place]]
        self._number_of = {name: different.index(one) for name, one in rewards.items()}
        self.parts = _opened(different)

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        grades, context, num_failed = dict[int, list[Grade]](), copy_context(), 0
        num_all = sum(map(len, completions))
        for number, reward in enumerate(self.parts):
            own = [place for place, one in enumerate(prompts) if self._number_of[one.source] == number]
            asked, failed = ([prompts[at] for at in own], [completions[at] for at in own]), Counter[str]()
            context.run(ITERATION.set, (num_all, num_failed, failed))
            grades |= zip(own, context.run(reward.score, *asked) if own else [], strict=True)
            num_failed += max(failed.values(), default=0)
        return [grades[place] for place in range(len(prompts))]


class SumReward(Reward):
    """The weighted sum; ``correct`` is that of the first reward that knows it.

    A rollout that one reward drops is dropped. The unweighted rewards are metrics of their own.
    """

    Options = SumOptions

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        """Raises DataError for the first prompt that one of the rewards cannot grade."""
        for part in options.rewards:
            REWARDS[part.name].check(prompts, part.options)

    def __init__(self, config: RewardConfig) -> None:
        super().__init__(config)
        self._configs: Sequence[PartConfig] = config.options.rewards
        self.parts = _opened(self._configs)

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        of_parts = [reward.score(prompts, completions) for reward in self.parts]
        grades = [
            [self._sum(of_rollout) for of_rollout in zip(*of_prompt, strict=True)]
            for of_prompt in zip(*of_parts, strict=True)
        ]
        require_usable(prompts, completions, grades)
        return grades

    def _sum(self, grades: Sequence[Grade]) -> Grade:
        logged, errors = dict[str, float](), list[str]()
        for part, grade in zip(self._configs, grades, strict=True):
            logged[part.shown] = grade.reward
            logged |= {f"{part.shown}/{name}": value for name, value in grade.logged.items()}
            if grade.error:
                errors.append(f"{grade.error} (reward {part.shown})")
        return Grade(
            sum(part.weight * grade.reward for part, grade in zip(self._configs, grades, strict=True)),
            next((grade.correct for grade in grades if grade.correct is not None), None),
            logged,
            is_dropped=any(grade.is_dropped for grade in grades),
            error="; ".join(errors),
            is_timeout=any(grade.is_timeout for grade in grades),
        )


class RarityOptions(SumOptions, SameSolution):
    """The keys of `reward.options` of `reward: rarity`."""

    @model_validator(mode="after")
    def _rarity_is_a_metric(self) -> "RarityOptions":
        if any(part.shown == "rarity" for part in self.rewards):
            raise ValueError("expected another label than rarity, which is logged by that name: give a `label`")
        return self


class RarityReward(SumReward):
    """The weighted sum of its rewards, times `rarity` among the responses to a prompt."""

    Options = RarityOptions

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        return list(map(self._weighed, prompts, completions, super().score(prompts, completions)))

    def _weighed(self, prompt: Prompt, rollouts: Sequence[Rollout], grades: Sequence[Grade]) -> list[Grade]:
        shares = rarity(self.config.options.solutions(prompt, rollouts, [grade.is_right for grade in grades]))
        return [
            replace(grade, reward=grade.reward * share, logged={**grade.logged, "rarity": share})
            for grade, share in zip(grades, shares, strict=True)
        ]
