"""Workers: jobs in order, faults of the machine kept apart from those of programs, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from evals.sandbox import Asserts, Calls, IsolationError, Job, Limits, Sandbox, Stdio, probe, self_test

pytestmark = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
TESTS = Asserts(code=["assert f() == 1"])


def job(program: str, **options: object) -> Job:
    return Job(program=program, tests=TESTS, limits=Limits(timeout_s=1.0), **options)


def test_verdicts_come_in_the_order_of_the_jobs_and_jobs_are_taken_when_needed():
    taken = []

    def jobs():
        for number in range(12):
            taken.append(number)
            sleep = "__import__('time').sleep(0.2)" if number == 0 else "None"
            yield job(f"def f():\n    {sleep}\n    return {number % 3}", id=str(number))

    with Sandbox() as sandbox:
        found = sandbox.run(jobs())
        assert taken == []
        assert [(verdict.id, verdict.status) for verdict in found] == [
            (str(number), "pass" if number % 3 == 1 else "fail") for number in range(12)
        ]


def test_large_jobs_and_large_answers_pass_through():
    text = "x" * 3_000_000
    tests = Asserts(code=[f"assert f({text!r}) == {text!r}"] * 2)
    with Sandbox(workers=1) as sandbox:
        assert [one.status for one in sandbox.run([Job(program="def f(x): return x", tests=tests)] * 2)] == ["pass"] * 2


def workers(sandbox: Sandbox) -> list[int]:
    return [worker.process.pid for worker in sandbox._pool._workers]


def folder_of(sandbox: Sandbox) -> str:
    [worker] = sandbox._pool._workers
    return json.loads(worker.process.args[-1])["work"]


def test_a_worker_that_is_killed_is_replaced_and_its_job_run_again():
    with Sandbox(workers=1) as sandbox:
        list(sandbox.run([job("def f(): return 1")]))
        [before] = workers(sandbox)
        threading.Timer(0.3, os.kill, (before, signal.SIGKILL)).start()
        [verdict] = sandbox.run([job("import time\ndef f():\n    time.sleep(2)\n    return 1")])
        assert verdict.status == "pass"
        assert workers(sandbox) != [before]


def test_a_keeper_whose_worker_was_killed_before_the_two_were_tied_reads_no_job():
    code = "from evals.sandbox.worker import Worker; keeper = object.__new__(Worker); keeper.pid = 0; keeper._keep()"
    ended = subprocess.run([sys.executable, "-c", code], input=b"a job that would not be read", capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, b"", b"")


def test_a_run_that_is_given_up_leaves_the_sandbox_usable():
    with Sandbox(workers=1) as sandbox:
        found = sandbox.run(job("def f(): return 1") for _ in range(3))
        assert next(found).status == "pass"
        with pytest.raises(RuntimeError, match="running other jobs"):
            next(sandbox.run([job("def f(): return 1")]))
        found.close()
        assert [verdict.status for verdict in sandbox.run([job("def f(): return 2")])] == ["fail"]


def test_a_module_that_cannot_be_preloaded_is_named():
    with pytest.raises(IsolationError, match="no_such_module"), Sandbox(preload=["no_such_module"]) as sandbox:
        list(sandbox.run([job("def f(): return 1")]))


def test_the_callers_environment_and_descriptors_do_not_reach_programs(monkeypatch):
    monkeypatch.setenv("SECRET", "secret")
    reader, writer = os.pipe()
    os.set_inheritable(reader, True)
    program = "import os\ndef f(): return int('SECRET' not in os.environ and sorted(os.listdir('.')) == [])"
    try:
        with Sandbox(workers=1) as sandbox:
            assert [verdict.status for verdict in sandbox.run([job(program)])] == ["pass"]
    finally:
        os.close(reader)
        os.close(writer)


def test_the_same_program_gets_the_same_random_numbers_and_the_same_order_of_sets():
    program = "import random\ndef f(): return repr((random.random(), list({'a', 'b', 'c', 'd', 'e'})))"
    program += "\ndef g(): raise ValueError(f())"
    with Sandbox(workers=2) as sandbox:
        jobs = [Job(program=program, tests=Asserts(code=["g()"]))] * 6
        assert len({verdict.detail for verdict in sandbox.run(jobs)}) == 1


LEAVES = """
import os, subprocess, threading, time
def f():
    for act in (lambda: subprocess.Popen(["sleep", "60"]), os.fork, lambda: os.makedirs("a/b/c"), os.pipe):
        try: act()
        except OSError: pass
    open("file", "w").write("x")
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    return 1
"""


@pytest.mark.parametrize("tier", ["full", "landlock+seccomp"])
def test_nothing_is_left_behind(tier):
    if probe().faults(tier):
        pytest.skip(f"the tier {tier} is not available here: {probe().faults(tier)}")
    before = len(os.listdir("/proc/self/fd"))
    with Sandbox(tier=tier, workers=1) as sandbox:
        list(sandbox.run([job(LEAVES)]))
        [pid] = workers(sandbox)
        folder = folder_of(sandbox)

        def held() -> tuple[int, int, list[str]]:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
                children = file.read().split()
            return len(children), len(os.listdir(f"/proc/{pid}/fd")), os.listdir(f"/proc/{pid}/root{folder}")

        def settled() -> tuple[int, int, list[str]]:
            """What is held once the next keeper waits: the last one may not have been taken away yet."""
            until_s = time.monotonic() + 30
            while (found := held())[::2] != (1, []) and time.monotonic() < until_s:
                time.sleep(0.01)
            return found  # looked at once: between two looks a keeper may have gone

        at_first = settled()
        assert [verdict.status for verdict in sandbox.run([job(LEAVES)] * 20)] == ["pass"] * 20
        assert settled() == at_first
        assert at_first[::2] == (1, [])
    assert len(os.listdir("/proc/self/fd")) == before
    assert not os.path.exists(folder)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_workers_end_with_a_caller_that_is_killed(tmp_path):
    pid = os.fork()
    if pid == 0:
        try:
            sandbox = Sandbox(workers=1)
            list(sandbox.run([job("def f(): return 1")]))
            (tmp_path / "folder").write_text(folder_of(sandbox))
            (tmp_path / "pid").write_text(str(workers(sandbox)[0]))
            (tmp_path / "ready").touch()
            list(sandbox.run([job("import time\ndef f(): time.sleep(1)")]))
        finally:
            os._exit(0)
    until_s = time.monotonic() + 60
    while not (tmp_path / "ready").exists() and time.monotonic() < until_s:
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    worker = int((tmp_path / "pid").read_text())
    while time.monotonic() < until_s:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            assert not os.path.exists((tmp_path / "folder").read_text())
            return
        time.sleep(0.05)
    pytest.fail("the worker outlives its caller")


def test_the_sandbox_tests_itself():
    with Sandbox(workers=1) as sandbox:
        assert self_test(sandbox) == []


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Asserts(code=[]), "every program would pass"),
        (lambda: Asserts(code=[5]), "list of texts"),
        (lambda: Asserts(code=["f()"], entry_point=5), "the name of a function"),
        (lambda: Calls(entry_point="f", inputs=[[1]], expected=[1, 2]), "1 inputs, but 2 expected"),
        (lambda: Stdio(cases=[]), "every program would pass"),
        (lambda: Stdio(cases=[("1", 1)]), "pairs of texts"),
        (lambda: Limits(timeout_s=float("nan")), "timeout_s is a number above 0"),
        (lambda: Limits(timeout_s="3"), "timeout_s is a number above 0"),
        (lambda: Limits(memory_mb=0), "memory_mb is a number above 0"),
    ],
)
def test_jobs_that_cannot_be_judged_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
