"""Rewards of functions that a test file writes."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quatro.rewards import Reward, RewardConfig, make_reward


@pytest.fixture
def functions(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Reward]]:
    """Makes rewards from the test file's FUNCTIONS, which lie in `my_rewards.py` of the current directory."""
    (tmp_path / "my_rewards.py").write_text(textwrap.dedent(request.module.FUNCTIONS), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made: list[Reward] = []

    def make(name: str, **settings: object) -> Reward:
        spec = name if ":" in name else f"my_rewards:{name}"
        made.append(make_reward(RewardConfig.model_validate({"name": spec, "workers": 1, **settings})))
        return made[-1]

    yield make
    for reward in made:
        reward.close()
