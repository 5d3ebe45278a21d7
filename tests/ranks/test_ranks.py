"""`train` on two ranks with a policy of its own each: the run of one process, and one end for all."""

import json
import signal
import time

import pytest

from evals.errors import UsageError
from quatro.config import load_config
from quatro.launch.begin import check_ranks
from quatro.processes.launcher import TIMEOUT_VARIABLE, Launch, launched

pytestmark = pytest.mark.slow

METHODS = ("quatro", "dapo", "gpg", "ucpo")
# Cut responses, prompts that hold a place, and weights.
CHOOSY = (
    *(
        "rollout.stop=['7']",
        "rollout.max_new_tokens=5",
        "rollout.mask_truncated=true",
        "rollout.correction.level=token",
    ),
    *("rollout.dynamic_sampling=true", "rollout.max_sampling_rounds=1", "rollouts_per_prompt=2"),
    "rollout.correction.level=token",
)


@pytest.fixture(scope="module")
def trained(bench):
    """Each method on one rank and on two; and a run of two ranks cut after its second iteration."""
    jobs = {size: [bench.job(f"{method}-{size}", method=method) for method in METHODS] for size in (1, 2)}
    for size, some in jobs.items():
        some.append(bench.job(f"choosy-{size}", *CHOOSY))
    bench.run(jobs[1], size=1)
    skip = ("steps=2", "on_nonfinite=skip")
    bench.run([*jobs[2], bench.job("cut", stop_after=2), bench.job("nan", *skip, method="poison:Poison")], size=2)
    return bench


@pytest.mark.parametrize("name", [*METHODS, "choosy"])
def test_two_ranks_tell_the_story_of_one(trained, name):
    trained.assert_same_story(f"{name}-1", f"{name}-2")


def test_each_rank_knows_which_of_its_rows_have_a_loss(trained):
    rows = trained.rows("choosy-2")
    assert all(row["length/masked"] > 0 for row in rows)
    assert any(row.get("sampling/missing_prompts", 0) > 0 for row in rows)


def test_a_stop_asked_of_one_rank_ends_all_and_a_resume_changes_nothing(trained, essence):
    assert len(trained.rows("cut")) == 2
    status = json.loads((trained.folder / "cut" / "status.json").read_text(encoding="utf-8"))
    assert status["status"] == "interrupted"
    trained.run([{"path": str(trained.folder / "cut"), "resume": True}], size=2)
    assert essence(trained.rows("cut")) == essence(trained.rows("quatro-2"))
    assert trained.furthest("cut", "quatro-2") == 0.0


MOMENTS = [("update", 1), ("update", 3), ("update", 5), ("generate", 4), ("generate", 20)]
AUTO = ("inner_updates=auto", "method.delta=5")


@pytest.fixture(scope="module")
def stopped_inside(trained):
    """Rank 1 alone is asked to stop, among the responses or between two optimiser steps; then all go on."""
    jobs = [
        trained.job(f"{name}-{call}-{count}", *more, stop_in={"rank": 1, "call": call, "count": count})
        for call, count in MOMENTS
        for name, more in (("quatro", ()), ("auto", AUTO))
    ]
    left = trained.job("left-inside", stop_in={"rank": 1, "call": "update", "count": 6}, deaf=True)
    trained.run([*jobs, left, trained.job("auto", *AUTO)], size=2)
    for job in jobs:
        assert trained.is_inside(job["path"]) == (job["stop_in"]["call"] == "update")
    trained.run([{"path": job["path"], "resume": True} for job in jobs], size=2)
    return trained


@pytest.mark.parametrize(("call", "count"), MOMENTS)
@pytest.mark.parametrize(("name", "whole"), [("quatro", "quatro-2"), ("auto", "auto")])
def test_fault_42_a_stop_inside_an_iteration_asked_of_one_rank_changes_nothing(
    stopped_inside, essence, name, whole, call, count
):
    cut = f"{name}-{call}-{count}"
    assert essence(stopped_inside.rows(cut)) == essence(stopped_inside.rows(whole))
    assert stopped_inside.furthest(cut, whole) == 0.0


def test_a_run_that_another_rank_was_asked_to_stop_is_not_done(stopped_inside):
    """Also where nobody listens to signals on the first rank."""
    status = json.loads((stopped_inside.folder / "left-inside" / "status.json").read_text(encoding="utf-8"))
    assert (status["status"], status["reason"], status["step"]) == ("interrupted", "SIGTERM", 1)


def test_a_position_inside_an_iteration_needs_as_many_ranks(stopped_inside):
    run = stopped_inside.folder / "left-inside"
    rollouts = run / "rollouts" / "step-000002.jsonl"
    rollouts.write_text("{}\n", encoding="utf-8")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as stream:
        stream.write('{"step": 2}\n')
    ((code, text),) = stopped_inside.wait(stopped_inside.start([{"path": str(run), "resume": True}], size=1))
    assert code == 4
    assert rollouts.exists()  # nothing is cut back before all can go on
    assert len(stopped_inside.rows("left-inside")) == 2
    assert "stopped inside an iteration of 2 processes" in text
    assert "start 2 to go on with it" in text


def test_memory_that_ran_out_on_one_rank_is_remembered_there(trained, essence):
    oom = {"oom_in": {"rank": 1, "call": "forward", "count": 4}}
    trained.run([trained.job("oom", **oom), trained.job("oom-cut", **oom, stop_after=1)], size=2)
    state = json.loads((trained.folder / "oom-cut/checkpoints/step-000001/state.json").read_text(encoding="utf-8"))
    assert [budget["used"] for budget in state["parts"]["policy"]["microbatch_tokens"]] == [300, 150]
    trained.run([{"path": str(trained.folder / "oom-cut"), "resume": True}], size=2)
    assert essence(trained.rows("oom-cut")) == essence(trained.rows("oom"))
    assert trained.furthest("oom-cut", "oom") == 0.0


def test_all_ranks_decline_a_step_that_is_not_finite(trained):
    assert [row["grad/skipped_steps"] for row in trained.rows("nan")] == [4, 4]
    trained.assert_nothing_learnt("nan")
    dumps = sorted(path.name for path in (trained.folder / "nan").glob("*.pt"))
    assert dumps == [f"nonfinite-step-{step:06d}{rank}.pt" for step in (1, 2) for rank in ("-rank-1", "")]


def test_an_error_of_one_rank_is_said_once_and_ends_all_with_its_code(bench):
    ended = bench.wait(bench.start([bench.job("failing", "reward=digit_reward:broken_on_rank_1")], size=2))
    assert len({code for code, _ in ended} - {0}) == 1
    assert sum("no reward today" in text for _, text in ended) == 1
    assert not any("this is a bug" in text for _, text in ended)
    status = json.loads((bench.folder / "failing" / "status.json").read_text(encoding="utf-8"))
    assert status["status"] == "failed"
    assert "no reward today" in status["reason"]


@pytest.mark.parametrize(("victim", "how"), [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_fault_41_a_rank_that_is_killed_or_hangs_ends_the_other(bench, victim, how):
    name = f"lost-{victim}-{how.name}"
    job = bench.job(name, "steps=100000", "eval.every=0")
    ranks = bench.start([job], size=2, **{TIMEOUT_VARIABLE: "20"})
    metrics = bench.folder / name / "metrics.jsonl"
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.2)
    ranks[victim].send_signal(how)
    while time.monotonic() < deadline and ranks[1 - victim].poll() is None:
        time.sleep(0.2)
    ranks[victim].kill()
    ended = bench.wait(ranks)
    assert ended[victim][0] == -signal.SIGKILL
    code, text = ended[1 - victim]
    assert code == 1
    assert "another rank is gone" in text
    assert "--resume" in text


def test_the_environment_says_who_one_is():
    assert launched({}) == Launch()
    assert launched({"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}) == Launch()
    assert launched({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}) == Launch(3, 4, 1)
    for broken in ({"WORLD_SIZE": "2"}, {"RANK": "2", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}):
        with pytest.raises(UsageError, match="torchrun"):
            launched(broken)


def test_a_rank_without_a_prompt_of_a_minibatch_is_refused():
    config = load_config("quickstart", overrides=["minibatch_prompts=2", "prompts_per_step=4"])
    check_ranks(config, 2)
    with pytest.raises(UsageError, match=r"minibatch_prompts is 2 and there are 3 ranks"):
        check_ranks(config, 3)
