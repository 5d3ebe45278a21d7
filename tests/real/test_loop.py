"""Every wing of the loop on a pretrained model of 135M parameters, in batches of 4 x 4: `make test-real`."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("started")]
pytest.importorskip("torch")

from tests.kit import quatro, read_json, read_rows, says, settings  # noqa: E402
from tests.real.smollm2 import BATCH, LIMIT_S  # noqa: E402


def train(path: Path, *pairs: str) -> dict:
    """The metrics of a run of one iteration, or of the last of several."""
    quatro("train", "smollm2", *settings(*BATCH, *pairs), "-o", path)
    return read_rows(path / "metrics.jsonl")[-1]


def weights(path: Path, step: int) -> bytes:
    return (path / "checkpoints" / f"step-{step:06d}" / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="session")
def first(tmp_path_factory) -> Path:
    """A run of one iteration."""
    path = tmp_path_factory.mktemp("real") / "first"
    train(path)
    return path


def test_a_run_is_exported_sampled_again_and_reported(first, tmp_path):
    row = read_rows(first / "metrics.jsonl")[-1]
    assert 0 < row["reward/mean"] < 1
    assert 0 < row["kl/new_old"] < 1
    quatro("export", first, "-o", tmp_path / "exported")
    assert "HuggingFaceTB/SmolLM2-135M-Instruct" in (tmp_path / "exported" / "README.md").read_text(encoding="utf-8")
    drawing = ["-b", "word-problems", "--limit", "4", "-n", "4", "--max-tokens", "64", "--grade", "-o"]
    for name, model in (("run", first), ("exported", tmp_path / "exported")):
        template = ["--template", "question"] if name == "exported" else []
        quatro("sample", model, *template, *drawing, tmp_path / name)
    answers = [
        [row["completion"] for row in read_rows(tmp_path / name / "word-problems.jsonl")]
        for name in ("run", "exported")
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 16
    quatro("report", first, "-o", tmp_path / "report.html")
    assert "word-problems" in (tmp_path / "report.html").read_text(encoding="utf-8")


DEFAULT = "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"


@pytest.mark.parametrize(
    ("system", "begins"), [('""', DEFAULT), ("Be brief.", "<|im_start|>system\nBe brief.<|im_end|>\n")]
)
def test_its_own_chat_template_has_a_default_system_prompt_and_no_switch(tmp_path, system, begins):
    chat = (
        "data.template=chat: {problem}",
        f"data.system={system}",
        "data.chat_template_kwargs={enable_thinking: false}",
    )
    done = quatro("train", "smollm2", *settings(*BATCH, *chat), "-o", tmp_path / "run", "--dry-run", "--json")
    text = json.loads(done.stdout)["first_prompt"]["text"]
    assert text.startswith(f"{begins}<|im_start|>user\n")
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n")
    says(done, "enable_thinking", key="data.chat_template_kwargs")


def test_a_run_that_is_stopped_inside_an_iteration_ends_with_the_same_bits(first, tmp_path):
    """Ctrl-C while it learns; the second iteration follows after the resume."""
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    train(whole, "steps=2")
    command = [sys.executable, "-m", "quatro_cli", "train", "smollm2", *settings(*BATCH, "steps=2"), "-o", str(cut)]
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    for line in child.stderr:
        if "learning" in line:
            break
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    child.stderr.read()
    assert child.wait(LIMIT_S) == 130
    assert read_json(cut / "status.json")["step"] == 0
    quatro("train", cut, "--resume")
    assert weights(cut, 2) == weights(whole, 2)


@pytest.mark.parametrize(
    "pairs",
    [
        ("policy={lora: {rank: 8}}", "optimizer.lr=1e-4"),
        ("dtype=bfloat16",),
        ("policy.gradient_checkpointing=true",),
        ("method.name=gspo",),
    ],
    ids=["lora", "bfloat16", "checkpointing", "gspo"],
)
def test_settings_learn_from_the_same_responses(first, tmp_path, pairs):
    row, plain = train(tmp_path / "run", *pairs), read_rows(first / "metrics.jsonl")[-1]
    assert row["reward/mean"] == pytest.approx(plain["reward/mean"], abs=0.26 if "dtype=bfloat16" in pairs else 1e-9)
    assert 0 < row["kl/new_old"] < (5 if "method.name=gspo" in pairs else 1)  # no radius holds GSPO: 2.4 nats
    if "policy.gradient_checkpointing=true" in pairs:
        assert row["kl/new_old"] == pytest.approx(plain["kl/new_old"], rel=1e-3)
    if "dtype=bfloat16" in pairs:
        assert row["kl/new_old"] == pytest.approx(plain["kl/new_old"], rel=0.5)


HALF = ("prompts_per_step=8", "minibatch_prompts=4")  # which has the same peak, in the second optimiser step
BARE = """
import resource, sys, torch, transformers
from transformers import LlamaForCausalLM
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2 ** (30 if sys.platform == "darwin" else 20))
"""


# The C library keeps holes between what is freed and what is not, the more the smaller the pieces: an adapter's layers
# free much of what they make.
@pytest.mark.parametrize(
    ("pairs", "least"),
    [
        ((), 0.85),
        ((*HALF, "policy={lora: {rank: 16}}", "optimizer.lr=1e-4"), 0.6),
        ((*HALF, "policy.gradient_checkpointing=true"), 0.8),
    ],
    ids=["shipped", "lora", "checkpointing"],
)
def test_the_dry_run_is_near_the_measured_peak(tmp_path, pairs, least):
    """Of shipped micro-batches, beyond what the libraries take; in processes of their own: the peak is a process's."""
    words = ["train", "smollm2", *settings("steps=1", *pairs), "-o", str(tmp_path / "run")]
    command = [sys.executable, "-m", "quatro_cli", *words]

    def output(*words: str) -> str:
        # By a shell in between: the peak that a process is told begins with that of the one which started it.
        apart = ["sh", "-c", '"$@"; exit $?', "sh", *words]
        return subprocess.run(apart, check=True, stdout=subprocess.PIPE, text=True, timeout=2 * LIMIT_S).stdout

    predicted = json.loads(output(*command, "--dry-run", "--json"))["memory_bytes"]["total"] / 2**30
    bare = float(output(sys.executable, "-c", BARE))
    output(*command)
    measured = read_rows(tmp_path / "run" / "metrics.jsonl")[-1]["perf/peak_memory_gib"] - bare
    assert least < predicted / measured < 1.15
