"""Evaluation during training says how sure its numbers are."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from quatro.config import load_config
from quatro.loop import draw
from quatro.loop.position import Drawn, Group, Position, Stopwatch
from quatro.rewards import Grade
from quatro.types import Prompt, Rollout

SOLVED = ([], ["a"], ["b", "c"], ["d", "d"], ["e", "e", "f"])  # the texts of the correct ones of three responses


def closed(num_correct: int, k: int) -> float:
    """Pass@k: the share of the subsets of k of three responses that hold a correct one."""
    return 1 - math.comb(3 - num_correct, k) / math.comb(3, k)


@pytest.mark.parametrize("texts", [SOLVED, SOLVED[2:3]])
def test_an_evaluation_has_means_over_problems_and_their_standard_errors(texts, monkeypatch):
    drawn = Drawn(
        [
            Group(None, [(Rollout((1,), text, "stop"), Grade(0.0, text in right)) for text in (*right, *"xyz")[:3]])
            for right in texts
        ]
    )
    monkeypatch.setattr(draw, "draw_and_grade", lambda *_: drawn)
    prompts = [Prompt("countdown", str(place), "", "", "", (1,)) for place in range(len(texts))]
    config = load_config("quickstart", overrides=["eval.every=2", "eval.benchmark=countdown", "eval.n=3"])
    parts: Any = SimpleNamespace(
        config=config, evaluation_prompts=SimpleNamespace(prompts=prompts, warnings=()), stopwatch=Stopwatch()
    )
    measuring = draw.Evaluation(parts)
    position = Position(None)
    expected = {
        "distinct_correct": sum(len(set(right)) for right in texts) / len(texts),
        "problems": len(texts),
        "n": 3,
    }
    for k in (1, 3):
        values = [closed(len(right), k) for right in texts]
        expected[f"pass@{k}"] = sum(values) / len(values)
        if len(values) > 1:  # one problem says nothing about others
            mean = sum(values) / len(values)
            variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
            expected[f"pass@{k}_se"] = math.sqrt(variance / len(values))
    assert measuring.metrics(position) == {}  # after the first of two iterations none is due
    position.base = {"base/n": 3.0}
    assert measuring.metrics(position) == {"base/n": 3.0}
    position.step = 1
    assert measuring.metrics(position) == pytest.approx({f"eval/{name}": value for name, value in expected.items()})
