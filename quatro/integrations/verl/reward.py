"""A training reward of ours as verl's custom reward function: the same grades as in our own trainer."""

import functools
import json
import threading
from collections.abc import Mapping
from typing import Any

from evals.errors import UsageError
from quatro.rewards import Reward, RewardConfig, make_reward
from quatro.types import Prompt, Rollout

_one_at_a_time = threading.Lock()  # verl calls from several threads; a reward has one pool of processes


@functools.cache
def _reward(settings: str) -> Reward:
    config = RewardConfig(**json.loads(settings))
    if "rarity" in config.names:
        raise UsageError("reward rarity is of all responses to a prompt, and verl grades each alone; train with quatro")
    return make_reward(config)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: Mapping[str, Any] | None = None,
    *,
    reward: Mapping[str, Any],
    **_: Any,
) -> float:
    """The reward of one response; ``reward`` is the block of our configuration, ``extra_info`` is from `write_prompts`.

    Raises QuatroError as the reward.
    """
    info = dict(extra_info or {})
    extra = json.loads(info.get("extra") or "{}")
    problem = str(info.get("problem", ""))
    prompt = Prompt(str(data_source), str(info.get("id", "")), problem, ground_truth, problem, (), extra)
    with _one_at_a_time:
        chosen = _reward(json.dumps(_plain(reward), sort_keys=True))
        return chosen.score([prompt], [[Rollout((), solution_str, "stop")]])[0][0].reward


def _plain(value: Any) -> Any:
    """Dictionaries in place of verl's configuration objects."""
    return {str(key): _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value
