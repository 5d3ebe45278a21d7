"""A sweep tells what its runs warned of."""

import json

from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import write_plan
from quatro_cli.sweep_view import SHOWN_WARNINGS, sweep_panel
from tests.kit import quatro

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
    shown = dict(sweep_panel(tmp_path, plan.points, states, None, width=100).rows)
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
