"""`quatro runs show`: sections that fit about a screen, evaluations with their errors, where the weights came from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from quatro.config import load_config
from quatro.runs.directory import RunDir
from quatro_cli.app import app
from tests.kit import quatro

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """A run of this name with these rows of metrics, which ended like this."""

    def make(name: str, *rows: dict[str, float], settings: tuple[str, ...] = (), **status: Any) -> Path:
        with RunDir.create(tmp_path / name, load_config("quickstart", overrides=settings)) as run:
            for row in rows:
                run.append_metrics(row)
            run.set_status(**{"status": "done", "step": len(rows), **status})
        return tmp_path / name

    return make


def shown(*words: object) -> str:
    done = quatro("runs", "show", *words)
    return done.stdout


def cells(text: str, label: str) -> list[str]:
    """The rest of the line that begins with ``label``."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"  {label} ")]
    return line.removeprefix(f"  {label}").split()


def test_a_run_is_shown_in_sections_and_the_lines_of_an_error_stay_lines(make_run: MakeRun) -> None:
    row = {f"log_ratio/{place}": 1.0 for place in range(60)} | {"reward/mean": 0.5, "reward/parts/bonus": 2.0}
    reason = "the reward failed:\n  my_reward.py:3 in f: return {}[1]\nKeyError: 1"
    run = make_run("run", {"step": 1, **row}, {"step": 2, **row, "reward/mean": 1.5}, status="failed", reason=reason)
    text = shown(run)
    lines = text.splitlines()
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == [str(run), "training", "last iteration, and the mean of the last 2"]
    assert len(lines) <= 40
    assert "\\n" not in text
    after = lines.index(next(line for line in lines if "failed: the reward failed:" in line))
    assert [line.strip() for line in lines[after + 1 : after + 3]] == [
        "my_reward.py:3 in f: return {}[1]",
        "KeyError: 1",
    ]
    assert cells(text, "method") == ["quatro(delta=0.01)"]
    assert cells(text, "reward/mean") == ["1.5", "1"]
    assert cells(text, "reward/parts/bonus") == ["2", "2"]
    assert "log_ratio/59" not in text
    assert "and 60 more metrics with --all" in text
    assert cells(shown(run, "--all"), "log_ratio/59") == ["1", "1"]


def test_evaluations_have_a_line_each_with_their_error_and_the_best_is_doubted(make_run: MakeRun) -> None:
    settings = ("eval.every=1", "eval.benchmark=countdown")
    counts = {"pass@1_se": 0.1, "pass@4": 0.75, "problems": 20.0, "n": 4.0}
    rows = [
        {"step": float(step), "eval/pass@1": value, **{f"eval/{name}": count for name, count in counts.items()}}
        for step, value in enumerate((0.5, 0.4, 0.25), start=1)
    ]
    rows[0] |= {f"base/{name}": value for name, value in {"pass@1": 0.2, **counts}.items()}
    run = make_run("run", *rows, {"step": 4.0, "reward/mean": 0.5}, settings=settings)
    text = shown(run)
    assert "evaluation on countdown: 20 problems x 4 samples, ± standard error\n" in text
    assert cells(text, "step") == ["pass@1", "pass@4"]
    assert cells(text, "0 (before)") == ["0.2", "±", "0.1", "0.75"]
    assert cells(text, "3") == ["0.25", "±", "0.1", "0.75"]
    assert " ".join(cells(text, "best eval/pass@1")) == "0.5 ± 0.1 in step 1; before training 0.2 ± 0.1"
    assert "1 of the 2 others is within 2 standard errors of it. The largest of several" in text
    assert [row["step"] for row in json.loads(shown(run, "--json"))["evaluations"]] == [0, 1, 2, 3]
    two = make_run("two", rows[0], rows[1], settings=settings)
    assert "The only other one is within 2 standard errors of it. The largest of several" in shown(two)
    many = make_run("many", *({**rows[2], "step": float(step)} for step in range(1, 31)), settings=settings)
    assert "\n  22 more with --all\n" in shown(many)
    assert cells(shown(many), "1") == cells(shown(many), "30") == cells(shown(many, "--all"), "9")


def test_a_run_that_began_with_the_weights_of_another_says_from_which_step(make_run: MakeRun) -> None:
    first = make_run("first")
    second = make_run("second", settings=(f"model={first}/checkpoints/step-000020/model",))
    models = [f"{run}/checkpoints/step-{step:06d}/model" for run, step in ((second, 7), (first, 20))]
    third = make_run("third", settings=(f"model={models[0]}", f"kl.reference={models[1]}"))
    said = f"step 7 of {second}, which began with step 20 of {first}, which began with embedded:countdown"
    assert " ".join(cells(shown(third), "model")) == said
    assert cells(shown(third), "KL reference")[:2] == ["step", "20"]
    assert json.loads(shown(third, "--json"))["began_with"] == {"run": str(second), "step": 7}
    assert json.loads(shown(first, "--json"))["began_with"] is None
    (second / "config.yaml").unlink()
    assert " ".join(cells(shown(third), "model")) == f"step 7 of {second}"


def test_the_metrics_of_a_run_are_read_once_to_show_it(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    from quatro.runs.views import summary

    reads: list[Path] = []
    read = summary.read_metrics
    monkeypatch.setattr(summary, "read_metrics", lambda run: reads.append(run) or read(run))
    run = make_run("run", {"step": 1.0, "eval/pass@1": 0.5}, settings=("eval.every=1", "eval.benchmark=countdown"))
    shown(run)
    assert reads == [run]


def test_a_list_by_best_value_shows_it_with_its_metric_and_step(make_run: MakeRun, tmp_path: Path) -> None:
    evaluated = ("eval.every=1", "eval.benchmark=countdown")
    make_run("a", {"step": 1.0, "eval/pass@1": 0.5}, {"step": 2.0, "eval/pass@1": 0.25}, settings=evaluated)
    make_run("b", {"step": 1.0, "reward/mean": 0.75}, settings=("checkpoint.keep.best=reward/mean",))
    make_run("c", {"step": 1.0, "reward/mean": 1.0})
    done = CliRunner().invoke(app, ["runs", "list", str(tmp_path), "--sort", "best"])
    rows = [line.removeprefix(f"{tmp_path}/").split() for line in done.stdout.splitlines()[1:]]
    assert [(row[0], *row[4:8]) for row in rows] == [
        ("b", "reward/mean", "0.75", "(step", "1)"),
        ("a", "eval/pass@1", "0.5", "(step", "1)"),
        ("c", "-", *rows[2][5:8]),
    ]
    done = CliRunner().invoke(app, ["runs", "list", str(tmp_path / "a"), str(tmp_path / "c"), "--sort", "best"])
    assert "best eval/pass@1" in done.stdout
    assert " 0.5 (step 1) " in done.stdout
