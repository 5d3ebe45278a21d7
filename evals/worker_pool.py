"""Killable worker processes with deadlines: a pool that asks them, and the loop of a process that answers.

Requests and answers are JSON, one a line, over pipes of their own, so that what a library prints is no answer. The
processes are fresh interpreters (not forks: the parent may have threads); they start when needed and stay warm.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

EXIT_LIMIT_S = 10.0
MAX_STARTS = 2  # of a process that ends before it is ready
_READ_BYTES = 1 << 16

Message = dict[str, Any]


def usable_cores() -> int:
    """How many processes can work at once: the cores that this process may use, or as many as its cgroup pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, granted_cores(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))))


def granted_cores(root: Path, membership: Path) -> float:
    """The cores' worth of time that cgroups grant the process with this `/proc/PID/cgroup`; infinity without a limit.

    In version 2 a group and each that it lies in may have a limit, and the least holds.
    """
    granted = math.inf
    with contextlib.suppress(OSError, ValueError):  # no such file system, or one that says something else
        own = next((line[3:] for line in membership.read_text().splitlines() if line.startswith("0::")), "/")
        for group in (Path(own), *Path(own).parents):
            limit = root / group.relative_to("/") / "cpu.max"
            quota, period = limit.read_text().split() if limit.is_file() else ("max", "1")
            granted = min(granted, math.inf if quota == "max" else int(quota) / int(period))
    with contextlib.suppress(OSError, ValueError):  # version 1, as a container sees it
        quota_us, period_us = (int((root / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
        granted = min(granted, quota_us / period_us if quota_us > 0 else math.inf)
    return granted


class Failure(NamedTuple):
    """Why a request has no answer. ``detail`` says what the process did, such as "ended with status 1"."""

    kind: Literal["ended", "overdue", "not started"]
    detail: str


class CannotStartError(Exception):
    """A worker process said before it was ready that it cannot work here. Another start would fail too."""


class WorkerPool:
    """Up to ``num_workers`` processes of `python COMMAND`, each of which runs `serve`. Safe to use from threads.

    A process is replaced if it ends, or is killed because it was silent for ``timeout_s`` seconds. If it is killed
    before it is ready, or is not ready after ``start_timeout_s``, it is started once more. What processes print goes to
    stderr. A process that is closed has ``grace_s`` seconds to end by itself.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        num_workers: int,
        timeout_s: float,
        start_timeout_s: float,
        grace_s: float = 0.0,
    ) -> None:
        self.num_workers = num_workers
        self.timeout_s = timeout_s
        self._launch = _Launch(command, start_timeout_s, grace_s)
        self._workers: list[_Worker] = []
        self._why_none = ""
        self._lock = threading.Lock()

    def start(self) -> None:
        """Waits until one process is ready.

        Raises:
            CannotStartError: none can be started.
        """
        with self._closed_after_errors():
            self._grow(1)
            while self._workers and not any(worker.is_ready for worker in self._workers):
                for worker, message in self._messages():
                    if isinstance(message, Failure):
                        self._replace(worker, message)
            if not self._workers:
                raise CannotStartError(self._why_none)

    def ask(self, requests: Sequence[object]) -> list[Message | Failure]:
        """Answers in the order of the requests; that of a process that fails is the failure.

        Raises:
            CannotStartError: a process says that it cannot work on this machine.
        """
        answers: dict[int, Message | Failure] = {}
        waiting = deque(range(len(requests)))
        with self._closed_after_errors():
            self._grow(len(waiting))
            while self._workers and (waiting or any(worker.is_busy for worker in self._workers)):
                for worker in self._workers:
                    if waiting and worker.is_ready and not worker.is_busy:
                        index = waiting.popleft()
                        worker.send(index, requests[index], self.timeout_s)
                for worker, message in self._messages():
                    if worker.asked is not None:
                        answers[worker.asked] = message
                        worker.asked = None
                    if isinstance(message, Failure):
                        self._replace(worker, message)
        not_started = Failure("not started", self._why_none)
        return [answers.get(index, not_started) for index in range(len(requests))]

    def close(self) -> None:
        """Ends the processes; asking again starts new ones."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers = []

    @contextlib.contextmanager
    def _closed_after_errors(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except BaseException:
                self._close()  # a process in the middle of a request would answer the next one with this one's answer
                raise

    def _grow(self, num_useful: int) -> None:
        while len(self._workers) < min(self.num_workers, num_useful):
            self._workers.append(_Worker(self._launch))

    def _replace(self, worker: _Worker, failure: Failure) -> None:
        self._workers.remove(worker)
        if worker.is_ready:
            self._workers.append(_Worker(self._launch))
        elif worker.num_starts < MAX_STARTS:
            self._workers.append(_Worker(self._launch, worker.num_starts + 1))
        else:
            self._why_none = failure.detail

    def _messages(self) -> Iterator[tuple[_Worker, Message | Failure]]:
        """The messages of processes, once the first of them speaks, ends or is overdue; a failure comes last."""
        expected = [worker for worker in self._workers if worker.is_busy or not worker.is_ready]
        poll = select.poll()
        for worker in expected:
            poll.register(worker.responses, select.POLLIN)
            if worker.unsent:
                poll.register(worker.requests, select.POLLOUT)
        nearest = min(worker.deadline for worker in expected)
        events = {descriptor for descriptor, _ in poll.poll(max(0, math.ceil(1000 * (nearest - time.monotonic()))))}
        for worker in expected:
            if worker.requests in events:
                worker.write()
            if worker.responses in events:
                for message in worker.read(self.timeout_s):
                    yield worker, message
            elif time.monotonic() >= worker.deadline:
                yield worker, worker.overdue(self.timeout_s)


class _Launch(NamedTuple):
    command: Sequence[str]
    timeout_s: float
    grace_s: float


class _Worker:
    def __init__(self, launch: _Launch, num_starts: int = 1) -> None:
        self.num_starts = num_starts
        self._launch = launch
        self.asked: int | None = None  # the index of the request that it was sent and has not answered
        self.unsent = memoryview(b"")
        self.is_ready = False
        self.deadline = time.monotonic() + launch.timeout_s
        self._buffer = b""
        self._is_alive = True
        path = [os.getcwd() if entry == "" else entry for entry in sys.path]
        theirs_in, self.requests = os.pipe()
        self.responses, theirs_out = os.pipe()
        os.set_blocking(self.requests, False)  # one that reads nothing must not stop us
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *launch.command, str(theirs_in), str(theirs_out)],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stdout is for data, and this is none
                pass_fds=(theirs_in, theirs_out),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
                start_new_session=True,  # Ctrl-C is ours to handle, and a kill takes grandchildren along
            )
        except OSError as error:
            self.close_pipes()
            raise CannotStartError(str(error)) from error
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    @property
    def is_busy(self) -> bool:
        return self.asked is not None

    def send(self, index: int, request: object, timeout_s: float) -> None:
        """Asks for the answer to ``request``, which is that of this ``index``."""
        self.asked = index
        self.deadline = time.monotonic() + timeout_s
        self.unsent = memoryview(json.dumps(request).encode("ascii") + b"\n")
        self.write()

    def write(self) -> None:
        """Sends as much as the process takes now."""
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.requests, self.unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:  # that it has ended shows at the next read
            self.unsent = memoryview(b"")

    def read(self, timeout_s: float) -> Iterator[Message | Failure]:
        """The complete messages. Call it when there is something to read."""
        data = os.read(self.responses, _READ_BYTES)
        if not data:
            yield self._ended()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self.deadline = time.monotonic() + timeout_s
            try:
                message = json.loads(line)
            except ValueError:
                message = None
            if not isinstance(message, dict) or (self.is_ready and not self.is_busy):
                self.kill()
                yield Failure("ended", f"sent {line!r:.200}, which is no answer")
                return
            if self.is_ready:
                yield message
            elif "failed" in message:
                raise CannotStartError(message["failed"])
            self.is_ready = True

    def _ended(self) -> Failure:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(EXIT_LIMIT_S)  # the pipe closes before the process has ended
        self.kill()
        status = self.process.returncode
        if not self.is_ready and status >= 0:
            raise CannotStartError(f"it ended with status {status} before it was ready")
        return Failure("ended", f"ended with status {status}")

    def overdue(self, timeout_s: float) -> Failure:
        self.kill()
        if not self.is_ready:
            return Failure("overdue", f"was not ready within {self._launch.timeout_s:g} s")
        return Failure("overdue", f"gave no answer within {timeout_s:g} s")

    def end(self) -> None:
        """Kills the process if it does not end by itself soon after its requests have."""
        if self._is_alive and self._launch.grace_s:
            os.close(self.requests)
            self.requests = -1
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(self._launch.grace_s)
        self.kill()

    def kill(self) -> None:
        if not self._is_alive:
            return
        self._is_alive = False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.close_pipes()

    def close_pipes(self) -> None:
        for pipe in (self.requests, self.responses):
            with contextlib.suppress(OSError):
                os.close(pipe)


def serve(
    prepare: Callable[[], Callable[[Any], Message]],
    describe: Callable[[Exception], str] = lambda error: f"{type(error).__name__}: {error}",
) -> None:
    """The loop of a worker process, which runs until the pool closes its pipes (the command's last two arguments).

    ``prepare`` makes the function that answers a request. If it raises, the pool is told what ``describe`` says of the
    error.
    """
    request_fd, response_fd = (int(argument) for argument in sys.argv[-2:])
    for descriptor in (request_fd, response_fd):
        os.set_inheritable(descriptor, False)
    with open(request_fd, encoding="ascii") as requests, open(response_fd, "w", encoding="ascii") as responses:

        def respond(message: Message) -> None:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()  # what a function of the user's own printed
            responses.write(json.dumps(message) + "\n")
            responses.flush()

        try:
            answer = prepare()
        except Exception as error:
            respond({"failed": describe(error)})
            return
        respond({"ready": True})
        for line in requests:
            respond(answer(json.loads(line)))
