"""A laboratory for faults: `quatro` runs in forked children whose disk fails or who are killed, at chosen moments."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Ended:
    """How a child ended: ``code`` as a shell gives it (-9 for SIGKILL), and how many file operations it got to."""

    code: int
    operations: int
    seconds: float
    out: str
    err: str


class Laboratory:
    """``lab.run(argv, root=...)`` runs `quatro argv`; only what happens below ``root`` can fail.

    The children's working directory holds the module `digit_reward` with the reward function `share`.
    """

    def __init__(self, fork: Callable[..., Any], folder: Path) -> None:
        self._fork = fork
        self._folder = folder

    def run(
        self,
        argv: Sequence[str],
        *,
        root: Path,
        fail_at: int = 0,
        sticky: bool = False,
        kill: bool = False,
        signals: Sequence[tuple[float, int]] = (),
    ) -> Ended:
        """``fail_at``: the number of the operation that fails (0: none), ``sticky``: and all after it, ``kill``: by
        SIGKILL just before it. ``signals``: (seconds after the start, signal number), in order of time."""
        begin = time.monotonic()
        fault = {"root": str(root), "fail_at": fail_at, "sticky": sticky, "kill": kill}
        child = self._fork(["quatro", *argv], cwd=self._folder, fault=fault)
        for after_s, number in signals:
            if child.poll(begin + after_s - time.monotonic()) is None:
                child.send_signal(number)
        code = child.wait()
        seconds = time.monotonic() - begin
        out, err = child.communicate()
        return Ended(code, child.operations, seconds, out, err)


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, fork: Any, failing_io: str, digit_reward: str) -> Laboratory:
    if not failing_io:
        pytest.skip("needs Linux and a C compiler for the failing disk")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "digit_reward.py").write_text(digit_reward, encoding="utf-8")
    return Laboratory(fork, folder)
