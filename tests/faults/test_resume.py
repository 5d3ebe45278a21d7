"""What a resume refuses, what it warns of, and what it must not change."""

from __future__ import annotations

import shutil
import signal
import socket
from collections.abc import Iterator

import pytest

from quatro.runs.status import is_locked
from tests.kit import quatro, settings


@pytest.mark.slow
def test_fault_09_a_checkpoint_of_another_run_is_refused_with_the_keys_that_differ(lab, tmp_path):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    assert lab.run([*lab.train, "-s", "steps=2", "-o", str(ours)], root=ours).code == 0
    assert lab.run([*lab.train, "-s", "steps=2", "-s", "seed=7", "-o", str(theirs)], root=theirs).code == 0
    shutil.rmtree(ours / "checkpoints" / "step-000002")
    shutil.copytree(theirs / "checkpoints" / "step-000002", ours / "checkpoints" / "step-000002")
    ended = lab.run(["train", str(ours), "--resume", "-s", "steps=4"], root=ours)
    assert ended.code == 4
    assert "seed was 7, is 0" in " ".join(ended.err.split())


@pytest.mark.slow
def test_fault_10_a_second_process_is_refused_with_the_owner_and_the_first_goes_on(lab, tmp_path):
    run = tmp_path / "run"
    first = lab.start([*lab.train, "-o", str(run)])
    while not ((run / "config.yaml").exists() and is_locked(run)):
        assert first.poll(0.01) is None, first.communicate()
    first.send_signal(signal.SIGSTOP)  # a run this small could be over before the second looks
    second = lab.run(["train", str(run), "--resume"], root=run)
    first.send_signal(signal.SIGCONT)
    assert second.code == 75
    assert f"process {first.pid} on {socket.gethostname()}" in second.err
    assert first.wait() == 0
    assert lab.outcome(run) == lab.whole[0]


@pytest.fixture
def threads() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("now", "is_warned_of"), [(2, True), (1, False)])
def test_fault_38_another_number_of_threads_is_warned_of(threads, tiny_folder, tmp_path, now, is_warned_of):
    import torch

    run = tmp_path / "run"
    keys = (f"model={tiny_folder}", "steps=1", "threads=null", "prompts_per_step=2", "minibatch_prompts=2")
    keys = (*keys, "rollouts_per_prompt=2", "rollout.max_new_tokens=3")
    torch.set_num_threads(1)
    words = settings(*keys)
    result = quatro("train", "quickstart", "-o", run, *words)
    torch.set_num_threads(now)
    result = quatro("train", run, "--resume", "-s", "steps=2")
    said = "threads was 1 when this run began and is 2 now; results will not be the same bit by bit"
    assert (said in " ".join(result.stderr.split())) == is_warned_of
    assert (said in (run / "log.txt").read_text(encoding="utf-8")) == is_warned_of


@pytest.mark.slow
def test_fault_49_automatic_inner_updates_resume_bit_by_bit(lab, tmp_path):
    argv = [*lab.train, "-s", "inner_updates=auto", "-s", "minibatch_prompts=4", "-s", "method.delta=1e-3", "-o"]
    whole, run = tmp_path / "whole", tmp_path / "run"
    assert lab.run([*argv, str(whole)], root=whole).code == 0
    killed = lab.run([*argv, str(run)], root=run / "checkpoints", fail_at=75, kill=True)  # in the second checkpoint
    assert killed.code == -signal.SIGKILL
    assert lab.run(["train", str(run), "--resume"], root=run).code == 0
    assert lab.outcome(run) == lab.outcome(whole)
