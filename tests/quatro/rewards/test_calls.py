"""What a reward function gets by name, alone or a group at a time, and what it may return."""

from __future__ import annotations

import logging
import re

import pytest

from evals.errors import QuatroError, UsageError
from quatro.rewards import Reward
from quatro.rewards.base import Grade, Grades
from quatro.types import Prompt, Rollout
from tests.kit import num_failed, rewards

FUNCTIONS = """
    def by_name(finish_reason, row, num_tokens, id, *, bonus=0.5, completion):
        assert finish_reason == "length" and id == "p1"
        return {"reward": row["level"] + bonus, "words": len(completion.split()), "tokens": num_tokens}

    def everything(prompt, problem, answer, completion, row):
        return prompt == "<q>" and problem == "q" and answer == "42" and row["answer"] == "42" and row["problem"] == "q"

    def group(completions, answers, num_tokens, rows=None, **options):
        if "raise" in completions:
            raise KeyError("no such thing")
        assert answers == ["42"] * len(completions) and not options
        best = max(num_tokens)
        return [{"reward": n / best, "best": n == best} for n in num_tokens]

    def singular(completions, answer):
        return [len(answer)] * len(completions)

    def arrays(completions):
        import numpy
        return numpy.arange(len(completions), dtype=numpy.float32)

    def short(completions):
        return [1.0]

    def text(completions):
        return "1.0"

    def wrong(completion):
        return {"none": {}, "nan": {"reward": 1, "x": float("nan")}, "name": {"reward": 1, "a b": 1},
                "value": {"reward": 1, "x": "1"}, "verdict": {"reward": 1, "correct": 0.5}}[completion]

    def judged(completion):
        return {"reward": 0.5, "correct": completion == "right", "x": 3}

    def unknown(completion, respnse):
        return 1

    def sometimes(completion):
        if completion == "raise":
            raise ValueError("\\x1b[31mred")
        return float(len(completion))
"""


def score(reward: Reward, *texts: str, id: str = "p1") -> Grades:
    prompt = Prompt("mine", id, "q", "42", text="<q>", token_ids=(1,), extra={"level": 3})
    return reward.score([prompt], [[Rollout((7,) * len(text), text, "length") for text in texts]])


def test_a_function_gets_by_name_what_it_asks_for(functions):
    scored = score(functions("by_name", options={"bonus": 0.25}), "one two", "three")
    assert rewards(scored) == [[3.25, 3.25]]
    assert [grade.logged for grade in scored[0]] == [
        {"words": 2.0, "tokens": 7.0},
        {"words": 1.0, "tokens": 5.0},
    ]
    assert rewards(score(functions("everything"), "a")) == [[1.0]]


def test_a_function_of_completions_gets_a_group_at_a_time(functions):
    reward = functions("group")
    prompts = [Prompt("mine", name, "q", "42", "", (1,)) for name in "ab"]
    groups = [[Rollout((0,) * n, "x", "stop") for n in (1, 4)], [Rollout((0,) * n, "x", "stop") for n in (2, 2, 1)]]
    scored = reward.score(prompts, groups)
    assert rewards(scored) == [[0.25, 1.0], [1.0, 1.0, 0.5]]
    assert [grade.logged["best"] for grade in scored[1]] == [1.0, 1.0, 0.0]
    assert rewards(score(functions("singular"), "a", "b")) == [[2.0, 2.0]]
    assert rewards(score(functions("arrays"), "a", "b", "c")) == [[0.0, 1.0, 2.0]]
    assert rewards(reward.score([prompts[0], prompts[1]], [[], groups[1]])) == [[], [1.0, 1.0, 0.5]]


@pytest.mark.parametrize(
    ("name", "texts", "says"),
    [
        ("short", ("a", "b"), "returned 1 rewards for 2 completions"),
        ("text", ("a",), "returned '1.0'; expected a list with a reward for each completion"),
        ("wrong", ("none",), "returned a mapping without `reward`"),
        ("wrong", ("nan",), "`x` is nan; expected a finite number"),
        ("wrong", ("name",), "'a b' cannot be a metric"),
        ("wrong", ("value",), "returned '1' as `x`; expected a number"),
        ("wrong", ("verdict",), "`correct` is 0.5; expected True or False"),
    ],
)
def test_what_cannot_be_a_reward_is_an_error_of_the_function(functions, name, texts, says):
    with pytest.raises(QuatroError, match="on_error: zero") as caught:
        score(functions(name), *texts)
    assert says in str(caught.value)
    assert re.search(rf"\.py:\d+ in {name}\n", str(caught.value)), "the place to look at"


def test_a_function_may_give_a_verdict_beside_its_reward(functions):
    assert score(functions("judged"), "right", "wrong") == [
        [Grade(0.5, True, {"x": 3.0}), Grade(0.5, False, {"x": 3.0})]
    ]


def test_a_parameter_that_nothing_fills_is_named_with_what_there_is(functions):
    known = "prompt, problem, answer, reference, completion, thought, id, row, num_tokens"
    with pytest.raises(UsageError, match=f"'respnse'(?s:.*){known}"):
        functions("unknown")


def test_drop_marks_what_failed_and_a_group_fails_as_a_whole(functions):
    scored = score(functions("sometimes", on_error="drop"), "a", "raise", "bc")
    assert [grade.is_dropped for grade in scored[0]] == [False, True, False]
    assert (rewards(scored), num_failed(scored)) == ([[1.0, 0.0, 2.0]], (1, 0))
    assert [grade.error.partition(":")[0] for grade in scored[0]] == ["", "ValueError", ""]
    scored = score(functions("group", on_error="drop"), "a", "raise")
    assert [grade.is_dropped for grade in scored[0]] == [True, True]
    scored = score(functions("group", on_error="zero"), "raise", "bc")
    assert [grade.is_dropped for grade in scored[0]] == [False, False]


def test_failures_are_told_at_once_and_then_at_powers_of_two(functions, caplog):
    reward = functions("sometimes", on_error="zero")
    with caplog.at_level(logging.WARNING):
        for number in range(8):
            score(reward, "a", "raise", id=f"p{number}")
    assert [record.getMessage().split("(failure ")[1][0] for record in caplog.records] == ["1", "2", "4", "8"]
    first = caplog.records[0].getMessage()
    assert "rollout 1 of mine 'p0', which earns 0" in first
    assert "so far):\n  /" in first, "the place has a line of its own"
    assert "\nValueError" in first
    assert first.endswith("\n  the response: 'raise'")
    assert "\x1b" not in first  # what a function says may hold what a model wrote
