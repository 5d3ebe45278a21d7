"""Launches of several ranks on this machine, without torchrun: it would hide whether ranks end by themselves."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch import Tensor

SECONDS = 1200  # a launch that takes longer is stuck
WORKER = Path(__file__).with_name("worker.py")
# Beside `share`, the share of words that are digits.
MORE_REWARDS = """

import os


def broken_on_rank_1(prompt, completion, answer):
    if os.environ["RANK"] == "1":
        raise RuntimeError("no reward today")
    return share(prompt, completion, answer)


def one(prompt, completion, answer):
    return 1.0
"""
# A method whose every loss is unknown.
POISON = """
import dataclasses
import math
from typing import Literal

from quatro.methods.quatro import Quatro


class Poison(Quatro):
    name: Literal["poison:Poison"] = "poison:Poison"

    def loss(self, logp_BT, batch):
        found = super().loss(logp_BT, batch)
        terms = [dataclasses.replace(term, value=term.value * math.nan) for term in found.terms]
        return dataclasses.replace(found, terms=terms)
"""

Ranks = list[Any]  # processes of the fork server


class Bench:
    """A folder in which ranks work."""

    def __init__(self, fork: Callable[..., Any], folder: Path, model: Path) -> None:
        self.fork = fork
        self.folder = folder
        self.model = model
        # Three prompts a minibatch over two ranks, and micro-batches of ragged sizes: no share equals another.
        self.settings = [
            *(f"model={model}", "reward=digit_reward:share", "steps=3", "prompts_per_step=6", "minibatch_prompts=3"),
            *("rollouts_per_prompt=4", "inner_updates=2", "optimizer.lr=1e-3", "optimizer.warmup_steps=2"),
            *("checkpoint.every=1", "threads=1", "microbatch_tokens=300", "rollout.max_new_tokens=16"),
            "audit.prompts=2",  # in the second iteration both of rank 1
            *("eval.every=3", "eval.benchmark=countdown", "eval.n=2", "kl.beta=0.01", "device=cpu"),
        ]

    def job(self, name: str, *more: str, **options: Any) -> dict[str, Any]:
        return {"path": str(self.folder / name), "settings": [*self.settings, *more], **options}

    def start(self, jobs: Sequence[dict[str, Any]], *, size: int, **environment: str) -> Ranks:
        file = self.folder / f"jobs-{len(list(self.folder.glob('jobs-*')))}.json"
        file.write_text(json.dumps(list(jobs)), encoding="utf-8")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        common = {
            "PYTHONPATH": os.pathsep.join([*sys.path, str(self.folder)]),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "WORLD_SIZE": str(size),
            **environment,
        }
        ranks = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(size)]
        return [self.fork([WORKER, file], env=rank, cwd=self.folder) for rank in ranks]

    def run(self, jobs: Sequence[dict[str, Any]], *, size: int) -> None:
        """Every job, on ``size`` ranks; all must end well."""
        ended = self.wait(self.start(jobs, size=size))
        assert [code for code, _ in ended] == [0] * size, "\n".join(text for _, text in ended)

    def wait(self, ranks: Ranks) -> list[tuple[int, str]]:
        """``(exit code, stderr)`` of each."""
        try:
            texts = [rank.communicate(timeout=SECONDS)[1] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [(rank.returncode, text) for rank, text in zip(ranks, texts, strict=True)]

    def rows(self, name: str) -> list[dict[str, Any]]:
        with (self.folder / name / "metrics.jsonl").open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def is_inside(self, name: str) -> bool:
        """Whether the newest checkpoint is one inside an iteration."""
        *_, newest = sorted((self.folder / name / "checkpoints").iterdir())
        return "iteration" in json.loads((newest / "state.json").read_text(encoding="utf-8"))["parts"]

    def weights(self, name: str, step: int = 3) -> dict[str, Tensor]:
        """The tensors of the model in a checkpoint, or of its adapter."""
        (file,) = (self.folder / name / "checkpoints" / f"step-{step:06d}" / "model").glob("*model.safetensors")
        return load_file(file)

    def completions(self, name: str, step: int) -> list[tuple[str, int, str]]:
        with (self.folder / name / "rollouts" / f"step-{step:06d}.jsonl").open(encoding="utf-8") as file:
            return [(row["id"], row["sample_index"], row["completion"]) for row in map(json.loads, file)]

    def furthest(self, one: str, other: str) -> float:
        """The largest difference between two weights after the last iteration."""
        mine, others = self.weights(one), self.weights(other)
        assert mine.keys() == others.keys()
        return max(float((mine[name].float() - others[name].float()).abs().max()) for name in mine)

    def assert_nothing_learnt(self, name: str) -> None:
        """The weights are those that the run began with."""
        before = load_file(self.model / "model.safetensors")
        for key, value in self.weights(name, len(self.rows(name))).items():
            assert bool((value == before[key]).all()), key

    def assert_same_story(self, one: str, other: str) -> None:
        """The same responses and, to rounding, the same metrics and weights."""
        for step in (1, 2, 3):
            assert self.completions(one, step) == self.completions(other, step)
        mine, others = self.rows(one), self.rows(other)
        for row, other_row in zip(mine, others, strict=True):
            assert row.keys() == other_row.keys()
            for name, value in row.items():
                # Noise before the first step is rounding and nothing else.
                if not name.startswith(("perf/", "log_ratio/before", "mismatch/")):
                    expected = value if value is None else pytest.approx(value, rel=1e-3, abs=1e-5)
                    assert other_row[name] == expected, (name, row["step"])
        assert self.furthest(one, other) < 1e-5


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory, fork: Any, tiny_folder: Path, digit_reward: str) -> Bench:
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "digit_reward.py").write_text(digit_reward + MORE_REWARDS, encoding="utf-8")
    (folder / "poison.py").write_text(POISON, encoding="utf-8")
    return Bench(fork, folder, tiny_folder)


@pytest.fixture(scope="module")
def essence() -> Callable[[list[dict[str, Any]]], list[str]]:
    """All of metrics that must repeat bit by bit: everything but times and memory."""
    return lambda rows: [json.dumps({k: v for k, v in row.items() if not k.startswith("perf/")}) for row in rows]
