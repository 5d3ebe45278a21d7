import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from evals.errors import UsageError
from quatro.config import load_config, shipped_configs
from quatro.rundir import RunDir
from quatro_cli.app import app as main_app
from quatro_cli.commands import config as config_command
from quatro_cli.commands import runs as runs_command


def run_command(app: typer.Typer, *arguments: object) -> tuple[str, str]:
    """What a command writes to stdout and stderr; errors come through as they are."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with RunDir.create(tmp_path / "runs" / "first", load_config("quickstart")) as opened:
        opened.append_metrics({"step": 3, "reward/mean": 0.25, "kl/new_old": None})
        opened.set_status("interrupted", step=3, reason="SIGINT")
    return opened.path


@pytest.mark.parametrize("name", shipped_configs())
def test_what_is_shown_is_a_config_again(tmp_path: Path, name: str) -> None:
    shown, _ = run_command(config_command.app, "show", name, "-s", "optimizer.lr=1e-5", "-m", "gspo")
    path = tmp_path / "mine.yaml"
    path.write_text(shown, encoding="utf-8")
    assert load_config(path) == load_config(name, overrides=["optimizer.lr=1e-5"], method="gspo")


def test_each_line_says_what_set_it() -> None:
    shown, _ = run_command(
        config_command.app, "show", "quickstart", "-m", "gspo", "-s", "method.preset=official", "-s", "seed=3"
    )
    lines = {line.split(":")[0]: line for line in shown.splitlines()}
    assert lines["seed"].endswith("# -s seed=3")
    assert lines["model"].endswith("# quickstart.yaml:4")
    assert lines["  name"] != lines["  beta"]
    assert lines["  beta"].endswith("# preset official")
    assert lines["  clip_low"].endswith("# preset official")
    assert "#" not in lines["device"]

    document = json.loads(run_command(config_command.app, "show", "quickstart", "--json")[0])
    assert document["config"]["method"]["delta"] == 0.01
    assert document["origins"]["method.delta"] == "quickstart.yaml:12"


def test_an_option_cannot_break_out_of_its_comment(tmp_path: Path) -> None:
    override = "eval.benchmark=one\n\n  two"
    shown, _ = run_command(config_command.app, "show", "quickstart", "-s", override)
    path = tmp_path / "mine.yaml"
    path.write_text(shown, encoding="utf-8")
    assert load_config(path) == load_config("quickstart", overrides=[override])


@pytest.mark.parametrize("command", [("config", "show"), ("train", "--dry-run"), ("sweep", "--dry-run")])
def test_a_reward_that_does_not_exist_is_refused_where_it_is_read(tmp_path: Path, command: tuple[str, str]) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("model: some/model\nmethod: {name: quatro}\nreward: code\n", encoding="utf-8")
    axis = ["-g", "seed=0,1"] if command[0] == "sweep" else []
    result = CliRunner().invoke(main_app, [*command, str(path), *axis])
    assert result.exit_code == 2
    assert f"{path}:3: reward: found code, expected math, countdown or module:function" in result.stderr
    assert "code" not in CliRunner().invoke(main_app, ["config", "schema"]).stdout.partition("\nreward:")[2][:200]


def test_differences_are_a_table() -> None:
    shown, _ = run_command(config_command.app, "diff", "math-1.5b", "math-7b")
    assert [line.split() for line in shown.splitlines()] == [
        ["key", "math-1.5b", "math-7b"],
        ["model", "Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-7B"],
        ["rollout.max_new_tokens", "1024", "3072"],
    ]
    document = json.loads(run_command(config_command.app, "diff", "math-1.5b", "math-7b", "--json")[0])
    assert document["differences"][1] == {
        "key": "rollout.max_new_tokens",
        "a": "1024",
        "b": "3072",
    }
    shown, said = run_command(config_command.app, "diff", "quickstart", "quickstart")
    assert shown == ""
    assert "agree on every key" in said


def test_the_schema_is_printed_for_people_and_editors() -> None:
    shown, _ = run_command(config_command.app, "schema")
    assert "optimizer.lr: float > 0 = 1.0e-06" in shown
    assert "optimizer" in json.loads(run_command(config_command.app, "schema", "--json")[0])["properties"]


def test_runs_are_listed_and_shown(run: Path) -> None:
    shown, _ = run_command(runs_command.app, "list", run.parent)
    cells = shown.splitlines()[1].split()
    assert cells[:6] == [str(run), "interrupted", "3/100", "quatro", "0", "0.25"]
    listed = json.loads(run_command(runs_command.app, "list", run.parent, "--json")[0])["runs"]
    one = json.loads(run_command(runs_command.app, "show", run, "--json")[0])
    assert listed == [one]
    assert (one["status"], one["reason"], one["step"]) == ("interrupted", "SIGINT", 3)
    assert one["metrics"]["kl/new_old"] is None
    shown, _ = run_command(runs_command.app, "show", run)
    assert "interrupted (SIGINT)" in shown
    assert "3 of 100" in shown


def test_an_unreadable_run_is_listed_with_a_warning(run: Path) -> None:
    (run / "status.json").write_text("[", encoding="utf-8")
    shown, said = run_command(runs_command.app, "list", run.parent)
    assert "unreadable" in shown
    assert "status.json: not JSON" in said


def test_no_runs_is_said_and_no_directory_is_refused(tmp_path: Path) -> None:
    shown, said = run_command(runs_command.app, "list", tmp_path)
    assert shown == ""
    assert "no runs below" in said
    with pytest.raises(UsageError, match="no such directory"):
        run_command(runs_command.app, "list", tmp_path / "missing")
