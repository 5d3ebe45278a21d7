"""What a run says of itself when it is done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from quatro.config import load_config
from quatro.runs.directory import RunDir, Status
from quatro.runs.views.summary import ending

EVALUATED = ["eval.every=1", "eval.benchmark=countdown"]


def ended(path: Path, *rows: dict[str, Any], status: Status = "done", settings: tuple[str, ...] = ()) -> list[str]:
    """The lines about a run with these ``rows``, without what to type next."""
    overrides = ["steps=4", "prompts_per_step=4", "minibatch_prompts=4", *settings]
    with RunDir.create(path, load_config("quickstart", overrides=overrides)) as run:
        for step, row in enumerate(rows, 1):
            run.append_metrics({"step": float(step), "perf/step_s": 31.0, **row})
        run.set_status(status, step=len(rows))
    return [line for line in ending(path) if str(path) not in line]


def test_the_end_of_a_run_says_in_a_few_lines_what_it_came_to(tmp_path):
    rows = [
        {"reward/mean": reward, "reward/errors": 1.0, "entropy/token_mean": 1.0, "groups/mixed_share": mixed, **more}
        for reward, mixed, more in (
            (0.1, 0.5, {"kl/new_old": 0.01, "kl/ratio_to_delta": 1.0}),
            (0.3, 0.5, {"kl/new_old": 0.03, "kl/ratio_to_delta": 3.0}),
            (None, 0.0, {}),
            (0.5, 0.0, {}),
        )
    ]
    assert ended(tmp_path / "run", *rows) == [
        "done       4 iterations in 2:04",
        "reward     0.200 -> 0.500 (means of 2 iterations)",
        "failures   the reward failed on 4 of 128 responses",
        "entropy    1.00 -> 1.00; KL of an iteration 0.02 nats, 2 x delta",
        "no signal  in the last 2 iterations no prompt had responses with different rewards",
        "checkpoint none",
    ]
    lines = ending(tmp_path / "run")
    assert lines[-3:] == [
        f"next       quatro sample {tmp_path / 'run'} -b countdown",
        f"           quatro plot training {tmp_path / 'run'}",
        f"           quatro runs show {tmp_path / 'run'}",
    ]
    assert ended(tmp_path / "cut", *rows[:1], status="interrupted") == []
    assert ended(tmp_path / "one", {"groups/mixed_share": 1.0})[:2] == [
        "done       1 of 4 iterations in 0:31",
        "reward     -",
    ]


@pytest.mark.parametrize(
    ("base", "says"),
    [
        ({}, ""),
        ({"base/pass@1": 0.2, "base/pass@1_se": 0.02}, "; before training 0.2 ± 0.02"),
    ],
)
def test_the_best_evaluation_is_compared_with_the_model_before_training(tmp_path, base, says):
    rows = [
        {**base, "eval/pass@1": 0.25, "eval/pass@1_se": 0.001},
        {"eval/pass@1": 0.3, "eval/pass@1_se": 0.02},
    ]
    lines = ended(tmp_path / "run", *rows, settings=tuple(EVALUATED))
    assert f"best       eval/pass@1 0.3 ± 0.02 in step 2{says}" in lines
    assert "           no checkpoint of step 2: checkpoint.keep.best=eval/pass@1 keeps one" in lines
