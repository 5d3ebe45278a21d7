"""What is shown of a sweep while it runs, and of what its runs warned."""

import json
import os
from types import SimpleNamespace

from quatro.sample.folder import Tag
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import all_points, write_plan
from quatro.sweep.summary import PointOutcome
from quatro_cli.commands.sweep import _show
from quatro_cli.output import output
from quatro_cli.sweep_view import SHOWN_ROWS, SHOWN_WARNINGS, SweepView, sweep_panel
from tests.kit import quatro, write_rows

SIX = SweepEvaluation(("math500", "amc23", "aime24", "aime25", "minerva", "olympiad"), n=4, top_ps=(0.7,))


def shown(folder, plan, states):
    points = all_points(plan, SIX)
    return sweep_panel(folder, points, {points[at].name: state for at, state in states.items()}, SIX)


def test_each_point_says_its_step_or_the_benchmark_that_is_drawn(tmp_path):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo", "quatro", "grpo"))])
    base, gspo, ours, _ = all_points(plan, SIX)
    run = tmp_path / "runs" / ours.name
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text(json.dumps({"step": 7, "reward/mean": 0.25}) + "\n", encoding="utf-8")
    samples = Tag(top_p=0.7).folder(tmp_path / "base" / base.name)
    samples.mkdir(parents=True)
    for place, name in enumerate(("math500", "aime24", "amc23")):  # aime24 is left of an earlier call
        (samples / f"{name}.jsonl").write_text("", encoding="utf-8")
        os.utime(samples / f"{name}.jsonl", (place, place))
    panel = shown(tmp_path, plan, {0: "is sampled, T1-p0.7", 1: "failed", 2: "resumes"})
    assert panel.rows == [
        (base.name, "is sampled, T1-p0.7: amc23, 2 of 6"),
        (ours.name, f"resumes  7/{ours.config.steps}  reward 0.250"),
        (gspo.name, "failed"),
        ("", "1 done, 0 wait"),
    ]
    assert (panel.done, panel.total) == (1, 4)
    (run / "metrics.jsonl").write_text("{broken\n", encoding="utf-8")
    assert shown(tmp_path, plan, {2: "trains", 3: "waits"}).rows[0][1] == f"trains  0/{ours.config.steps}"


def test_the_time_left_is_that_of_the_iterations_so_far_over_the_points_that_run(tmp_path, monkeypatch):
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr("quatro_cli.sweep_view.time", clock)
    plan = plan_sweep("quickstart", [Axis("method.delta", ("0.1", "0.01", "0.001", "0.2"))], overrides=["steps=60"])
    points = all_points(plan, None)
    view = SweepView(tmp_path, points, None)
    states = dict(zip([point.name for point in points], ("trains", "trains", "waits", "failed"), strict=True))
    view(states)
    assert view.panel.rows[-1] == ("", "0 done, 1 wait")
    run = tmp_path / "runs" / points[0].name
    write_rows(run / "metrics.jsonl", [{"step": 1, "perf/step_s": 2.0}])
    (run / "status.json").write_text(json.dumps({"status": "running", "step": 30}), encoding="utf-8")
    clock.now += 60
    view(states)  # 30, 60 and 60 iterations of 2 s, two points at a time; what failed does not count
    assert view.panel.rows[-1] == ("", "0 done, 1 wait, about 2:30 of training left")
    clock.now += 5
    view(states)
    assert view.panel.rows[-1][1].endswith("about 2:25 of training left")


def test_of_many_points_those_that_run_are_shown_first(tmp_path):
    lr = [str(1e-4 + i * 1e-9) for i in range(SHOWN_ROWS + 2)]
    plan = plan_sweep("quickstart", [Axis("optimizer.lr", tuple(lr))])
    panel = shown(tmp_path, plan, {1 + at: "failed" if at < 2 else "trains" for at in range(len(lr))})
    assert [name for name, _ in panel.rows[:-1]] == [point.name for point in plan.points[2:]]
    assert panel.rows[-1] == ("", "1 done, 0 wait, 2 more begun")


def test_on_a_terminal_six_benchmarks_have_a_table_for_each_metric(tmp_path, capsys, monkeypatch):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo", "quatro"))])
    numbers = {f"{name}/p0.7/{metric}": 0.5 for name in SIX.benchmarks for metric in ("pass@1", "ucc@4")}
    outcomes = [PointOutcome(point, "done", measured=numbers) for point in plan.points]
    _show(plan, tmp_path, outcomes, json=False)
    piped = capsys.readouterr().out.splitlines()
    assert len([line for line in piped if line.startswith("gspo")]) == 1
    monkeypatch.setattr(output, "is_terminal", lambda name: True)
    monkeypatch.setenv("COLUMNS", "80")
    _show(plan, tmp_path, outcomes, json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("p0.7")] == ["p0.7/pass@1", "p0.7/ucc@4"]
    assert [len(line.split()) for line in lines if line.split()[:1] == ["gspo"]] == [2, 7, 7]


FROM_TRAINING = "iteration 2: 75% of the responses were cut at 8 tokens; raise rollout.max_new_tokens"
FROM_SAMPLING = "countdown: half of the responses were cut"


def test_a_sweep_says_which_runs_warned_of_what_and_where_the_rest_is(tmp_path):
    plan = plan_sweep("quickstart", [Axis("method.delta", tuple(f"0.{at}" for at in range(1, SHOWN_WARNINGS + 4)))])
    write_plan(plan, tmp_path)
    for point in plan.points[1:]:
        run = tmp_path / "runs" / point.name
        run.mkdir()
        (run / "status.json").write_text('{"status": "done"}', encoding="utf-8")
        (run / "log.txt").write_text(
            f"2026-01-01 10:00:00,000 INFO quatro: it begins\n"
            f"2026-01-01 10:00:01,000 WARNING quatro.launch.health: {FROM_TRAINING}\n",
            encoding="utf-8",
        )
    log = tmp_path / "logs" / f"{plan.points[1].name}.txt"
    log.write_text(f"warning: {FROM_TRAINING}\nno warning: a line of another kind\nwarning: {FROM_SAMPLING}\n")

    found = quatro("sweep", tmp_path, "--dry-run", "--json")
    warned = [point["warnings"] for point in json.loads(found.stdout)["points"]]
    assert warned == [[], [FROM_TRAINING, FROM_SAMPLING], *[[FROM_TRAINING]] * (SHOWN_WARNINGS + 1)]

    found = quatro("sweep", tmp_path, "--dry-run")
    lines = [line for line in found.stderr.splitlines() if line.startswith("warning: ")]
    assert len(lines) == SHOWN_WARNINGS + 1
    assert lines[0] == f"warning: delta=0.2 (2 warnings): {FROM_TRAINING}"
    assert lines[1] == f"warning: delta=0.3 (1 warning): {FROM_TRAINING}"
    assert lines[-1].startswith("warning: 2 more points warned; ")
    assert f"{tmp_path / 'runs'}/*/log.txt" in lines[-1]

    states = {plan.points[0].name: "trains", plan.points[1].name: "resumes"}
    shown = dict(sweep_panel(tmp_path, plan.points, states, None).rows)
    assert "warning" not in shown["delta=0.1"]
    assert shown["delta=0.2"].endswith("2 warnings")


def test_a_sweep_says_where_its_runs_began_with_other_weights(tmp_path):
    """As they do where it goes on on another machine: an embedded model is taught there again."""
    plan = plan_sweep("quickstart", [Axis("method.delta", ("0.1", "0.01", "0.001"))])
    write_plan(plan, tmp_path)
    digests = ("aa", "aa", "bb")
    for point, digest in zip(plan.points, digests, strict=True):
        run = tmp_path / "runs" / point.name
        run.mkdir()
        (run / "environment.json").write_text(json.dumps({"model_digest": digest}), encoding="utf-8")
    found = quatro("sweep", tmp_path, "--dry-run")
    said = "warning: embedded:countdown had other weights when delta=0.001 began than when delta=0.1 did"
    assert said in " ".join(found.stderr.split())
    (tmp_path / "runs" / plan.points[2].name / "environment.json").unlink()
    assert "other weights" not in quatro("sweep", tmp_path, "--dry-run").stderr
