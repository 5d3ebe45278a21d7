"""verl's own trainer on Ray, with the command that we print: two workers, two rollout servers, weights sent to both."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.verl_ray
pytest.importorskip("verl")

import torch  # noqa: E402
from ray_run import config_of, train, write_problems  # noqa: E402

from quatro.policy.loading import load_model, load_tokenizer  # noqa: E402

STEPS, LR = 2, 1e-3


SETTINGS = {
    "steps": STEPS,
    "prompts_per_step": 4,
    "minibatch_prompts": 2,
    "rollouts_per_prompt": 4,
    "rollout.max_new_tokens": 12,
    "microbatch_tokens": 240,
    "optimizer.lr": LR,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("verl")


@pytest.fixture(scope="module")
def metrics(policy_folder, folder) -> list[dict[str, float]]:
    write_problems(folder / "problems.jsonl", 32)
    config = config_of("math-1.5b-2gpu", policy_folder, folder / "problems.jsonl", SETTINGS)
    return train(config, folder, num_slots=2, save_every=STEPS)


def test_two_iterations_of_two_optimiser_steps_run(metrics):
    assert [row["training/global_step"] for row in metrics] == [1, 2]
    for row in metrics:
        assert row["actor/grad_norm"] > 0
        assert math.isfinite(row["actor/pg_loss"])


def test_both_servers_draw_from_the_weights_that_were_learnt(metrics):
    for row in metrics:
        assert row["training/rollout_probs_diff_max"] < 1e-5
    # The weights that were sent after the first iteration are others than those before it.
    assert metrics[0]["actor/kl/new_old"] > 1e-3


def test_our_metrics_are_in_verls_log(metrics):
    for row in metrics:
        assert row["dual/delta"] == 0.05
        assert row["dual/lam_mean"] > 0
        assert row["actor/log_ratio/min"] <= row["actor/log_ratio/max"]
        assert row["actor/kl/new_old"] >= 0


def test_verls_merger_makes_a_folder_that_we_load(metrics, policy_folder, folder):
    """The two workers' shards become one model: the one that training began with, moved by its optimiser steps."""
    saved, merged = folder / f"runs/verl/test/global_step_{STEPS}/actor", folder / "merged"
    assert len(list(saved.glob("model_world_size_2_rank_*.pt"))) == 2
    arguments = ["--backend", "fsdp", "--local_dir", str(saved), "--target_dir", str(merged)]
    subprocess.run([sys.executable, "-m", "verl.model_merger", "merge", *arguments], check=True, timeout=300)
    assert load_tokenizer(str(merged)).get_vocab() == load_tokenizer(str(policy_folder)).get_vocab()
    before, after = (
        dict(load_model(str(place), torch.float32, "cpu").named_parameters()) for place in (policy_folder, merged)
    )
    assert before.keys() == after.keys()
    for name, weight in before.items():
        gap = (after[name] - weight).detach().abs()
        # Two minibatches an iteration; a step of Adam moves a weight by about lr, and the merger writes bfloat16.
        assert bool((gap <= 2.0 * LR * 2 * STEPS + 2.0**-8 * weight.detach().abs()).all()), name
        # In bfloat16 the scales of layer norms, which are 2, cannot move by so little.
        assert name.endswith("norm.weight") or float(gap.max()) > 0.5 * LR, name
