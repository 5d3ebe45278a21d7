"""`quatro train --rehearse CARD`: an iteration on a card that is not there, from a folder with config.json alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from evals.errors import UsageError
from quatro.config import load_config
from quatro.rehearse.cards import CARDS, read_card
from quatro.rehearse.device import H100
from quatro.rehearse.iteration import rehearse
from quatro_cli.app import app
from tests.pretend.test_ceilings import SHAPES

GIB = 2**30
LENGTHS = {"prompt": 128, "response": 512}
FEW = ("prompts_per_step=32", "minibatch_prompts=16")


def folder_of(path, **changes):
    """A model folder of Qwen2.5-1.5B's shape, but for ``changes``, without weights and tokenizer."""
    path.mkdir(exist_ok=True)
    config = SHAPES["Qwen2.5-1.5B"](**changes).to_dict()
    (path / "config.json").write_text(json.dumps({**config, "architectures": ["Qwen2ForCausalLM"]}), encoding="utf-8")
    return path


@pytest.fixture
def rehearsed(tmp_path):
    """``rehearsed(card, *settings)``: its parts by name, and its lines, for a shape of two layers."""

    def run(card, *settings, lengths=LENGTHS):
        model = folder_of(tmp_path / "model", num_hidden_layers=2)
        found = rehearse(load_config("math-1.5b", overrides=[f"model={model}", *FEW, *settings]), card, lengths)
        return {one.name: one for one in found.parts}, found.lines

    return run


@pytest.mark.slow
def test_seconds_follow_the_cards_constants(rehearsed):
    parts, lines = rehearsed(H100)
    assert list(parts) == ["generate", "old_logp", "ref_logp", "update", "audit"]
    slow, _ = rehearsed(replace(H100, bandwidth=H100.bandwidth / 4, flops=H100.flops / 4, wait_s=0.0))
    waiting, _ = rehearsed(replace(H100, call_s=1.0))
    for name, one in parts.items():
        other = slow[name].moving_s + slow[name].multiplying_s
        assert other == pytest.approx(4 * (one.moving_s + one.multiplying_s))
        assert one.seconds >= max(one.calling_s, 0.99 * (one.moving_s + one.multiplying_s))
        assert waiting[name].limit.startswith("the host")
        assert waiting[name].seconds == pytest.approx(waiting[name].calling_s, rel=1e-3)
    assert "moving numbers" in slow["update"].limit
    assert "it fits" in lines[0]
    assert "3.03 TB/s" in lines[-1]


@pytest.mark.slow
def test_phases_take_what_the_batch_has(rehearsed):
    parts, _ = rehearsed(H100)
    more, _ = rehearsed(H100, "prompts_per_step=64", "inner_updates=2")
    assert more["update"].seconds == pytest.approx(4 * parts["update"].seconds)  # twice the minibatches, twice each
    assert more["ref_logp"].seconds == pytest.approx(2 * parts["ref_logp"].seconds)
    around, _ = rehearsed(H100, "old_policy=sampler")
    assert list(around) == ["generate", "ref_logp", "update", "audit"]  # log pi_old is the sampler's
    single, _ = rehearsed(H100, "minibatch_prompts=32", "kl.beta=0", "audit.prompts=0")
    assert list(single) == ["generate", "update"]  # a single minibatch is pi_old itself
    assert single["update"].peak < parts["update"].peak - 2 * 1.5e8  # the reference's 2 bytes a parameter


@pytest.mark.slow
def test_memory_is_the_dry_runs_sum_and_a_card_that_is_too_small_is_named(rehearsed):
    _, lines = rehearsed(replace(H100, memory=3 * GIB))
    assert "does not fit, as learning takes" in lines[0]
    assert "GiB" in lines[0]


@pytest.mark.slow
def test_what_is_not_rehearsed_is_said(rehearsed):
    parts, lines = rehearsed(H100, "policy.kind=deepspeed", "policy.zero_stage=2", "rollout.engine=vllm", lengths={})
    assert "generate" not in parts
    assert len({one.peak for one in parts.values()}) == 1  # the dry run's, which knows of shards
    said = "\n".join(lines)
    for word in ("deepspeed is not rehearsed", "vllm is not rehearsed", "stand in for the data"):
        assert word in said


def test_a_card_is_a_name_a_file_or_numbers(tmp_path):
    assert read_card("h200") == (CARDS["h200"], {})
    assert read_card("h100,response=600,memory=40") == (replace(H100, memory=40 * GIB), {"response": 600})
    own, lengths = read_card("memory=24,bandwidth=0.9,tflops=124,prompt=99.6")
    assert (own.memory, own.bandwidth, own.flops, lengths) == (24 * GIB, 0.9e12, 124e12, {"prompt": 100})
    file = tmp_path / "gpu.json"
    file.write_text(json.dumps({"name": "mine", "memory": 16, "call_us": 7}), encoding="utf-8")
    assert read_card(f"{file},wait_us=9")[0] == replace(H100, name="mine", memory=16 * GIB, call_s=7e-6, wait_s=9e-6)


@pytest.mark.parametrize("text", ["h1000", "", "h100,respons=600", "h100,memory=0", "memory=nan,tflops=1", "h100,600"])
def test_other_cards_are_refused(text):
    with pytest.raises(UsageError, match=r"--rehearse: found .*; expected"):
        read_card(text)


def test_the_command_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = folder_of(tmp_path / "model", num_hidden_layers=1, vocab_size=1000)
    options = ["-s", f"model={model}", "-s", "prompts_per_step=8", "-s", "minibatch_prompts=8", "--json"]
    done = CliRunner().invoke(app, ["train", "math-1.5b", "--rehearse", "l40s,prompt=8,response=16", *options])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["card"]["memory"] == 45 * GIB
    assert document["phases"]["update"]["seconds"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_it_says_what_an_h100_measured(tmp_path):
    """benchmarks/results/gpu-nvidia-h100-80gb-hbm3.md: 8,192 tokens at once, responses of 1,024 tokens at most."""
    model = folder_of(tmp_path / "model")
    settings = [f"model={model}", "microbatch_tokens=8192", "inner_updates=1"]
    found = rehearse(load_config("math-1.5b", overrides=settings), H100, {"prompt": 96, "response": 928})
    parts, num_tokens = {one.name: one for one in found.parts}, 256 * 8 * 1024
    assert num_tokens / parts["update"].seconds == pytest.approx(28_357, rel=0.15)
    assert num_tokens / parts["ref_logp"].seconds == pytest.approx(90_662, rel=0.15)
    assert parts["update"].peak / GIB == pytest.approx(57.2, rel=0.05)
