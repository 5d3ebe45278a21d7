"""The forking worker: a process that has imported what is needed and forks a keeper for each job.

The keeper reads the job, forks the processes of the program and of the tests, watches them and writes the verdict. So
nothing of a job ever enters the worker's memory, from which the processes of the next are forked. Nor do tests, inputs
and outputs enter the keeper's, from which a program's process is forked for each case: the kernel moves the tests from
one pipe to the other, and their process talks to the program itself. `main` is what a worker's interpreter runs.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import math
import os
import random
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from evals.sandbox import forks, kernel, landlock, packages, seccomp
from evals.sandbox.forks import MOST_THREADS, IdleClock, Meter, megabytes
from evals.sandbox.judge import Channel, Report, judge_calls, judge_output
from evals.sandbox.pipes import EndedError, pass_on, read_frame, talk, write_all, write_frame
from evals.sandbox.program import answer_calls, run_script
from evals.sandbox.values import read_json, write_json

_JOBS, _VERDICTS = 0, 1
_MB = 1 << 20
_STACK_BYTES = 64 * _MB
_NUM_DESCRIPTORS = 128
_DISK_MB = 256  # of the working folder, where it is in memory
_TESTS_MEMORY_MB = 512
_POLL_S, _LOOK_EVERY_S = 0.02, 0.05
# The time on a clock on the wall decides only here, where CPU time and idle time cannot be to blame.
_STUCK_S = 3600.0
# What programs and tests import most; a forked process has it for free.
_PRELOADED = """
abc array ast base64 bisect cmath collections collections.abc contextlib copy dataclasses datetime decimal enum
fractions functools hashlib heapq inspect io itertools json math operator pathlib queue random re statistics string
struct sys tempfile textwrap threading time traceback types typing unicodedata
"""


class Worker:
    """One worker: its tier, its folder and the Landlock rules that every program's process takes on."""

    def __init__(self, tier: str, work: str, readable: list[str]) -> None:
        self.tier, self.work, self.pid = tier, work, os.getpid()
        # As it is outside the namespaces, where the folder can be removed.
        self._parent = os.open(os.path.dirname(work), os.O_RDONLY | os.O_DIRECTORY)
        self.ruleset: int | None = None
        if tier == "full":
            kernel.enter_namespaces(work, work_bytes=_DISK_MB * _MB, work_files=forks.MOST_FILES)
        if tier != "none":
            self.ruleset = landlock.make_ruleset(work, readable)
            kernel.bound_capabilities()
            seccomp.prepare()
        self.null = os.open("/dev/null", os.O_RDWR)

    def serve(self) -> None:
        """Has keepers answer jobs until the pipe is closed, or a keeper fails. The next one waits for its job."""
        while os.waitpid(forks.fork(self._keep), 0)[1] == 0:
            pass

    def _keep(self) -> NoReturn:
        """Answers one job, and leaves no process and no file of its program."""
        kernel.die_with_parent()
        if os.getppid() != self.pid:  # it ended before that, and nobody waits for an answer
            os._exit(1)
        kernel.adopt_orphans()
        job = read_json(read_frame(_JOBS))
        if self.tier == "full":
            kernel.number_children_anew()
        result = _Run(self, job).result()
        if self.tier == "none":
            forks.kill_children()
        forks.empty(self.work)
        _say(result)
        os._exit(0)

    def remove_folder(self) -> None:
        """Removes the working folder, for a caller that was killed."""
        with contextlib.suppress(OSError):
            if self.tier == "full":
                kernel.unmount(self.work)  # a folder where something is mounted cannot be removed
            else:
                forks.empty(self.work)
            os.rmdir(os.path.basename(self.work), dir_fd=self._parent)

    def keep_only(self, descriptors: list[int]) -> None:
        """These become descriptors 0, 1, 2, ...; the Landlock rules stay open for `confine`, and all else is closed."""
        kept = descriptors if self.ruleset is None else [*descriptors, self.ruleset]
        high = [os.dup2(descriptor, 200 + index) for index, descriptor in enumerate(kept)]
        for index, descriptor in enumerate(high):
            os.dup2(descriptor, index)
        os.closerange(len(kept), 1 << 16)
        self.ruleset = None if self.ruleset is None else len(descriptors)

    def confine(self, memory_bytes: int, cpu_s: float, disk_mb: int) -> None:
        """This process, a fork of a keeper, loses what a program has no use for. There is no way back."""
        kernel.die_with_parent()
        os.setsid()
        os.chdir(self.work)
        limits = {
            resource.RLIMIT_AS: forks.address_space() + memory_bytes,
            # `_Watch` ends a process in time. The kernel counts whole ticks here, too many of them on a busy machine.
            resource.RLIMIT_CPU: math.ceil(2 * cpu_s) + 10,
            resource.RLIMIT_FSIZE: disk_mb * _MB,
            resource.RLIMIT_NOFILE: _NUM_DESCRIPTORS,
            resource.RLIMIT_STACK: _STACK_BYTES,
            resource.RLIMIT_CORE: 0,
            resource.RLIMIT_MEMLOCK: 0,
            resource.RLIMIT_MSGQUEUE: 0,
            resource.RLIMIT_SIGPENDING: 64,
        }
        for what, value in limits.items():
            kernel.limit(what, value)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too large is an OSError
        os.environ.update(HOME=self.work, TMPDIR=self.work, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        if self.ruleset is not None:
            kernel.drop_capabilities()
            landlock.restrict(self.ruleset)
            os.close(self.ruleset)
            seccomp.refuse_calls()


class _Run:
    """One job: forks its processes, watches them, and decides between what they report and what they used."""

    def __init__(self, worker: Worker, job: dict[str, Any]) -> None:
        self.worker, self.job = worker, job
        self.limits = job["limits"]
        self.cpu_limit_s = self.limits["timeout_s"]
        self.idle_limit_s = 3 * self.cpu_limit_s + 2

    def result(self) -> Report:
        """The report, with the time that it took."""
        started_s = time.monotonic()
        report = self._output() if self.job["is_stdio"] else self._calls()
        return report | {"wall_s": time.monotonic() - started_s}

    def _confine(self, *, is_program: bool) -> None:
        memory_mb = self.limits["memory_mb"]
        # The tests hold what the program returned, as text and as values, and what they expect.
        memory_bytes = (memory_mb if is_program else memory_mb + _TESTS_MEMORY_MB) * _MB
        cpu_s = self.cpu_limit_s if is_program else self.job["tests_s"]
        self.worker.confine(memory_bytes, cpu_s, self.limits["disk_mb"])

    def _calls(self) -> Report:
        """Two processes for the whole job, with pipes between them. What the program prints is counted and dropped."""
        calls, answers, prints = os.pipe(), os.pipe(), os.pipe()
        tests = _Tests(self, [calls[1], answers[0]])
        kept = [self.worker.null, prints[1], prints[1], calls[0], answers[1]]
        program = forks.fork(self._be_program, kept, answer_calls)
        for descriptor in (*calls, *answers, prints[1]):
            os.close(descriptor)
        watch = _Watch(self, program=program, tests=tests.pid)
        report: Report | None = None
        readers, num_left = [tests.reports, prints[0]], int(self.limits["output_mb"] * _MB)
        with contextlib.suppress(EndedError):
            tests.send_tests()
            while report is None and watch.stopped is None and num_left >= 0:
                ready = watch.wait(readers)
                if tests.reports in ready:
                    report = read_json(read_frame(tests.reports))["report"]
                if prints[0] in ready:
                    num_read = len(os.read(prints[0], 1 << 16))
                    num_left -= num_read
                    readers = readers if num_read else [tests.reports]
        os.close(prints[0])
        status, cpu_s, memory_mb = self._end(program, tests)
        stopped = self._excess(watch, cpu_s, is_flood=num_left < 0)
        if stopped is None and report and report["status"] == "crash" and status != signal.SIGKILL:
            stopped = self._judge_end(status, memory_mb) if "ended" in report["detail"] else None
        return tests.end(stopped, report)

    def _be_program(self, kept: list[int], run: Callable[[str], NoReturn]) -> NoReturn:
        self.worker.keep_only(kept)
        self._confine(is_program=True)
        random.seed("program")  # the same program gets the same verdict twice
        run(self.job["program"])

    def _end(self, pid: int, tests: _Tests) -> tuple[int, float, float]:
        """Kills a program's process; its wait status, CPU seconds and megabytes."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        if self.worker.tier == "none":
            forks.kill_children(spare=tests.pid)
        return status, usage.ru_utime + usage.ru_stime, megabytes(usage.ru_maxrss)

    def _excess(self, watch: _Watch, cpu_s: float, *, is_flood: bool) -> tuple[str, str] | None:
        """Status and detail of a program that used more than it may, whatever it answered."""
        if is_flood:
            return "output_limit", f"more than {self.limits['output_mb']} MB of output"
        if watch.stopped is None and cpu_s > self.cpu_limit_s:
            return "timeout", f"{cpu_s:.1f} s of CPU time; {self.cpu_limit_s:g} s are allowed"
        return watch.stopped

    def _judge_end(self, status: int, memory_mb: float) -> tuple[str, str]:
        """Status and detail of a program that ended on its own before it answered."""
        kind = "memory" if memory_mb > 0.9 * self.limits["memory_mb"] else "crash"
        return kind, f"the program ended with {forks.ending(status)}"

    def _output(self) -> Report:
        """A process for the tests, and one for each of their cases, to which the tests' process talks."""
        theirs, ours = socket.socketpair()
        with theirs, ours:
            tests = _Tests(self, [theirs.fileno()])
            report: Report | None = None
            watch = _Watch(self, tests=tests.pid)
            with contextlib.suppress(EndedError):
                tests.send_tests()
                while report is None and watch.stopped is None:
                    if tests.reports not in watch.wait([tests.reports]):
                        continue
                    report = read_json(read_frame(tests.reports)).get("report")
                    if report is None:
                        write_frame(tests.requests, write_json(self._case(tests, ours)))
                        watch = _Watch(self, tests=tests.pid)
            return tests.end(watch.stopped, report)

    def _case(self, tests: _Tests, handover: socket.socket) -> dict[str, Any]:
        """What became of one input: status and detail, and whether the program ended by itself."""
        given, output, errors = os.pipe(), os.pipe(), os.pipe()
        program = forks.fork(self._be_program, [given[0], output[1], errors[1]], run_script)
        socket.send_fds(handover, [b"!"], [given[1], output[0], errors[0]])
        for descriptor in (*given, *output, *errors):
            os.close(descriptor)
        watch = _Watch(self, program=program, tests=tests.pid)
        over: dict[str, Any] = {}
        while not over and watch.stopped is None:
            if tests.reports in watch.wait([tests.reports]):
                over = read_json(read_frame(tests.reports))
        end = os.pidfd_open(program)
        while watch.stopped is None and not over["is_flood"] and end not in watch.wait([end]):
            pass
        os.close(end)
        status, cpu_s, memory_mb = self._end(program, tests)
        forks.empty(self.worker.work)
        over = over or read_json(read_frame(tests.reports))
        stopped = self._excess(watch, cpu_s, is_flood=over["is_flood"])
        by_itself = stopped is None and status != 0
        kind, detail = self._judge_end(status, memory_mb) if by_itself else stopped or ("pass", "")
        return {"status": kind, "detail": detail, "by_itself": by_itself}


class _Tests:
    """The process of the tests, seen from the keeper."""

    def __init__(self, run: _Run, kept: list[int]) -> None:
        self._run = run
        theirs, self.requests = os.pipe()
        self.reports, answers = os.pipe()
        self.pid = forks.fork(self._be_tests, theirs, answers, kept)
        os.close(theirs)
        os.close(answers)

    def send_tests(self) -> None:
        """Moves the tests from the job's pipe to their process, past this one's memory."""
        pass_on(_JOBS, self.requests, self._run.worker.null)

    def _be_tests(self, requests: int, reports: int, kept: list[int]) -> NoReturn:
        self._run.worker.keep_only([self._run.worker.null] * 3 + [requests, reports, *kept])
        kernel.hide_memory()
        tests = read_json(read_frame(3))
        self._run._confine(is_program=False)
        random.seed("tests")
        most_bytes = int(tests["output_mb"] * _MB)
        if self._run.job["is_stdio"]:
            report = judge_output(tests, partial(_run_case, socket.socket(fileno=5), most_bytes))
        else:
            report = judge_calls(tests, Channel(5, 6, most_bytes, sees_changes=tests["kind"] == "asserts"))
        write_frame(4, write_json({"report": report}))
        while True:  # ending here would wake the program, which is to be killed asleep
            signal.pause()

    def end(self, stopped: tuple[str, str] | None, report: Report | None) -> Report:
        """Ends the process; the report, or one that says why there is none."""
        os.close(self.requests)
        os.close(self.reports)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        counts = {"num_passed": 0, "num_tests": 0} | (report or {})
        if stopped is None and report is None:
            stopped = "infra_error", f"the process of the tests ended without a report ({forks.ending(status)})"
        return counts | ({"status": stopped[0], "detail": stopped[1]} if stopped else {})


def _run_case(handover: socket.socket, most_bytes: int, given: str) -> dict[str, Any]:
    """Has the keeper start the program, and talks to it: status, detail and output."""
    write_frame(4, write_json({"start": True}))
    _, (writer, output, errors), _, _ = socket.recv_fds(handover, 1, 3)
    said = talk(given.encode("utf-8", "surrogateescape"), writer, output, errors, most_bytes)
    write_frame(4, write_json({"is_flood": said.is_flood}))
    result: dict[str, Any] = read_json(read_frame(3))
    if result["by_itself"] and said.last_error:
        is_memory = said.last_error.startswith("MemoryError")
        result |= {"detail": said.last_error} | ({"status": "memory"} if is_memory else {})
    return result | {"output": said.output.decode("utf-8", "replace")}


class _Watch:
    """Waits for pipes, and stops processes that use up their CPU time, sleep for long or start too many threads."""

    def __init__(self, run: _Run, *, program: int | None = None, tests: int | None = None) -> None:
        self._run = run
        limits = [
            (program, run.cpu_limit_s, ""),
            (tests, run.job["tests_s"], " for the tests, on what the program returned"),
        ]
        self._meters = [(Meter(pid), limit_s, what) for pid, limit_s, what in limits if pid]
        self._idle = IdleClock([meter for meter, _, _ in self._meters])
        self._look_s = time.monotonic() + _LOOK_EVERY_S
        self._until_s = time.monotonic() + _STUCK_S
        self.stopped: tuple[str, str] | None = None

    def wait(self, readers: list[int]) -> set[int]:
        """Descriptors that are ready; none after a while, in which `stopped` may have become a status and a detail."""
        ready = set(select.select(readers, [], [], _POLL_S)[0])
        for meter, limit_s, what in self._meters:
            if meter.cpu_s() > limit_s:
                self.stopped = "timeout", f"more than {limit_s:g} s of CPU time{what}"
        if self.stopped is None and time.monotonic() > self._look_s:
            self._look_s = time.monotonic() + _LOOK_EVERY_S
            self._look()
        return ready

    def _look(self) -> None:
        if self._idle.read() > self._run.idle_limit_s:
            self.stopped = "timeout", f"idle for more than {self._run.idle_limit_s:g} s"
        elif any(meter.num_threads > MOST_THREADS for meter, _, _ in self._meters):
            self.stopped = "crash", "too many threads"
        elif forks.is_overfull(self._run.worker.work, self._run.limits["disk_mb"] * _MB):
            self.stopped = "output_limit", "too many files, or too large ones"
        elif time.monotonic() > self._until_s:
            self.stopped = "infra_error", f"no end after {_STUCK_S:g} s"


def _say(message: dict[str, Any]) -> None:
    """One line to the pool that started the worker."""
    write_all(_VERDICTS, write_json(message) + b"\n")


def main() -> None:
    """Runs a worker on descriptors 0 and 1; the settings are the first argument, as JSON."""
    settings = json.loads(sys.argv[1])
    try:
        for name in [*_PRELOADED.split(), *settings["preload"]]:
            importlib.import_module(name)
        os.environ.clear()
        packages.import_only(settings["readable"])
        worker = Worker(settings["tier"], settings["work"], settings["readable"])
        gc.collect()
        gc.freeze()
    except BaseException as error:
        _say({"failed": f"{type(error).__name__}: {error}"})
        return
    _say({"ready": True})
    try:
        worker.serve()
    finally:
        worker.remove_folder()
