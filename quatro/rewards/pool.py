"""Killable worker processes for a function of the user: each call has a deadline that a hang cannot escape.

The children are fresh interpreters (not forks: the trainer has threads), started once and kept warm.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Literal

from evals.errors import QuatroError, UsageError

# Importing a user's module may pull in anything.
START_TIMEOUT_S = 120.0
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Outcome:
    """``reward`` of one call, or what became of it; ``detail`` is the traceback or the cause of death."""

    kind: Literal["reward", "error", "timeout"]
    reward: float = 0.0
    detail: str = ""


class WorkerPool:
    """Calls `module:function` in up to ``num_workers`` children, each call killed after ``timeout_s`` seconds.

    Raises:
        UsageError: the function cannot be imported; found out when the pool is made.
    """

    def __init__(self, spec: str, *, timeout_s: float, num_workers: int) -> None:
        self.spec = spec
        self.timeout_s = timeout_s
        self.num_workers = num_workers
        self._workers: list[_Worker] = [_Worker(spec)]

    def map(self, calls: Sequence[Sequence[object]]) -> list[Outcome]:
        """Outcomes of the calls, in their order; each call is the function's arguments, as JSON can carry them."""
        outcomes: dict[int, Outcome] = {}
        waiting = list(range(len(calls)))[::-1]
        while len(self._workers) < min(self.num_workers, len(calls)):
            self._workers.append(_Worker(self.spec))
        running: dict[_Worker, int] = {}
        try:
            while waiting or running:
                for worker in self._workers:
                    if waiting and worker not in running:
                        running[worker] = waiting.pop()
                        worker.send(calls[running[worker]], time.monotonic() + self.timeout_s)
                for worker, outcome in _finished(list(running)):
                    outcomes[running.pop(worker)] = outcome
                    if not worker.is_alive:
                        self._workers[self._workers.index(worker)] = _Worker(self.spec)
        except BaseException:
            self.close()  # a child in the middle of a call would answer the next one with this one's result
            raise
        return [outcomes[index] for index in range(len(calls))]

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers = []


class _Worker:
    def __init__(self, spec: str) -> None:
        request_fd, self._requests = os.pipe()
        self.responses, response_fd = os.pipe()
        path = [os.getcwd() if entry == "" else entry for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "quatro.rewards.worker", spec, str(request_fd), str(response_fd)],
            stdin=subprocess.DEVNULL,
            stdout=2,  # stdout is for data; what a reward function prints is not data
            pass_fds=(request_fd, response_fd),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,  # Ctrl-C is the trainer's to handle, and a kill takes grandchildren along
        )
        os.close(request_fd)
        os.close(response_fd)
        self._buffer = b""
        self.is_alive = True
        self.deadline = time.monotonic() + START_TIMEOUT_S
        message = self._wait_for_start()
        if "error" in message:
            self.kill()
            raise UsageError(
                f"cannot load the reward function {spec!r} (expected module:function, importable from the current "
                f"directory):\n{message['error']}"
            )

    def _wait_for_start(self) -> dict[str, object]:
        while time.monotonic() < self.deadline:
            if wait([self.responses], self.deadline - time.monotonic()):
                message = self.read()
                if message is not None:
                    return message
        return {"error": f"importing it took longer than {START_TIMEOUT_S:.0f} s"}

    def send(self, arguments: Sequence[object], deadline: float) -> None:
        self.deadline = deadline
        data = json.dumps(list(arguments)).encode("ascii") + b"\n"
        with contextlib.suppress(BrokenPipeError):  # a dead child shows at the next read
            while data:
                data = data[os.write(self._requests, data) :]

    def read(self) -> dict[str, object] | None:
        """The next message if it is complete. To be called when there is something to read."""
        chunk = os.read(self.responses, _READ_BYTES)
        self._buffer += chunk
        if chunk and not self._buffer.endswith(b"\n"):
            return None
        if not chunk:
            self.kill()
            return {"error": f"the process of the reward function ended with status {self._process.returncode}"}
        line, self._buffer = self._buffer, b""
        message: dict[str, object] = json.loads(line)
        return message

    def kill(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        os.close(self._requests)
        # One that ended by itself keeps its own exit status for the message.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.05)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self.responses)


def _finished(workers: Sequence[_Worker]) -> list[tuple[_Worker, Outcome]]:
    """The workers that have answered, died or run out of time, after waiting for the first such event."""
    nearest = min(worker.deadline for worker in workers)
    readable = wait([worker.responses for worker in workers], max(0.0, nearest - time.monotonic()))
    done = []
    for worker in workers:
        message = worker.read() if worker.responses in readable else None
        if message is not None:
            done.append((worker, _outcome(message)))
        elif time.monotonic() >= worker.deadline:
            worker.kill()
            done.append((worker, Outcome("timeout")))
    return done


def _outcome(message: dict[str, object]) -> Outcome:
    if "error" in message:
        return Outcome("error", detail=str(message["error"]))
    reward = message.get("reward")
    if not isinstance(reward, float):
        raise QuatroError(
            f"the reward worker sent {message!r:.200}; expected a reward (does the function write to fds?)"
        )
    return Outcome("reward", reward)
