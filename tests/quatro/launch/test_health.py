"""Warnings at the start and on the way."""

import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from evals.benchmarks.problems import Problem
from quatro.config import load_config
from quatro.launch.health import Watch, problems, prompt_warnings, startup_warnings
from quatro.rollout.prompts import Loaded, PromptSet
from quatro.types import Prompt
from tests.kit import says

GOOD = {
    "step": 1.0,
    "kl/ratio_to_delta": 1.0,
    "kl/new_old": 0.01,
    "length/truncated_share": 0.1,
    "ratio/ess_share_min": 0.9,
    "log_ratio/before_max": 1e-5,
    "reward/errors": 0.0,
    "reward/timeouts": 0.0,
    "rollouts": 100.0,
    "groups/mixed_share": 0.5,
    "lr": 3e-4,
    "reward/mean": 0.4,
    "reward/std": 0.49,
    "accuracy/mean": 0.4,
}


def test_a_metric_that_is_watched_and_does_not_exist_is_named():
    settings = ["checkpoint.keep={best: eval/pass1}", "early_stop={metric: reward/maen, patience: 2}"]
    config = load_config("quickstart", overrides=[*settings, "eval={every: 2, benchmark: countdown}"])
    ((key, said),) = problems(GOOD, config).items()
    assert (key, said) == (
        "early_stop.metric",
        "early_stop.metric is reward/maen, and there is no such metric; did you mean reward/mean?",
    )
    first, second = problems({**GOOD, "eval/pass@1": 0.5}, config).items()
    assert "checkpoint.keep.best is eval/pass1" in first[1]
    assert "did you mean eval/pass@1?" in first[1]
    assert second[0] == "early_stop.metric"


def test_fewer_inner_updates_are_advised_only_where_there_are_several():
    moved = {**GOOD, "kl/ratio_to_delta": 9.0, "kl/new_old": 0.09}
    for passes, is_advised in ((1, False), (5, True)):
        ((_, message),) = problems(moved, load_config("quickstart", overrides=[f"inner_updates={passes}"])).items()
        assert ("fewer inner_updates" in message) == is_advised


def test_a_healthy_iteration_says_nothing():
    assert list(problems(GOOD, load_config("quickstart"))) == []


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"kl/ratio_to_delta": 3.1, "kl/new_old": 0.031}, "kl", r"3.1 x delta.*0.031 nats, delta 0.01\)"),
        ({"length/truncated_share": 0.51}, "truncated", "51%"),
        ({"ratio/ess_share_min": 0.09}, "ess", "9.0%"),
        ({"log_ratio/before_max": 0.2}, "noise", "0.2 nats"),
        ({"kl/ratio_to_delta": 2.0, "kl/new_old": 4.0}, "kl", r"4 nats.*-s optimizer.lr=7e-05[, ]"),
        ({"kl/ratio_to_delta": 400.0, "kl/new_old": 4.0}, "kl", r"4 nats.*-s optimizer.lr=7e-05[, ]"),
        ({"kl/new_old": 0.9999, "kl/old_new": 100.0}, "kl", r"100 nats.*kl/old_new.*-s optimizer.lr=1e-05[, ]"),
        ({"dual/share_without_success": 0.35}, "unsolved", "35% of the KL goes to prompts without a correct response"),
        ({"reward/errors": 26.0, "reward/timeouts": 5.0, "rollouts": 225.0}, "reward", "31 of 256"),
    ],
)
def test_each_illness_is_named_with_its_number(change, kind, words, caplog):
    ((found, message),) = problems(
        {**GOOD, **change}, load_config("quickstart", overrides=["method.delta=0.5"])
    ).items()
    assert found == kind
    Watch(load_config("quickstart"))({**GOOD, **change})
    assert re.search(words, caplog.text), message


@pytest.mark.parametrize(
    ("key", "limit", "direction", "settings"),
    [
        ("kl/new_old", 1.0, 1, []),
        ("kl/old_new", 1.0, 1, []),
        ("kl/ratio_to_delta", 3.0, 1, []),
        ("length/truncated_share", 0.5, 1, []),
        ("ratio/ess_share_min", 0.1, -1, []),
        ("dual/share_without_success", 0.25, 1, []),
        ("log_ratio/before_max", 0.1, 1, ["method.delta=0.5"]),
        ("log_ratio/before_max", 0.5 * math.sqrt(2 * 0.01), 1, ["method.delta=0.01"]),
        ("log_ratio/before_max", 0.5 * math.sqrt(2 * 0.001), 1, ["method.delta=0.001"]),
    ],
)
def test_a_warning_begins_beyond_its_limit_and_not_at_it(key, limit, direction, settings):
    config = load_config("quickstart", overrides=settings)
    numbers = [limit * (1 + direction * off) for off in (-1e-9, 0.0, 1e-9)]
    assert [len(list(problems({**GOOD, key: number}, config))) for number in numbers] == [0, 0, 1]


def test_failures_of_the_reward_are_told_beyond_a_tenth_of_all_responses():
    found = [list(problems({**GOOD, "reward/errors": number}, load_config("quickstart"))) for number in (25.0, 26.0)]
    assert [len(each) for each in found] == [0, 1]  # of 32 x 8


def test_noise_is_judged_by_the_size_of_the_advantages():
    """Under a radius delta they are about sqrt(2 delta): .045 nats at .001."""
    noisy = {**GOOD, "log_ratio/before_max": 0.03}
    assert list(problems(noisy, load_config("quickstart", overrides=["method.delta=0.01"]))) == []
    ((kind, _),) = problems(noisy, load_config("quickstart", overrides=["method.delta=0.001"])).items()
    assert kind == "noise"
    assert list(problems(noisy, load_config("quickstart", method="gspo"))) == []


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_log_probabilities_of_an_own_engine_are_judged_by_what_rounding_explains(dtype, limit):
    for engine, gap, kinds in (("some:Engine", 1, []), ("some:Engine", 1 + 1e-9, ["engine"]), ("transformers", 9, [])):
        config = load_config("quickstart", overrides=[f"dtype={dtype}"]).with_values({"rollout.engine": engine})
        found = problems({**GOOD, "mismatch/dlogp_abs_mean": limit * gap}, config).items()
        assert [kind for kind, _ in found] == kinds


def test_an_adapter_at_the_rate_of_all_weights_is_announced():
    slow = load_config("quickstart", overrides=["policy.lora.rank=8", "optimizer.lr=1e-6"])
    (text,) = startup_warnings(slow)
    assert text.startswith("optimizer.lr 1e-06 suits all weights")
    assert "-s optimizer.lr=1e-05" in text
    assert startup_warnings(load_config("quickstart", overrides=["policy.lora.rank=8", "optimizer.lr=1e-5"])) == []


def test_a_warning_comes_again_after_25_iterations_and_not_before(caplog):
    watch, bad = Watch(load_config("quickstart")), {**GOOD, "ratio/ess_share_min": 0.01}
    for step in (1, 25, 26, 50, 51):
        watch({**bad, "step": float(step)})
    told = [int(record.getMessage().split()[1].rstrip(":")) for record in caplog.records]
    assert told == [1, 26, 51]


def test_truncated_training_and_an_idle_delta_are_announced():
    config = load_config("quickstart", overrides=["inner_updates=1", "rollout.top_p=0.7"])
    assert [text.split()[0] for text in startup_warnings(config)] == ["delta", "training"]
    assert startup_warnings(load_config("quickstart")) == []
    assert startup_warnings(load_config("quickstart", overrides=["inner_updates=auto"])) == []
    idle = load_config("quickstart", overrides=["inner_updates=auto", "max_inner_updates=1"])
    assert [text.split()[0] for text in startup_warnings(idle)] == ["delta"]
    assert startup_warnings(load_config("quickstart", overrides=["inner_updates=1"], method="gspo")) == []


def test_a_run_that_learns_nothing_quotes_a_response_and_names_causes(tmp_path, caplog):
    row = {"id": "p1", "completion": "\x1b[31m" + "so it is 42. " * 100}
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-000001.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    watch = Watch(load_config("quickstart"), tmp_path)
    flat = {**GOOD, "groups/mixed_share": 0.0, "reward/mean": 0.0, "accuracy/mean": 0.0}
    watch(flat)
    assert r"The first response, to 'p1': '\x1b[31mso it is 42. so it" in caplog.text
    assert "does not find the answer" in caplog.text
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 1500


@pytest.mark.parametrize(
    ("flat_steps", "is_told"), [((5,), False), ((5, 6), False), ((5, 6, 7), True), ((5, 6, 8), False)]
)
def test_later_it_takes_several_iterations_in_a_row(flat_steps, is_told, caplog):
    watch = Watch(load_config("quickstart"))
    for step in range(4, 9):
        share = 0.0 if step in flat_steps else 0.1
        watch({**GOOD, "step": float(step), "groups/mixed_share": share, "reward/mean": 1.0})
    assert ("for 3 iterations" in caplog.text) == is_told
    assert ("too easy" in caplog.text) == is_told


def fitting(count: int, source: str = "") -> PromptSet:
    return PromptSet([Prompt("b", str(i), "", None, "", (1,), source=source) for i in range(count)], Counter())


def test_too_few_prompts_of_a_source_for_its_share_are_said():
    several = "data.prompts=[{source: countdown, weight: 3}, {name: own, source: own.jsonl, template: plain}]"
    config = load_config("quickstart", overrides=[several])
    prompts = PromptSet([*fitting(40, "countdown").prompts, *fitting(8, "own").prompts], Counter())
    assert prompt_warnings(config, prompts) == []
    (said,) = prompt_warnings(config, replace(prompts, prompts=prompts.prompts[:-1]))
    assert "8 prompts and there are 7 of source own" in said
    assert "weight" in said


def test_too_few_prompts_for_the_batch_are_said():
    config = load_config("quickstart")
    assert prompt_warnings(config, fitting(config.prompts_per_step)) == []
    (text,) = prompt_warnings(config, fitting(5))
    assert f"takes {config.prompts_per_step} prompts and there are 5" in text
    assert "-s prompts_per_step=5 -s minibatch_prompts=5" in text
    paper = load_config("math-1.5b")
    (text,) = prompt_warnings(paper, fitting(100))
    advice = re.findall(r"-s (\S+=\d+)", text)
    assert load_config("math-1.5b", overrides=advice).prompts_per_step == 64


def watched(means, caplog, run=None, first=1, settings=()) -> list[str]:
    """What is said of rewards of 0 and 1 with these means, one an iteration of 32 prompts x 8 rollouts."""
    watch, before = Watch(load_config("quickstart", overrides=settings), run), len(caplog.records)
    for step, mean in enumerate(means, first):
        spread = math.sqrt(mean * (1 - mean))
        watch({**GOOD, "step": float(step), "reward/mean": mean, "reward/std": spread, "rollouts": 256.0})
    return [record.getMessage() for record in caplog.records[before:]]


def test_a_reward_far_below_its_own_best_is_told_with_learning_rate_and_kl(caplog):
    (said,) = watched([0.2] * 5 + [0.5] * 5 + [0.1] * 5, caplog)
    assert said.startswith("iteration 12:")
    says(said, "0.5", "iteration 10", "0.0003", "1 x delta", advice="-s optimizer.lr=0.0001")
    told = [said.split()[1] for said in watched([0.5] * 5 + [0.1] * 29, caplog)]
    assert told == ["7:", "32:"]


def test_a_fall_counts_beyond_four_standard_errors(caplog):
    """With half of the variance between prompts the mean of an iteration has that of p (1 - p) 9 / 16 / 32."""

    def variance(p: float) -> float:
        return p * (1 - p) * 9 / 16 / 32 / 5

    low = next(
        p / 1000 for p in range(500, 0, -1) if 0.5 - p / 1000 > 4 * math.sqrt(variance(0.5) + variance(p / 1000))
    )
    assert watched([0.5] * 5 + [low + 0.001] * 9, caplog) == []
    assert len(watched([0.5] * 5 + [low] * 9, caplog)) == 1


def test_four_bad_iterations_are_no_fall_nor_is_noise_around_one_mean(caplog):
    assert watched([0.5] * 5 + [0.3] * 2 + [0.5] * 5, caplog) == []
    draws = np.random.default_rng(0)
    for mean in (0.05, 0.3, 0.9):
        # Prompts of different difficulty: a third of the variance lies between them.
        chance_SQ = draws.beta(2 * mean, 2 * (1 - mean), (2000, 32))
        assert watched(draws.binomial(8, chance_SQ).mean(-1) / 8, caplog) == []


def test_a_run_that_goes_on_remembers_its_best_and_nothing_after_the_checkpoint(caplog, tmp_path):
    rows = [{"step": step, "reward/mean": 0.5, "reward/std": 0.5, "rollouts": 256} for step in range(1, 9)]
    rows[1] |= {"reward/mean": None, "reward/std": None}  # all responses were dropped
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert len(watched([0.1] * 3, caplog, tmp_path, first=9)) == 1
    assert watched([0.1] * 9, caplog, tmp_path, first=3) == []  # what followed the checkpoint is done again


def problem(id: str, text: str, answer: str, benchmark: str = "mine") -> Problem:
    return Problem(benchmark, id, text, answer)


def test_problems_that_are_trained_on_and_evaluated_are_counted():
    trained = [problem(f"t{number}", f"What is {number} + 1?", str(number + 1)) for number in range(40)]
    shared = [problem("e1", 'what  is "3 + 1"', "4", "theirs"), problem("e2", "What is 3 - 1?", "2", "theirs")]
    config = load_config("quickstart")
    sources = [Loaded(*config.data.sources, trained)]
    (said,) = prompt_warnings(config, fitting(40), sources, [shared])
    says(said, "1 of the 2", "theirs", "'e1'", "'t3'", key="data.prompts", advice="eval.benchmark")
    assert prompt_warnings(config, fitting(40), sources, [shared[1:]]) == []


def test_odd_references_are_told_of_what_maths_grades():
    odd, quickstart = [problem("1", "When?", "10:30")], load_config("quickstart")
    config = load_config("math-1.5b", overrides=["prompts_per_step=32", "minibatch_prompts=32"])
    (said,) = prompt_warnings(config, fitting(40), [Loaded(*config.data.sources, odd)])
    says(said, "1 of the 1 references of mine", "'10:30' as a time")
    assert prompt_warnings(quickstart, fitting(40), [Loaded(*quickstart.data.sources, odd)]) == []  # of countdown
    assert len(prompt_warnings(quickstart, fitting(40), [], [odd])) == 1  # judged by the benchmark's grader
