"""The sandbox as its user sees it: workers that are handed jobs and give verdicts."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from evals.sandbox.frames import EndedError, read_exactly
from evals.sandbox.jobs import Job, Verdict, messages
from evals.sandbox.landlock import readable_paths
from evals.sandbox.packages import PACKAGES
from evals.sandbox.processes import ENVIRONMENT, interpreter, remove_scratch, scratch_folder
from evals.sandbox.tiers import TIERS, IsolationError, probe
from evals.sandbox.values import CannotCrossError, read_json, write_json

_START_S = 60.0
# A worker ends each job by itself; one that is silent for this long is broken.
_SILENT_S = 2 * 3600.0
_MOST_PROGRAM_BYTES = 1 << 20
_DISK_MB = 256
_MOST_TRIES = 2


class Sandbox:
    """Runs programs that nobody has read, each with its tests, in isolation.

    ``tier`` is the strongest that this machine allows (`probe`), or the one named. Where there is none,
    `IsolationError` is raised, unless ``allow_unsafe``. ``preload`` names modules that workers import beforehand;
    ``packages`` names installed distributions that programs may import, beside `PACKAGES`. The workers start with the
    first job, or with `start`, and end with `close`.

    Raises:
        IsolationError: the tier is not available on this machine.
    """

    def __init__(
        self,
        *,
        tier: str | None = None,
        workers: int = 2,
        allow_unsafe: bool = False,
        preload: Sequence[str] = (),
        packages: Sequence[str] = (),
    ) -> None:
        if tier is not None and tier not in TIERS:
            raise ValueError(f"tier is one of {', '.join(TIERS)}, not {tier!r}")
        if workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers}")
        self.tier = tier or probe().name
        self.workers = workers
        self._imports = {"preload": list(preload), "readable": readable_paths((*PACKAGES, *packages))}
        self._alive: list[_Worker] = []
        self._lock = threading.Lock()
        faults = probe().faults(self.tier)
        if faults:
            raise IsolationError(f"the tier {self.tier!r} is not available here: {'; '.join(faults)}")
        if self.tier == "none" and not allow_unsafe:
            tried = "; ".join(probe().faults("landlock+seccomp")) or "it was asked for by name"
            raise IsolationError(
                f"programs would run without isolation ({tried}). Use Linux 6.2 or later with Landlock and seccomp, or "
                "allow unsafe code if you trust every program"
            )

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the workers that are missing and waits until they are ready.

        Raises:
            IsolationError: a worker could not isolate itself.
        """
        missing = self.workers - len(self._alive)
        started = [_Worker(self.tier, self._imports) for _ in range(missing)]
        self._alive += started
        try:
            for worker in started:
                if not worker.is_soon_ready():
                    # Killed while it started, as by a machine that is short of memory: once more.
                    self._alive.remove(worker)
                    worker.end()
                    self._alive.append(another := _Worker(self.tier, self._imports))
                    if not another.is_soon_ready():
                        raise IsolationError("a worker of the sandbox ended while it started, twice")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the workers and removes their folders."""
        while self._alive:
            self._alive.pop().end()

    def run(self, jobs: Iterable[Job]) -> Iterator[Verdict]:
        """The verdict on each job, in their order; jobs are taken as workers become free.

        Raises:
            RuntimeError: another run of this sandbox is not over.
        """
        if not self._lock.acquire(blocking=False):
            raise RuntimeError("this sandbox is running other jobs; finish them first, or open another sandbox")
        try:
            yield from self._run(iter(jobs))
        finally:
            for worker in [worker for worker in self._alive if worker.is_busy]:
                self._alive.remove(worker)  # nobody will read its verdict
                worker.end()
            self._lock.release()

    def _run(self, jobs: Iterator[Job]) -> Iterator[Verdict]:
        queue = _Queue(jobs)
        found: dict[int, Verdict] = {}
        num_given = 0
        while not queue.is_empty or num_given < queue.num_taken:
            self.start()
            for worker in self._alive:
                self._hand_out(worker, queue, found)
            for worker in self._wait():
                task = worker.task
                verdict = self._result(worker, task.job)
                if verdict.status == "infra_error" and task.tries < _MOST_TRIES:
                    queue.put_back(task)
                else:
                    found[task.number] = verdict
            while num_given in found:
                yield found.pop(num_given)
                num_given += 1

    def _hand_out(self, worker: _Worker, queue: _Queue, found: dict[int, Verdict]) -> None:
        """Gives the worker the next job that can be run, unless it has one."""
        while not worker.is_busy and (task := queue.take()):
            try:
                worker.send(task)
            except _RefusedError as error:
                found[task.number] = _without_run(task.job, "refused", str(error), self.tier)

    def _result(self, worker: _Worker, job: Job) -> Verdict:
        """The verdict that a worker has; one that ended or is silent is given up."""
        try:
            return Verdict(id=job.id, tier=self.tier, **worker.receive())
        except (EndedError, TimeoutError) as error:
            self._alive.remove(worker)
            ending = worker.end()
            detail = f"its worker {ending}" if isinstance(error, EndedError) else "its worker is silent"
            return _without_run(job, "infra_error", detail, self.tier)

    def _wait(self) -> list[_Worker]:
        """Busy workers that have something to say or are overdue, after waiting for the first."""
        busy = [worker for worker in self._alive if worker.is_busy]
        if not busy:
            return []
        poll = select.poll()
        for worker in busy:
            poll.register(worker.verdicts, select.POLLIN)
            if worker.unsent:
                poll.register(worker.jobs, select.POLLOUT)
        ready = {descriptor for descriptor, _ in poll.poll(1000)}
        for worker in busy:
            if worker.jobs in ready:
                worker.write()
        return [worker for worker in busy if worker.verdicts in ready or worker.is_overdue]


class _Task(NamedTuple):
    number: int
    job: Job
    tries: int


class _Queue:
    """Jobs that no worker has: those to be tried again, and those that nobody has taken yet."""

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._jobs = jobs
        self._again: list[_Task] = []
        self._has_more = True
        self.num_taken = 0

    @property
    def is_empty(self) -> bool:
        """Whether the last job was taken."""
        return not self._has_more and not self._again

    def take(self) -> _Task | None:
        """The next job; None if there is none."""
        if self._again:
            return self._again.pop()
        job = next(self._jobs, None) if self._has_more else None
        if job is None:
            self._has_more = False
            return None
        self.num_taken += 1
        return _Task(self.num_taken - 1, job, 1)

    def put_back(self, task: _Task) -> None:
        """The job is to be tried again."""
        self._again.append(task._replace(tries=task.tries + 1))


class _Worker:
    """The process of a worker, its pipes and its folder."""

    def __init__(self, tier: str, imports: dict[str, list[str]]) -> None:
        self.folder = scratch_folder()
        settings = {"tier": tier, "work": self.folder, "disk_mb": _DISK_MB, **imports}
        theirs, self.jobs = os.pipe()
        self.verdicts, answers = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*interpreter("worker"), json.dumps(settings)],
                stdin=theirs,
                stdout=answers,
                stderr=subprocess.DEVNULL,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        except BaseException:
            os.close(self.jobs)
            os.close(self.verdicts)
            remove_scratch(self.folder)
            raise
        finally:
            os.close(theirs)
            os.close(answers)
        os.set_blocking(self.jobs, False)
        self.unsent = memoryview(b"")
        self._task: _Task | None = None
        self._until_s = 0.0

    def is_soon_ready(self) -> bool:
        """Waits until it can take a job; False if it ended instead, `IsolationError` if it cannot work here."""
        poll = select.poll()
        poll.register(self.verdicts, select.POLLIN)
        if not poll.poll(_START_S * 1000):
            raise IsolationError(f"a worker of the sandbox was not ready after {_START_S:g} s")
        try:
            answer = self.receive()
        except EndedError:
            return False
        if "error" in answer:
            raise IsolationError(f"a worker of the sandbox could not start: {answer['error']}")
        return True

    @property
    def is_busy(self) -> bool:
        """Whether it has a job."""
        return self._task is not None

    @property
    def task(self) -> _Task:
        """Its job."""
        assert self._task is not None
        return self._task

    @property
    def is_overdue(self) -> bool:
        """Whether it has been silent for longer than any job lasts."""
        return time.monotonic() > self._until_s

    def send(self, task: _Task) -> None:
        """Hands the job over; what does not fit into the pipe is written later."""
        parts = _parts(task.job)
        self._task = task
        self._until_s = time.monotonic() + _SILENT_S
        self.unsent = memoryview(b"".join(len(part).to_bytes(4, "big") + part for part in parts))
        self.write()

    def write(self) -> None:
        """Writes as much of the job as the pipe takes."""
        try:
            while self.unsent:
                self.unsent = self.unsent[os.write(self.jobs, self.unsent) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self.unsent = memoryview(b"")  # it ended, as reading will say

    def receive(self) -> dict[str, Any]:
        """What it says; the job is done."""
        if self.is_busy and self.is_overdue:
            raise TimeoutError
        length = int.from_bytes(read_exactly(self.verdicts, 4), "big")
        answer: dict[str, Any] = read_json(read_exactly(self.verdicts, length))
        self._task = None
        return answer

    def end(self) -> str:
        """Ends the process and removes its folder; how it ended, as "ended with status 1"."""
        os.close(self.jobs)
        if self.is_busy:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        try:
            status = self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        os.close(self.verdicts)
        remove_scratch(self.folder)
        return f"ended with status {status}"


class _RefusedError(Exception):
    """A job cannot be run as it is."""


def _parts(job: Job) -> list[bytes]:
    """The two messages on a job, as bytes."""
    size = len(job.program.encode("utf-8", "surrogatepass"))
    if size > _MOST_PROGRAM_BYTES:
        raise _RefusedError(f"the program has {size} bytes; {_MOST_PROGRAM_BYTES} are allowed")
    try:
        return [write_json(message) for message in messages(job)]
    except (CannotCrossError, RecursionError) as error:
        raise _RefusedError(f"the tests cannot be sent: {error}") from error


def _without_run(job: Job, status: Any, detail: str, tier: str) -> Verdict:
    return Verdict(
        id=job.id,
        status=status,
        detail=detail,
        tier=tier,
        num_passed=0,
        num_tests=0,
        cpu_s=0.0,
        wall_s=0.0,
        memory_mb=0.0,
    )
