"""Runs on a pretended device that are stopped, run out of memory or diverge, and commands that look for one."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForSequenceClassification

import quatro
from evals.errors import MissingError
from quatro.policy import embedded
from quatro.policy.loading import load_model, load_tokenizer
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.stop import StopRequest
from quatro.rehearse.device import Card
from quatro.rollout.transformers import TransformersEngine
from quatro.runs.checkpoint import complete_checkpoints
from quatro.runs.status import read_status
from quatro.types import Prompt, Sampling
from tests.kit import quatro as quatro_command
from tests.kit import read_json
from tests.pretend.watched import pretended_gpu

MIB = 1 << 20
CHANGING = ("inner_updates=auto", "audit.prompts=2", "policy.lora.rank=4", "optimizer.lr=1e-2")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [(), CHANGING, ("dtype=bfloat16",)], ids=["plain", "LoRA, auto, audit", "bfloat16"]
)
def test_a_stop_inside_an_iteration_and_a_resume_change_nothing(trained, tmp_path, monkeypatch, settings):
    update, stop = LocalPolicy.update, StopRequest()
    calls = iter(range(1, 1000))

    def counted(self, *arguments, **options):
        if next(calls) == 5:
            stop.request()
        return update(self, *arguments, **options)

    with pretended_gpu() as gpu:
        whole = trained("whole", *settings, "steps=3", gpu=gpu)
        monkeypatch.setattr(LocalPolicy, "update", counted)
        cut = trained("cut", *settings, "steps=3", gpu=gpu, stop=stop)
        assert read_status(tmp_path / "cut")["status"] == "interrupted"
        cut += trained("cut", *settings, "steps=3", gpu=gpu)
    assert not gpu.total("faults")
    assert str(cut) == str(whole)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(trained, monkeypatch):
    update, calls = LocalPolicy.update, iter(range(1, 1000))

    def killed(self, *arguments, **options):
        if next(calls) == 6:
            raise KeyError("killed")
        return update(self, *arguments, **options)

    with pretended_gpu() as gpu:
        whole = trained("whole", "steps=3", gpu=gpu)
        monkeypatch.setattr(LocalPolicy, "update", killed)
        with pytest.raises(KeyError, match="killed"):
            trained("cut", "steps=3", gpu=gpu)
        again = trained("cut", "steps=3", gpu=gpu)
    assert str(again) == str(whole[-len(again) :])


# --- memory -----------------------------------------------------------------------------------------------------------


def peaks(trained) -> tuple[int, int]:
    """Bytes at the most while sampling and while learning, in micro-batches that no limit cuts."""
    with pretended_gpu() as gpu:
        trained("free", "steps=1", gpu=gpu)
    return gpu.phases["generate"].peak, gpu.phases["update"].peak


def in_forward_or_backward(error: BaseException) -> str:
    """Where memory ran out."""
    names, trace = [], error.__traceback__
    while trace is not None:
        names.append(trace.tb_frame.f_code.co_name)
        trace = trace.tb_next
    return "backward" if "_backward" in names else "forward"


@pytest.fixture
def failures(monkeypatch) -> list[str]:
    """Where memory ran out, each time that it did."""
    found: list[str] = []
    attempt = LocalPolicy._attempt

    def watched(self, work):
        def told():
            try:
                return work()
            except torch.OutOfMemoryError as error:
                found.append(in_forward_or_backward(error))
                raise

        return attempt(self, told)

    monkeypatch.setattr(LocalPolicy, "_attempt", watched)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_card_too_small_learns_in_smaller_micro_batches(trained, tmp_path, failures, caplog, where):
    """Just below the peak it is the backward pass that finds no room."""
    sampling, learning = peaks(trained)
    memory = {"forward": int(0.55 * sampling + 0.45 * learning), "backward": int(0.97 * learning)}[where]
    with pretended_gpu(Card("small", memory)) as gpu, caplog.at_level(logging.WARNING):
        trained("small", "steps=1", gpu=gpu)
    assert failures[0] == where
    assert "out of memory with microbatch_tokens=" in caplog.text
    assert gpu.peak <= memory
    state = read_json(complete_checkpoints(tmp_path / "small")[-1] / "state.json")
    assert state["parts"]["policy"]["microbatch_tokens"][0]["used"] < 16384


@pytest.mark.slow
def test_after_memory_ran_out_in_backward_half_the_tokens_suffice(trained, failures):
    _, learning = peaks(trained)
    with pretended_gpu(Card("small", int(0.97 * learning))) as gpu:
        trained("small", "steps=1", gpu=gpu)
    assert failures == ["backward"]


def test_a_card_too_small_draws_fewer_responses_at_once(tiny_folder, caplog):
    prompts = [Prompt("b", str(i), "", None, "", (5, 6, 7)) for i in range(4)]
    seeds = [[8 * i + j for j in range(8)] for i in range(4)]

    def drawn(memory: int) -> tuple[list[list[tuple[int, ...]]], int]:
        with pretended_gpu(Card("a card", memory)) as gpu:
            model = load_model(str(tiny_folder), torch.float32, "cuda")
            engine = TransformersEngine(model, load_tokenizer(str(tiny_folder)), eos_ids=(0,))
            groups = engine.generate(prompts, seeds, Sampling(max_new_tokens=50))
        assert not gpu.total("faults")
        return [[one.token_ids for one in group] for group in groups], gpu.peak

    whole, peak = drawn(80 * 2**30)
    assert not caplog.text
    assert drawn(int(0.8 * peak))[0] == whole
    assert "while drawing 32 responses at once (CUDA out of memory" in caplog.text


def test_a_card_without_room_for_the_weights_says_so(trained):
    with (
        pretended_gpu(Card("tiny", 10_000)) as gpu,
        pytest.raises((torch.OutOfMemoryError, MissingError), match="memory"),
    ):
        trained("tiny", gpu=gpu)


@pytest.mark.slow
def test_a_step_that_is_not_finite_is_skipped(trained, tmp_path, monkeypatch):
    backward, calls = LocalPolicy._backward, iter(range(1000))
    monkeypatch.setattr(
        LocalPolicy, "_backward", lambda self, loss: backward(self, loss * (math.nan if next(calls) == 2 else 1.0))
    )
    with pretended_gpu() as gpu:
        trained("run", "on_nonfinite=skip", gpu=gpu)
    assert not gpu.total("faults")
    (saved,) = (tmp_path / "run").rglob("nonfinite-*.pt")
    assert torch.load(saved, weights_only=False)["ids"].device.type == "cpu"


# --- what else computes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_reward_model_sampling_and_export(trained, tmp_path):
    tokenizer = embedded.make_tokenizer(64)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = Qwen2Config(vocab_size=len(tokenizer), num_labels=1, num_key_value_heads=1, **shape)
    Qwen2ForSequenceClassification(config).save_pretrained(tmp_path / "judge")
    tokenizer.save_pretrained(tmp_path / "judge")
    options = f"{{path: {tmp_path / 'judge'}, dtype: float32, device: %s}}"
    with pretended_gpu() as gpu:
        found = trained("run", f"reward={{name: model, options: {options % 'cuda'}}}", gpu=gpu)
        assert gpu.phases["reward"].kernels > 0
        gpu.begin("sample")
        quatro.draw_samples(tmp_path / "run", "countdown", n=1, out=tmp_path / "samples", limit=4)
        assert gpu.phases["sample"].kernels > 0
        quatro_command("export", tmp_path / "run", "-o", tmp_path / "model")
    assert not gpu.total("faults")
    assert str(found) == str(trained("cpu", f"reward={{name: model, options: {options % 'cpu'}}}"))
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_doctor_and_a_dry_run_see_the_card(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pretended_gpu() as gpu:
        said = quatro_command(
            "train", "quickstart", "-s", f"model={tiny_folder}", "-s", "device=cuda", "--dry-run"
        ).output
        assert "80.0 GiB are free here: it fits" in " ".join(said.split())
        assert "NVIDIA H100 80GB HBM3 (80 GiB)" in " ".join(quatro_command("doctor").output.split())
    assert not gpu.total("faults")


@pytest.mark.slow
def test_the_tests_for_a_gpu_pass_on_it():
    """In a process of their own, which is told of the device before it collects them."""
    root = Path(__file__).parents[2]
    options = ["-p", "tests.pretend.plugin", "-m", "gpu", "-k", "not grouped"]  # which takes minutes on a CPU
    command = [sys.executable, "-m", "pytest", *options, "tests/gpu"]
    done = subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(root)}
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "pretended device: 0 faults" in done.stdout
    assert "skipped" not in done.stdout
