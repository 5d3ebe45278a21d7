"""A run that hangs says where: stacks in log.txt on SIGUSR1."""

from __future__ import annotations

import faulthandler
import logging
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")

from quatro.launch.recording import dumped_on_signal
from quatro.runs.directory import RunDir
from quatro.train import train


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log.txt").open("a", encoding="utf-8") as file:
        yield file


def text_of(log) -> str:
    return Path(log.name).read_text(encoding="utf-8")


def test_sigusr1_writes_the_stacks_and_keeps_the_process(log, caplog):
    before = signal.getsignal(signal.SIGUSR1)
    with caplog.at_level(logging.INFO, "quatro"), dumped_on_signal(log, Path(log.name)):
        signal.raise_signal(signal.SIGUSR1)
    assert "test_sigusr1_writes_the_stacks" in text_of(log)
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
