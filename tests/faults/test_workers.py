"""Processes that grade, reward and judge: they raise, hang, are killed while they work and while they start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evals import worker_pool
from evals.errors import UsageError
from evals.sandbox import Asserts, Job, Sandbox, pool, tiers
from tests.kit import num_failed, quatro

MODULE = """
import os, pathlib, signal, time

STARTS = pathlib.Path(__file__).with_name("starts")
starts = int(STARTS.read_text()) if STARTS.exists() else 0
STARTS.write_text(str(starts + 1))
if starts < int(os.environ.get("KILLED_STARTS", "0")):
    os.kill(os.getpid(), signal.SIGKILL)

def fine(prompt, completion, answer):
    return len(completion)

def raises(prompt, completion, answer):
    if completion == "bad":
        raise KeyError("no such key")
    return 1.0

def killed(prompt, completion, answer):
    if completion == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return 1.0

def hangs(prompt, completion, answer):
    while completion == "bad":
        time.sleep(0.01)
    return 1.0
"""


@pytest.fixture
def rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``rewards("fine", on_error="zero")`` opens the function of `MODULE`."""
    pytest.importorskip("torch")
    from quatro.rewards import RewardConfig, make_reward

    (tmp_path / "made_up.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    made = []

    def make(name: str, **settings: Any) -> Any:
        config = {"name": f"made_up:{name}", "workers": 1, **settings}
        made.append(make_reward(RewardConfig.model_validate(config)))
        return made[-1]

    yield make
    for reward in made:
        reward.close()


def scored(reward: Any, *texts: str) -> Any:
    from quatro.types import Prompt, Rollout

    prompt = Prompt("toy", "задача/1", "?", "1", "?", (1,))
    return reward.score([prompt], [[Rollout((1,), text, "stop") for text in texts]])


GOOD = ("a",) * 5


def test_fault_13_a_reward_that_raises_names_sample_and_line_and_ends_the_run(rewards):
    from evals.errors import QuatroError

    reward = rewards("raises")
    with pytest.raises(QuatroError, match="failed on rollout 5 of toy 'задача/1'") as caught:
        scored(reward, *GOOD, "bad")
    assert "no such key" in str(caught.value)
    assert "in raises" in str(caught.value)


@pytest.mark.parametrize("policy", ["zero", "drop"])
def test_fault_13_a_reward_that_raises_may_cost_the_rollout_alone(rewards, policy):
    found = scored(rewards("raises", on_error=policy), *GOOD, "bad")
    *others, failed = found[0]
    assert num_failed(found) == (1, 0)
    assert [grade.reward for grade in others] == [1.0] * 5
    assert failed.is_dropped if policy == "drop" else failed.reward == 0.0


def test_fault_14_a_reward_that_hangs_is_killed_after_its_limit_and_counted(rewards):
    found = scored(rewards("hangs", timeout_s=3, on_error="zero"), *GOOD, "bad")
    assert num_failed(found) == (0, 1)
    assert [grade.reward for grade in found[0]] == [1.0] * 5 + [0.0]


def test_fault_15_a_reward_that_ends_its_process_is_an_error_and_no_score(rewards):
    found = scored(rewards("killed", on_error="drop"), *GOOD, "bad")
    *others, failed = found[0]
    assert (num_failed(found), failed.is_dropped) == ((1, 0), True)
    assert [grade.reward for grade in others] == [1.0] * 5
    assert "status -9" in failed.error


def test_fault_48_a_reward_that_is_killed_while_it_starts_has_one_more_try(rewards, monkeypatch):
    monkeypatch.setenv("KILLED_STARTS", "1")
    assert scored(rewards("fine"), "abc")[0][0].reward == 3.0


def test_fault_48_a_reward_that_is_killed_whenever_it_starts_is_refused(rewards, monkeypatch, tmp_path):
    monkeypatch.setenv("KILLED_STARTS", "1000")
    with pytest.raises(UsageError, match="ended with status -9"):
        rewards("fine")
    assert (tmp_path / "starts").read_text() == "2"


def killing_popen(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """The first ``count`` workers of sandboxes are killed as soon as they are there."""
    real, left = subprocess.Popen, [count]

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = real(*args, **options)
        if left[0]:
            left[0] -= 1
            os.kill(process.pid, signal.SIGKILL)
        return process

    monkeypatch.setattr(pool.subprocess, "Popen", start)


RIGHT = Job(id="one", program="def f(): return 1", tests=Asserts(code=["assert f() == 1"]))
needs_isolation = pytest.mark.skipif(tiers.probe().name == "none", reason="no isolation on this machine")


@needs_isolation
@pytest.mark.parametrize(("kills", "status"), [(1, "pass"), (2, "infra_error")])
def test_fault_15_a_program_whose_worker_is_killed_is_run_once_more_and_never_wrong(monkeypatch, kills, status):
    send, left = worker_pool._Worker.send, [kills]

    def send_and_kill(worker: Any, *args: Any) -> None:
        send(worker, *args)
        if left[0]:
            left[0] -= 1
            worker.process.kill()

    monkeypatch.setattr(worker_pool._Worker, "send", send_and_kill)
    slow = replace(RIGHT, program="import time\ndef f():\n    time.sleep(1)\n    return 1")  # the kill comes first
    with Sandbox(workers=1) as sandbox:
        [verdict] = sandbox.run([slow])
    assert (verdict.status, "status -9" in verdict.detail) == (status, status != "pass")
    assert left == [0]


@needs_isolation
def test_fault_48_a_sandbox_whose_worker_is_killed_while_it_starts_has_one_more_try(monkeypatch):
    killing_popen(monkeypatch, 1)
    with Sandbox(workers=1) as sandbox:
        assert [verdict.status for verdict in sandbox.run([RIGHT])] == ["pass"]


@needs_isolation
def test_fault_48_a_sandbox_whose_workers_are_killed_whenever_they_start_is_refused(monkeypatch):
    killing_popen(monkeypatch, 1000)
    with pytest.raises(pool.IsolationError, match="ended with status -9"):
        list(Sandbox(workers=1).run([RIGHT]))


@pytest.mark.parametrize(("kills", "is_found"), [(1, True), (2, False)])
def test_fault_48_a_probe_that_is_killed_is_no_word_about_the_machine(monkeypatch, kills, is_found):
    known, real, left = tiers.probe(), subprocess.run, [kills]

    def run(command: list[str], **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            command = ["sh", "-c", "kill -9 $$"]
        return real(command, **options)

    monkeypatch.setattr(tiers.subprocess, "run", run)
    tiers.probe.cache_clear()
    try:
        assert (tiers.probe() == known) == is_found
    finally:
        monkeypatch.undo()
        tiers.probe.cache_clear()


def test_fault_15_infra_errors_are_no_wrong_answers(tmp_path):
    """A file with an answer that no grader could judge is not measured."""

    row = {"benchmark": "b", "id": "1", "sample_index": 0, "completion": "\\boxed{1}", "answer": "1", "correct": False}
    (tmp_path / "graded.jsonl").write_text(json.dumps({**row, "outcome": "infra_error"}) + "\n", encoding="utf-8")
    assert "infra_error" in quatro("eval", "passk", tmp_path / "graded.jsonl", "--k", "1", code=4).stderr
