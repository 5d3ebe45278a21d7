"""What is shown of a sweep while it runs, and of what its runs warned."""

import json

from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import PointOutcome, write_plan
from quatro_cli.commands.sweep import _progress, _show
from quatro_cli.output import output
from tests.kit import quatro

SIX = SweepEvaluation(("math500", "amc23", "aime24", "aime25", "minerva", "olympiad"), n=4, top_ps=(0.7,))


def test_on_a_terminal_a_sweep_has_a_bar_and_in_a_pipe_a_line_for_whatever_happens(tmp_path, capsys, monkeypatch):
    with _progress(tmp_path, 3) as tell:
        tell(1, "delta=0.1 done")
    assert capsys.readouterr().err == "1/3  delta=0.1 done\n"
    monkeypatch.setattr(output, "is_terminal", lambda name: True)
    monkeypatch.setenv("COLUMNS", "200")
    with _progress(tmp_path, 3) as tell:
        tell(2, "delta=0.2 trains")
    seen = capsys.readouterr().err
    assert "2/3" in seen
    assert "delta=0.2 trains" in seen


def test_on_a_terminal_the_numbers_of_six_benchmarks_are_those_of_quatro_table(tmp_path, capsys, monkeypatch):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo", "quatro"))])
    numbers = {f"{name}/p0.7/{metric}": 0.5 for name in SIX.benchmarks for metric in ("pass@1", "ucc@4")}
    outcomes = [PointOutcome(point, "done", measured=numbers) for point in plan.points]
    _show(plan, tmp_path, outcomes, json=False)
    piped = capsys.readouterr().out.splitlines()
    assert len([line for line in piped if line.startswith("gspo")]) == 1
    monkeypatch.setattr(output, "is_terminal", lambda name: True)
    monkeypatch.setenv("COLUMNS", "80")
    _show(plan, tmp_path, outcomes, json=False)
    shown = capsys.readouterr()
    assert [line.split() for line in shown.out.splitlines() if line.startswith("gspo")] == [["gspo", "done"]]
    assert f"quatro table {tmp_path}" in shown.err


FROM_TRAINING = "iteration 2: 75% of the responses were cut at 8 tokens; raise rollout.max_new_tokens"
FROM_SAMPLING = "countdown: half of the responses were cut"


def test_a_sweep_says_how_many_of_its_points_warned_and_where_to_look(tmp_path):
    plan = plan_sweep("quickstart", [Axis("method.delta", ("0.1", "0.2", "0.3"))])
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
    assert warned == [[], [FROM_TRAINING, FROM_SAMPLING], [FROM_TRAINING]]

    found = quatro("sweep", tmp_path, "--dry-run")
    (line,) = [line for line in found.stderr.splitlines() if line.startswith("warning: ")]
    assert "2 of 3 points warned" in line
    assert f"{tmp_path / 'runs'}/*/log.txt" in line


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
