"""The pool of worker processes: what it promises whatever its processes do."""

import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from evals.worker_pool import CannotStartError, Failure, WorkerPool, fresh_interpreter, granted_cores, usable_cores

BEHAVIOURS = """
import os, signal, threading, time
from evals.worker_pool import serve

answers = os.dup(1)  # `serve` sends what is printed elsewhere

def answer(request):
    if request == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if request == "leave":
        os._exit(3)
    if request == "hang":
        time.sleep(1000)
    if request == "garbage":
        os.write(answers, b"not JSON\\n")
    if request == "list":
        os.write(answers, b"[1]\\n")
    if request == "then stop reading":
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGSTOP]).start()
    return {"echo": request[:9], "process": os.getpid()}

serve(lambda: answer)
"""


@pytest.fixture
def make_pool(tmp_path: Path) -> Iterator[Callable[..., WorkerPool]]:
    pools = []

    def make(program: str = BEHAVIOURS, **options: object) -> WorkerPool:
        script = tmp_path / "worker.py"
        script.write_text(program, encoding="utf-8")
        settings = {"num_workers": 1, "timeout_s": 20.0, "start_timeout_s": 20.0, **options}
        pools.append(WorkerPool(partial(fresh_interpreter, [str(script)]), **settings))  # type: ignore[arg-type]
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.mark.parametrize("num_workers", [1, 3])
def test_a_process_that_fails_costs_one_request_and_the_rest_are_answered_in_order(make_pool, num_workers):
    pool = make_pool(num_workers=num_workers, timeout_s=3.0)
    answers = pool.ask(["a", "die", "b", "leave", "garbage", "list", "c", "hang", "d"])
    assert [answer if isinstance(answer, Failure) else answer["echo"] for answer in answers] == [
        "a",
        Failure("ended", "ended with status -9"),
        "b",
        Failure("ended", "ended with status 3"),
        Failure("ended", "sent b'not JSON', which is no answer"),
        Failure("ended", "sent b'[1]', which is no answer"),
        "c",
        Failure("overdue", "gave no answer within 3 s"),
        "d",
    ]


def test_a_process_that_stops_reading_cannot_stop_its_parent(make_pool):
    pool = make_pool(timeout_s=3.0)
    (answer,) = pool.ask(["then stop reading"])
    assert not isinstance(answer, Failure)
    wait_until_stopped(answer["process"])
    long = "x" * 1_000_000  # more than a pipe holds
    assert pool.ask([long]) == [Failure("overdue", "gave no answer within 3 s")]
    (answer,) = pool.ask([long])
    assert not isinstance(answer, Failure)
    assert answer["echo"] == "x" * 9


def wait_until_stopped(process_id: int) -> None:
    deadline_s = time.monotonic() + 60
    while Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "T":
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_a_process_that_is_not_ready_in_time_is_killed(make_pool):
    pool = make_pool("import time\ntime.sleep(1000)\n", start_timeout_s=0.3)
    with pytest.raises(CannotStartError, match=r"was not ready within 0\.3 s"):
        pool.ask(["a", "b"])


def test_an_interruption_ends_the_processes(make_pool, monkeypatch):
    pool = make_pool()

    def interrupt() -> Iterator[object]:
        raise KeyboardInterrupt

    (before,) = pool.ask(["a"])
    with monkeypatch.context() as patch:
        patch.setattr(pool, "_messages", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.ask(["a", "b", "c"])
    after = pool.ask(["d", "e"])  # and not the answer to a
    assert [answer["echo"] for answer in after if not isinstance(answer, Failure)] == ["d", "e"]
    assert not isinstance(before, Failure)
    assert before["process"] not in [answer["process"] for answer in after if not isinstance(answer, Failure)]


@pytest.mark.parametrize(
    ("files", "granted"),
    [
        ({}, math.inf),
        ({"job/cpu.max": "max 100000"}, math.inf),
        ({"job/cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "400000 100000", "job/step/cpu.max": "max 100000", "job/cpu.max": "200000 100000"}, 2.0),
        ({"job/cpu.max": "nonsense"}, math.inf),
    ],
)
def test_the_least_limit_of_the_cgroups_says_how_many_cores_there_are(tmp_path, files, granted):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    membership = tmp_path / "cgroup"
    membership.write_text("5:devices:/\n0::/job/step\n", encoding="utf-8")
    assert granted_cores(tmp_path, membership) == granted


def test_usable_cores_are_those_of_this_process(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 3, 5}, raising=False)
    for granted, expected in ((math.inf, 3), (1.5, 2), (0.5, 1)):
        monkeypatch.setattr("evals.worker_pool.granted_cores", lambda *_, found=granted: found)
        assert usable_cores() == expected
