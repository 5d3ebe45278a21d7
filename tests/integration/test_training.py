"""`train` as a whole, on a tiny random policy: determinism, replay, live rewards, safety."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import random
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from evals.errors import DataError, DivergedError
from quatro.config import load_config
from quatro.loop.draw import Evaluation
from quatro.loop.position import Parts
from quatro.loop.progress import old_logp
from quatro.policy.base import Update
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.stop import StopRequest
from quatro.rewards.base import VerifiedReward
from quatro.rollout.transformers import TransformersEngine
from quatro.runs import checkpoint
from quatro.runs.directory import RunDir
from quatro.train import train
from quatro.types import Sampling
from tests.kit import says, write_rows

FLAT = "reward=countdown"  # 0 for every response: nobody has taught the model the task


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_equal_runs_have_equal_checkpoints_whatever_was_drawn_before_them(
    tmp_path, settings, run_training, checkpoint_of
):
    for number, name in enumerate(("one", "two")):
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002
        torch.manual_seed(number)
        run_training(tmp_path / name, [*settings, "steps=1"])
    one, two = (checkpoint_of(tmp_path / name, 1) for name in ("one", "two"))
    assert "tensors.safetensors" in one
    assert one == two
    run_training(tmp_path / "other", [*settings, "steps=1", "seed=1"])
    assert checkpoint_of(tmp_path / "other", 1)["tensors.safetensors"] != one["tensors.safetensors"]


@pytest.mark.parametrize("method", ["quatro", pytest.param("gspo", marks=pytest.mark.slow)])
def test_the_same_config_gives_the_same_bytes_and_another_seed_does_not(
    tmp_path, settings, method, run_training, essence, weights_of
):
    one = run_training(tmp_path / "one", settings, method=method)
    two = run_training(tmp_path / "two", settings, method=method)
    other = run_training(tmp_path / "other", [*settings, "seed=1"], method=method)
    assert essence(one) == essence(two)
    assert same_weights(weights_of(tmp_path / "one", 6), weights_of(tmp_path / "two", 6))
    assert essence(one) != essence(other)
    assert (tmp_path / "one/rollouts/step-000006.jsonl").read_bytes() == (
        tmp_path / "two/rollouts/step-000006.jsonl"
    ).read_bytes()


@pytest.mark.slow
def test_live_rollouts_with_a_python_reward_learn(tmp_path, settings, digit_reward, run_training):
    (tmp_path / "digit_reward.py").write_text(digit_reward, encoding="utf-8")
    rows = run_training(
        tmp_path / "run",
        [
            *settings,
            "reward=digit_reward:share",
            "steps=30",
            "prompts_per_step=16",
            "minibatch_prompts=16",
            "optimizer.lr=3e-3",
            "kl.beta=0",
        ],
    )
    first, last = (sum(row["reward/mean"] for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert last > first + 0.1


def test_metrics_are_complete_and_tell_the_truth(tmp_path, settings, run_training):
    rows = run_training(tmp_path / "run", [*settings, "eval.every=3", "eval.benchmark=countdown", "eval.n=2"])
    for row in rows:
        assert row["rollouts"] == 16
        assert row["optimizer_steps"] == 4
        assert row["log_ratio/before_max"] < 1e-4
        assert row["mismatch/dlogp_abs_max"] < 1e-4
        assert row["kl/new_old"] >= 0
        assert row["kl/old_new"] >= 0
        assert row["kl/ratio_to_delta"] == pytest.approx(row["kl/new_old"] / 0.01)
        assert 0 < row["ratio/ess_share_min"] <= 1
        assert 0 <= row["entropy/token_mean"] <= math.log(232)
        phases = [v for k, v in row.items() if re.fullmatch(r"perf/(?!step)[a-z_]+(?<!_per)_s", k)]
        assert sum(phases) == pytest.approx(row["perf/step_s"], rel=1e-6)
    assert [("eval/pass@1" in row) for row in rows] == [False, False, True, False, False, True]
    documented = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    unknown = [name for name in rows[2] if f"`{name}`" not in documented and not name.startswith("eval/pass@")]
    assert unknown == []
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts/step-000001.jsonl").open(encoding="utf-8")]
    assert len(rollouts) == 16
    assert sum(row["reward"] for row in rollouts) / 16 == pytest.approx(rows[0]["reward/mean"])


@pytest.mark.slow
def test_each_of_several_benchmarks_is_measured_as_if_it_were_alone(
    tmp_path, settings, run_training, rows_of, essence, monkeypatch
):
    """One of them chooses the best checkpoint, and nothing else of the run changes, nor does a stop among them."""
    monkeypatch.setattr("quatro.loop.draw.make_grader", lambda name: VerifiedReward(lambda _, one: "1" in one.text))
    for name, size in (("a", 3), ("b", 2)):
        rows = ({"problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 1 + size))
        write_rows(tmp_path / f"{name}.jsonl", rows)
    small = [*settings, "steps=2", "eval.every=1", "checkpoint.every=0"]
    several = ["eval.benchmark=[a.jsonl, b.jsonl]", "eval.n=[3, 2]", "checkpoint.keep={last: 1, best: eval/b/pass@2}"]
    both = run_training(tmp_path / "both", [*small, *several])
    alone = [
        run_training(tmp_path / name, [*small, f"eval.benchmark={name}.jsonl", f"eval.n={n}"])
        for name, n in (("a", 3), ("b", 2))
    ]
    for row, *others in zip(both, *alone, strict=True):
        for name, other in zip("ab", others, strict=True):
            for key, value in other.items():
                if key.startswith(("eval/", "base/")):
                    assert row[f"{key[:5]}{name}/{key[5:]}"] == value
                elif not key.startswith("perf/"):
                    assert row[key] == value
        for key in ("eval/pass@1", "base/pass@1") if row["step"] == 1 else ("eval/pass@1",):
            assert row[key] == pytest.approx(sum(other[key] for other in others) / 2)
        assert row["eval/a/pass@3"] > 0
    best = max((1, 2), key=lambda step: both[step - 1]["eval/b/pass@2"])
    assert (tmp_path / f"both/checkpoints/step-00000{best}").is_dir()

    stop, calls, measured = StopRequest(), itertools.count(1), Evaluation._measured

    def stop_in_the_last(self: Evaluation, *arguments: Any) -> Any:
        if next(calls) == 4:  # of `a` and `b` before training and in iteration 1
            stop.request()
        return measured(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "_measured", stop_in_the_last)
        assert run_training(tmp_path / "cut", [*small, *several], stop=stop) == []
    with RunDir.open(tmp_path / "cut") as run:
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(both)


def test_responses_end_at_stop_strings_in_training_and_in_evaluation(tmp_path, settings, run_training, monkeypatch):
    """The run begins as one without: the same tokens, up to the first text with a digit 1."""
    drawn = []

    def generate(engine, prompts, seeds, sampling, **options):
        groups = draw(engine, prompts, seeds, sampling, **options)
        drawn.append((sampling.stop, [rollout for group in groups for rollout in group]))
        return groups

    draw = TransformersEngine.generate
    monkeypatch.setattr(TransformersEngine, "generate", generate)
    evaluated = [*settings, "steps=1", "eval={every: 1, benchmark: countdown, n: 1, at_start: false}"]
    (plain,) = run_training(tmp_path / "plain", evaluated)
    (stopped,) = run_training(tmp_path / "stopped", [*evaluated, "rollout.stop=['1']"])
    assert [stop for stop, _ in drawn] == [(), (), ("1",), ("1",)]
    (_, whole), _, (_, cut), (_, of_evaluation) = drawn
    for before, after in zip(whole, cut, strict=True):
        assert after.text == before.text.partition("1")[0]
        assert after.token_ids == before.token_ids[: len(after.token_ids)]
        assert after.finish_reason == ("stop" if "1" in before.text else before.finish_reason)
    assert not any("1" in rollout.text for rollout in of_evaluation)
    rows = [json.loads(line) for line in (tmp_path / "stopped/rollouts/step-000001.jsonl").open(encoding="utf-8")]
    assert [row["num_tokens"] for row in rows] == [len(rollout.token_ids) for rollout in cut]
    assert stopped["tokens"] == sum(row["num_tokens"] for row in rows) < plain["tokens"]
    assert stopped["mismatch/dlogp_abs_max"] < 1e-4


def test_evaluation_judges_by_the_benchmark_and_not_by_the_reward(tmp_path, settings, run_training):
    """The reward pays for digits; no answer of a random policy solves countdown."""
    rows = run_training(
        tmp_path / "run", [*settings, "steps=1", "eval.every=1", "eval.benchmark=countdown", "eval.n=2"]
    )
    assert rows[0]["reward/mean"] > 0.1
    assert rows[0]["eval/pass@1"] == rows[0]["eval/distinct_correct"] == 0


@pytest.mark.parametrize("fails", [False, True])
def test_the_judge_of_an_evaluation_is_closed_however_a_run_ends(tmp_path, settings, monkeypatch, run_training, fails):
    closed = []

    class Judge(VerifiedReward):
        def close(self) -> None:
            closed.append(self)

    def observer(metrics) -> None:
        if fails:
            raise OSError("no space")

    monkeypatch.setattr("quatro.loop.draw.make_grader", lambda name: Judge(lambda prompt, rollout: True))
    evaluated = [*settings, "steps=1", "eval.every=100", "eval.benchmark=countdown"]
    with pytest.raises(OSError, match="no space") if fails else contextlib.nullcontext():
        run_training(tmp_path / "run", evaluated, observer=observer)
    assert len(closed) == 1


def test_fault_09_a_run_that_was_tampered_with_is_not_continued(tmp_path, settings, tiny_folder, run_training, rows_of):
    import shutil

    model = tmp_path / "model"
    shutil.copytree(tiny_folder, model)
    stop = StopRequest()
    stop.request()
    run_training(tmp_path / "run", [*settings, f"model={model}"], stop=stop)

    def resume() -> None:
        with RunDir.open(tmp_path / "run") as run:
            train(run.config, run)

    file = tmp_path / "run" / "config.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("lr: 0.001", "lr: 0.5"), encoding="utf-8")
    with pytest.raises(DataError, match=r"optimizer.lr was 0.001, is 0.5"):
        resume()
    file.write_text(text.replace("lora: null", "lora: {rank: 4}"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quatro.launch.saving.assemble", None)  # said before anything is loaded
        with pytest.raises(DataError, match=r"policy.lora.rank was None, is 4"):
            resume()
    file.write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quatro.launch.saving.assemble", None)
        newest = checkpoint.load(checkpoint.find_checkpoint(tmp_path / "run"))
        inside = {"parts": {**newest.state["parts"], "iteration": {"learnt": {"rewards": []}}}}
        for earlier in ({key: value for key, value in newest.state.items() if key != "parts"}, newest.state | inside):
            patch.setattr(checkpoint, "load_newest", lambda run, found=earlier: replace(newest, state=found))
            with pytest.raises(DataError, match=r"was written by an earlier version.*-s model="):
                resume()
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-4] + bytes(4))
    with pytest.MonkeyPatch.context() as patch:
        closed: list[Parts] = []
        patch.setattr(Parts, "close", lambda parts: closed.append(parts))
        with pytest.raises(DataError, match="reference model changed"):
            resume()
    assert len(closed) == 1
    (model / "model.safetensors").write_bytes(weights)
    file.write_text(text.replace("steps: 6", "steps: 2"), encoding="utf-8")  # more or fewer iterations are welcome
    resume()
    assert len(rows_of(tmp_path / "run")) == 2


def test_fault_12_all_equal_rewards_change_no_weight(tmp_path, settings, run_training, weights_of):
    rows = run_training(tmp_path / "run", [*settings, FLAT, "kl.beta=0", "steps=2"])
    assert rows[-1]["dual/degenerate_share"] == 1
    assert rows[-1]["groups/mixed_share"] == 0
    assert rows[-1]["kl/new_old"] < 1e-9
    assert same_weights(weights_of(tmp_path / "run", 1), weights_of(tmp_path / "run", 2))


def test_fault_12_equal_rewards_after_others_change_no_weight(
    tmp_path, settings, digit_reward, run_training, weights_of
):
    """The optimiser has moments by then, which would move the weights without a gradient."""
    # Counted in a file: several processes call it.
    (tmp_path / "turns.py").write_text(
        digit_reward + "def one(prompt, completion, answer):\n"
        f"    with open({str(tmp_path / 'calls')!r}, 'ab') as calls:\n"
        "        calls.write(b'.')\n"
        "        calls.flush()\n"
        "        is_early = calls.tell() <= 2 * 4 * 4\n"
        "    return share(prompt, completion, answer) if is_early else 1.0\n",
        encoding="utf-8",
    )
    rows = run_training(tmp_path / "run", [*settings, "reward=turns:one", "kl.beta=0", "steps=4"])
    assert [row["groups/mixed_share"] > 0 for row in rows] == [True, True, False, False]
    assert [row["grad/zero_steps"] for row in rows] == [0, 0, 4, 4]
    two, three, four = (weights_of(tmp_path / "run", step) for step in (2, 3, 4))
    assert same_weights(two, three)
    assert same_weights(two, four)


@pytest.mark.parametrize("factor", [math.nan, math.inf])
def test_fault_11_a_step_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tmp_path, settings, monkeypatch, run_training, rows_of, factor
):
    from quatro.methods.quatro import Quatro
    from quatro.types import Advantages

    original = Quatro.advantages
    calls: Iterator[int] = iter(range(100))

    def poisoned(self: Quatro, reward_B: torch.Tensor, group_B: torch.Tensor) -> Advantages:
        found = original(self, reward_B, group_B)
        return found if next(calls) < 2 else Advantages(found.value_B * factor, found.metrics)

    monkeypatch.setattr(Quatro, "advantages", poisoned)
    with pytest.raises(DivergedError, match="iteration 3"):
        run_training(tmp_path / "run", settings)
    assert len(rows_of(tmp_path / "run")) == 2
    assert (tmp_path / "run/checkpoints/latest").read_text(encoding="utf-8").strip() == "step-000002"
    assert list((tmp_path / "run").glob("nonfinite-step-000003.pt"))


def test_fault_11_a_batch_that_cannot_be_saved_hides_no_step_that_is_not_finite(
    tmp_path, settings, monkeypatch, run_training, rows_of
):
    original = LocalPolicy.update

    def poisoned(self: LocalPolicy, rows: Any, objective: Any, **options: Any) -> Update:
        (tmp_path / "run/nonfinite-step-000001.pt").mkdir(exist_ok=True)  # nothing can be written there
        return original(self, rows.with_batch(advantage_B=rows.batch.advantage_B * math.nan), objective, **options)

    monkeypatch.setattr(LocalPolicy, "update", poisoned)
    with pytest.raises(DivergedError, match=r"iteration 1: .* its batch could not be saved \(.*nonfinite-step-000001"):
        run_training(tmp_path / "run", settings)
    assert rows_of(tmp_path / "run") == []


def test_fault_11_skipping_what_is_not_finite_goes_on_and_counts(
    tmp_path, settings, monkeypatch, run_training, weights_of
):
    original = LocalPolicy.update
    calls = iter(range(10_000))

    def sometimes(self: LocalPolicy, rows: Any, objective: Any, **options: Any) -> Update:
        if next(calls) == 5:
            rows = rows.with_batch(advantage_B=rows.batch.advantage_B * math.nan)
        return original(self, rows, objective, **options)

    monkeypatch.setattr(LocalPolicy, "update", sometimes)
    rows = run_training(tmp_path / "run", [*settings, "on_nonfinite=skip"])
    assert [row["grad/skipped_steps"] for row in rows] == [0, 1, 0, 0, 0, 0]
    assert all(value.isfinite().all() for value in weights_of(tmp_path / "run", 6).values())


def test_fault_11_skipping_ends_at_the_tenth_step_in_a_row(
    tmp_path, settings, monkeypatch, run_training, rows_of, weights_of
):
    original = LocalPolicy.update
    calls = iter(range(10_000))

    def never_again(self: LocalPolicy, rows: Any, objective: Any, **options: Any) -> Update:
        if next(calls) >= 5:
            rows = rows.with_batch(advantage_B=rows.batch.advantage_B * math.nan)
        return original(self, rows, objective, **options)

    monkeypatch.setattr(LocalPolicy, "update", never_again)
    with pytest.raises(DivergedError, match=r"iteration 4: .* each of the last 10 optimiser steps") as raised:
        run_training(tmp_path / "run", [*settings, "on_nonfinite=skip"])
    assert "on_nonfinite" not in str(raised.value)  # it is set
    assert [row["grad/skipped_steps"] for row in rows_of(tmp_path / "run")] == [0, 3, 4]
    assert all(value.isfinite().all() for value in weights_of(tmp_path / "run", 3).values())


def test_the_engine_is_asked_for_what_the_configuration_says(tmp_path, settings, monkeypatch, run_training, caplog):
    """Every field is away from its default, and those of the evaluation from those of the rollouts."""
    asked = []
    generate = TransformersEngine.generate

    def noted(self: TransformersEngine, prompts: Any, seeds: Any, sampling: Sampling, **options: Any) -> Any:
        asked.append((len(prompts), len(seeds[0]), sampling))
        return generate(self, prompts, seeds, sampling, **options)

    monkeypatch.setattr(TransformersEngine, "generate", noted)
    write_rows(tmp_path / "toy.jsonl", [{"problem": "7 2", "answer": "9"}, {"problem": "7 1", "answer": "8"}])
    rollout = ("temperature=0.9", "top_p=0.8", "top_k=40", "max_new_tokens=7", "stop=['5']")
    evaluation = ("every=1", "benchmark=toy.jsonl", "temperature=0.7", "top_p=0.6", "n=3", "at_start=false")
    own = [*(f"rollout.{one}" for one in rollout), *(f"eval.{one}" for one in evaluation), "steps=1"]
    run_training(tmp_path / "run", [*settings, *own])
    (told,) = [one for one in caplog.messages if one.startswith("evaluation: none of 6 responses is correct")]
    says(told, "toy", "math", "boxed", "'1'")
    assert asked == [(4, 4, Sampling(0.9, 0.8, 40, 7, ("5",))), (2, 3, Sampling(0.7, 0.6, 0, 7, ("5",)))]


def test_a_radius_that_cannot_act_is_announced(tmp_path, settings, caplog):
    overrides = [*settings, "inner_updates=1", "minibatch_prompts=4", "steps=1"]
    with RunDir.create(tmp_path / "run", load_config("quickstart", overrides=overrides)) as run:
        train(run.config, run)
    assert "delta hardly acts" in caplog.text


def test_a_single_step_per_iteration_needs_no_old_log_probs(tmp_path, settings, run_training, weights_of, monkeypatch):
    """`own`: the update's own detached log-probabilities; the result is that of recomputing them."""
    single = [*settings, "inner_updates=1", "minibatch_prompts=4", "steps=2"]
    run_training(tmp_path / "own", single)
    monkeypatch.setattr("quatro.train.old_logp", lambda rows, _, *more: old_logp(rows, "recompute", *more))
    run_training(tmp_path / "again", single)
    for name, value in weights_of(tmp_path / "own", 2).items():
        torch.testing.assert_close(value, weights_of(tmp_path / "again", 2)[name], rtol=0, atol=1e-6)
