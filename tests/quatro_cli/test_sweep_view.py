"""What is shown of a sweep while it runs."""

import json
import os

from quatro.runs.tag import Tag
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import all_points
from quatro.sweep.summary import PointOutcome
from quatro_cli.commands.sweep import _show
from quatro_cli.output import output
from quatro_cli.sweep_view import SHOWN_ROWS, sweep_panel

SIX = SweepEvaluation(("math500", "amc23", "aime24", "aime25", "minerva", "olympiad"), n=4, top_ps=(0.7,))


def shown(folder, plan, states, width=100):
    points = all_points(plan, SIX)
    return sweep_panel(folder, points, {points[at].name: state for at, state in states.items()}, SIX, width=width)


def test_each_point_says_its_step_or_the_benchmark_that_is_drawn(tmp_path):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo", "quatro", "grpo"))])
    base, gspo, quatro, _ = all_points(plan, SIX)
    run = tmp_path / "runs" / quatro.name
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
        (quatro.name, f"resumes  7/{quatro.config.steps}  reward 0.250"),
        (gspo.name, "failed"),
        ("", "1 done, 0 wait"),
    ]
    assert (panel.done, panel.total) == (1, 4)
    (run / "metrics.jsonl").write_text("{broken\n", encoding="utf-8")
    assert shown(tmp_path, plan, {2: "trains", 3: "waits"}).rows[0][1] == f"trains  0/{quatro.config.steps}"


def test_a_long_name_keeps_both_ends_and_leaves_room_for_words(tmp_path):
    lr = [str(1e-4 + i * 1e-9) for i in range(SHOWN_ROWS + 2)]
    plan = plan_sweep("quickstart", [Axis("optimizer.lr", tuple(lr)), Axis("rollout.temperature", ("0.987654321",))])
    states = {1 + at: "failed" if at < 2 else "trains" for at in range(len(lr))}
    narrow, wide = (shown(tmp_path, plan, states, width) for width in (80, 160))
    assert [name for name, _ in wide.rows[:-1]] == [point.name for point in plan.points[2:]]
    assert wide.rows[-1] == ("", "1 done, 0 wait, 2 more begun")
    for (cut, _), (whole, _) in zip(narrow.rows[:-1], wide.rows[:-1], strict=True):
        assert len(cut) == 30
        assert (cut[:12], cut[-12:]) == (whole[:12], whole[-12:])


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
