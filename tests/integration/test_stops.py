"""A stop and a resume change nothing, wherever the stop comes: on a tiny random policy."""

from __future__ import annotations

import contextlib
import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from evals.benchmarks.loading import load_problems
from quatro.config import load_config
from quatro.loop.position import Position
from quatro.policy.base import Forward, Update
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.stop import StopRequest
from quatro.rollout.transformers import TransformersEngine
from quatro.runs.checkpoint import complete_checkpoints
from quatro.runs.directory import RunDir
from quatro.runs.status import read_status
from quatro.train import train
from tests.kit import write_rows

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
        if not torch.is_grad_enabled() or self.num_steps > 0 or 0 not in rows.batch.group_B:
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.usefixtures("silent_engine")
def test_what_a_method_asks_is_as_it_was_before_learning(
    tmp_path, settings, run_training, rows_of, essence, weights_of
):
    """Once the policy has moved, nobody could tell its old log-probabilities any more."""
    settings = [*settings, "steps=1", "optimizer.lr=1e-2", "method.tau=1"]
    whole = run_training(tmp_path / "whole", settings, method="ucpo")
    assert whole[0]["ucpo/factor_max"] > 1
    for number in (1, 3):
        cut = tmp_path / f"cut-{number}"
        with stop_after_updates(number) as stop:
            assert run_training(cut, settings, stop=stop, method="ucpo") == []
        with RunDir.open(cut) as run:
            train(run.config, run)
        assert essence(rows_of(cut)) == essence(whole), number
        assert same_weights(weights_of(tmp_path / "whole", 1), weights_of(cut, 1))


# Two sources with rewards of their own, which go through several epochs, and a filter by pass rates. The names of files
# are those of `measured`.
SOURCES = (
    "data.prompts=[{source: some.jsonl, weight: 3}, {name: other ones, source: others.jsonl, reward: many-digits}]",
    *("data.template=plain", "data.pass_rate.from=rates.jsonl"),
)


@pytest.fixture
def measured(tmp_path: Path) -> None:
    """Five and three prompts, of which the filter leaves four and two."""
    problems, rates = load_problems("countdown", split="train")[:8], []
    for name, own in (("some", problems[:5]), ("others", problems[5:])):
        rows = [{"id": one.id, "problem": one.problem, "answer": one.problem} for one in own]
        write_rows(tmp_path / f"{name}.jsonl", rows)
        for number, row in enumerate(rows):
            sample = {"benchmark": name, "id": row["id"], "completion": "", "answer": row["answer"]}
            rates += [{**sample, "sample_index": i, "correct": number != 1 and i == 0} for i in range(2)]
    write_rows(tmp_path / "rates.jsonl", rates)


MOMENTS = range(14)
AT_ANY_MOMENT = [
    [],
    ["audit.prompts=2", "method.log_ratio=none", "old_policy=sampler"],
    ["method.name=dapo"],
    ["method.name=ucpo"],
    ["method.name=cluster-weighted"],
    ["inner_updates=auto", "method.delta=5"],
    ["inner_updates=auto", "method.delta=0.5", *EVALUATED],
    ["inner_updates=1", *EVALUATED],
    [
        # Iterations of two rounds and of one, a batch that lacks a prompt, cut responses, and weights in each.
        *("reward=many-digits", "rollout.stop=['7']", "rollout.max_new_tokens=4", "rollouts_per_prompt=2", "seed=3"),
        *("rollout.dynamic_sampling=true", "rollout.max_sampling_rounds=2", "rollout.mask_truncated=true"),
        *("rollout.correction={kind: mask, cap: 1}", "inner_updates=2", *SOURCES),
    ],
]


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize(
    ("extra", "moments"),
    [
        pytest.param([], (2,), marks=pytest.mark.slow),
        # A third of the moments each, so that every moment meets two configurations; then all with all.
        *(pytest.param(extra, MOMENTS[i % 3 :: 3], marks=pytest.mark.slow) for i, extra in enumerate(AT_ANY_MOMENT)),
        *(pytest.param(extra, MOMENTS, marks=pytest.mark.long) for extra in AT_ANY_MOMENT),
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


@pytest.mark.slow
@pytest.mark.parametrize("looks", [10, 11])
def test_fault_49_a_stop_inside_an_automatic_iteration_changes_nothing(
    tmp_path, settings, looks, run_training, rows_of, essence, weights_of
):
    settings = [*settings, "steps=2", "inner_updates=auto", "method.delta=0.02"]
    whole = run_training(tmp_path / "whole", settings)
    cut = tmp_path / "cut"
    run_training(cut, settings, stop=StopAfter(looks))
    with RunDir.open(cut) as run:
        train(run.config, run)
    assert essence(rows_of(cut)) == essence(whole)
    assert same_weights(weights_of(tmp_path / "whole", 2), weights_of(cut, 2))


def test_a_stop_between_optimiser_steps_keeps_the_rollouts(
    tmp_path, settings, run_training, rows_of, essence, weights_of
):
    """What was drawn is not drawn again: the resumed iteration must not call the engine. What was dropped stays so."""
    stop = StopRequest()
    (tmp_path / "fickle.py").write_text("def length(completion): return 1 / (len(completion) % 4)\n", encoding="utf-8")
    settings = [*settings, "steps=1", "inner_updates=3", "reward={name: 'fickle:length', on_error: drop}"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", requesting(stop, after=2))
        assert run_training(tmp_path / "cut", settings, stop=stop) == []
    with RunDir.open(tmp_path / "cut") as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr("quatro.rollout.transformers.TransformersEngine.generate", None)
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(run_training(tmp_path / "whole", settings))
    assert same_weights(weights_of(tmp_path / "whole", 1), weights_of(tmp_path / "cut", 1))
    texts = [(tmp_path / name / "rollouts/step-000001.jsonl").read_text(encoding="utf-8") for name in ("cut", "whole")]
    assert texts[0] == texts[1]
    assert "ZeroDivisionError" in texts[0]
    assert len(texts[0].splitlines()) == 16


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


@pytest.mark.slow
def test_a_stop_in_the_evaluation_keeps_what_was_learnt(tmp_path, settings, run_training, rows_of, essence):
    from quatro.loop.draw import Evaluation

    stop, settings = StopRequest(), [*settings, "steps=2", *EVALUATED]
    metrics = Evaluation.metrics

    def stop_in_the_second(self: Evaluation, position: Position) -> Any:
        if position.step == 1:
            stop.request()
        return metrics(self, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "metrics", stop_in_the_second)
        run_training(tmp_path / "cut", settings, stop=stop)
    assert len(rows_of(tmp_path / "cut")) == 1
    with RunDir.open(tmp_path / "cut") as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPolicy, "update", None)  # nothing is learnt again
        train(run.config, run)
    assert essence(rows_of(tmp_path / "cut")) == essence(run_training(tmp_path / "whole", settings))


@pytest.mark.slow
def test_the_model_before_training_is_evaluated_once_and_changes_no_other_number(
    tmp_path, settings, run_training, rows_of, essence
):
    """A stop right behind it does not repeat it; the test above of any moment cuts it too."""
    from quatro.loop.draw import Evaluation

    settings, of_base, stop = [*settings, "steps=2", *EVALUATED], Evaluation.of_base, StopRequest()
    whole = run_training(tmp_path / "whole", settings)
    assert ["base/pass@1" in row for row in whole] == [True, False]
    others = [{name: value for name, value in row.items() if not name.startswith("base/")} for row in whole]
    assert essence(run_training(tmp_path / "without", [*settings, "eval.at_start=false"])) == essence(others)

    def stop_behind(self: Evaluation, position: Position) -> None:
        of_base(self, position)
        stop.request()

    def is_there(self: Evaluation, position: Position) -> None:
        assert position.base

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "of_base", stop_behind)
        assert run_training(tmp_path / "behind", settings, stop=stop) == []
    with RunDir.open(tmp_path / "behind") as run, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Evaluation, "of_base", is_there)
        train(run.config, run)
    assert essence(rows_of(tmp_path / "behind")) == essence(whole)


def test_the_status_follows_the_run_and_says_done_only_of_all_its_steps(tmp_path, settings):
    seen = []
    with RunDir.create(tmp_path / "run", load_config("quickstart", overrides=[*settings, "steps=3"])) as run:

        def look(metrics: Any) -> None:
            seen.append((read_status(run.path)["status"], read_status(run.path)["step"]))

        with stop_after_updates(11) as stop:  # an iteration has 4
            train(run.config, run, observer=look, stop=stop)
        assert (read_status(run.path)["status"], read_status(run.path)["step"]) == ("interrupted", 2)
    with RunDir.open(tmp_path / "run") as run:
        assert train(run.config, run, observer=look)["step"] == 3
        assert (read_status(run.path)["status"], read_status(run.path)["step"]) == ("done", 3)
    assert seen == [("running", 1), ("running", 2), ("running", 3)]


@pytest.mark.slow  # tests/faults kills a forked run in every test run
def test_a_killed_run_resumes_bit_by_bit(
    tmp_path, settings, digit_reward, run_training, rows_of, essence, weights_of, fork
):
    """A real SIGKILL, wherever it hits after the third row; checkpoints are rarer than iterations."""
    (tmp_path / "digit_reward.py").write_text(digit_reward, encoding="utf-8")
    settings = [*settings, "reward=digit_reward:share", "checkpoint.every=2", "steps=8"]
    whole = run_training(tmp_path / "whole", settings)
    options = [word for setting in settings for word in ("-s", setting)]
    cut = tmp_path / "cut"
    child = fork(["quatro", "train", "quickstart", *options, "-o", cut], cwd=tmp_path)
    deadline = time.monotonic() + RECIPE_SECONDS
    while child.poll() is None and time.monotonic() < deadline:
        if (cut / "metrics.jsonl").exists() and (cut / "metrics.jsonl").read_bytes().count(b"\n") >= 3:
            child.send_signal(signal.SIGKILL)
            break
        time.sleep(0.002)
    _, errors = child.communicate()
    assert child.returncode == -signal.SIGKILL, errors
    assert fork(["quatro", "train", cut, "--resume"], cwd=tmp_path).wait(RECIPE_SECONDS) == 0
    assert essence(rows_of(cut)) == essence(whole)
    assert same_weights(weights_of(tmp_path / "whole", 8), weights_of(cut, 8))
