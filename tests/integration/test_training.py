"""`train` as a whole, on a tiny random policy: determinism, resume, replay, live rewards, safety."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from evals.errors import DataError, DivergedError
from quatro.config import load_config
from quatro.loop.parts import Parts
from quatro.policy.local import Forward, LocalPolicy, Update
from quatro.processes.stop import StopRequest
from quatro.rewards.base import VerifiedReward
from quatro.rollout.transformers import TransformersEngine
from quatro.run import launch
from quatro.runs import checkpoint
from quatro.runs.checkpoint import complete_checkpoints
from quatro.runs.directory import RunDir
from quatro.runs.status import read_status
from quatro.train import train

RECIPE_SECONDS = 240  # a child process that takes longer is stuck


def requesting(stop: StopRequest, *, after: int) -> Callable[..., Any]:
    """`LocalPolicy.update`, which requests a stop in its call number ``after``."""
    update, calls = LocalPolicy.update, itertools.count(1)

    def counted(self: LocalPolicy, *arguments: Any, **options: Any) -> Any:
        if next(calls) == after:
            stop.request()
        return update(self, *arguments, **options)

    return counted


def same_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


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


@pytest.mark.parametrize("method", ["quatro", "gspo"])
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


def test_a_polite_stop_and_a_resume_change_nothing(tmp_path, settings, run_training, rows_of, essence, weights_of):
    whole = run_training(tmp_path / "whole", settings)
    stop = StopRequest()

    def ask_at_three(metrics: Any) -> None:
        if metrics["step"] == 3:
            stop.request()

    assert len(run_training(tmp_path / "cut", settings, observer=ask_at_three, stop=stop)) == 3
    with RunDir.open(tmp_path / "cut") as run:
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(whole)
    assert same_weights(weights_of(tmp_path / "whole", 6), weights_of(tmp_path / "cut", 6))


EVALUATED = ("eval.every=1", "eval.benchmark=countdown", "eval.n=1")


class StopAfter(StopRequest):
    """Asks for a stop when it has been looked at ``looks`` times, as a signal at that moment would."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    @property
    def requested(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.fixture
def unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first optimiser step the first minibatch is not finite, however often the run was stopped."""
    forward = LocalPolicy.forward

    def sometimes_nan(self: LocalPolicy, rows: Any, **options: Any) -> Forward:
        found = forward(self, rows, **options)
        if not torch.is_grad_enabled() or self.schedule.last_epoch > 0 or 0 not in rows.batch.group_B:
            return found
        return Forward(found.logp_BT * math.nan, None if found.entropy_BT is None else found.entropy_BT * math.nan)

    monkeypatch.setattr(LocalPolicy, "forward", sometimes_nan)
    monkeypatch.setattr(LocalPolicy, "check_head", lambda self, prompts: 0.0)


@pytest.fixture
def silent_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine knows neither log-probabilities nor entropies, as where responses are replayed."""
    generate = TransformersEngine.generate

    def silent(self: TransformersEngine, *arguments: Any, **options: Any) -> Any:
        groups = generate(self, *arguments, **options)
        return [[replace(rollout, logp=None, entropy=None) for rollout in group] for group in groups]

    monkeypatch.setattr(TransformersEngine, "generate", silent)


@contextlib.contextmanager
def stop_after_updates(number: int) -> Iterator[StopRequest]:
    """Asks for a stop while the optimiser step of that number is under way."""
    update, calls, stop = LocalPolicy.update, iter(range(1, 1000)), StopRequest()

    def counting(self: LocalPolicy, *arguments: Any, **options: Any) -> Update:
        if next(calls) == number:
            stop.request()
        return update(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", counting)
        yield stop


@pytest.mark.usefixtures("unstable")
@pytest.mark.parametrize("engine", ["engine", "silent_engine"])
def test_a_stop_after_a_step_that_was_skipped_changes_nothing(
    request, tmp_path, settings, engine, run_training, rows_of, essence, weights_of
):
    """A pass that is not finite says nothing about pi_old, which the sampler or a pass without gradient knows too."""
    is_silent = engine == "silent_engine" and request.getfixturevalue(engine) is None
    settings = [*settings, "steps=1", "on_nonfinite=skip", "optimizer.lr=1e-5"]
    whole = run_training(tmp_path / "whole", settings)
    for number in (1, 3):
        cut = tmp_path / f"cut-{number}"
        with stop_after_updates(number) as stop:
            assert run_training(cut, settings, stop=stop) == []
        with RunDir.open(cut) as run:
            train(run.config, run)
        assert essence(rows_of(cut)) == essence(whole), number
        assert same_weights(weights_of(tmp_path / "whole", 1), weights_of(cut, 1))
    (row,) = whole
    assert (row["optimizer_steps"], row["grad/skipped_steps"]) == (3, 1)
    assert 0 <= row["kl/new_old"] < 1
    assert 0 < row["ratio/ess_share_min"] <= 1
    assert row["grad/norm"] <= row["grad/norm_max"]
    # Where only the passes of the update know it, it is unknown for the tokens of the first minibatch.
    assert (row["entropy/token_mean"] is None) == is_silent


AT_ANY_MOMENT = [
    [],
    ["audit_rollouts=2", "method.log_ratio=none"],
    ["method.name=dapo"],
    ["inner_updates=auto", "method.delta=5"],
    ["inner_updates=auto", "method.delta=0.5", *EVALUATED],
    ["inner_updates=1", *EVALUATED],
]


@pytest.mark.parametrize(
    ("extra", "moments"),
    [
        ([], (0, 2, 5)),
        *(pytest.param(extra, range(14), marks=pytest.mark.slow) for extra in AT_ANY_MOMENT),
    ],
)
def test_a_stop_at_any_moment_of_an_iteration_changes_nothing(
    tmp_path, settings, extra, moments, run_training, rows_of, essence, weights_of
):
    """Among the responses, and between any two optimiser steps of an iteration; then stopped again and again."""
    settings = [*settings, "steps=3", "inner_updates=3", *extra]
    whole = run_training(tmp_path / "whole", settings)
    for looks in moments:
        cut = tmp_path / f"cut-{looks}"
        run_training(cut, settings, stop=StopAfter(looks))
        for attempt in range(30):
            with RunDir.open(cut) as run:
                train(run.config, run, stop=StopAfter(looks + 2 * attempt))
            if (cut / "checkpoints" / "step-000003").exists():
                break
        assert essence(rows_of(cut)) == essence(whole), looks
        assert same_weights(weights_of(tmp_path / "whole", 3), weights_of(cut, 3))
        for path in (tmp_path / "whole" / "rollouts").iterdir():
            assert (cut / "rollouts" / path.name).read_bytes() == path.read_bytes()


def test_a_stop_between_optimiser_steps_keeps_the_rollouts(
    tmp_path, settings, run_training, rows_of, essence, weights_of
):
    """What was drawn is not drawn again: the resumed iteration must not call the engine."""
    stop = StopRequest()
    settings = [*settings, "steps=1", "inner_updates=3"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", requesting(stop, after=2))
        assert run_training(tmp_path / "cut", settings, stop=stop) == []
    with RunDir.open(tmp_path / "cut") as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr("quatro.rollout.transformers.TransformersEngine.generate", None)
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(run_training(tmp_path / "whole", settings))
    assert same_weights(weights_of(tmp_path / "whole", 1), weights_of(tmp_path / "cut", 1))


def test_a_stop_inside_an_iteration_leaves_the_checkpoint_before_it_alone(tmp_path, settings, run_training, weights_of):
    settings = [*settings, "steps=3", "checkpoint.keep=3"]
    run_training(tmp_path / "whole", settings)
    stop, cut = StopRequest(), tmp_path / "cut"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", requesting(stop, after=9))  # four an iteration
        run_training(cut, settings, stop=stop)
    names = ["step-000001", "step-000002", "step-000002-inside"]
    assert [path.name for path in complete_checkpoints(cut)] == names
    assert (cut / "checkpoints" / "latest").read_text(encoding="utf-8") == "step-000002-inside\n"
    assert same_weights(weights_of(tmp_path / "whole", 2), weights_of(cut, 2))
    inside = load_file(cut / "checkpoints" / "step-000002-inside" / "model" / "model.safetensors")
    assert not same_weights(weights_of(cut, 2), inside)
    with RunDir.open(cut) as run:
        train(run.config, run)
    assert [path.name for path in complete_checkpoints(cut)] == ["step-000001", "step-000002", "step-000003"]
    assert same_weights(weights_of(tmp_path / "whole", 3), weights_of(cut, 3))


def test_a_stop_in_the_evaluation_keeps_what_was_learnt(tmp_path, settings, run_training, rows_of, essence):
    from quatro.loop.evaluation import Evaluation

    stop, settings = StopRequest(), [*settings, "steps=2", *EVALUATED]
    maybe = Evaluation.maybe

    def stop_in_the_second(self: Evaluation, step: int) -> Any:
        if step == 2:
            stop.request()
        return maybe(self, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "maybe", stop_in_the_second)
        run_training(tmp_path / "cut", settings, stop=stop)
    assert len(rows_of(tmp_path / "cut")) == 1
    with RunDir.open(tmp_path / "cut") as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", None)  # nothing is learnt again
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(run_training(tmp_path / "whole", settings))


def test_the_status_follows_the_run_and_says_done_only_of_all_its_steps(tmp_path, settings):
    seen = []
    with RunDir.create(tmp_path / "run", load_config("quickstart", overrides=[*settings, "steps=3"])) as run:

        def look(metrics: Any) -> None:
            seen.append((read_status(run.path)["status"], read_status(run.path)["step"]))

        with stop_after_updates(11) as stop:  # an iteration has 4
            launch(run, observer=look, stop=stop)
        assert (read_status(run.path)["status"], read_status(run.path)["step"]) == ("interrupted", 2)
    with RunDir.open(tmp_path / "run") as run:
        assert launch(run, observer=look)["step"] == 3
        assert (read_status(run.path)["status"], read_status(run.path)["step"]) == ("done", 3)
    assert seen == [("running", 1), ("running", 2), ("running", 3)]


@pytest.mark.slow  # tests/faults kills a forked run in every test run
def test_a_killed_run_resumes_bit_by_bit(tmp_path, settings, run_training, rows_of, essence, weights_of):
    """A real SIGKILL, wherever it hits after the third row; checkpoints are rarer than iterations."""
    settings = [*settings, "checkpoint.every=2", "steps=8"]
    whole = run_training(tmp_path / "whole", settings)
    options = [word for setting in settings for word in ("-s", setting)]
    command = [sys.executable, "-m", "quatro_cli", "train"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    cut = tmp_path / "cut"
    child = subprocess.Popen(
        [*command, "quickstart", *options, "-o", str(cut)], env=environment, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + RECIPE_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        if (cut / "metrics.jsonl").exists() and (cut / "metrics.jsonl").read_bytes().count(b"\n") >= 3:
            child.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors.decode()
    subprocess.run([*command, str(cut), "--resume"], env=environment, check=True, timeout=RECIPE_SECONDS)
    assert essence(rows_of(cut)) == essence(whole)
    assert same_weights(weights_of(tmp_path / "whole", 8), weights_of(cut, 8))


def test_live_rollouts_with_a_python_reward_learn(tmp_path, settings, run_training):
    rows = run_training(
        tmp_path / "run",
        [*settings, "steps=30", "prompts_per_step=16", "minibatch_prompts=16", "optimizer.lr=3e-3", "kl.beta=0"],
    )
    first, last = (sum(row["reward/mean"] for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert last > first + 0.1


def test_metrics_are_complete_and_tell_the_truth(tmp_path, settings, run_training):
    rows = run_training(
        tmp_path / "run", [*settings, "audit_rollouts=2", "eval.every=3", "eval.benchmark=countdown", "eval.n=2"]
    )
    for row in rows:
        assert row["rollouts"] == 16
        assert row["optimizer_steps"] == 4
        assert row["log_ratio/before_max"] < 1e-4
        assert row["mismatch/dlogp_abs_max"] < 1e-4
        assert row["kl/new_old"] >= 0
        assert row["kl/old_new"] >= 0
        assert row["kl/new_old_fresh"] >= 0
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

    monkeypatch.setattr("quatro.loop.evaluation.make_reward", lambda name: Judge(lambda prompt, rollout: True))
    evaluated = [*settings, "steps=1", "eval.every=100", "eval.benchmark=countdown"]
    with pytest.raises(OSError, match="no space") if fails else contextlib.nullcontext():
        run_training(tmp_path / "run", evaluated, observer=observer)
    assert len(closed) == 1


def test_a_run_that_was_tampered_with_is_not_continued(tmp_path, settings, tiny_folder, run_training, rows_of):
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
        newest = checkpoint.load(tmp_path / "run")
        earlier = {key: value for key, value in newest.state.items() if key != "parts"}
        patch.setattr(checkpoint, "load_newest", lambda run: replace(newest, state=earlier))
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


def test_all_equal_rewards_change_no_weight(tmp_path, settings, run_training, weights_of):
    (tmp_path / "flat.py").write_text("def one(prompt, completion, answer):\n    return 1.0\n", encoding="utf-8")
    rows = run_training(tmp_path / "run", [*settings, "reward=flat:one", "kl.beta=0", "steps=2"])
    assert rows[-1]["dual/degenerate_share"] == 1
    assert rows[-1]["groups/mixed_share"] == 0
    assert rows[-1]["kl/new_old"] < 1e-9
    assert same_weights(weights_of(tmp_path / "run", 1), weights_of(tmp_path / "run", 2))


def test_a_step_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    tmp_path, settings, monkeypatch, run_training, rows_of
):
    from quatro.methods.quatro import Quatro
    from quatro.types import Advantages

    original = Quatro.advantages
    calls: Iterator[int] = iter(range(100))

    def poisoned(self: Quatro, reward_B: torch.Tensor, group_B: torch.Tensor) -> Advantages:
        found = original(self, reward_B, group_B)
        return found if next(calls) < 2 else Advantages(found.value_B * math.nan, found.metrics)

    monkeypatch.setattr(Quatro, "advantages", poisoned)
    with pytest.raises(DivergedError, match="iteration 3"):
        run_training(tmp_path / "run", settings)
    assert len(rows_of(tmp_path / "run")) == 2
    assert (tmp_path / "run/checkpoints/latest").read_text(encoding="utf-8").strip() == "step-000002"
    assert list((tmp_path / "run").glob("nonfinite-step-000003.pt"))


def test_skipping_what_is_not_finite_goes_on_and_counts(tmp_path, settings, monkeypatch, run_training, weights_of):
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


def test_a_radius_that_cannot_act_is_announced(tmp_path, settings, caplog):
    overrides = [*settings, "inner_updates=1", "minibatch_prompts=4", "steps=1"]
    with RunDir.create(tmp_path / "run", load_config("quickstart", overrides=overrides)) as run:
        launch(run)
    assert "delta cannot act" in caplog.text


def test_a_single_step_per_iteration_needs_no_old_log_probs(tmp_path, settings, run_training, weights_of, monkeypatch):
    """`own`: the update's own detached log-probabilities; the result is that of recomputing them."""
    single = [*settings, "inner_updates=1", "minibatch_prompts=4", "steps=2"]
    run_training(tmp_path / "own", single)
    monkeypatch.setattr("quatro.train.choose_source", lambda *_: "recompute")
    run_training(tmp_path / "again", single)
    for name, value in weights_of(tmp_path / "own", 2).items():
        torch.testing.assert_close(value, weights_of(tmp_path / "again", 2)[name], rtol=0, atol=1e-6)
