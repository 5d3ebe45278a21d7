"""What a sweep says is left to do, against the same sums written out."""

import json

from quatro.sweep.cost import sweep_cost
from quatro.sweep.measure import SweepEvaluation, base_points
from quatro.sweep.plan import Axis, plan_sweep
from tests.kit import write_rows


def test_responses_and_samples_are_counted(tmp_path):
    plan = plan_sweep("math-1.5b", [Axis("method.delta", ("0.1", "0.01"))], overrides=["steps=10"])
    evaluation = SweepEvaluation(("math500", "aime24"), n=4, temperatures=(0.6, 1.0), top_ps=(0.7,))
    cost = sweep_cost([*base_points(plan), *plan.points], tmp_path, evaluation)
    assert (cost.num_runs, cost.rollouts, cost.samples) == (2, 2 * 10 * 256 * 8, 3 * (500 + 30) * 4 * 2)
    assert cost.disk_bytes is None


def test_what_is_done_costs_nothing_more_and_says_how_long_the_rest_takes(base, tmp_path):
    plan = plan_sweep(base, [Axis("seed", ("0", "1", "2"))])
    whole = sweep_cost(plan.points, tmp_path, None)
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
    cost = sweep_cost(plan.points, tmp_path, None)
    assert 2**21 < cost.disk_bytes < 2**21 + 10**5, "as much a run as the one that is done"
    assert (cost.num_runs, cost.num_done, cost.seconds) == (2, 1, 60.0 * (2 * steps - 1))
    assert cost.rollouts * 3 * steps == whole.rollouts * (2 * steps - 1)
    assert "2 of 3 runs" in cost.lines[0]
    assert f"{2 * steps - 1}:00 of training" in cost.lines[1]
    for point in (second, third):
        note(point, steps, "done")
    done = sweep_cost(plan.points, tmp_path, None)
    assert (done.num_runs, done.rollouts, done.samples, done.seconds, len(done.lines)) == (0, 0, 0, 0.0, 1)


def test_what_is_known_of_one_model_says_nothing_of_another(base, tmp_path):
    plan = plan_sweep(base, [Axis("model", ("first", "second"))])
    run = tmp_path / "runs" / plan.points[0].name
    (tmp_path / "runs" / plan.points[0].name).mkdir(parents=True)
    (run / "status.json").write_text(json.dumps({"status": "done", "reason": None, "step": 1}), encoding="utf-8")
    write_rows(run / "metrics.jsonl", [{"step": 1, "perf/step_s": 60.0}])
    cost = sweep_cost(plan.points, tmp_path, None)
    assert (cost.num_done, cost.seconds, cost.disk_bytes) == (1, None, None)
    assert [("time" in line or "long" in line, "known" in line) for line in cost.lines[1:]] == [
        (True, True),
        (False, True),
    ]
