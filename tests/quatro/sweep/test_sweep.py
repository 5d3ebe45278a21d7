"""Grids: which points there are, which run again, and a table that no spreadsheet executes."""

import csv
import json
import sys
import textwrap

import pytest

from evals.errors import DataError, MissingError, UsageError
from evals.files.frames import csv_cell
from quatro.config.load import refuse_lost
from quatro.processes.stop import StopRequest
from quatro.runs.points import config_file
from quatro.sweep.measure import base_points
from quatro.sweep.plan import Axis, parse_axis, plan_sweep, read_plan
from quatro.sweep.run import run_sweep, status_of, write_plan, write_summary
from tests.kit import read_rows, says, write_rows

# A stand-in for `quatro train`: keeps the contract of a run directory and fails where it is told to.
FAKE_TRAIN = textwrap.dedent(
    """
    import json, os, pathlib, sys, time
    log, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    with log.open("a") as file:
        file.write(json.dumps(arguments) + "\\n")
    resume = "--resume" in arguments
    run = pathlib.Path(arguments[0] if resume else arguments[arguments.index("-o") + 1])
    run.mkdir(parents=True, exist_ok=True)
    broken = (log.parent / "broken").exists() and "delta=0.1" in run.name
    if broken and (log.parent / "early").exists():
        sys.exit("error: nothing was begun")
    if not resume:
        (run / "config.yaml").write_text(pathlib.Path(arguments[0]).read_text())
    (run / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": t, "reward/mean": t / 10, "kl/new_old": None}) + "\\n" for t in range(1, 21)))
    if (log.parent / "killed").exists():
        (run / "status.json").write_text(json.dumps({"status": "running", "reason": None}))
        print("step 12/40", flush=True)
        os.kill(os.getpid(), 9)
    status = {"status": "failed", "reason": "=1+1 loss is not finite"} if broken else {"status": "done", "reason": None}
    (run / "status.json").write_text(json.dumps(status))
    sys.exit(5 if broken else 0)
    """
)


@pytest.fixture
def trainer(tmp_path):
    script = tmp_path / "fake_train.py"
    script.write_text(FAKE_TRAIN, encoding="utf-8")
    log = tmp_path / "calls"
    log.touch()

    def calls() -> list[list[str]]:
        return read_rows(log)

    return [sys.executable, str(script), str(log)], calls


def test_an_axis_is_split_at_commas_outside_brackets():
    assert parse_axis("method.delta=0.1, 0.01") == Axis("method.delta", ("0.1", "0.01"))
    assert parse_axis("optimizer.betas=[0.9,0.99],[0.9,0.999]").values == ("[0.9,0.99]", "[0.9,0.999]")


@pytest.mark.parametrize("text", ["method.delta", "=1,2", "a=", "a=1,,1", "a=1,1"])
def test_a_malformed_axis_is_refused(text):
    with pytest.raises(UsageError, match="-g"):
        parse_axis(text)


def test_the_grid_is_the_product_of_its_axes(base):
    plan = plan_sweep(
        base, [Axis("method.delta", ("0.1", "0.01")), Axis("optimizer.lr", ("1e-4", "3e-4"))], seeds=[0, 1]
    )
    assert len(plan.points) == 8
    assert plan.num_collapsed == 0
    assert {(p.config.method.delta, p.config.optimizer.lr, p.config.seed) for p in plan.points} == {
        (delta, lr, seed) for delta in (0.1, 0.01) for lr in (1e-4, 3e-4) for seed in (0, 1)
    }
    assert len({point.name for point in plan.points}) == 8


def test_an_axis_of_one_method_collapses_for_the_others(base):
    plan = plan_sweep(base, [Axis("method.name", ("quatro", "gspo")), Axis("method.delta", ("0.1", "0.01", "0.001"))])
    assert [point.name for point in plan.points] == [
        "quatro-delta=0.1",
        "quatro-delta=0.01",
        "quatro-delta=0.001",
        "gspo",
    ]
    assert plan.num_collapsed == 2
    assert plan.points[-1].config.method.name == "gspo"


@pytest.mark.parametrize(
    ("key", "values", "named"),
    [
        ("method.clip_low", ("0.1", "0.2"), "clip_low"),  # no method of the sweep has it
        ("optimizer.lr", ("1e-4", "fast"), "fast"),
        ("seed", ("0",), "seed"),  # has an axis already
    ],
)
def test_an_axis_that_cannot_be_is_refused_before_anything_runs(base, key, values, named):
    with pytest.raises(UsageError) as error:
        plan_sweep(base, [Axis(key, values)], seeds=[1])
    says(error, named)


def test_names_of_points_are_safe_and_distinct(base):
    plan = plan_sweep(base, [Axis("model", ("../../etc/x", "../../etc/y"))])
    names = [point.name for point in plan.points]
    assert len(set(names)) == 2
    assert not any("/" in name for name in names)


def test_fault_18_a_failed_point_leaves_the_others_alone_and_a_second_call_runs_only_it(base, tmp_path, trainer):
    command, calls = trainer
    plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.01", "0.001"))])
    folder = tmp_path / "sweep"
    (tmp_path / "broken").touch()

    outcomes = run_sweep(plan, folder, train_command=command)
    assert [outcome.status for outcome in outcomes] == ["failed", "done", "done"]
    assert outcomes[0].reason == "=1+1 loss is not finite"
    assert len(calls()) == 3

    (tmp_path / "broken").unlink()
    outcomes = run_sweep(plan, folder, train_command=command)
    assert [outcome.status for outcome in outcomes] == ["done", "done", "done"]
    assert calls()[3:] == [[str(folder / "runs" / "delta=0.1"), "--resume"]]

    run_sweep(plan, folder, train_command=command)
    assert len(calls()) == 4


def test_a_point_whose_process_was_killed_says_by_which_signal(base, tmp_path, trainer):
    command, _ = trainer
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    (tmp_path / "killed").touch()
    outcome = run_sweep(plan, tmp_path / "sweep", train_command=command)[0]
    assert (outcome.status, outcome.reason) == ("killed", "error: killed by signal 9 (SIGKILL)")
    (tmp_path / "killed").unlink()
    assert run_sweep(plan, tmp_path / "sweep", train_command=command)[0].status == "done"


def test_a_point_that_never_began_is_begun_and_its_log_says_why(base, tmp_path, trainer):
    command, calls = trainer
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    (tmp_path / "broken").touch()
    (tmp_path / "early").touch()
    outcome = run_sweep(plan, tmp_path / "sweep", train_command=command)[0]
    assert (outcome.status, outcome.reason) == ("missing", "error: nothing was begun")
    (tmp_path / "broken").unlink()
    assert run_sweep(plan, tmp_path / "sweep", train_command=command)[0].status == "done"
    assert all("--resume" not in call for call in calls())


def test_what_runs_is_what_was_planned(base, tmp_path, trainer):
    command, calls = trainer
    plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.02"))])
    folder = tmp_path / "sweep"
    run_sweep(plan, folder, train_command=command, jobs=2)
    from quatro.config import load_config

    for call in calls():
        config = load_config(call[0])
        assert f"delta={config.method.delta}" in call[2]


def test_the_same_folder_for_another_configuration_is_refused(base, tmp_path, trainer):
    command, _ = trainer
    run_sweep(plan_sweep(base, [Axis("method.delta", ("0.01",))]), tmp_path / "s", train_command=command)
    with pytest.raises(UsageError, match="another configuration"):
        run_sweep(
            plan_sweep(base, [Axis("method.delta", ("0.01",))], overrides=["steps=3"]),
            tmp_path / "s",
            train_command=command,
        )


def test_more_values_extend_a_sweep(base, tmp_path, trainer):
    command, calls = trainer
    run_sweep(plan_sweep(base, [Axis("method.delta", ("0.01",))]), tmp_path / "s", train_command=command)
    run_sweep(plan_sweep(base, [Axis("method.delta", ("0.01", "0.001"))]), tmp_path / "s", train_command=command)
    assert len(calls()) == 2


def test_fewer_values_leave_what_has_begun_in_the_sweep(base, tmp_path, trainer):
    command, calls = trainer
    folder = tmp_path / "s"
    run_sweep(plan_sweep(base, [Axis("method.delta", ("0.01",))]), folder, train_command=command)
    write_plan(plan_sweep(base, [Axis("method.delta", ("0.01", "0.1"))]), folder)  # 0.1 is planned and never begun
    outcomes = run_sweep(plan_sweep(base, [Axis("method.delta", ("0.001",))]), folder, train_command=command)
    assert [outcome.point.settings for outcome in outcomes] == [{"method.delta": "0.001"}]
    assert len(calls()) == 2
    assert [point.settings["method.delta"] for point in read_plan(folder).points] == ["0.001", "0.01"]
    with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        assert [row["method.delta"] for row in csv.DictReader(file)] == ["0.001", "0.01"]


def test_a_null_among_the_last_steps_leaves_the_mean_of_the_summary_unknown(base, tmp_path):
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    run = tmp_path / "runs" / plan.points[0].name
    run.mkdir(parents=True)
    rows = [{"step": t, "reward/mean": t / 10, "kl/new_old": None if t == 15 else 0.1} for t in range(1, 21)]
    write_rows(run / "metrics.jsonl", rows)
    (run / "status.json").write_text('{"status": "done"}', encoding="utf-8")
    write_summary([status_of(plan.points[0], tmp_path)], tmp_path)
    with (tmp_path / "summary.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert float(row["reward/mean"]) == pytest.approx(1.55)
    assert row["kl/new_old"] == ""


def test_the_summary_holds_means_of_the_last_steps_and_no_formulas(base, tmp_path, trainer):
    command, _ = trainer
    (tmp_path / "broken").touch()
    folder = tmp_path / "s"
    run_sweep(plan_sweep(base, [Axis("method.delta", ("0.1", "0.01"))]), folder, train_command=command)
    with (folder / "summary.csv").open(encoding="utf-8", newline="") as file:
        failed, done = list(csv.DictReader(file))
    assert failed["reason"] == "'=1+1 loss is not finite"
    assert done["reason"] == ""
    assert float(done["reward/mean"]) == pytest.approx(1.55)  # mean of 1.1, 1.2, ..., 2.0
    assert done["kl/new_old"] == ""
    assert done["method.delta"] == "0.01"


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("-x", "'-x"),
        ("@x", "'@x"),
        ("\tx", "'\tx"),
        ("\rx", "'\nx"),
        ("x\r\n=1", "x\n=1"),
        ("x=1", "x=1"),
        ("-0.5", "-0.5"),
        ("-1e-6", "-1e-6"),
        ("+3", "+3"),
        (-0.25, "-0.25"),
        (-3, "-3"),
        (None, ""),
        (float("nan"), ""),
        ("-1+cmd", "'-1+cmd"),
        ("-", "'-"),
        # Full-width, small, superscript and typographic signs.
        *[(f"{sign}1", f"'{sign}1") for sign in "\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b\u207a\u207b\u2212"],
        ("\ufeff\uff1d1", "'\ufeff\uff1d1"),
    ],
)
def test_cells_are_text_or_numbers_never_formulas(value, cell):
    assert csv_cell(value) == cell


def test_a_stop_begins_no_further_point(base, tmp_path, trainer):
    command, calls = trainer
    stop = StopRequest()
    plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.01", "0.001"))])
    outcomes = run_sweep(
        plan,
        tmp_path / "s",
        train_command=command,
        stop=stop,
        progress=lambda done, note: stop.request() if done == 1 else None,
    )
    assert len(calls()) == 1
    assert [outcome.status for outcome in outcomes] == ["done", "missing", "missing"]


def test_the_status_of_a_point_is_never_inferred(base, tmp_path, caplog):
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    run = tmp_path / "runs" / plan.points[0].name
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"step": 2}\n', encoding="utf-8")
    assert status_of(plan.points[0], tmp_path).status == "missing"
    (run / "status.json").write_text("{", encoding="utf-8")
    assert status_of(plan.points[0], tmp_path).status == "missing"
    assert f"{run / 'status.json'}:1: not JSON" in caplog.text


def test_a_sweep_over_models_goes_on_where_links_lead_to_what_was_moved(tmp_path, monkeypatch):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"name": name}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    plan = plan_sweep("quickstart", [Axis("model", ("one", "two"))])
    names = [point.name for point in base_points(plan)]
    write_plan(plan, tmp_path / "sweep", None)
    for name in ("one", "two"):
        (tmp_path / name).rename(tmp_path / f"other-{name}")
        with pytest.raises(MissingError) as lost:
            refuse_lost(read_plan(tmp_path / "sweep").points[name == "two"].config)
        says(lost, str(tmp_path / name), key="model", advice="symbolic link")
        (tmp_path / name).symlink_to(f"other-{name}")
    again = read_plan(tmp_path / "sweep")
    for point in again.points:
        refuse_lost(point.config)
    assert [point.name for point in base_points(again)] == names
    one, two = (config_file(tmp_path / "sweep", point.name) for point in again.points)
    one.write_bytes(two.read_bytes())
    with pytest.raises(DataError) as error:
        read_plan(tmp_path / "sweep")
    says(error.value, str(one), key="model")
