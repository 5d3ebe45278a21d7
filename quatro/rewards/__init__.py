"""Rewards by name: what grades responses during training. Imports no torch, because worker processes import it too.

To add a reward, write a file here as answers.py is, and a line in `quatro/registry.py`. A function of your own
needs no change here (`reward: module:function`).
"""

from collections.abc import Sequence

from evals.errors import UsageError
from evals.files.own_code import is_own
from evals.files.strict_json import shown
from quatro.registry import REWARDS
from quatro.rewards.base import Grade, Reward, VerifiedReward
from quatro.rewards.settings import RewardConfig, known_reward
from quatro.rewards.sum import SourceRewards
from quatro.types import Prompt

__all__ = ["Grade", "Reward", "RewardConfig", "SourceRewards", "check_prompts", "make_grader", "make_reward"]


def make_reward(reward: RewardConfig | str) -> Reward:
    """The reward that a configuration describes; a name means a configuration of the name alone. `close` it in the end.

    Raises UsageError if there is no such reward, or the function cannot be imported or does not take the options.
    """
    config = _config(reward)
    found: Reward = REWARDS[config.name](config)
    return found


def make_grader(grader: str) -> Reward:
    """The grader of a benchmark as a reward; a function of the user's own is called as `quatro eval` calls it.

    Raises UsageError if there is no such grader, or it cannot be imported.
    """
    if not is_own(grader):
        return make_reward(grader)
    from evals.samples.graders import own_grader

    verdict = own_grader(grader)
    return VerifiedReward(
        lambda prompt, rollout: verdict(rollout.text, prompt.answer, f"a response to {shown(prompt.id)}")
    )


def check_prompts(prompts: Sequence[Prompt], reward: RewardConfig | str) -> None:
    """Raises DataError, which names it, for the first prompt that the reward cannot grade; a function takes any."""
    config = _config(reward)
    REWARDS[config.name].check(prompts, config.options)


def _config(reward: RewardConfig | str) -> RewardConfig:
    if isinstance(reward, RewardConfig):
        return reward
    try:
        known_reward(reward)
    except ValueError as error:
        raise UsageError(f"unknown reward {reward!r}; {error}") from None
    return RewardConfig(name=reward)
