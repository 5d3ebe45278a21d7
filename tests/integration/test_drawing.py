"""What an iteration learns from what it has drawn: prompts without a signal, cut responses, an engine that is off."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from evals.errors import UsageError
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Rollout

# Responses of at most four tokens, of which a third are cut; many groups earn the same.
SHORT = ("reward=many-digits", "rollout.stop=['7']", "rollout.max_new_tokens=4", "rollouts_per_prompt=2")


def drawn_in(run: Path, step: int) -> list[dict[str, Any]]:
    with (run / "rollouts" / f"step-{step:06d}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_a_batch_that_dynamic_sampling_cannot_fill_is_learnt_from_as_far_as_it_goes(tmp_path, settings, run_training):
    """For QUATRO, too. What the metrics count is in the rollouts; the log says it once."""
    more = [*SHORT, "seed=2", "steps=3", "rollout.dynamic_sampling=true", "rollout.max_sampling_rounds=1"]
    rows = run_training(tmp_path / "run", [*settings, *more, "rollout.mask_truncated=true"])
    for row in rows:
        drawn = drawn_in(tmp_path / "run", int(row["step"]))
        pairs = list(zip(drawn[::2], drawn[1::2], strict=True))
        assert row["sampling/missing_prompts"] == sum(one["reward"] == other["reward"] for one, other in pairs) > 0
        assert row["length/masked"] == sum(one["finish_reason"] == "length" for one in drawn)
        assert row["sampling/rounds"] == 1
    assert any(row["optimizer_steps"] > 0 for row in rows)
    log = (tmp_path / "run" / "log.txt").read_text(encoding="utf-8")
    assert log.count("1 rounds of dynamic sampling found too few prompts") == 1


def test_where_every_response_was_cut_nothing_is_learnt(tmp_path, settings, run_training):
    """Neither from rewards nor by the KL to the reference."""
    more = ["steps=2", "rollout.max_new_tokens=1", "rollout.mask_truncated=true", "kl.beta=0.1", "seed=4"]
    rows = run_training(tmp_path / "run", [*settings, *more])
    assert [row["length/truncated_share"] for row in rows] == [1, 1]
    assert [(row["length/masked"], row["optimizer_steps"], row["grad/norm"]) for row in rows] == [(16, 0, 0)] * 2


@contextmanager
def misstated(shift: Callable[[int], float]) -> Iterator[None]:
    """The sampler says that the first token of its response number i was ``shift(i)`` nats less likely than it was."""
    generate = TransformersEngine.generate

    def wrong(self: TransformersEngine, *arguments: Any, **options: Any) -> list[list[Rollout]]:
        groups, number = [], 0
        for group in generate(self, *arguments, **options):
            changed = []
            for one in group:
                assert one.logp is not None
                changed.append(replace(one, logp=(one.logp[0] - shift(number), *one.logp[1:])))
                number += 1
            groups.append(changed)
        return groups

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersEngine, "generate", wrong)
        yield


@pytest.mark.parametrize("minibatch", [4, 2])
def test_every_minibatch_is_learnt_from_with_its_weights(tmp_path, settings, run_training, minibatch):
    """A sampler that calls every response half as likely as it is: twice the gradient, which Adam does not see."""
    more = ["steps=1", "inner_updates=1", f"minibatch_prompts={minibatch}", "kl.beta=0", "audit=false"]
    more += ["optimizer.max_grad_norm=1e9", "method.name=gspo"]
    (plain,) = run_training(tmp_path / "plain", [*settings, *more])
    with misstated(lambda number: math.log(2.0)):
        (one,) = run_training(tmp_path / "one", [*settings, *more, "rollout.correction.cap=3"])
    assert one["grad/norm"] == pytest.approx(2 * plain["grad/norm"], rel=1e-3)
    assert one["loss/policy"] == pytest.approx(plain["loss/policy"], rel=1e-3, abs=1e-6)  # the loss has no weight
    assert one["correction/weight_mean"] == pytest.approx(2, rel=1e-5)
    assert (one["correction/cut_share"], one["correction/ess_share"]) == (0, pytest.approx(1))


@pytest.mark.parametrize(("kind", "weight", "ess"), [("truncate", 2.0, 400 / 448), ("mask", 0.0, 0.75)])
def test_what_is_cut_is_counted(tmp_path, settings, run_training, kind, weight, ess):
    """Of 16 responses four have the weight 4, and the cap is 2."""
    more = ["steps=1", f"rollout.correction={{kind: {kind}, cap: 2}}"]
    with misstated(lambda number: math.log(4.0) if number % 4 == 0 else 0.0):
        (row,) = run_training(tmp_path / "run", [*settings, *more])
    assert row["correction/cut_share"] == 0.25
    assert row["correction/weight_mean"] == pytest.approx((12 + 4 * weight) / 16, rel=1e-4)
    assert row["correction/ess_share"] == pytest.approx(ess, rel=1e-4)
    assert row["log_ratio/before_max"] < 1e-4  # pi_old is the trainer's


def test_around_the_sampler_the_log_ratio_is_the_gap_from_the_first_step_on(tmp_path, settings, run_training):
    """QUATRO's loss is then -s (A - l) with l the gap, also in the minibatch that would give log pi_old itself."""
    gap = 0.7
    more = ["steps=1", "inner_updates=1", "minibatch_prompts=4", "kl.beta=0", "optimizer.lr=1e-9", "old_policy=sampler"]
    with misstated(lambda number: gap):
        (row,) = run_training(tmp_path / "run", [*settings, *more])
    assert row["log_ratio/before_mean"] == pytest.approx(gap, abs=1e-4)
    assert row["mismatch/dlogp_abs_max"] == pytest.approx(gap, abs=1e-4)
    assert row["loss/policy"] == pytest.approx(-math.exp(gap) * (row["advantage/mean"] - gap), rel=1e-4)
    # The audit is around the sampler, too.
    assert row["kl/new_old"] == pytest.approx(math.exp(gap) * (gap - 1) + 1, rel=1e-3)


@pytest.mark.parametrize("key", ["rollout.correction.level=token", "old_policy=sampler"])
def test_an_engine_that_does_not_know_what_is_needed_is_refused_by_name(tmp_path, settings, run_training, key):
    generate = TransformersEngine.generate

    def silent(self: TransformersEngine, *arguments: Any, **options: Any) -> list[list[Rollout]]:
        first, *others = generate(self, *arguments, **options)
        return [[replace(first[0], logp=None), *first[1:]], *others]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransformersEngine, "generate", silent)
        with pytest.raises(UsageError, match=rf"{key.split('=')[0].removesuffix('.level')} needs .* 'transformers'"):
            run_training(tmp_path / "run", [*settings, key])


def test_an_engine_that_agrees_needs_no_correction(tmp_path, settings, run_training, weights_of):
    (plain,), (one,) = (
        run_training(tmp_path / name, [*settings, "steps=1", *more])
        for name, more in (("plain", []), ("one", ["rollout.correction.level=token"]))
    )
    said = [
        "log pi_old comes from the sampler" in (tmp_path / name / "log.txt").read_text() for name in ("plain", "one")
    ]
    assert said == [True, False]  # weights are of what the trainer itself computes
    assert one["correction/ess_share"] == pytest.approx(1, abs=1e-6)
    assert one["grad/norm"] == pytest.approx(plain["grad/norm"], rel=1e-3)
    weights = [weights_of(tmp_path / name, 1) for name in ("plain", "one")]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=0, atol=1e-3)
