"""What ZeRO exchanges: gradients once a minibatch or once a pass, weights one by one on their way to an engine."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.deepspeed

STAGES = (1, 2, 3)
MANY = ("microbatch_tokens=60",)


@pytest.fixture(scope="module")
def watched(bench):
    """One iteration of two ranks under each stage, with one micro-batch and with many."""
    bench.run([bench.job("one-process", "steps=1")], size=1)
    jobs = [
        bench.job(f"{name}-{number}", "policy.kind=deepspeed", f"policy.zero_stage={number}", "steps=1", *more)
        for number in STAGES
        for name, more in (
            ("one-pass", ()),
            ("many-passes", MANY),
            ("bfloat16", (*MANY, "dtype=bfloat16", "optimizer.lr=1e-4")),
            ("lora", ("policy.lora.rank=4",)),
        )
    ]
    bench.run([{**job, "watch": f"{job['path']}.json"} for job in jobs], size=2)
    return bench


def traffic(bench, name: str) -> dict[str, Any]:
    """The `Traffic` of the first rank."""
    return json.loads((bench.folder / f"{name}.json").read_text(encoding="utf-8"))


def grad_norm(bench, name: str) -> float:
    return bench.rows(name)[0]["grad/norm"]


@pytest.mark.parametrize("number", STAGES)
def test_gradients_are_exchanged_once_a_minibatch_under_stage_1_and_once_a_pass_under_the_others(watched, number):
    one, many = traffic(watched, f"one-pass-{number}"), traffic(watched, f"many-passes-{number}")
    assert len(one["updates"]) == len(many["updates"]) == 4
    for few, more in zip(one["updates"], many["updates"], strict=True):
        assert few["backward"] == few["reductions"] == 1
        assert more["backward"] > 2
        times = 1 if number == 1 else more["backward"]
        assert (more["reductions"], more["elements"]) == (times, times * few["elements"])


@pytest.mark.parametrize("number", STAGES)
def test_the_gradient_is_that_of_one_process_however_it_is_exchanged(watched, number):
    for name in ("one-pass", "many-passes"):
        assert grad_norm(watched, f"{name}-{number}") == pytest.approx(grad_norm(watched, "one-process"), rel=1e-3)


def test_in_bfloat16_many_micro_batches_are_added_up_in_float32_by_stage_1_too(watched):
    one, two = (traffic(watched, f"bfloat16-{number}")["updates"] for number in (1, 2))
    assert all(update["reductions"] < 3 for update in one)
    assert all(update["reductions"] == update["backward"] > 2 for update in two)
    assert grad_norm(watched, "bfloat16-1") == pytest.approx(grad_norm(watched, "bfloat16-2"), rel=1e-2)


def test_weights_are_whole_one_by_one_when_they_are_sent_to_an_engine(watched):
    """Under ZeRO-3 no rank has room for more; with an adapter its two factors are whole beside their layer."""
    seen = traffic(watched, "one-pass-3")
    assert seen["whole_bytes"] == seen["largest_bytes"] < seen["model_bytes"] / 3
    seen = traffic(watched, "lora-3")
    assert seen["largest_bytes"] <= seen["whole_bytes"] < seen["model_bytes"] / 3
