"""Ceilings on what the loop asks of a device: waits of the host, the largest tensor, memory against the dry run's."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from quatro.config import load_config
from quatro.config.blocks import Sizes
from quatro.launch.describe import Estimate
from quatro.loop.learn import make_objective
from quatro.policy.device import cache_token_bytes, find_device
from quatro.policy.head import chunk_rows
from quatro.policy.kinds import make_policy
from quatro.policy.loading import load_tokenizer
from quatro.policy.rows import collate
from quatro.processes.world import World
from quatro.rehearse.device import Card
from quatro.rehearse.kernels import Kernels
from quatro.rollout.decoding import SlotModel
from quatro.rollout.engine import Recipe, Transformers
from quatro.rollout.kv_cache import PreallocatedCache
from quatro.rollout.sampling import draw_rows
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Rollout, Sampling
from tests.pretend.watched import pretended_gpu

# Ceilings are what was counted. Whoever lowers a number lowers its ceiling.
WAITS_OF_A_TOKEN = 1  # whatever the number of slots
WAITS_OF_A_MICROBATCH = 6
WAITS_OF_A_STEP = 7
WAITS_OF_ROWS = 1  # while they are brought to the device, for their advantages
CASTS_OF_A_LAYER = {"step": 62, "scoring": 22}  # in three micro-batches; autocast alone makes 120 and 51

LARGE = Card("as large as need be", 10**13)
QWEN2 = {"vocab_size": 151_936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28}
QWEN2 |= {"num_attention_heads": 12, "num_key_value_heads": 2}
QWEN3 = {"vocab_size": 151_936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28}
QWEN3 |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128}
LLAMA = {"vocab_size": 128_256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16}
LLAMA |= {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64}
QWEN2_7B = {"vocab_size": 152_064, "hidden_size": 3584, "intermediate_size": 18_944, "num_hidden_layers": 28}
QWEN2_7B |= {"num_attention_heads": 28, "num_key_value_heads": 4}
SHAPES = {
    "Qwen2.5-1.5B": lambda **changes: Qwen2Config(**QWEN2 | changes, tie_word_embeddings=True),
    "Qwen2.5-7B": lambda **changes: Qwen2Config(**QWEN2_7B | changes),
    "Qwen3-0.6B": lambda **changes: Qwen3Config(**QWEN3 | changes, tie_word_embeddings=True),
    "Llama-3.2-1B": lambda **changes: LlamaConfig(**LLAMA | changes, tie_word_embeddings=True),
}
PROMPT, RESPONSE = 128, 896


def hollow_model(shape: str, **changes: int) -> torch.nn.Module:
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(SHAPES[shape](**changes)).eval()


def hollow_updates(
    gpu, shape: str, *settings: str, num_rows: int, is_scored: bool = False, **changes: int
) -> tuple[int, int]:
    """Two optimiser steps; ``(number of micro-batches of each, bytes that the dry run says learning takes)``.

    The moments of the optimiser are there from the second step on, which is a phase of its own.
    """
    given = ["device=cuda", "policy.kind=local", "rollout.rows_at_once=64", "rollout.cache_tokens=65536"]
    config = load_config("math-1.5b", overrides=[*given, "microbatch_tokens=8192", *settings])
    model, device = hollow_model(shape, **changes), find_device("cuda")
    policy = make_policy(config, model, World(), None, device=device)
    prompts = [Prompt("b", "0", "", None, "", tuple(range(2, 2 + PROMPT)))]
    groups = [[Rollout(tuple(range(2, 2 + RESPONSE)), "", "stop")] * num_rows]
    gpu.begin("rows")
    rows = collate(prompts, groups, torch.ones(num_rows), max_new_tokens=RESPONSE, device=device)
    known = torch.zeros_like(rows.batch.old_logp_BT)
    rows = rows.with_batch(old_logp_BT=known, ref_logp_BT=known)
    for phase in ("first step", "second step"):
        gpu.begin(phase)
        assert policy.update(rows, make_objective(config), use_own_logp=True, need_entropy=False).is_applied
    if is_scored:
        gpu.begin("scoring")
        policy.score(rows)
    count = sum(one.numel() for one in model.parameters())
    num_microbatches = len(list(rows.microbatches(8192)))
    return num_microbatches, Estimate(config, model.config, count, count, PROMPT, device).memory().learning


def hollow_prefill(gpu, shape: str) -> None:
    """Prompts of one length and, padded, of two go through the model as they do before sampling."""
    model = hollow_model(shape, num_hidden_layers=1).to(find_device("cuda"))
    with torch.inference_mode():
        for long in (3, 4):
            SlotModel(model, torch.device("cuda")).prefill([[2, 3, 4], [5] * long], 0, PreallocatedCache(1, 2, 64))


def waits_of_a_token(num_slots: int) -> Counter:
    """With slots of different lengths, as after a token that some rows have drawn and others not."""
    with pretended_gpu(LARGE, hollow=True) as gpu:
        model = hollow_model("Qwen2.5-1.5B", num_hidden_layers=1).to("cuda")
        with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
            slots, cache = SlotModel(model, torch.device("cuda")), PreallocatedCache(1, num_slots, 64)
            slots.prefill([[2, 3, 4]], 0, cache)
            gpu.begin("token")
            every = np.arange(num_slots)
            logits_SV = slots.append(np.full(num_slots, 5), every % 8 + 3, every, num_slots, cache)
            draw_rows(logits_SV, every, np.full(num_slots, 0.5), Sampling(), with_entropy=True)
    assert not gpu.total("faults")
    return gpu.now.waits


@pytest.mark.parametrize("num_slots", [64, 445, 2048])
def test_waits_for_a_drawn_token(num_slots):
    waits = waits_of_a_token(num_slots)
    assert waits.total() <= WAITS_OF_A_TOKEN, waits


@pytest.mark.parametrize("shape", SHAPES)
def test_no_attention_holds_its_scores_in_float32(shape):
    with pretended_gpu(LARGE, hollow=True) as gpu:
        hollow_updates(gpu, shape, "dtype=float32", num_rows=8, num_hidden_layers=1)
        hollow_prefill(gpu, shape)
    assert set(gpu.total("attention")) == {"efficient"}


def test_waits_for_a_microbatch_and_for_a_step():
    waits: list[Counter] = []
    for num_rows in (8, 24):
        with pretended_gpu(LARGE, hollow=True) as gpu:
            num_microbatches, _ = hollow_updates(gpu, "Qwen2.5-1.5B", num_rows=num_rows, num_hidden_layers=1)
        assert num_microbatches == num_rows // 8
        waits.append(gpu.phases["second step"].waits)
        assert gpu.phases["rows"].waits.total() <= WAITS_OF_ROWS, gpu.phases["rows"].waits
    of_a_microbatch = (waits[1].total() - waits[0].total()) / 2
    assert of_a_microbatch <= WAITS_OF_A_MICROBATCH, waits[1] - waits[0]
    assert waits[0].total() - of_a_microbatch <= WAITS_OF_A_STEP, waits[0]


def test_casts_of_a_layer_in_a_step_and_while_scoring(monkeypatch):
    plain, casts = Kernels.compute, Counter()

    def compute(kernels, call, is_ours):
        casts[id(kernels.device.now)] += call.name == "_to_copy"
        return plain(kernels, call, is_ours)

    monkeypatch.setattr(Kernels, "compute", compute)
    found = []
    for num_layers in (1, 2):
        with pretended_gpu(LARGE, hollow=True) as gpu:
            hollow_updates(gpu, "Qwen2.5-1.5B", num_rows=24, num_hidden_layers=num_layers, is_scored=True)
        found.append([casts[id(gpu.phases[name])] for name in ("second step", "scoring")])
    one, two = found
    assert two[0] - one[0] <= CASTS_OF_A_LAYER["step"]
    assert two[1] - one[1] <= CASTS_OF_A_LAYER["scoring"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_tensor_holds_the_vocabulary_for_every_token(dtype):
    with pretended_gpu(LARGE, hollow=True) as gpu:
        hollow_updates(gpu, "Qwen2.5-1.5B", f"dtype={dtype}", num_rows=8, num_hidden_layers=1)
    vocabulary = QWEN2["vocab_size"]
    rows = [torch.Size(shape[:-1]).numel() for shape in gpu.now.shapes if shape and shape[-1] == vocabulary]
    assert 0 < max(rows) <= chunk_rows(vocabulary, "cuda") < 8 * RESPONSE / 8


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "checkpointing"), [("bfloat16", False), ("bfloat16", True), ("float32", False)])
@pytest.mark.parametrize("shape", ["Qwen2.5-1.5B", "Qwen3-0.6B", "Llama-3.2-1B"])
def test_the_dry_runs_memory_is_what_an_update_takes(shape, dtype, checkpointing):
    with pretended_gpu(LARGE, hollow=True) as gpu:
        settings = (f"dtype={dtype}", f"policy.gradient_checkpointing={str(checkpointing).lower()}")
        _, said = hollow_updates(gpu, shape, *settings, num_rows=16)
    assert set(gpu.total("attention")) == {"flash" if dtype == "bfloat16" else "efficient"}
    assert gpu.peak == pytest.approx(said, rel=0.15 if checkpointing else 0.10), (gpu.peak / 2**30, said / 2**30)


class Enough(Exception):
    """Two tokens of each row were drawn."""


def peak_of_sampling(gpu, model, config, gib: int, prompt_tokens: int) -> tuple[int, int, int]:
    """With the sizes of `auto` and as many rows as they allow: bytes that stay, peak, and what the dry run says."""
    device, prompt, num_drawn = find_device("cuda"), tuple(range(2, 2 + prompt_tokens)), []
    count = sum(one.numel() for one in model.parameters())
    policy = make_policy(config.with_sizes(Sizes(1024, 64, 4096)), model, World(), None, device=device)
    estimate = Estimate(config, model.config, count, sum(one.numel() for one in policy.trained), len(prompt), device)
    sizes = estimate.sizes(gib << 30)
    for one in policy.trained:
        policy.optimizer.state[one] = {name: torch.zeros_like(one) for name in ("exp_avg", "exp_avg_sq")}
    limits = {"max_batch_rows": sizes.rows_at_once, "max_batch_tokens": sizes.cache_tokens}
    engine = TransformersEngine(model, None, eos_ids=(5,), compute=policy.computing, **limits)
    num_rows = min(sizes.rows_at_once, sizes.cache_tokens // estimate.longest_row)

    def count_drawn(_: int, num_tokens: int) -> None:
        num_drawn.append(num_tokens)
        if num_tokens >= 2 * num_rows:
            raise Enough

    gpu.begin("sampling")
    prompts, seeds = [Prompt("b", "0", "", None, "", prompt)] * num_rows, [[row] for row in range(num_rows)]
    with pytest.raises(Enough):
        engine.generate(prompts, seeds, Sampling(max_new_tokens=config.rollout.max_new_tokens), progress=count_drawn)
    assert num_drawn == [num_rows, 2 * num_rows]
    said = dataclasses.replace(estimate, config=config.with_sizes(sizes)).memory()
    return said.always, gpu.now.peak, said.sampling


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "gib", "adapter", "prompt_tokens"),  # of the prompts, some passes of `PREFILL_TOKENS`
    [
        *(("Qwen2.5-1.5B", 80, False, 16), ("Qwen2.5-1.5B", 24, True, 64), ("Qwen3-0.6B", 80, False, 64)),
        *(("Qwen3-0.6B", 24, False, 256), ("Qwen2.5-7B", 80, True, 32), ("Qwen2.5-7B", 24, True, 256)),
    ],
)
def test_sampling_takes_most_of_what_a_card_has_free_and_no_more(shape, gib, adapter, prompt_tokens):
    settings = ["device=cuda", "policy.kind=local", "rollout.max_new_tokens=1504"]
    config = load_config("math-1.5b", overrides=[*settings, *["policy.lora.rank=32"] * adapter])
    with pretended_gpu(Card("a card", gib << 30), hollow=True) as gpu:
        always, peak, said = peak_of_sampling(gpu, hollow_model(shape), config, gib, prompt_tokens)
    assert peak < 0.95 * (gib << 30), peak / 2**30
    assert peak - always > 0.7 * ((gib << 30) - always), (peak / 2**30, always / 2**30)
    assert peak == pytest.approx(said, rel=0.10), (peak / 2**30, said / 2**30)


def test_sampling_alone_takes_as_many_rows_as_the_card_holds(tiny_folder):
    limits = []
    for gib in (8, 80):
        with pretended_gpu(Card("a card", gib * 2**30)):
            tokenizer = load_tokenizer(str(tiny_folder))
            engine = Transformers.open(Recipe("transformers", str(tiny_folder), "bfloat16", "cuda", 64), tokenizer)
            limits.append((engine.max_batch_rows, engine.max_batch_tokens))
            bytes_of_a_token = cache_token_bytes(engine.model.config, 2)
            assert 0.75 * gib * 2**30 < engine.max_batch_tokens * bytes_of_a_token < 0.9 * gib * 2**30
    (few_rows, few_tokens), (rows, tokens) = limits
    assert rows == pytest.approx(10 * few_rows, abs=10)
    assert tokens > 9 * few_tokens
