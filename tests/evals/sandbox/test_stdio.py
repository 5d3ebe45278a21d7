"""Programs that read standard input: real descriptors, a process for each case, outputs compared elsewhere."""

import pytest

from evals.sandbox import Stdio
from evals.sandbox.judge import same_output

WORKS = {
    "input": ("a = input(); b = input()\nprint(a + b)", "x\ny\n", "xy\n"),
    "whole": ("import sys\nprint(len(sys.stdin.read()))", "x" * 300_000, "300000"),
    "not_read": ("print(1)", "x" * 300_000, "1"),
    "descriptor_0": ("if __name__ == '__main__':\n    print(open(0).read())", "a\n", "a"),
    "bytes": ("import sys\nsys.stdout.buffer.write(sys.stdin.buffer.read())", "ß→😀", "ß→😀"),
    "exit": ("print(1)\nraise SystemExit", "", "1"),
    "exit_hard": ("import os\nprint(1, flush=True)\nos._exit(0)", "", "1"),
    "errors": ("import sys\nsys.stderr.write('x' * 200_000)\nprint(1)", "", "1"),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor as T\nwith T(8) as p: print(*p.map(int, '12'))",
        "",
        "1 2",
    ),
    "asyncio": (
        "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    print(1)\nasyncio.run(f())",
        "",
        "1",
    ),
    "tempfile": ("import tempfile\nwith tempfile.NamedTemporaryFile() as f: print(f.write(b'x'))", "", "1"),
    "sqlite": (
        "import sqlite3\nc = sqlite3.connect('a')\nc.execute('create table t(a)')\nc.commit()\nprint(1)",
        "",
        "1",
    ),
    "pickle": ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "", "A"),
    "at_exit": ("import atexit\natexit.register(print, 2)\nprint(1)", "", "1\n2"),
    "empty_folder": ("import os\nprint(os.listdir(), os.getcwd() == os.environ['HOME'])", "", "[] True"),
}
FAILS = {
    "wrong": ("print(2)", "fail", "another output"),
    "too_much": ("print(1)\nprint(1)", "fail", "another output"),
    "nothing": ("", "fail", "another output"),
    "no_text": ("import sys\nsys.stdout.buffer.write(b'1\\xff')", "fail", "another output"),
    "raises": ("print(1)\n1 / 0", "crash", "ZeroDivisionError"),
    "syntax": ("print(1", "crash", "SyntaxError"),
    "status": ("print(1)\nraise SystemExit(3)", "crash", "exit status 3"),
    "killed": ("import os\nprint(1, flush=True)\nos.kill(os.getpid(), 9)", "crash", "signal 9"),
    "memory": ("x = []\nwhile True: x.append(bytearray(1 << 24))", "memory", "MemoryError"),
    "processes": ("import os, time\nwhile True: os.fork() or time.sleep(9)", "crash", "Error: [Errno"),
    "files": ("x = [open('/dev/null') for _ in range(10_000)]", "crash", "OSError"),
    "disk": ("x = open('x', 'wb')\nwhile True: x.write(bytes(1 << 20))", "crash", "OSError"),
    "spins": ("print(1, flush=True)\nwhile True: pass", "timeout", "CPU time"),
    "flood": ("while True: print('x' * 10_000)", "output_limit", "output"),
    "flood_of_errors_spins": ("import sys\nwhile True: sys.stderr.write('x' * 10_000)", "timeout", "CPU time"),
}


@pytest.mark.parametrize("name", WORKS)
def test_what_works_in_python_works_here(judge, name):
    program, given, expected = WORKS[name]
    verdict = judge(program, Stdio(cases=[(given, expected)]))
    assert (verdict.status, verdict.detail) == ("pass", "")


@pytest.mark.parametrize("name", FAILS)
def test_fault_51_what_is_wrong_is_named_and_the_next_program_is_not_affected(judge, name):
    program, status, detail = FAILS[name]
    # Touching 100 MB takes CPU time, on a busy machine more.
    timeout_s = 5.0 if name == "memory" else 0.2
    verdict = judge(program, Stdio(cases=[("", "1")]), timeout_s=timeout_s, memory_mb=100, output_mb=1)
    assert verdict.status == status
    assert detail in verdict.detail
    assert judge("print(1)", Stdio(cases=[("", "1")])).status == "pass"


def test_each_case_is_a_process_in_an_empty_folder(judge):
    program = "import os\nprint(os.listdir(), input())\nopen('file', 'w').close()"
    assert judge(program, Stdio(cases=[("1", "[] 1"), ("2", "[] 2")])).num_passed == 2


def test_cases_are_counted_if_asked_for(judge):
    cases = [("1", "1"), ("0", "1"), ("x", "1"), ("1", "1")]
    counted = judge("print(int(input()))", Stdio(cases=cases), every_test=True)
    assert (counted.status, counted.num_passed, counted.num_tests) == ("fail", 2, 4)
    assert judge("print(int(input()))", Stdio(cases=cases)).num_passed == 1


@pytest.mark.slow
@pytest.mark.parametrize("end", ["sleep(60)", "os.close(1); os.close(2); sleep(60)", "Timer(60, print).start()"])
def test_a_program_that_sleeps_is_stopped_though_it_uses_no_cpu_time(judge, end):
    program = f"import os\nfrom time import sleep\nfrom threading import Timer\nprint(1, flush=True)\n{end}"
    verdict = judge(program, Stdio(cases=[("", "1")]), timeout_s=0.2)
    assert verdict.status == "timeout"
    assert 2.6 < verdict.wall_s < 20


@pytest.mark.slow
def test_drops_of_output_do_not_keep_a_sleeping_program_alive(judge):
    program = "import os, time\nwhile True:\n    os.write(1, b'x')\n    time.sleep(0.005)"
    verdict = judge(program, Stdio(cases=[("", "1")]), timeout_s=0.2)
    assert (verdict.status, verdict.wall_s < 20) == ("timeout", True)


@pytest.mark.parametrize(
    ("found", "expected", "atol", "agrees"),
    [
        ("1 2\n", "1 2", 0.0, True),
        ("1 2  \n3\n\n", "1 2\n3", 0.0, True),
        ("1  2", "1 2", 0.0, False),
        (" 1", "1", 0.0, False),
        ("1\n\n2", "1\n2", 0.0, False),
        ("0.30000000000000004", "0.3", 0.0, False),
        ("0.30000000000000004", "0.3", 1e-6, True),
        ("a 0.3 b", "a 0.31 b", 0.1, True),
        ("a 0.3 c", "a 0.31 b", 0.1, False),
        ("0.3 0.3", "0.3", 0.1, False),
        ("nan", "0.3", 0.1, False),
        ("inf", "0.3", 0.1, False),
        ("", "", 0.0, True),
    ],
)
def test_outputs_are_compared_line_by_line(found, expected, atol, agrees):
    assert same_output(found, expected, atol) is agrees
