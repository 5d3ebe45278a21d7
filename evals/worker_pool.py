"""Killable worker processes with deadlines: a pool that asks them, and the loop of a process that answers.

Rewards of the user's own run in such processes, and the sandbox. Requests and answers take the pipes of standard input
and output. The processes are fresh interpreters (not forks: the parent may have threads).
"""

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
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

EXIT_LIMIT_S = 10.0
GRACE_S = 1.0  # in which a process ends by itself once nothing more will be asked
MAX_STARTS = 2  # processes that end before they are ready
_READ_BYTES = 1 << 16

Message = dict[str, Any]


def usable_cores() -> int:
    """How many processes can work at once: the cores that this process may use, or as many as its cgroup pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, granted_cores(Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")))))


def granted_cores(root: Path, membership: Path) -> float:
    """The least cores' worth of time that the cgroups v2 of this `/proc/PID/cgroup` grant; infinite without limit."""
    granted = math.inf
    with contextlib.suppress(OSError, ValueError):  # no such file system, or one that says something else
        own = next((line[3:] for line in membership.read_text().splitlines() if line.startswith("0::")), "/")
        for group in (Path(own), *Path(own).parents):
            limit = root / group.relative_to("/") / "cpu.max"
            quota, period = limit.read_text().split() if limit.is_file() else ("max", "1")
            granted = min(granted, math.inf if quota == "max" else int(quota) / int(period))
    return granted


class Failure(NamedTuple):
    """Why a request has no answer ("refused": it cannot be sent), and ``detail``, such as "ended with status 1"."""

    kind: Literal["ended", "overdue", "refused"]
    detail: str


class CannotStartError(Exception):
    """No worker process can work here: one said so before it was ready, or each was killed while it started."""


# A process whose standard input and output are pipes without buffers; leaving ends what it needs.
Launch = Callable[[], contextlib.AbstractContextManager["subprocess.Popen[bytes]"]]


def fresh_interpreter(command: Sequence[str]) -> subprocess.Popen[bytes]:
    """Starts `python COMMAND`, which runs `serve`."""
    path = [os.getcwd() if entry == "" else entry for entry in sys.path]
    return subprocess.Popen(
        [sys.executable, "-P", *command],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        start_new_session=True,  # Ctrl-C is ours to handle, and a kill takes grandchildren along
    )


def json_line(request: object) -> bytes:
    """A request as one line of JSON."""
    return json.dumps(request).encode("ascii") + b"\n"


class WorkerPool:
    """Up to ``num_workers`` processes that ``launch`` starts. They start when needed and stay warm.

    A process first says that it is ready, and then answers requests, each with a JSON object on a line; ``encode``
    makes the bytes of a request, or a `Failure` of one that cannot be sent. A process is replaced if it ends, or is
    killed because it was silent for ``timeout_s`` seconds; its request is sent to ``max_tries`` processes. If one
    is killed before it is ready, or is not ready after ``start_timeout_s``, another is started, once.
    """

    def __init__(
        self,
        launch: Launch,
        *,
        num_workers: int,
        timeout_s: float,
        start_timeout_s: float,
        max_tries: int = 1,
        encode: Callable[[Any], bytes | Failure] = json_line,
    ) -> None:
        self.num_workers = num_workers
        self.max_tries = max_tries
        self._new_worker = partial(_Worker, launch, timeout_s, start_timeout_s)
        self._encode = encode
        self._workers: list[_Worker] = []
        self._lock = threading.Lock()

    def ask(self, requests: Sequence[object]) -> list[Message | Failure]:
        """`run` as a list, safe to use from threads; raises CannotStartError if no process can work on this machine."""
        with self._lock:
            return list(self.run(requests))

    def run(self, requests: Iterable[object]) -> Generator[Message | Failure, None, None]:
        """The answers in the order of the requests, shared among the processes; one run at a time. Raises as `ask`."""
        try:
            yield from self._answers(enumerate(requests))
        except GeneratorExit:
            self._end([worker for worker in self._workers if worker.task])
            raise
        except BaseException:  # a process amid a request would answer the next one with this one's answer
            self._end(self._workers)
            raise

    def _answers(self, source: Iterator[tuple[int, object]]) -> Iterator[Message | Failure]:
        waiting: deque[_Task] = deque()
        found: dict[int, Message | Failure] = {}
        failed_starts: list[str] = []
        num_given = 0
        while True:
            num_busy = sum(worker.task is not None for worker in self._workers)
            for index, request in islice(source, self.num_workers - num_busy - len(waiting)):
                data = self._encode(request)
                if isinstance(data, Failure):
                    found[index] = data
                else:
                    waiting.append(_Task(index, data))
            if not (num_busy or waiting or found):
                return
            num_useful = min(self.num_workers, num_busy + len(waiting))
            while len(self._workers) < num_useful and len(failed_starts) < MAX_STARTS:
                self._workers.append(self._new_worker())
            if waiting and not self._workers:
                raise CannotStartError(failed_starts[-1])
            for worker in self._workers:
                if waiting and worker.is_ready and worker.task is None:
                    worker.send(waiting.popleft())
            for worker, message in self._messages():
                task, worker.task = worker.task, None
                if isinstance(message, Failure):
                    self._workers.remove(worker)
                    if not worker.is_ready:
                        failed_starts.append(message.detail)
                    if task and task.tries < self.max_tries:
                        waiting.appendleft(task._replace(tries=task.tries + 1))
                        continue
                if task:
                    found[task.number] = message
            while num_given in found:
                yield found.pop(num_given)
                num_given += 1

    def close(self) -> None:
        """Ends the processes; asking again starts new ones."""
        with self._lock:
            self._end(self._workers)

    def _end(self, workers: "Sequence[_Worker]") -> None:
        self._workers = [worker for worker in self._workers if worker not in workers]
        for worker in workers:
            worker.end()

    def _messages(self) -> "Iterator[tuple[_Worker, Message | Failure]]":
        """The messages of processes, once the first of them speaks, ends or is overdue."""
        expected = [worker for worker in self._workers if worker.task or not worker.is_ready]
        if not expected:
            return
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
            message = None
            if worker.responses in events:
                message = worker.read()
            elif time.monotonic() >= worker.deadline:
                message = worker.overdue()
            if message is not None:
                yield worker, message


class _Task(NamedTuple):
    number: int
    data: bytes
    tries: int = 1


class _Worker:
    """A process, its pipes and the request that it was sent and has not answered."""

    def __init__(self, launch: Launch, timeout_s: float, start_timeout_s: float) -> None:
        self._timeout_s, self._start_timeout_s = timeout_s, start_timeout_s
        self.task: _Task | None = None
        self.unsent = memoryview(b"")
        self.is_ready = False
        self.deadline = time.monotonic() + start_timeout_s
        self._buffer = b""
        self._belongings = contextlib.ExitStack()
        try:
            self.process = self._belongings.enter_context(launch())
        except OSError as error:
            raise CannotStartError(str(error)) from error
        self._belongings.callback(self._kill_group)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.responses = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.requests, False)  # one that reads nothing must not stop us

    def send(self, task: _Task) -> None:
        """Asks for the answer; what does not fit into the pipe is written later."""
        self.task = task
        self.deadline = time.monotonic() + self._timeout_s
        self.unsent = memoryview(task.data)
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

    def read(self) -> Message | Failure | None:
        """The message, if it is complete, or why there will be none. Call it when there is something to read."""
        data = os.read(self.responses, _READ_BYTES)
        if not data:
            return self._ended()
        self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = b""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if rest or not isinstance(message, dict):
            self.kill()
            return Failure("ended", f"sent {line!r:.200}, which is no answer")
        if not self.is_ready and "failed" in message:
            raise CannotStartError(message["failed"])
        self.is_ready = True
        return message

    def _ended(self) -> Failure:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(EXIT_LIMIT_S)  # the pipe closes before the process has ended
        self.kill()
        status = self.process.returncode
        if not self.is_ready and status >= 0:
            raise CannotStartError(f"it ended with status {status} before it was ready")
        return Failure("ended", f"ended with status {status}")

    def overdue(self) -> Failure:
        self.kill()
        if not self.is_ready:
            return Failure("overdue", f"was not ready within {self._start_timeout_s:g} s")
        return Failure("overdue", f"gave no answer within {self._timeout_s:g} s")

    def end(self) -> None:
        """Kills the process if it is busy, or does not end by itself soon after its requests have."""
        if self.task is None and self.process.returncode is None:  # else its pipes are closed
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.communicate(timeout=GRACE_S)
        self.kill()

    def kill(self) -> None:
        """Ends the process and what belongs to it at once; a second call does nothing."""
        self._belongings.close()

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)


def serve(
    prepare: Callable[[], Callable[[Any], Message]],
    describe: Callable[[Exception], str] = lambda error: f"{type(error).__name__}: {error}",
) -> None:
    """The loop of a worker process, which runs until the pool closes its pipes.

    ``prepare`` makes the function that answers a request. If it raises, the pool is told what ``describe`` says of the
    error. From here on there is nothing to read on standard input, and what is printed goes to standard error: it is no
    answer.
    """
    with open(os.dup(0), encoding="ascii") as requests, open(os.dup(1), "w", encoding="ascii") as responses:
        with open(os.devnull, encoding="ascii") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(2, 1)

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
