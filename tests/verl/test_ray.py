"""verl's own trainer on Ray, with the command that we print: two workers, two rollout servers, weights sent to both."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.verl_ray
pytest.importorskip("verl")

import psutil  # noqa: E402

from quatro.config import load_config  # noqa: E402
from quatro.integrations.verl.command import VerlCommand, verl_command  # noqa: E402
from quatro.integrations.verl.prompts import write_prompts  # noqa: E402

TIME_LIMIT_S = 1500
# What Ray says where its processes do not answer in time; it waits 30 seconds, and nothing can change that.
NO_RAY = (
    "node timed out during startup",
    "The current node timed out",
    "raylet failed to start",
    "GCS failed to start",
)
NUM_SLOTS = 2


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


def on_cpu(command: VerlCommand) -> list[str]:
    """The command with what differs on a CPU, and as few processes as can be."""
    changed = {
        "actor_rollout_ref.rollout.name": "transformers",
        "actor_rollout_ref.rollout.load_format": "auto",
        "actor_rollout_ref.rollout.agent.num_workers": 1,
        "actor_rollout_ref.model.use_remove_padding": False,
        "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
        "actor_rollout_ref.actor.use_torch_compile": False,
        "data.dataloader_num_workers": 0,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
        "transfer_queue.backend.SimpleStorage.total_storage_size": 1000,
        "trainer.device": "cpu",
        "trainer.save_freq": -1,
        "+ray_kwargs.ray_init.num_gpus": NUM_SLOTS,
        "ray_kwargs.ray_init.num_cpus": 16,
        "+ray_kwargs.ray_init.include_dashboard": False,
    }
    return VerlCommand({**command.settings, **changed}, ()).overrides


def environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return kept | {
        "VERL_FILE_LOGGER_PATH": str(folder / "metrics.jsonl"),
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
        "OMP_NUM_THREADS": "1",
    }


def run_to_its_end(command: list[str], folder: Path) -> tuple[int, str]:
    """Exit code and output; after `TIME_LIMIT_S` the command and everything that it started is killed."""
    log = folder / "verl.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=folder, env=environment(folder), stdout=stream, stderr=stream)
        mine = psutil.Process(process.pid)
        try:
            code = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            for child in [*mine.children(recursive=True), mine]:
                child.kill()
            process.wait()
            code = -9
    return code, log.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def metrics(policy_folder, tmp_path_factory) -> list[dict[str, float]]:
    folder = tmp_path_factory.mktemp("verl")
    problems = folder / "problems.jsonl"
    rows = [{"id": str(i), "problem": f"What is {i} + {2 * i}?", "answer": str(3 * i)} for i in range(32)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    config = config_of(policy_folder, problems)
    write_prompts(config, folder / "prompts.parquet")
    command = verl_command(config, name="test", prompts="prompts.parquet", gpus_per_node=NUM_SLOTS)
    code, text = run_to_its_end([sys.executable, "-m", "verl.trainer.main_ppo", *on_cpu(command)], folder)
    if code and (reason := next((sign for sign in NO_RAY if sign in text), None)):
        pytest.skip(f"Ray did not start on this machine within its 30 seconds ({reason!r}); try again when it is idle")
    assert code == 0, f"exit code {code} (-9: {TIME_LIMIT_S} seconds were over)\n{text[-6000:]}"
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["data"] for line in lines]


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
