"""Rewards of functions that a test file writes."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator

import pytest

from quatro.rewards import Reward, RewardConfig, make_reward


@pytest.fixture(scope="module")
def functions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Reward]]:
    """Makes rewards from the test file's FUNCTIONS, which lie in `my_rewards.py` of the current directory.

    Tests that ask for the same get the same reward, whose processes are still warm.
    """
    folder = tmp_path_factory.mktemp("functions")
    (folder / "my_rewards.py").write_text(textwrap.dedent(request.module.FUNCTIONS), encoding="utf-8")
    made: dict[str, Reward] = {}

    def make(name: str, **settings: object) -> Reward:
        spec = name if ":" in name else f"my_rewards:{name}"
        document = {"name": spec, "workers": 1, **settings}
        key = json.dumps(document, sort_keys=True)
        if key not in made:
            made[key] = make_reward(RewardConfig.model_validate(document))
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield make
    for reward in made.values():
        reward.close()
