import json
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from evals.errors import UsageError
from quatro.config import load_config, shipped_configs
from quatro.runs.directory import RunDir
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
    path.write_text("model: some/model\nmethod: {name: quatro}\nreward: prose\n", encoding="utf-8")
    axis = ["-g", "seed=0,1"] if command[0] == "sweep" else []
    result = CliRunner().invoke(main_app, [*command, str(path), *axis])
    assert result.exit_code == 2
    assert f"{path}:3: reward: found prose, expected math, countdown, countdown-distance, code," in result.stderr


PAPER, VERL, OURS = "stated by the paper", "verl's default", "our reading"


@pytest.mark.parametrize(
    ("arguments", "whose"),
    [
        (["quickstart", "-m", "grpo"], {"clip_low": VERL, "clip_high": VERL, "dual_clip": VERL, "aggregate": VERL}),
        (["quickstart", "-m", "gspo"], {"clip_low": PAPER, "clip_high": PAPER, "aggregate": OURS}),
        (["quickstart", "-m", "gmpo"], {"clip_low": VERL, "clip_high": VERL}),
        (["quickstart", "-m", "gpg"], {"aggregate": VERL}),
        (["quickstart", "-m", "cispo"], {"clip_low": VERL, "clip_high": VERL, "aggregate": VERL}),
        (
            ["quickstart", "-m", "dapo"],
            {"clip_low": VERL, "clip_high": OURS, "dual_clip": VERL, "aggregate": VERL, "dynamic_sampling": OURS},
        ),
    ],
)
def test_a_preset_says_whose_its_values_are(arguments: list[str], whose: dict[str, str]) -> None:
    origins = json.loads(run_command(config_command.app, "show", *arguments, "--json")[0])["origins"]
    assert {key: origins[f"method.{key}"] for key in whose} == {key: f"preset paper, {of}" for key, of in whose.items()}
    assert origins["kl.beta"] == f"preset paper, {PAPER}"
    assert origins["method.preset"] == "default"


@pytest.mark.parametrize("name", ["math-1.5b", "math-1.5b-2gpu", "math-7b", "math-7b-4gpu"])
def test_a_maths_config_says_which_values_are_the_papers_verls_and_ours(name: str) -> None:
    document = json.loads(run_command(config_command.app, "show", name, "--json")[0])
    whose = {
        PAPER: ["prompts_per_step", "rollouts_per_prompt", "minibatch_prompts", "inner_updates", "optimizer.lr"]
        + ["optimizer.weight_decay", "rollout.max_new_tokens", "rollout.temperature", "kl.beta", "kl.estimator"],
        VERL: [
            "optimizer.betas",
            "optimizer.max_grad_norm",
            "optimizer.warmup_steps",
            "optimizer.schedule",
            "data.max_prompt_tokens",
        ]
        + ["kl.aggregate"],
        "our choice": ["steps"],
    }
    for owner, keys in whose.items():
        assert [key for key in keys if not document["origins"][key].endswith(owner)] == [], owner
    assert document["config"]["data"]["max_prompt_tokens"] == 512
    text = shipped_configs()[name].read_text(encoding="utf-8")
    assert re.search(r"^steps: 100 +# ours: verl's default, total_epochs 30, .* about 870$", text, re.MULTILINE)
    shown = run_command(config_command.app, "show", name, "-s", "optimizer.max_grad_norm=2")[0]
    assert re.search(r"max_grad_norm: 2.0 +# -s optimizer.max_grad_norm=2$", shown, re.MULTILINE)


def test_the_schema_calls_no_default_the_papers_that_is_not() -> None:
    shown = run_command(config_command.app, "schema")[0].splitlines()
    heads = {line.partition(":")[0]: line for line in shown if not line.startswith((" ", "#"))}
    assert heads["optimizer.lr"].endswith(f"= 1.0e-06, {PAPER}")
    assert heads["optimizer.betas"].endswith(f"= [0.9, 0.999], {VERL}")
    for key in ("steps", "data.max_prompt_tokens", "method.delta", "checkpoint.every"):
        assert PAPER not in heads[key], key
        assert VERL not in heads[key], key


def test_dapo_as_verl_runs_it_is_grpo() -> None:
    def settings(method: str, preset: str) -> dict:
        arguments = ["show", "quickstart", "-m", method, "-s", f"method.preset={preset}", "--json"]
        return json.loads(run_command(config_command.app, *arguments)[0])["config"]

    dapo, grpo = settings("dapo", "verl-default"), settings("grpo", "paper")
    assert dapo["method"].pop("dynamic_sampling") is False
    assert dapo["method"].pop("overlong_buffer") == 0
    assert grpo["method"].pop("leave_one_out") is False
    grpo["method"] |= {"name": "dapo", "preset": "verl-default"}
    idle = ("max_sampling_rounds", "overlong_factor")
    assert {key: value for key, value in dapo["method"].items() if key not in idle} == grpo["method"]
    assert {**dapo, "method": None} == {**grpo, "method": None}


def test_differences_are_a_table() -> None:
    shown, _ = run_command(config_command.app, "diff", "math-1.5b", "math-7b")
    assert [line.split() for line in shown.splitlines()] == [
        ["key", "math-1.5b", "math-7b"],
        ["model", "Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-7B"],
        ["rollout.max_new_tokens", "1024", "3072"],
        ["rollout.gpu_memory_utilization", "0.5", "0.4"],
        ["policy.kind", "local", "deepspeed"],
        ["policy.zero_stage", "1", "2"],
        ["policy.offload_optimizer", "false", "true"],
        ["policy.gradient_checkpointing", "false", "true"],
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
    assert cells[:5] == [str(run), "interrupted", "3/100", "quatro", "0.25"]
    listed = json.loads(run_command(runs_command.app, "list", run.parent, "--json")[0])["runs"]
    one = json.loads(run_command(runs_command.app, "show", run, "--json")[0])
    assert one.pop("reward_failures") == {"count": 0, "of": 256}  # for which all metrics are read
    assert one.pop("evaluations") == []
    assert one.pop("began_with") is None
    assert listed == [one]
    assert (one["status"], one["reason"], one["step"]) == ("interrupted", "SIGINT", 3)
    assert one["metrics"]["kl/new_old"] is None
    shown, _ = run_command(runs_command.app, "show", run)
    assert "interrupted: SIGINT" in shown
    assert "3 of 100" in shown


def test_the_best_value_of_a_run_is_that_of_the_metric_by_which_a_checkpoint_is_kept(tmp_path: Path) -> None:
    config = load_config("quickstart", overrides=["checkpoint.keep={best: reward/mean}"])
    with RunDir.create(tmp_path / "run", config) as opened:
        for step, value in enumerate((-0.5, None, -0.25, -0.25), 1):
            opened.append_metrics({"step": step, "reward/mean": value})
    shown, _ = run_command(runs_command.app, "show", opened.path)
    assert re.search(r"^  best reward/mean +-0.25 in step 3$", shown, re.MULTILINE)
    document = json.loads(run_command(runs_command.app, "show", opened.path, "--json")[0])
    assert document["best"] == {"metric": "reward/mean", "value": -0.25, "step": 3}


def test_an_unreadable_run_is_listed_with_a_warning(run: Path) -> None:
    (run / "status.json").write_text("[", encoding="utf-8")
    shown, said = run_command(main_app, "runs", "list", run.parent)
    assert "unreadable" in shown
    assert "status.json:1: not JSON" in "".join(said.split("\n"))


def test_no_runs_is_said_and_no_directory_is_refused(tmp_path: Path) -> None:
    shown, said = run_command(runs_command.app, "list", tmp_path)
    assert shown == ""
    assert "no runs below" in said
    with pytest.raises(UsageError, match="no such directory"):
        run_command(runs_command.app, "list", tmp_path / "missing")
