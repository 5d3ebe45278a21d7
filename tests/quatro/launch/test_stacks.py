"""A run that hangs says where: stacks in log.txt on SIGUSR1, and by itself when an iteration takes far too long."""

from __future__ import annotations

import faulthandler
import logging
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from quatro.launch.stacks import FEWEST, SLOW, Watchdog, dumped_on_signal

SHORT_S = 0.06  # SLOW times this is 1.2 s


@pytest.fixture
def log(tmp_path):
    with (tmp_path / "log.txt").open("a", encoding="utf-8") as file:
        yield file


@pytest.fixture
def watchdog(tiny_config, log):
    found = Watchdog(tiny_config(), log)
    yield found
    found.close()


def text_of(log) -> str:
    return Path(log.name).read_text(encoding="utf-8")


def iterations(watchdog, *seconds, first=1):
    for step, taken in enumerate(seconds, first):
        watchdog({"step": float(step), "perf/step_s": taken})


def hang_in_here(log: Path):
    """Until the stacks are in the log: soon after the limit, or later where other processes have the processor."""
    deadline_s = time.monotonic() + 60
    while "hang_in_here" not in log.read_text(encoding="utf-8") and time.monotonic() < deadline_s:
        time.sleep(0.02)


def test_a_hanging_iteration_leaves_its_stacks_and_a_warning(watchdog, log, caplog):
    iterations(watchdog, *[SHORT_S] * FEWEST)
    hang_in_here(Path(log.name))
    assert "hang_in_here" in text_of(log)
    with caplog.at_level(logging.WARNING, "quatro"):
        iterations(watchdog, SLOW * SHORT_S + 0.5, first=FEWEST + 1)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "iteration 6 took 1.7 s, more than 20 times the median"
    ]


def test_iterations_as_long_as_the_others_leave_nothing(watchdog, log, caplog):
    with caplog.at_level(logging.WARNING, "quatro"):
        iterations(watchdog, *[SHORT_S] * FEWEST, SLOW * SHORT_S * 0.99)
    assert not caplog.records
    assert text_of(log) == ""


def test_before_there_is_a_median_nothing_is_slow(watchdog, log, caplog):
    with caplog.at_level(logging.WARNING, "quatro"):
        iterations(watchdog, *[SHORT_S] * (FEWEST - 1), 100.0)
    assert not caplog.records


def test_iterations_with_an_evaluation_have_a_median_of_their_own(tiny_config, log, caplog):
    config = tiny_config("eval.every=3", "eval.benchmark=countdown")
    watchdog = Watchdog(config, log)
    with caplog.at_level(logging.WARNING, "quatro"):
        iterations(watchdog, *[SHORT_S, SHORT_S, 50.0] * 7)
    assert not caplog.records
    watchdog.close()


def test_a_closed_watchdog_is_silent(watchdog, log):
    iterations(watchdog, *[SHORT_S] * FEWEST)
    watchdog.close()
    time.sleep(SLOW * SHORT_S + 0.3)
    assert text_of(log) == ""


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


def test_a_hanging_run_says_where(tiny_config, tmp_path):
    """The sixth iteration of a run sleeps in its observer, as a tracker might."""
    from quatro.runs.directory import RunDir
    from quatro.train import train

    config = tiny_config("steps=7", "rollout.max_new_tokens=3")

    def observe(metrics):
        if metrics["step"] == 6:
            hang_in_here(tmp_path / "run" / "log.txt")

    with RunDir.create(tmp_path / "run", config) as run:
        train(config, run, observer=observe)
    assert "hang_in_here" in (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")


def test_log_txt_and_its_stacks_outlive_a_library_that_configures_logging(tiny_config, tmp_path):
    """`logging.config.dictConfig` closes every handler that there is; vLLM calls it when an engine is made."""
    from quatro.runs.directory import RunDir
    from quatro.train import train

    def observe(metrics):
        if metrics["step"] == 1:
            for handler in logging.getLogger("quatro").handlers:
                handler.close()
        if metrics["step"] == FEWEST + 1:
            signal.raise_signal(signal.SIGUSR1)

    with RunDir.create(tmp_path / "run", tiny_config(f"steps={FEWEST + 2}", "rollout.max_new_tokens=3")) as run:
        train(run.config, run, observer=observe)
    text = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert "in observe" in text
    assert "the stacks of all threads are in" in text
    assert f"{FEWEST + 2} iterations in" in text
