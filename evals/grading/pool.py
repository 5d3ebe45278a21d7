"""Warm, killable worker processes of the symbolic stage.

Limits are CPU seconds, so that a grade does not depend on what else the machine does. A worker that dies for reasons
of its own is replaced and its pair tried once more; a second death gives the outcome `infra_error`. One that is killed
while it starts is started once more; pairs for which no worker is left are `infra_error` too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Literal, NamedTuple

from evals.errors import MissingError

CPU_LIMIT_S = 2.0
MAX_ATTEMPTS = 2
CHUNK_SIZE = 16
# Real time only guards against a machine that hangs: far more than the CPU limit takes under any load.
WALL_LIMIT_S = 300.0
EXIT_LIMIT_S = 10.0
_READ_BYTES = 1 << 16
_COMMAND = ("-P", "-m", "evals.grading.worker")

# In place of a policy: the pair is judged by math-verify alone.
MATH_VERIFY = "math-verify"

SymbolicOutcome = Literal["correct", "incorrect", "timeout", "error", "infra_error"]


class Pair(NamedTuple):
    """One question for the symbolic stage; texts as extracted and as stored."""

    answer: str
    reference: str
    policy: str
    relative_tolerance: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """``stage``: symbolic, unparsed (one side is no formula), or guard (not sent). ``detail``: why it failed."""

    outcome: SymbolicOutcome
    stage: str = "symbolic"
    detail: str = ""


class WorkerPool:
    """Judges pairs in up to ``num_workers`` processes; they start when needed and stay. Safe to use from threads.

    ``command`` replaces the arguments of the interpreter, for tests.
    """

    def __init__(
        self, *, num_workers: int = 0, cpu_limit_s: float = CPU_LIMIT_S, command: Sequence[str] = _COMMAND
    ) -> None:
        self.num_workers = num_workers or _usable_cpus()
        self.cpu_limit_s = cpu_limit_s
        self._command = command
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()

    def judge(self, pairs: Sequence[Pair], on_progress: Callable[[int], None] | None = None) -> list[Verdict]:
        """Verdicts of the pairs, in their order; ``on_progress`` is told how many are done.

        Raises:
            MissingError: workers cannot be started on this machine: something that they need is missing.
        """
        with self._lock:
            try:
                return self._judge(pairs, on_progress)
            except BaseException:
                self._close()  # a worker in the middle of a pair would answer the next one with this one's verdict
                raise

    def _judge(self, pairs: Sequence[Pair], on_progress: Callable[[int], None] | None) -> list[Verdict]:
        verdicts: dict[int, Verdict] = {}
        attempts = [0] * len(pairs)
        # Pairs of one reference in one chunk: it is parsed once.
        order = sorted(range(len(pairs)), key=lambda index: (pairs[index].reference, index))
        waiting = [order[start : start + CHUNK_SIZE] for start in range(0, len(order), CHUNK_SIZE)][::-1]
        while len(self._workers) < min(self.num_workers, len(waiting)):
            self._workers.append(_Worker(self._command))
        while self._workers and (waiting or any(worker.chunk for worker in self._workers)):
            for worker in self._workers:
                if waiting and worker.is_ready and not worker.chunk:
                    chunk = waiting.pop()
                    worker.send(chunk, [pairs[index] for index in chunk], self.cpu_limit_s)
            for worker, message in _messages(self._workers):
                if "ready" in message:
                    continue
                if "failed" in message:
                    raise MissingError(f"the grader's worker process cannot start: {message['failed']}")
                if not worker.chunk:
                    self._workers.remove(worker)
                    if worker.num_starts < MAX_ATTEMPTS:
                        self._workers.append(_Worker(self._command, worker.num_starts + 1))
                    continue
                index = worker.chunk.pop(0)
                if not worker.is_alive:
                    if worker.chunk:
                        waiting.append(worker.chunk)
                    self._workers[self._workers.index(worker)] = _Worker(self._command)
                attempts[index] += 1
                if message["outcome"] == "killed" and attempts[index] < MAX_ATTEMPTS:
                    waiting.append([index])
                    continue
                verdicts[index] = _verdict(message)
                if on_progress:
                    on_progress(len(verdicts))
        never_asked = Verdict("infra_error", detail="every worker process was killed while it started")
        return [verdicts.get(index, never_asked) for index in range(len(pairs))]

    def close(self) -> None:
        """Ends the processes; judging again starts them anew."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers = []

    def abandon(self) -> None:
        """For the child of a fork: closes its copies of the pipes and leaves the processes to the parent."""
        for worker in self._workers:
            worker.close_pipes()
        self._workers = []


class _Worker:
    def __init__(self, command: Sequence[str], num_starts: int = 1) -> None:
        self.num_starts = num_starts
        path = [os.getcwd() if entry == "" else entry for entry in sys.path]
        try:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                # Hash order changes how sympy simplifies: with a fixed seed every process answers alike.
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONHASHSEED": "0"},
                start_new_session=True,  # Ctrl-C is ours to handle, and a kill takes the forks along
            )
        except OSError as error:
            raise MissingError(f"the grader's worker process cannot start: {error}") from error
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self.responses = self._process.stdin, self._process.stdout
        self._buffer = b""
        self.chunk: list[int] = []  # indices of the pairs it is asked for and has not answered
        self.is_alive = True
        self.is_ready = False
        self.deadline = time.monotonic() + WALL_LIMIT_S

    def send(self, chunk: list[int], pairs: Sequence[Pair], cpu_limit_s: float) -> None:
        """Ask for verdicts of ``pairs``, which are those of the indices ``chunk``."""
        self.chunk = chunk
        self.deadline = time.monotonic() + WALL_LIMIT_S
        request = {"pairs": [pair._asdict() for pair in pairs], "cpu_limit_s": cpu_limit_s}
        with contextlib.suppress(BrokenPipeError):  # a dead worker shows at the next read
            data = memoryview(json.dumps(request).encode("ascii") + b"\n")
            while data:
                data = data[self._requests.write(data) :]

    def read(self) -> list[dict[str, Any]]:
        """The messages that are complete, after waiting for something to read."""
        data = os.read(self.responses.fileno(), _READ_BYTES)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(EXIT_LIMIT_S)  # the pipe closes before the process has ended
            self.kill()
            status = self._process.returncode
            if not self.is_ready and status >= 0:
                return [{"failed": f"it ended with status {status} before it was ready"}]
            return [{"outcome": "killed", "detail": f"worker ended with status {status}"}]
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self.is_ready = self.is_ready or bool(lines)
        self.deadline = time.monotonic() + WALL_LIMIT_S
        return [json.loads(line) for line in lines]

    def overdue(self) -> dict[str, Any]:
        self.kill()
        detail = f"no answer within {WALL_LIMIT_S:g} s"
        return {"outcome": "killed", "detail": detail}

    def kill(self) -> None:
        if not self.is_alive:
            return
        self.is_alive = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in (self._requests, self.responses):
            with contextlib.suppress(OSError):
                pipe.close()


def _messages(workers: Sequence[_Worker]) -> list[tuple[_Worker, dict[str, Any]]]:
    """What workers have said after waiting for the first to speak, die or run out of time."""
    expected = [worker for worker in workers if worker.chunk or not worker.is_ready]
    nearest = min(worker.deadline for worker in expected)
    readable = wait([worker.responses.fileno() for worker in expected], max(0.0, nearest - time.monotonic()))
    found: list[tuple[_Worker, dict[str, Any]]] = []
    for worker in expected:
        if worker.responses.fileno() in readable:
            found.extend((worker, message) for message in worker.read())
        elif time.monotonic() >= worker.deadline:
            found.append((worker, worker.overdue()))
    return found


def _verdict(message: dict[str, Any]) -> Verdict:
    outcome: SymbolicOutcome = "infra_error" if message["outcome"] == "killed" else message["outcome"]
    return Verdict(outcome, message.get("stage", "symbolic"), message.get("detail", ""))


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
