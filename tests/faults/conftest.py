"""A laboratory for faults: `quatro` runs in forked children whose disk fails or who are killed, at chosen moments."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent


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

    def __init__(self, server: subprocess.Popen[str], folder: Path) -> None:
        self._server = server
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
        request = {
            "argv": list(argv),
            "root": str(root),
            "cwd": str(self._folder),
            "fail_at": fail_at,
            "sticky": sticky,
            "kill": kill,
            "signals": [list(signal) for signal in signals],
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        reply = self._server.stdout.readline()
        assert reply, "the fork server ended"
        return Ended(**json.loads(reply))


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, digit_reward: str) -> Iterator[Laboratory]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs Linux and a C compiler for the failing disk")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "digit_reward.py").write_text(digit_reward, encoding="utf-8")
    library = folder / "failing_io.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, HERE / "failing_io.c", "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "NO_COLOR": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    server = subprocess.Popen(
        [sys.executable, HERE / "forkserver.py", str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    yield Laboratory(server, folder)
    assert server.stdin is not None
    server.stdin.close()
    server.wait(timeout=60)
