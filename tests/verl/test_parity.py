"""Fifty optimiser steps of verl's own trainer and of ours on the same recorded responses, norm by norm.

With QUATRO_VERL_PARITY=FILE the norms are written to FILE; `python -m experiments.verl_parity FILE` draws them.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest

pytestmark = pytest.mark.verl_ray
pytest.importorskip("verl")

from ray_run import config_of, train, write_problems  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

import quatro  # noqa: E402
from quatro.policy.torch_policy import LocalPolicy  # noqa: E402
from quatro.rollout.prompts import load_sources, to_prompts  # noqa: E402
from quatro.rollout.replay import ReplayEngine  # noqa: E402
from quatro.types import Sampling  # noqa: E402

NUM_PROMPTS, NUM_ROLLOUTS, STEPS, PASSES, MAX_NEW_TOKENS = 8, 4, 25, 2, 16


# Every iteration has all prompts and one minibatch: so the order of prompts and rows makes no difference.
SETTINGS = {
    "steps": STEPS,
    "prompts_per_step": NUM_PROMPTS,
    "minibatch_prompts": NUM_PROMPTS,
    "rollouts_per_prompt": NUM_ROLLOUTS,
    "inner_updates": PASSES,
    "rollout.max_new_tokens": MAX_NEW_TOKENS,
    "microbatch_tokens": 512,
    "optimizer.lr": 1e-4,
    "audit": "false",
}


def record(file: Path, problem_ids: list[str]) -> None:
    """Sums that somebody might have written, as a samples file."""
    draw = random.Random(5)
    rows = [
        {
            "benchmark": "problems",
            "id": id,
            "sample_index": index,
            "completion": " ".join(str(draw.randrange(100)) for _ in range(draw.randrange(1, 6))) + draw.choice("+?="),
            "answer": "1",
            "finish_reason": "stop",
        }
        for id in problem_ids
        for index in range(STEPS * NUM_ROLLOUTS)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def test_fifty_optimiser_steps_of_both_programs_have_the_same_gradient_norms(policy_folder, tmp_path, monkeypatch):
    problems, samples, norms = tmp_path / "problems.jsonl", tmp_path / "samples.jsonl", tmp_path / "norms.txt"
    write_problems(problems, NUM_PROMPTS)
    config = config_of("math-1.5b", policy_folder, problems, SETTINGS)
    found = load_sources(config.data)[0].problems
    record(samples, [problem.id for problem in found])
    samples.write_text(samples.read_text(encoding="utf-8").replace('"problems"', json.dumps(found[0].benchmark)))

    # For verl: the responses of each prompt as token ids, in the order in which our engine deals them out.
    tokenizer = AutoTokenizer.from_pretrained(policy_folder)
    prompts = list(to_prompts(found, config.data.template, tokenizer))
    seeds = [[0] * (STEPS * NUM_ROLLOUTS)] * len(prompts)
    groups = ReplayEngine(samples, tokenizer).generate(prompts, seeds, Sampling(max_new_tokens=MAX_NEW_TOKENS))
    recorded = {
        " ".join(map(str, prompt.token_ids)): [rollout.token_ids for rollout in group]
        for prompt, group in zip(prompts, groups, strict=True)
    }
    (tmp_path / "recorded.json").write_text(json.dumps(recorded), encoding="utf-8")

    theirs_metrics = train(
        config, tmp_path, num_slots=1, VERL_RECORDED=str(tmp_path / "recorded.json"), VERL_GRAD_NORMS=str(norms)
    )
    theirs = [float(line) for line in norms.read_text(encoding="utf-8").splitlines()]

    ours: list[float] = []
    update = LocalPolicy.update

    def noting(self, *arguments, **options):
        done = update(self, *arguments, **options)
        ours.append(done.grad_norm)
        return done

    monkeypatch.setattr(LocalPolicy, "update", noting)
    replayed = {"rollout.engine": "replay", "rollout.replay_file": str(samples)}
    run = quatro.fine_tune(config_of("math-1.5b", policy_folder, problems, SETTINGS | replayed), tmp_path / "run")
    rewards = quatro.read_metrics(run)["reward/mean"].tolist()

    if "QUATRO_VERL_PARITY" in os.environ:
        text = json.dumps({"verl": theirs, "quatro": ours})
        Path(os.environ["QUATRO_VERL_PARITY"]).write_text(text, encoding="utf-8")
    assert [row["critic/rewards/mean"] for row in theirs_metrics] == pytest.approx(rewards, rel=1e-6)
    assert len(theirs) == len(ours) == STEPS * PASSES
    assert theirs[:2] == pytest.approx(ours[:2], rel=1e-5)
    assert theirs == pytest.approx(ours, rel=1e-3)
