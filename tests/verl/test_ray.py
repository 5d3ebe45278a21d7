"""verl's own trainer on Ray, with the command that we print: two workers, two rollout servers, weights sent to both."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

pytestmark = pytest.mark.verl_ray
pytest.importorskip("verl")

from ray_run import train, write_problems  # noqa: E402

from quatro.config import load_config  # noqa: E402


def config_of(policy_folder: Path, problems: Path):
    settings = {
        "model": policy_folder,
        "data.prompts": problems,
        "data.template": "chat",
        "data.max_prompt_tokens": 48,
        "dtype": "float32",
        "steps": 2,
        "prompts_per_step": 4,
        "minibatch_prompts": 2,
        "rollouts_per_prompt": 4,
        "rollout.max_new_tokens": 12,
        "microbatch_tokens": 240,
        "optimizer.lr": 1e-3,
        "method.delta": 0.05,
        "kl.beta": 0.0,
        "reward": "shares_reward:digits",
        "reward.workers": 1,
    }
    return load_config("math-1.5b-2gpu", overrides=[f"{key}={value}" for key, value in settings.items()])


@pytest.fixture(scope="module")
def metrics(policy_folder, tmp_path_factory) -> list[dict[str, float]]:
    folder = tmp_path_factory.mktemp("verl")
    write_problems(folder / "problems.jsonl", 32)
    return train(config_of(policy_folder, folder / "problems.jsonl"), folder, num_slots=2)


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
