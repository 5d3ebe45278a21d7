"""What a terminal shows of the first iteration of `quatro train`; the engine delivers when it is told."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import settings

LIMIT_S = 120.0  # for what a slow machine may take
# An engine that has delivered as many responses as `delivered` says, and waits for `allowed` to be more; and a method
# whose loss waits for the file `learn`.
SLOW = """
import time
from pathlib import Path
from examples.own_method import Lenient
from quatro.rollout.engine import Engine, EngineKind
from quatro.types import Rollout

total = 0

def wait(is_there):
    while not is_there():
        time.sleep(0.01)

class Slow(EngineKind):
    @staticmethod
    def open(recipe, tokenizer, policy=None):
        return SlowEngine()

class SlowEngine(Engine):
    def sync(self, named_weights):
        return {}

    def generate(self, prompts, seeds, sampling, *, progress=None):
        global total
        groups, number = [], 0
        for own in seeds:
            groups.append([])
            for seed in own:
                total += 1
                wait(lambda: int("0" + Path("allowed").read_text()) >= total)
                groups[-1].append(Rollout((5 + seed % 3, 6), "5 6", "stop"))
                number += 1
                progress(number, 2 * number)
        return groups

class Waiting(Lenient):
    def loss(self, logp_BT, batch):
        wait(Path("learn").exists)
        return super().loss(logp_BT, batch)
"""
ON_TERMINAL = """
import os, sys
os.dup2(os.open(sys.argv.pop(1), os.O_RDWR | os.O_NOCTTY), 2)
sys.stderr = open(2, "w", closefd=False)
from quatro_cli.app import main
main()
"""
FRAMES = """
import sys
from quatro.runs.views.live import Panel
from quatro_cli.output import output
output.info("said before")
rows = [("now", "drawing 7/16 responses " + "word " * 12), ("reward", "0.5")]
with output.live(lambda: Panel("the run", 1, 2, rows)):
    sys.stdin.readline()
"""


class Terminal:
    """What a terminal of ``width`` columns shows of what is written to ``path``."""

    def __init__(self, width: int) -> None:
        self.controller, self._terminal = pty.openpty()
        self.path = os.ttyname(self._terminal)
        os.set_blocking(self.controller, False)
        self.rows, self.at = [""], (0, 0)
        self._left, self._bytes = "", b""
        self.width = width
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 60, width, 0, 0))

    def type_control_c(self) -> None:
        """The terminal shows it where the cursor is; no process gets it."""
        self.read()
        self._left += "^C"
        self.read()

    def read(self) -> str:
        """The text of the screen, once what has been written by now is on it."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self._bytes += os.read(self.controller, 1 << 20)
        try:
            self._left += self._bytes.decode("utf-8")
        except UnicodeDecodeError:  # in the middle of a character
            return "\n".join(self.rows)
        self._bytes = b""
        pattern = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|([^\x1b])")
        end = 0
        for found in pattern.finditer(self._left):
            end = found.end()
            row, column = self.at
            arguments, command, character = found.groups()
            if character == "\r" or character == "\n":
                self.at = (row, 0) if character == "\r" else (row + 1, column)
            elif character is not None:
                if column == self.width:
                    row, column = row + 1, 0
                self.rows += [""] * (row + 1 - len(self.rows))
                text = self.rows[row].ljust(column)
                self.rows[row] = text[:column] + character + text[column + 1 :]
                self.at = (row, column + 1)
            elif command == "A":
                self.at = (max(0, row - int(arguments or 1)), column)
            elif command == "K":
                self.rows[row : row + 1] = [""]
            self.rows += [""] * (self.at[0] + 1 - len(self.rows))
        self._left = self._left[end:]
        return "\n".join(row.rstrip() for row in self.rows)

    def wait_for(self, is_there: Callable[[str], object]) -> str:
        deadline = time.monotonic() + LIMIT_S
        while not is_there(shown := self.read()):
            assert time.monotonic() < deadline, shown
            time.sleep(0.05)
        return shown


@pytest.fixture
def terminal():
    made = Terminal(100)
    yield made
    os.close(made.controller)
    os.close(made._terminal)


@pytest.fixture
def slow_run(model, tmp_path):
    """The words of a run whose engine has 16 responses to deliver in an iteration and 200 in an evaluation."""
    (tmp_path / "slow_engine.py").write_text(SLOW, encoding="utf-8")
    (tmp_path / "on_terminal.py").write_text(ON_TERMINAL, encoding="utf-8")
    allow(tmp_path, 0)
    small = ["prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=2", "steps=2"]
    slow = ["rollout.engine=slow_engine:Slow", "method.name=slow_engine:Waiting", "checkpoint.every=1"]
    return ["train", "quickstart", *settings(f"model={model}", *small, *slow), "-o", "run"]


def allow(folder: Path, number: int) -> None:
    (folder / "new").write_text(str(number), encoding="utf-8")
    (folder / "new").replace(folder / "allowed")


def now(shown: str) -> str:
    """What the panel says of this moment, its clock masked."""
    panel = shown[shown.rindex("╭") :]
    assert panel.count("╰") <= 1
    found = re.search(r"now +(.*?) *│", panel)
    return re.sub(r"[\d:]+$", "CLOCK", found[1]) if found else ""


def test_the_first_iteration_shows_what_its_engine_has_delivered_and_a_clock(slow_run, fork, terminal, tmp_path):
    evaluated = settings("eval.every=2", "eval.benchmark=countdown", "eval.n=1", "eval.at_start=true")
    child = fork(
        [tmp_path / "on_terminal.py", terminal.path, *slow_run, *evaluated],
        cwd=tmp_path,
        env={"TERM": "xterm-256color", "COLUMNS": "", "LINES": ""},
    )
    try:
        terminal.wait_for(lambda shown: "preparing" in shown)
        terminal.wait_for(lambda shown: "now   evaluation 0/200 responses " in shown)
        allow(tmp_path, 40)
        shown = terminal.wait_for(lambda shown: "evaluation 40/200" in shown)
        assert now(shown) == "evaluation 40/200 responses, 80 tokens   CLOCK"
        allow(tmp_path, 205)
        shown = terminal.wait_for(lambda shown: "drawing 5/16" in shown)
        assert now(shown) == "drawing 5/16 responses, 10 tokens   CLOCK"
        # The engine stalls: the clock goes on, and all else stands still.
        later = terminal.wait_for(lambda text: "╰" in text[text.rindex("╭") :] and clock_of(text) > clock_of(shown) + 1)
        assert now(later) == now(shown)
        allow(tmp_path, 216)
        shown = terminal.wait_for(lambda shown: "learning pass 1 of 2, minibatch 1 of 2" in shown)
        assert "step  0/2 " in shown
        (tmp_path / "learn").touch()
        terminal.wait_for(lambda shown: re.search("step +1/2 ", shown) and "drawing 0/16" in shown)
        allow(tmp_path, 1000)
        assert child.wait(LIMIT_S) == 0, child.communicate()
    finally:
        child.kill()
    shown = terminal.wait_for(lambda shown: "done       2 iterations" in shown)
    assert (shown.count("╭"), shown.count("╰")) == (1, 1)
    assert re.search("step +2/2 ", shown)
    assert now(shown) == ""
    assert shown.index("╰") < shown.index("done       2 iterations")


def clock_of(shown: str) -> int:
    """Seconds since the command began."""
    minutes, seconds = re.findall(r"elapsed (\d+):(\d\d)", shown)[-1]
    return 60 * int(minutes) + int(seconds)


def test_a_pipe_says_drawing_and_learning_before_the_first_result(slow_run, fork, tmp_path):
    child = fork(["quatro", *slow_run], cwd=tmp_path)
    said = ""

    def wait_for(text: str) -> None:
        nonlocal said
        deadline = time.monotonic() + LIMIT_S
        while text not in said:
            assert time.monotonic() < deadline, said
            assert child.poll() is None, said
            said += child.stderr.read()
            time.sleep(0.05)

    try:
        wait_for("step 1/2: loading the model\n")
        wait_for("step 1/2: drawing\n")
        allow(tmp_path, 1000)
        wait_for("step 1/2: learning\n")
        assert not re.search("^step .*reward", said, re.MULTILINE)
        assert len(re.findall("^(?:best|worst) response of the first batch, reward ", said, re.MULTILINE)) == 2
        (tmp_path / "learn").touch()
        assert child.wait(LIMIT_S) == 0
    finally:
        child.kill()
    said += child.stderr.read()
    assert len(re.findall("^step ", said, re.MULTILINE)) <= 5  # three phases and two results
    assert "\x1b" not in said


def test_a_control_c_leaves_no_stale_lines(terminal):
    error = os.open(terminal.path, os.O_RDWR | os.O_NOCTTY)
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": "", "NO_COLOR": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", FRAMES], stdin=subprocess.PIPE, stderr=error, env=environment
    ) as child:
        os.close(error)
        try:
            shown = terminal.wait_for(lambda shown: "the run" in shown and shown.rstrip().endswith("╯"))
            assert shown.startswith("said before\n")
            terminal.type_control_c()
            terminal.wait_for(lambda shown: "^C" not in shown)
            shown = terminal.wait_for(lambda shown: shown.rstrip().endswith("╯"))
            assert (shown.count("╭"), shown.count("╰")) == (1, 1), shown
        finally:
            child.send_signal(signal.SIGCONT)
            child.communicate(b"\n", timeout=LIMIT_S)
    assert child.returncode == 0
