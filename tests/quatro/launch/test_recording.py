"""A run tells the same of itself whether the command trained it or Python did."""

from __future__ import annotations

import itertools
import logging
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import quatro
from evals.errors import UsageError
from quatro.config import config_to_yaml, load_config
from quatro.launch.recording import Recorder
from quatro.processes.stop import StopRequest
from quatro.runs.directory import FollowedRun, RunDir
from quatro.runs.views.summary import describe_run
from quatro.train import train
from quatro.types import Stage
from tests.kit import quatro as quatro_command
from tests.kit import read_json, says


def told(run: Path) -> tuple[dict[str, Any], list[str]]:
    """The run's status and log.txt, without the times."""
    status = read_json(run / "status.json")
    log = (run / "log.txt").read_text(encoding="utf-8")
    return {key: status[key] for key in ("status", "reason", "step", "steps")}, re.findall(
        "^[-0-9]+ .{12} (.*)$", re.sub(r"[0-9]+:[0-9]+$", "", log, flags=re.M).replace(str(run), "RUN"), 8
    )


@pytest.mark.slow
def test_a_run_trained_in_python_tells_what_the_command_tells(tiny_config, tmp_path, capsys, monkeypatch):
    # As in a program that has not set up logging; pytest and the commands of other tests have.
    for key, value in {"handlers": [], "propagate": False, "level": logging.NOTSET}.items():
        monkeypatch.setattr(logging.getLogger("quatro"), key, value)
    config = tiny_config("steps=2", "eval.every=1", "eval.benchmark=countdown", "eval.n=1")
    config = config.with_sizes(config.sizes)
    (tmp_path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    quatro.fine_tune(config, tmp_path / "api")
    assert "no prompt had responses with different rewards" in capsys.readouterr().err
    with RunDir.create(tmp_path / "train", config) as run:
        train(config, run)
    quatro_command("train", tmp_path / "config.yaml", "-o", tmp_path / "cli")
    status, log = told(tmp_path / "cli")
    assert status == {"status": "done", "reason": None, "step": 2, "steps": 2}
    assert log[-1].endswith("quatro runs show RUN")
    assert told(tmp_path / "api") == told(tmp_path / "train") == (status, log)

    for name in ("cli", "api"):
        shutil.rmtree(tmp_path / name / "checkpoints/step-000002")
    quatro_command("train", tmp_path / "cli", "--resume")
    quatro.fine_tune(config, tmp_path / "api", resume=True)
    assert told(tmp_path / "api") == told(tmp_path / "cli")
    assert any("going on from step-000001" in line for line in told(tmp_path / "api")[1])


def test_a_training_in_python_that_does_not_come_to_its_end_says_why(tiny_config, tmp_path):
    def fail(metrics: Any) -> None:
        raise RuntimeError("no room")

    config, path = tiny_config("steps=2"), tmp_path / "run"
    with RunDir.create(path, config) as run, pytest.raises(RuntimeError):
        train(config, run, observer=fail)
    assert (describe_run(path).status, describe_run(path).reason) == ("failed", "RuntimeError: no room")
    assert "RuntimeError: no room" in (path / "log.txt").read_text(encoding="utf-8")
    stop = StopRequest()
    with RunDir.create(tmp_path / "other", config) as run:
        train(config, run, observer=lambda metrics: stop.request(), stop=stop)
    found = describe_run(tmp_path / "other")
    assert (found.status, found.reason, found.step) == ("interrupted", "SIGINT", 1)


def test_the_loop_tells_an_observer_its_phases_and_counts(tiny_config, tmp_path):
    class Watcher:
        def __init__(self) -> None:
            self.stages, self.steps = list[Stage](), list[float]()

        def doing(self, stage: Stage) -> None:
            self.stages.append(stage)

        def __call__(self, metrics: Any) -> None:
            self.steps.append(metrics["step"])

    settings = ("steps=1", "eval.every=1", "eval.at_start=true", "eval.benchmark=countdown", "eval.n=1", "kl.beta=0.1")
    watcher, config = Watcher(), tiny_config(*settings)
    with RunDir.create(tmp_path / "run", config) as run:
        train(config, run, observer=watcher)
    phases = [key for key, _ in itertools.groupby((one.phase, one.within) for one in watcher.stages)]
    evaluation = [("eval", ""), ("generate", "eval"), ("reward", "eval")]
    loop = ["prompts", "generate", "reward", "dual", "old_logp", "ref_logp", "update", "audit", "sync"]
    last = ["log", "other", "checkpoint", "other"]
    assert phases == [
        ("load", ""),
        *evaluation,
        *((one, "") for one in loop),
        *evaluation,
        *((one, "") for one in last),
    ]
    assert watcher.steps == [1.0]

    def counted(phase: str, name: str, within: str = "") -> list[tuple[int, int]]:
        found = [one.counts[name] for one in watcher.stages if one[:2] == (phase, within) and name in one.counts]
        return [key for key, _ in itertools.groupby(found)]

    drawn = counted("generate", "responses")
    assert (drawn[0], drawn[-1], drawn) == ((0, 16), (16, 16), sorted(drawn))
    assert counted("generate", "responses", "eval")[-1] == (200, 200)
    assert counted("update", "passes") == [(1, 2), (2, 2)]
    assert counted("update", "minibatches") == [(1, 2), (2, 2), (1, 2), (2, 2)]
    assert counted("update", "rows") == [(0, 8), (8, 8)] * 4
    assert counted("audit", "rows")[-1] == counted("ref_logp", "rows")[-1] == (16, 16)


def test_fine_tune_refuses_a_configuration_for_more_processes(tmp_path):
    with pytest.raises(UsageError) as refused:
        quatro.fine_tune("quickstart", tmp_path / "run", overrides={"processes": 2})
    says(refused, key="processes", value=2, advice="processes=1")
    assert not (tmp_path / "run").exists()


def test_log_txt_outlives_a_library_that_configures_logging(tiny_config, tmp_path):
    """`logging.config.dictConfig` closes every handler that there is; vLLM calls it when an engine is made."""

    def observe(metrics):
        if metrics["step"] == 1:
            for handler in logging.getLogger("quatro").handlers:
                handler.close()

    with RunDir.create(tmp_path / "run", tiny_config("steps=3", "rollout.max_new_tokens=3")) as run:
        train(run.config, run, observer=observe)
    text = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert "3 iterations in" in text


def test_observers_are_called_in_turn(tmp_path):
    calls: list[str] = []
    run = FollowedRun(tmp_path, load_config("quickstart"))
    recorder = Recorder(run, lambda row: calls.append("a"), None, lambda row: calls.append("b"))
    position: Any = SimpleNamespace(step=0)
    parts: Any = SimpleNamespace(stopwatch=SimpleNamespace())
    recorder.begins(position, parts)
    recorder.finished({"step": 1.0})
    assert calls == ["a", "b"]
