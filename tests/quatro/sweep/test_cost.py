"""What a sweep says that it will cost, against the same sums written out."""

import json

import pytest

from quatro.sweep import Axis, SweepEvaluation, plan_sweep, sweep_cost
from quatro.sweep.measure import base_points


def test_tokens_operations_and_disk_are_those_of_the_stated_assumptions(tmp_path):
    plan = plan_sweep("math-1.5b", [Axis("method.delta", ("0.1", "0.01"))], overrides=["steps=10", "inner_updates=2"])
    evaluation = SweepEvaluation(("math500", "aime24"), n=4, temperatures=(0.6, 1.0), top_ps=(0.7,))
    cost = sweep_cost([*base_points(plan), *plan.points], tmp_path, evaluation)
    rows = 2 * 10 * 256 * 8
    samples = 3 * (500 + 30) * 4 * 2
    assert (cost.num_runs, cost.rollouts, cost.samples) == (2, rows, samples)
    assert cost.tokens == rows * (150 + 512)
    assert cost.sampled_tokens == samples * 512
    drawn, learnt = (rows + samples) * 512, rows * (150 + 512) * (6 * 2 + 2 * 2)
    assert cost.gpu_hours == pytest.approx(1.5e9 * (2 * drawn / 0.10 + learnt / 0.40) / 989e12 / 3600)
    assert cost.disk_bytes == pytest.approx(2 * 12 * 1.5e9 * 3 + 30 * rows * 512 + 4 * samples * 512)
    assert "assumed are responses of half their limit" in "\n".join(cost.lines)


def test_runs_that_are_done_say_how_long_the_others_take(base, tmp_path):
    plan = plan_sweep(base, [Axis("seed", ("0", "1", "2"))])
    assert sweep_cost(plan.points, tmp_path, None).lines[1] == "how long it takes is known once the first run is done"
    run = tmp_path / "runs" / plan.points[1].name
    run.mkdir(parents=True)
    (run / "status.json").write_text(json.dumps({"status": "done", "reason": None}), encoding="utf-8")
    rows = [{"step": step, "perf/step_s": 6.0} for step in (1, 2)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    cost = sweep_cost(plan.points, tmp_path, None)
    assert cost.seconds == 6.0 * sum(point.config.steps for point in plan.points)
    assert "at the pace of the runs that are done" in cost.lines[1]
