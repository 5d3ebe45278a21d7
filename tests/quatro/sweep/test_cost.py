"""What a sweep says is left to do, against the same sums written out."""

import json

import pytest

from quatro.policy.model_files import folder_here
from quatro.sweep.cost import sweep_cost
from quatro.sweep.measure import SweepEvaluation, base_points
from quatro.sweep.plan import Axis, plan_sweep
from tests.kit import write_rows


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_responses_samples_and_checkpoints_are_counted(tmp_path, dtype):
    size = 4000
    (tmp_path / "config.json").write_text(json.dumps({"dtype": dtype}), encoding="utf-8")
    (tmp_path / "model.safetensors").write_bytes(bytes(size * (4 if dtype == "float32" else 2)))
    settings = ["steps=10", f"model={tmp_path}", "checkpoint.keep=2", "checkpoint.every=5"]
    plan = plan_sweep("math-1.5b", [Axis("method.delta", ("0.1", "0.01"))], overrides=settings)
    evaluation = SweepEvaluation(("math500", "aime24"), n=4, temperatures=(0.6, 1.0), top_ps=(0.7,))
    cost = sweep_cost([*base_points(plan), *plan.points], tmp_path, evaluation, folder_here)
    assert (cost.num_runs, cost.rollouts, cost.samples) == (2, 2 * 10 * 256 * 8, 3 * (500 + 30) * 4 * 2)
    responses = 2 * 10 * 256 * 8 + 3 * 530 * 4 * 2
    assert cost.disk_bytes == 2 * 2 * 12 * size + responses * (250 + 4 * 1024)
    once = plan_sweep("math-1.5b", [Axis("seed", ("0",))], overrides=[*settings[:3], "save_rollouts=false"])
    assert sweep_cost(once.points, tmp_path, None, folder_here).disk_bytes == 12 * size  # one checkpoint, at the end
    other = plan_sweep("math-1.5b", [Axis("method.delta", ("0.1",))], overrides=["model=some/where-7b"])
    assert sweep_cost(other.points, tmp_path, None, folder_here).disk_bytes is None


def test_what_is_done_costs_nothing_more_and_says_how_long_the_rest_takes(base, tmp_path):
    plan = plan_sweep(base, [Axis("seed", ("0", "1", "2"))])
    whole = sweep_cost(plan.points, tmp_path, None, folder_here)
    assert whole.seconds is None

    def note(point, step, status):
        run = tmp_path / "runs" / point.name
        run.mkdir(parents=True, exist_ok=True)
        document = {"status": status, "reason": None, "step": step}
        (run / "status.json").write_text(json.dumps(document), encoding="utf-8")
        rows = [{"step": at + 1, "perf/step_s": 60.0} for at in range(step)]
        write_rows(run / "metrics.jsonl", rows)

    first, second, third = plan.points
    steps = first.config.steps
    note(first, steps, "done")
    note(second, 1, "interrupted")
    (tmp_path / "runs" / first.name / "checkpoints").write_bytes(bytes(2**20))
    cost = sweep_cost(plan.points, tmp_path, None, folder_here)
    assert 2**21 < cost.disk_bytes < 2**21 + 10**5, "as much a run as the one that is done"
    assert (cost.num_runs, cost.num_done, cost.seconds) == (2, 1, 60.0 * (2 * steps - 1))
    assert cost.rollouts * 3 * steps == whole.rollouts * (2 * steps - 1)
    assert "2 of 3 runs" in cost.lines[0]
    assert f"{2 * steps - 1}:00 of training" in cost.lines[1]
    for point in (second, third):
        note(point, steps, "done")
    done = sweep_cost(plan.points, tmp_path, None, folder_here)
    assert (done.num_runs, done.rollouts, done.samples, done.seconds, len(done.lines)) == (0, 0, 0, 0.0, 1)


def test_what_is_known_of_one_model_says_nothing_of_another(base, tmp_path):
    plan = plan_sweep(base, [Axis("model", ("first", "second"))])
    run = tmp_path / "runs" / plan.points[0].name
    (tmp_path / "runs" / plan.points[0].name).mkdir(parents=True)
    (run / "status.json").write_text(json.dumps({"status": "done", "reason": None, "step": 1}), encoding="utf-8")
    write_rows(run / "metrics.jsonl", [{"step": 1, "perf/step_s": 60.0}])
    cost = sweep_cost(plan.points, tmp_path, None, folder_here)
    assert (cost.num_done, cost.seconds, cost.disk_bytes) == (1, None, None)
    assert [("time" in line or "long" in line, "known" in line) for line in cost.lines[1:]] == [
        (True, True),
        (False, True),
    ]
