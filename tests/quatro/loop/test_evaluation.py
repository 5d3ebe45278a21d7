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
from quatro.types import Prompt, Rollout, Sampling
from tests.kit import says

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
        config=config,
        evaluation_prompts=[SimpleNamespace(prompts=prompts, warnings=())],
        sampling=Sampling(),
        stopwatch=Stopwatch(),
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


@pytest.mark.parametrize(("sizes", "has_error"), [((4, 2), True), ((4, 1), False)])
def test_several_benchmarks_are_measured_each_with_its_n_and_their_mean_comes_first(
    sizes, has_error, monkeypatch, caplog
):
    def draw_and_grade(parts, prompts, seeds, sampling, grader):
        """Of problem i of `a` i responses are right, of `b` none."""
        num_right = [place if prompts[0].benchmark == "countdown" else 0 for place in range(len(prompts))]
        return Drawn(
            [
                Group(prompt, [(Rollout((1,), str(j), "stop"), Grade(0.0, j < right)) for j in range(len(own))])
                for prompt, own, right in zip(prompts, seeds, num_right, strict=True)
            ]
        )

    monkeypatch.setattr(draw, "draw_and_grade", draw_and_grade)
    names, settings = ("countdown", "math500"), ["eval.benchmark=[countdown, math500]", "eval.n=[4, 2]"]
    sets = [
        SimpleNamespace(prompts=[Prompt(name, str(i), "", "1", "", (1,)) for i in range(size)], warnings=())
        for name, size in zip(names, sizes, strict=True)
    ]
    parts: Any = SimpleNamespace(
        config=load_config("quickstart", overrides=["eval.every=1", *settings]),
        evaluation_prompts=sets,
        sampling=Sampling(),
        stopwatch=Stopwatch(),
    )
    measuring = draw.Evaluation(parts)
    found = measuring.measured()
    assert measuring.measured() == found
    measuring.close()
    (warning,) = [record.getMessage() for record in caplog.records]  # once, of the one without a right response
    says(warning, f"none of {2 * sizes[1]} responses", "math500")
    assert list(found)[: 1 + has_error] == ["pass@1", "pass@1_se"][: 1 + has_error]
    shares = [0, 1 / 4, 2 / 4, 3 / 4]
    error = math.sqrt(sum((share - 3 / 8) ** 2 for share in shares) / 3 / 4)
    expected = {"pass@1": (3 / 8 + 0) / 2, "countdown/pass@1": 3 / 8, "countdown/pass@4": 3 / 4, "math500/pass@1": 0}
    expected |= {"math500/pass@2": 0, "countdown/problems": 4, "math500/problems": sizes[1]}
    expected |= {"countdown/n": 4, "math500/n": 2, "countdown/pass@1_se": error}
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert ("pass@1_se" in found) == has_error  # one problem has no error, and so the mean has none
    if has_error:
        assert found["pass@1_se"] == pytest.approx(error / 2)
