"""What a sweep says that it will cost, against the same sums written out."""

import json

import pytest

from quatro.sweep import Axis, SweepCost, SweepEvaluation, plan_sweep, sweep_cost
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


def test_what_is_done_costs_nothing_more_and_says_how_long_the_rest_takes(base, tmp_path):
    plan = plan_sweep(base, [Axis("seed", ("0", "1", "2"))])
    whole = sweep_cost(plan.points, tmp_path, None)
    assert whole.lines[1] == "how long it takes is known once the first run is done"

    def note(point, step, status):
        run = tmp_path / "runs" / point.name
        run.mkdir(parents=True, exist_ok=True)
        document = {"status": status, "reason": None, "step": step}
        (run / "status.json").write_text(json.dumps(document), encoding="utf-8")
        rows = [{"step": at + 1, "perf/step_s": 6.0} for at in range(step)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    first, second, third = plan.points
    steps = first.config.steps
    note(first, steps, "done")
    note(second, 1, "interrupted")
    cost = sweep_cost(plan.points, tmp_path, None)
    assert (cost.num_runs, cost.num_done, cost.seconds) == (2, 1, 6.0 * (2 * steps - 1))
    assert cost.rollouts * 3 * steps == whole.rollouts * (2 * steps - 1)
    assert cost.lines[0].startswith("2 of 3 runs are left: they draw and learn from ")
    assert "at the pace of the runs that are done" in cost.lines[1]
    for point in (second, third):
        note(point, steps, "done")
    assert sweep_cost(plan.points, tmp_path, None).lines == ["nothing is left to draw or to learn from"]


def test_small_costs_are_said_in_small_units():
    cost = SweepCost(1, 8, 100.0, 0, 0.0, None, 45.0, 3 * 2**20)
    assert cost.lines[1:] == [
        "about 45 seconds of training here, at the pace of the runs that are done",
        "about 3.0 MiB of disk",
    ]
