"""vLLM with a pretrained model of 135M parameters: it trains, and its server answers `quatro sample`."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("started")]
pytest.importorskip("vllm")

from tests.kit import read_json, read_rows  # noqa: E402
from tests.real.smollm2 import command, trained  # noqa: E402
from tests.vllm.server import VllmServer  # noqa: E402

# Nats a token, between vLLM's log-probabilities of what it drew and the trainer's: the mean, and the largest.
APART = {"float32": (2e-5, 3e-4), "bfloat16": (0.03, 1.0)}


@pytest.mark.parametrize("dtype", APART)
def test_it_draws_what_the_trainer_learns_from(tmp_path, record_property, dtype):
    """If the weights that were sent do not answer a fixed sequence as the policy does, the command fails."""
    row = trained(tmp_path / "run", "rollout.engine=vllm", f"dtype={dtype}")
    for name in ("mismatch/dlogp_abs_mean", "mismatch/dlogp_abs_max", "sync/probe_dlogp_mean", "sync/probe_dlogp_max"):
        record_property(name, row[name])
    mean, largest = APART[dtype]
    assert 0 < row["mismatch/dlogp_abs_mean"] < mean
    assert row["mismatch/dlogp_abs_max"] < largest
    assert row["sync/probe_dlogp_max"] > 0
    assert 0 < row["reward/mean"] < 1
    assert row["optimizer_steps"] == 4
    assert 0 < row["kl/new_old"] < 1


def test_its_server_answers_as_the_engine_here(started, tmp_path):
    """The likeliest tokens, texts and ends are the same; at temperature 1 some of its answers are right."""
    server = VllmServer(started, tmp_path / "log.txt", longest=256, name="smollm2-started")
    drawing = ["-b", "word-problems", "--template", "question", "--limit", 8, "--max-tokens", 64]
    greedy = ["-n", 1, "--top-k", 1]
    try:
        there = ["--base-url", server.url, "-o"]
        command("sample", "smollm2-started", *drawing, *greedy, *there, tmp_path / "there")
        command("sample", "smollm2-started", *drawing, "-n", 4, "--grade", *there, tmp_path / "drawn")
    finally:
        server.kill()
    command("sample", "smollm2-started", *drawing, *greedy, "-o", tmp_path / "here")
    ends = [
        [(row["completion"], row["finish_reason"]) for row in read_rows(tmp_path / name / "word-problems.jsonl")]
        for name in ("here", "there")
    ]
    assert {reason for _, reason in ends[0]} >= {"stop"}
    assert sum(a == b for a, b in zip(*ends, strict=True)) >= 7  # two logits may be equal to the last digit
    drawn = read_rows(tmp_path / "drawn" / "word-problems.jsonl")
    assert 0 < sum(row["correct"] for row in drawn) < len(drawn) == 32
    found = read_json(tmp_path / "drawn" / "sampling.json")["server"]
    assert (found["id"], found["owned_by"]) == ("smollm2-started", "vllm")
