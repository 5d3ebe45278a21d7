"""Parity of log-probabilities (METHODS 1.2): what the sampler says against the trainer, on every response."""

import logging
from dataclasses import replace

import pytest

from quatro.policy.torch_policy import LocalPolicy
from quatro.rollout.transformers import TransformersEngine

SHIFT = 0.25  # nats


@pytest.fixture
def shifted_sampler(monkeypatch):
    """The sampler misstates one token, of the last prompt: no row of the first minibatch."""
    generate = TransformersEngine.generate

    def shifted(self, *arguments, **options):
        *groups, last = generate(self, *arguments, **options)
        first, *others = last
        logp = (first.logp[0] - SHIFT, *first.logp[1:])
        return [*groups, [replace(first, logp=logp), *others]]

    monkeypatch.setattr(TransformersEngine, "generate", shifted)


def test_a_sampler_that_is_off_in_any_minibatch_is_seen(tmp_path, settings, run_training, shifted_sampler, caplog):
    caplog.set_level(logging.INFO)
    settings = [*settings, "steps=2"]
    for name, more, steps in (("recompute", [], 4), ("own", ["minibatch_prompts=4"], 2)):
        rows = run_training(tmp_path / name, [*settings, *more])
        for row in rows:
            assert row["optimizer_steps"] == steps
            assert row["mismatch/dlogp_abs_max"] == pytest.approx(SHIFT, abs=1e-3)
            assert 0 < row["mismatch/dlogp_abs_mean"] < SHIFT / 16
            assert row["log_ratio/before_max"] < 1e-4  # the trainer's own are used
    assert "log pi_old comes from the trainer: sampler and trainer differ by at most 2.5e-01 nats" in caplog.text


def test_noise_between_scoring_and_learning_is_seen(tmp_path, settings, run_training, shifted_sampler, monkeypatch):
    """A kernel without gradient that differs from the one with: log pi_old of the later minibatches would be off."""
    score = LocalPolicy.score

    def noisy(self, rows, **options):
        found = score(self, rows, **options)
        return replace(found, logp_BT=found.logp_BT - 0.01 * rows.batch.mask_BT)

    monkeypatch.setattr(LocalPolicy, "score", noisy)
    rows = run_training(tmp_path / "run", [*settings, "steps=1", "audit=false", "kl.beta=0"])
    assert rows[0]["log_ratio/before_max"] == pytest.approx(0.01 * rows[0]["length/max"], rel=0.35)


def test_a_sampler_that_agrees_is_taken_at_its_word(tmp_path, settings, run_training, caplog):
    caplog.set_level(logging.INFO)
    (row,) = run_training(tmp_path / "run", [*settings, "steps=1"])
    assert "log pi_old comes from the sampler" in caplog.text
    assert 0 < row["mismatch/dlogp_abs_max"] < 1e-4
    assert 0 < row["log_ratio/before_max"] < 1e-4
