"""Evaluation during training says how sure its numbers are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from quatro.config import load_config
from quatro.loop import evaluation
from quatro.loop.position import Drawn, Group, Position
from quatro.loop.timing import Stopwatch
from quatro.rewards import Grade
from quatro.types import Prompt, Rollout


@pytest.mark.parametrize("num_correct", [(0, 1, 2), (1,)])
def test_an_evaluation_has_the_standard_error_over_its_problems(
    num_correct: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts = [Rollout((1,), f"{place}", "stop") for place in range(2)]
    grades = [[Grade(0.0, place < count) for place in range(2)] for count in num_correct]
    drawn = Drawn([Group(None, list(zip(rollouts, group, strict=True))) for group in grades])
    monkeypatch.setattr(evaluation, "draw_and_grade", lambda *_: drawn)
    prompts = [Prompt("countdown", str(place), "", "", "", (1,)) for place in range(len(num_correct))]
    config = load_config("quickstart", overrides=["eval.every=1", "eval.benchmark=countdown", "eval.n=2"])
    found = SimpleNamespace(prompts=prompts, warnings=())
    parts: Any = SimpleNamespace(config=config, evaluation_prompts=found, stopwatch=Stopwatch())
    found = evaluation.Evaluation(parts).metrics(Position(None))
    if len(num_correct) == 1:  # one problem says nothing about others
        assert not any(name.endswith("_se") for name in found)
        return
    # Shares 0, 1/2 and 1 have the variance 1/4; of 0, 1 and 1 it is 1/3.
    assert found["eval/pass@1_se"] == pytest.approx(math.sqrt(1 / 4 / 3))
    assert found["eval/pass@2_se"] == pytest.approx(math.sqrt(1 / 3 / 3))
