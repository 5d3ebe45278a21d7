"""Metrics of TRL and verl as runs that can be plotted, reported and listed."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import quatro
from evals.errors import DataError, UsageError
from quatro.integrations.imported import NAMES, import_metrics
from quatro.runs.metrics import radius_of, read_metrics, read_source
from quatro.runs.views.report import gather_report
from quatro.runs.views.series import read_curves
from quatro.runs.views.summary import describe_run, list_runs
from quatro_cli.app import app
from tests.kit import write_rows

# As TRL writes it: the summary has the last step, and a metric that nobody knows is NaN.
HISTORY = [
    {"step": 1, "epoch": 0.1, "loss": 0.5, "reward": 0.25, "grad_norm": 2.0, "dual/delta": 0.01, "dual/lam_mean": 0.3},
    {"step": 2, "epoch": 0.2, "loss": 0.4, "grad_norm": 1.5, "kl/new_old": 0.02, "dual/lam_mean": float("nan")},
    {"step": 2, "epoch": 0.2, "train_runtime": 9.5, "train_loss": 0.45},
]
OWN = {"step", "epoch", "loss", "kl/new_old", "dual/delta", "dual/lam_mean", "train_runtime", "train_loss"}


def trainer_state(folder, history=HISTORY):
    file = folder / "trainer_state.json"
    file.write_text(json.dumps({"global_step": 2, "log_history": history}, indent=1), encoding="utf-8")
    return file


def verl_log(folder, *records, end="\n"):
    file = folder / "experiment.jsonl"
    lines = [json.dumps({"step": step, "data": data}) for step, data in records]
    file.write_text("\n".join(lines) + end, encoding="utf-8")
    return file


def rows_of(run):
    return list(read_metrics(run))


def test_trl_has_our_names_where_they_mean_the_same_and_its_own_elsewhere(tmp_path):
    found = import_metrics(trainer_state(tmp_path), tmp_path / "run", tool="trl")
    theirs = {name: value for record in HISTORY for name, value in record.items()}
    assert rows_of(tmp_path / "run") == [
        {"reward/mean": 0.25, "grad/norm": 2.0, **{name: HISTORY[0][name] for name in HISTORY[0].keys() & OWN}},
        {"grad/norm": 1.5, **{name: theirs[name] for name in OWN - {"dual/delta"}}, "dual/lam_mean": None},
    ]
    assert found.num_steps == 2
    assert found.renamed == {"reward": "reward/mean", "grad_norm": "grad/norm"}
    assert "train_runtime" in found.kept


def test_its_log_history_may_be_lines(tmp_path):
    lines = tmp_path / "log.jsonl"
    write_rows(lines, HISTORY)
    import_metrics(lines, tmp_path / "a", tool="trl")
    import_metrics(trainer_state(tmp_path), tmp_path / "b", tool="trl")
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")


def test_verl_has_its_metrics_one_level_down(tmp_path):
    file = verl_log(
        tmp_path,
        (0, {"val-core/acc/mean@1": 0.1}),
        (1, {"critic/score/mean": 0.5, "actor/entropy": 2.5, "actor/approx_kl": 0.01, "actor/kl/new_old": 3.0}),
        (2, {"critic/score/mean": 0.75, "actor/pg_clipfrac": None, "note": "late"}),
        (3, {"critic/score/mean": 1.0}),
        end="",
    )
    file.write_text(file.read_text(encoding="utf-8")[:-4], encoding="utf-8")  # the last line is being written
    found = import_metrics(file, tmp_path / "run", tool="verl")
    assert "note" not in found.kept
    assert rows_of(tmp_path / "run") == [
        {"step": 0, "val-core/acc/mean@1": 0.1},
        {"step": 1, "reward/mean": 0.5, "entropy/token_mean": 2.5, "approx_kl": 0.01, "actor/kl/new_old": 3.0},
        {"step": 2, "reward/mean": 0.75, "clip_fraction": None},
    ]


def test_a_run_that_was_continued_forgets_what_it_did_again(tmp_path):
    steps = [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.4), (2, 0.25), (3, 0.35)]
    file = verl_log(tmp_path, *((step, {"actor/lr": value}) for step, value in steps))
    assert import_metrics(file, tmp_path / "run", tool="verl").num_dropped == 3
    assert [(row["step"], row["lr"]) for row in rows_of(tmp_path / "run")] == [(1, 0.1), (2, 0.25), (3, 0.35)]


def test_every_name_of_ours_is_one():
    documented = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = {ours for names in NAMES.values() for ours in names.values()}
    assert [name for name in named if f"`{name}`" not in documented] == []


@pytest.mark.parametrize(
    ("tool", "name", "text", "message"),
    [
        ("trl", "trainer_state.json", "{}", "trainer_state.json:1: no log_history"),
        ("trl", "trainer_state.json", '{"log_history": [{"loss": 1}]}', r"log_history\[0\]: step is None"),
        ("trl", "trainer_state.json", '{"log_history": []}', "holds no metrics of trl"),
        ("trl", "log.jsonl", '{"step": 1, "data": {"actor/lr": 1}}\n', "holds no metrics of trl.* --from is right"),
        ("verl", "log.jsonl", '{"step": 1, "loss": 1}\n', 'log.jsonl:1: no object "data"'),
        ("verl", "log.jsonl", '{"step": 1.5, "data": {"actor/lr": 1}}\n', "log.jsonl:1: step is 1.5"),
        ("verl", "log.jsonl", '{"step": 1, "data": {"actor/lr": 1}\n{"step"', "log.jsonl:1: not JSON"),
    ],
)
def test_a_file_of_another_kind_is_refused_and_nothing_is_made(tmp_path, tool, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        import_metrics(tmp_path / name, tmp_path / "run", tool=tool)
    assert not (tmp_path / "run").exists()


def test_a_folder_an_unknown_tool_and_a_place_that_is_taken_are_refused(tmp_path):
    file = trainer_state(tmp_path)
    with pytest.raises(DataError, match=r"is a folder; name the file, such as .*trainer_state\.json"):
        import_metrics(tmp_path, tmp_path / "run", tool="trl")
    with pytest.raises(UsageError, match="--from trlx: expected trl or verl"):
        import_metrics(file, tmp_path / "run", tool="trlx")
    import_metrics(file, tmp_path / "run", tool="trl")
    before = rows_of(tmp_path / "run")
    with pytest.raises(UsageError, match="is not empty"):
        import_metrics(file, tmp_path / "run", tool="trl")
    assert rows_of(tmp_path / "run") == before


# ---- what reads a run


@pytest.fixture
def imported(tmp_path):
    import_metrics(trainer_state(tmp_path), tmp_path / "runs" / "theirs", tool="trl")
    return tmp_path / "runs" / "theirs"


def test_its_curves_have_the_radius_that_its_metrics_say(imported):
    (curve,), _ = read_curves([imported])
    assert (curve.label, curve.runs, curve.delta) == ("theirs", (rows_of(imported),), 0.01)
    assert radius_of([{"dual/delta": 0.01}, {"dual/delta": 0.1}]) is None
    assert radius_of([{"step": 1}]) is None


def test_it_is_listed_shown_and_read_as_a_run_without_a_configuration(imported):
    (listed,) = list_runs(imported.parent)
    assert (listed.path, listed.status, listed.step) == (imported, "imported", 2)
    assert (listed.steps, listed.config) == (None, None)
    assert "trainer_state.json of trl" in describe_run(imported).reason
    assert quatro.read_metrics(imported)["reward/mean"].iloc[0] == 0.25
    assert quatro.load_run(imported).metrics["kl/new_old"] == 0.02


def test_a_report_has_it_among_its_runs(imported):
    report = gather_report([imported])
    (run,) = report.runs
    assert (run.status, run.step, run.delta, run.metrics) == ("imported", 2, 0.01, rows_of(imported))
    assert run.config == {f"imported.{key}": value for key, value in read_source(imported).items()}


def test_damage_to_what_says_where_it_is_from_is_told(imported):
    (imported / "imported.json").write_text('{"from": 3}', encoding="utf-8")
    with pytest.raises(
        DataError, match=r"imported\.json does not say from, file, sha256 and time; import the file again"
    ):
        describe_run(imported)
    assert list_runs(imported.parent)[0].status == "unreadable"


# ---- the commands


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_says_what_became_of_the_names_and_the_run_can_be_shown(tmp_path):
    out = tmp_path / "run"
    done = invoke("runs", "import", trainer_state(tmp_path), "--from", "trl", "-o", out)
    assert done.exit_code == 0
    assert done.stdout == f"{out}\n"
    assert "reward is reward/mean here" in done.stderr
    shown = invoke("runs", "show", out)
    assert shown.exit_code == 0
    assert "imported" in shown.stdout
    assert json.loads(invoke("runs", "show", out, "--json").stdout)["config"] is None
    assert "imported" in invoke("runs", "list", tmp_path).stdout


def test_names_that_would_write_to_a_terminal_are_escaped(tmp_path):
    file = verl_log(tmp_path, (1, {"\x1b[2Jname": "x", "\x1b[31mred": 1.0}))
    done = invoke("runs", "import", file, "--from", "verl", "-o", tmp_path / "run")
    assert done.exit_code == 0
    assert "\x1b" not in done.output
    assert "\x1b" not in invoke("runs", "show", tmp_path / "run").output


def test_it_can_be_plotted_and_reported_but_not_resumed_or_sampled(imported, tmp_path):
    assert invoke("plot", "training", imported).exit_code == 0
    assert (imported / "figures" / "training.png").stat().st_size > 0
    page = tmp_path / "report.html"
    assert invoke("report", imported, "-o", page).exit_code == 0
    assert '"imported"' in page.read_text(encoding="utf-8")
    for arguments in (("train", imported, "--resume"), ("sample", imported, "-b", "countdown")):
        assert invoke(*arguments).exit_code in (2, 3)
