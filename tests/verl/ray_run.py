"""verl's own trainer on Ray, on a CPU, with the command that `quatro verl-command` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from quatro.config import Config, load_config
from quatro.integrations.verl.command import VerlCommand, verl_command, write_prompts

TIME_LIMIT_S = 1500
# What Ray says where its processes do not answer in time; it waits 30 seconds, and nothing can change that.
NO_RAY = (
    "node timed out during startup",
    "The current node timed out",
    "raylet failed to start",
    "GCS failed to start",
)


def config_of(base: str, policy_folder: Path, problems: Path, settings: Mapping[str, object]) -> Config:
    """The configuration ``base`` for a small model on a CPU, with ``settings``."""
    common = {
        "model": policy_folder,
        "data.prompts": problems,
        "data.template": "chat",
        "data.max_prompt_tokens": 48,
        "dtype": "float32",
        "method.delta": 0.05,
        "kl.beta": 0.0,  # verl pins the reference's memory, which takes an accelerator
        "reward": "shares_reward:digits",
        "reward.workers": 1,
    }
    return load_config(base, overrides=[f"{key}={value}" for key, value in {**common, **settings}.items()])


def on_cpu(command: VerlCommand, num_slots: int, save_every: int) -> list[str]:
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
        "trainer.save_freq": save_every,
        "+ray_kwargs.ray_init.num_gpus": num_slots,
        "ray_kwargs.ray_init.num_cpus": 16,
        "+ray_kwargs.ray_init.include_dashboard": False,
    }
    return VerlCommand({**command.settings, **changed}).overrides


def environment(folder: Path, more: dict[str, str]) -> dict[str, str]:
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
        **more,
    }


def train(config: Config, folder: Path, num_slots: int, *, save_every: int = -1, **more: str) -> list[dict[str, float]]:
    """The metrics of each iteration of ``config`` on verl's own trainer, with as many workers and rollout servers.

    Checkpoints lie in ``folder``/runs/verl/test; -1 saves none. ``more`` are environment variables.
    After `TIME_LIMIT_S` the command and everything that it has started is killed. If Ray does not start, the test is
    skipped.
    """
    write_prompts(config, folder / "prompts.parquet")
    printed = verl_command(config, name="test", prompts="prompts.parquet", gpus_per_node=num_slots)
    command = [sys.executable, "-m", "verl.trainer.main_ppo", *on_cpu(printed, num_slots, save_every)]
    log = folder / "verl.log"
    with log.open("wb") as stream:
        process = subprocess.Popen(command, cwd=folder, env=environment(folder, more), stdout=stream, stderr=stream)
        mine = psutil.Process(process.pid)
        try:
            code = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            for child in [*mine.children(recursive=True), mine]:
                child.kill()
            process.wait()
            code = -9
    text = log.read_text(encoding="utf-8", errors="replace")
    if code and (reason := next((sign for sign in NO_RAY if sign in text), None)):
        pytest.skip(f"Ray did not start on this machine within its 30 seconds ({reason!r}); try again when it is idle")
    assert code == 0, f"exit code {code} (-9: {TIME_LIMIT_S} seconds were over)\n{text[-6000:]}"
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["data"] for line in lines]


def write_problems(path: Path, count: int) -> None:
    """Sums as a file of prompts."""
    rows = [{"id": str(i), "problem": f"What is {i} + {2 * i}?", "answer": str(3 * i)} for i in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
