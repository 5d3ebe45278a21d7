"""How many rows pass through the policy beside the update: what an iteration costs in forward passes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch

from quatro.policy.torch_policy import LocalPolicy
from quatro.rollout.transformers import TransformersEngine

ROWS = 32  # of 8 prompts in 4 minibatches


@pytest.fixture
def counted(monkeypatch):
    """One counter an iteration: the rows of updates, of scoring with the policy, of scoring with its reference."""
    iterations: list[Counter[str]] = []
    generate, forward = TransformersEngine.generate, LocalPolicy.forward

    def begin(self, *arguments, **options):
        iterations.append(Counter())
        return generate(self, *arguments, **options)

    def count(self, rows, *, model=None, **options):
        if iterations:  # the check of the head comes before
            kind = "update" if torch.is_grad_enabled() else "reference" if model is self.reference else "score"
            iterations[-1][kind] += len(rows)
        return forward(self, rows, model=model, **options)

    monkeypatch.setattr(TransformersEngine, "generate", begin)
    monkeypatch.setattr(LocalPolicy, "forward", count)
    return iterations


@pytest.fixture
def iterate(tmp_path, settings, run_training):
    """``iterate(*more)``: two iterations of one pass, each row a micro-batch of its own."""

    def run(*more):
        sizes = ("prompts_per_step=8", "minibatch_prompts=2", "inner_updates=1", "microbatch_tokens=1", "steps=2")
        return run_training(tmp_path / "run", [*settings, *sizes, "kl.beta=0.001", *more])

    return run


def test_beside_the_update_an_iteration_takes_two_forward_passes(counted, iterate):
    """Reference 1, log pi_old 3/4 and a row, a sample of two prompts of eight 1/4."""
    iterate("dtype=bfloat16", "audit.prompts=2")
    expected = {"update": ROWS, "reference": ROWS, "score": (ROWS - 8 + 1) + 8}
    assert counted == [expected, expected]


def test_a_sampler_that_agrees_is_scored_once(counted, iterate):
    iterate("audit=false")
    assert counted == [{"update": ROWS, "reference": ROWS, "score": ROWS - 8 + 1}, {"update": ROWS, "reference": ROWS}]


def test_a_sampler_that_does_not_agree_is_scored_no_more_than_that(counted, iterate, monkeypatch):
    generate = TransformersEngine.generate

    def shifted(self, *arguments, **options):
        groups = generate(self, *arguments, **options)
        return [[replace(one, logp=tuple(value - 0.25 for value in one.logp)) for one in group] for group in groups]

    monkeypatch.setattr(TransformersEngine, "generate", shifted)
    iterate("audit=true", "kl.beta=0")
    expected = {"update": ROWS, "score": (ROWS - 8 + 1) + ROWS}
    assert counted == [expected, expected]
