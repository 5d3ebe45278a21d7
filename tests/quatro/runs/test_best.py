"""What a run remembers of a watched metric: the best checkpoint that it keeps, and an early end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evals.errors import UsageError
from quatro.config import config_to_yaml, load_config
from quatro.launch.begin import _check_watched
from quatro.loop.draw import Evaluation
from quatro.loop.position import Position
from quatro.runs.checkpoint import bests, ends_early, is_best
from quatro_cli.app import app

EVALUATED = ["eval.every=1", "eval.benchmark=countdown"]


def watching(*settings: str) -> Any:
    return load_config("quickstart", overrides=[*EVALUATED, *settings])


def test_patience_counts_measurements_without_a_new_best():
    config = watching("early_stop.patience=2", "checkpoint.keep.best=reward/mean")
    carried: dict[str, float] = {"of the method": 1.0}
    values = {1: 0.1, 2: 0.3, 4: 0.3, 5: 0.2, 6: float("nan")}
    ends = {}
    for step in range(1, 7):
        found = {"step": float(step), "reward/mean": -float(step)}
        carried = bests(config, carried, found | ({"eval/pass@1": values[step]} if step in values else {}))
        ends[step] = ends_early(config, carried)
        assert is_best(config, carried, step) == (step == 1)
    assert "of the method" not in carried
    assert [step for step, why in ends.items() if why] == [5, 6]  # step 3 was not measured
    assert ends[5] == "early stop: eval/pass@1 was best in iteration 2 (0.3), and not better 2 times since"
    assert ends_early(watching(), carried) is None
    assert bests(watching(), {}, {"step": 1.0, "eval/pass@1": 0.5}) == {}


def test_an_improvement_is_larger_than_min_delta_and_the_best_is_the_largest():
    """Small steps that add up to more than it are an improvement too; a resume may change it."""
    config = watching("early_stop={patience: 2, min_delta: 0.1}", "checkpoint.keep.best=eval/pass@1")
    carried: dict[str, float] = {}
    ends = []
    for step, value in enumerate((0.3, 0.38, 0.45, 0.5, 0.55), 1):
        carried = bests(config, carried, {"step": float(step), "eval/pass@1": value})
        ends.append(ends_early(config, carried))
        assert is_best(config, carried, step)
    assert ends[:4] == [None] * 4
    assert str(ends[4]).endswith("best in iteration 5 (0.55), and 2 times in a row it was not more than 0.1 above 0.45")
    finer = watching("early_stop={patience: 2, min_delta: 0.01}")
    assert ends_early(finer, bests(finer, carried, {"step": 6.0, "eval/pass@1": 0.6})) is None


def test_what_is_remembered_has_one_order_whatever_names_hash_to():
    names = [f"eval/pass@{k}" for k in range(1, 9)]
    for best in names:
        config = watching(f"checkpoint.keep.best={best}", "early_stop.patience=1", "early_stop.metric=reward/mean")
        found = bests(config, {}, {"step": 1.0, "reward/mean": 0.1, best: 0.2})
        assert [key for key in found if key.startswith("best/")] == [f"best/{best}", "best/reward/mean"]


def test_keep_has_a_short_form_that_an_option_can_extend(tmp_path):
    path = tmp_path / "c.yaml"
    text = config_to_yaml(watching()).replace("every: 20\n  keep:\n    last: 3\n    best: null", "every: 20\n  keep: 7")
    path.write_text(text, encoding="utf-8")
    assert load_config(path).checkpoint.keep.last == 7
    extended = load_config(path, overrides=["checkpoint.keep.best=eval/pass@1"])
    assert (extended.checkpoint.keep.last, extended.checkpoint.keep.best) == (7, "eval/pass@1")
    for setting in ("checkpoint.keep.best=eval/pass@1", "early_stop.patience=1"):
        with pytest.raises(UsageError, match=r"nothing is evaluated: set eval.every"):
            load_config("quickstart", overrides=["eval.every=0", setting])


@pytest.fixture
def evaluated(tiny_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a training of a tiny model whose evaluation says .1, .5, .4, .3, .2 ... of iterations 1, 2, 3 ..."""
    settings = {
        "model": tiny_folder,
        "dtype": "float32",
        "steps": 8,
        "prompts_per_step": 2,
        "minibatch_prompts": 2,
        "rollouts_per_prompt": 2,
        "inner_updates": 1,
        "rollout.max_new_tokens": 4,
        "checkpoint.every": 2,
        "checkpoint.keep": "{last: 1, best: eval/pass@1}",
        "early_stop.patience": 3,
        "eval.n": 1,
    }

    def measured(self: Evaluation, position: Position) -> dict[str, float]:
        found = {"eval/pass@1": 0.7 - 0.1 * (position.step + 1) if position.step else 0.1, "eval/n": 1.0}
        return found if position.step else {**found, "base/pass@1": 0.6, "base/n": 1.0}

    monkeypatch.setattr(Evaluation, "metrics", measured)
    monkeypatch.setattr(Evaluation, "of_base", lambda *_: None)
    overrides = [word for key, value in settings.items() for word in ("-s", f"{key}={value}")]
    return ["train", "quickstart", *overrides, *(word for one in EVALUATED for word in ("-s", one))]


def test_the_best_checkpoint_stays_and_the_run_ends_early(evaluated, tmp_path):
    run = tmp_path / "run"
    done = CliRunner().invoke(app, [*evaluated, "-o", str(run)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 5  # best in 2; 3, 4 and 5 were not better
    assert sorted(path.name for path in (run / "checkpoints").glob("step-*")) == ["step-000002", "step-000005"]
    status = json.loads((run / "status.json").read_text(encoding="utf-8"))
    assert (status["status"], status["step"]) == ("done", 5)
    assert "early stop: eval/pass@1 was best in iteration 2" in status["reason"]
    assert "early stop" in done.stderr
    assert "eval pass@1 0.5 in step 2   best 0.5 in step 2   base 0.6" in done.stderr
    log = (run / "log.txt").read_text(encoding="utf-8")
    for said in (done.stderr, log):
        assert "done       5 of 8 iterations in 0:0" in said
        assert "best       eval/pass@1 0.5 in step 2; before training 0.6\n" in said
        assert "no checkpoint of step" not in said
        assert f"quatro sample {run} --step best -b countdown\n" in said
    shown = CliRunner().invoke(app, ["runs", "show", str(run)]).stdout
    assert "best eval/pass@1" in shown
    assert "0.5 in step 2" in shown

    def quatro(*words: str) -> tuple[str, str]:
        result = CliRunner().invoke(app, [words[0], str(run), *words[1:]])
        return result.stdout, result.stderr

    quatro("sample", "-b", "countdown", "--step", "best", "-n", "1")
    drawn = json.loads((run / "samples/T1-p1-step000002/sampling.json").read_text(encoding="utf-8"))
    assert drawn["checkpoint"] == "step-000002"
    assert "step 2, weights" in quatro("export", "--step", "best", "-o", str(tmp_path / "out"))[1]

    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert "1 with nothing to spare" in CliRunner().invoke(app, ["runs", "prune", str(run), "--yes"]).stderr
    again = CliRunner().invoke(app, ["train", str(run), "--resume"])
    assert again.exit_code == 0
    assert "not better 3 times since; -s early_stop.patience=0 goes on to iteration" in again.stderr
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

    further = ["-s", "early_stop.patience=4", "-s", "early_stop.min_delta=0.01"]
    assert CliRunner().invoke(app, ["train", str(run), "--resume", *further]).exit_code == 0
    assert len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 6


def test_the_metrics_of_each_of_several_benchmarks_may_be_watched():
    evaluated = ["eval={every: 1, benchmark: [countdown, own/aime24.jsonl], n: [4, 2]}", "early_stop.patience=1"]

    def check(metric: str) -> None:
        _check_watched(load_config("quickstart", overrides=[*evaluated, f"early_stop.metric={metric}"]))

    for metric in ("eval/pass@1", "eval/countdown/pass@4", "eval/aime24/pass@2", "eval/aime24/distinct_correct"):
        check(metric)
    for metric in ("eval/countdown/pass@2", "eval/pass@4", "eval/distinct_correct", "aime24/pass@1"):
        with pytest.raises(UsageError, match=r"with eval.n \[4, 2\] .* eval/pass@1, eval/countdown/pass@1, "):
            check(metric)


@pytest.mark.parametrize("setting", ["checkpoint.keep.best=pass@1", "early_stop={metric: eval/pass@16, patience: 2}"])
def test_a_metric_that_no_evaluation_measures_is_refused(evaluated, tmp_path, setting):
    refused = CliRunner().invoke(app, [*evaluated, "-s", setting, "-o", str(tmp_path / "run")])
    assert refused.exit_code == 2
    assert "with eval.n 1 evaluations measure eval/pass@1, eval/distinct_correct" in refused.stderr
    assert not (tmp_path / "run").exists()
