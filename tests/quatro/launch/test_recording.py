"""A run tells the same of itself whether the command trained it or Python did."""

from __future__ import annotations

import faulthandler
import logging
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import quatro
from evals.errors import UsageError
from quatro.config import config_to_yaml
from quatro.launch.recording import dumped_on_signal
from quatro.processes.stop import StopRequest
from quatro.runs.directory import RunDir
from quatro.runs.views.summary import describe_run
from quatro.train import train
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
    assert any("iteration 2: eval/pass@1" in line for line in log)
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


def test_fine_tune_refuses_a_configuration_for_more_processes(tmp_path):
    with pytest.raises(UsageError) as refused:
        quatro.fine_tune("quickstart", tmp_path / "run", overrides={"processes": 2})
    says(refused, key="processes", value=2, advice="processes=1")
    assert not (tmp_path / "run").exists()


# --- a run that hangs says where: stacks in log.txt on SIGUSR1


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log.txt").open("a", encoding="utf-8") as file:
        yield file


def test_sigusr1_writes_the_stacks_and_keeps_the_process(log, caplog):
    before = signal.getsignal(signal.SIGUSR1)
    with caplog.at_level(logging.INFO, "quatro"), dumped_on_signal(log, Path(log.name)):
        signal.raise_signal(signal.SIGUSR1)
    assert "test_sigusr1_writes_the_stacks" in Path(log.name).read_text(encoding="utf-8")
    assert f"the stacks of all threads are in {log.name}" in caplog.text
    assert signal.getsignal(signal.SIGUSR1) == before


def test_the_handler_of_the_command_line_comes_back(log, tmp_path):
    with (tmp_path / "stderr").open("w+", encoding="utf-8") as stderr:
        faulthandler.register(signal.SIGUSR1, file=stderr)
        try:
            with dumped_on_signal(log, Path(log.name)):
                pass
            assert faulthandler.unregister(signal.SIGUSR1)
        finally:
            faulthandler.unregister(signal.SIGUSR1)


def test_log_txt_and_its_stacks_outlive_a_library_that_configures_logging(tiny_config, tmp_path):
    """`logging.config.dictConfig` closes every handler that there is; vLLM calls it when an engine is made."""

    def observe(metrics):
        if metrics["step"] == 1:
            for handler in logging.getLogger("quatro").handlers:
                handler.close()
        if metrics["step"] == 2:
            signal.raise_signal(signal.SIGUSR1)

    with RunDir.create(tmp_path / "run", tiny_config("steps=3", "rollout.max_new_tokens=3")) as run:
        train(run.config, run, observer=observe)
    text = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert "in observe" in text
    assert "the stacks of all threads are in" in text
    assert "3 iterations in" in text
