"""Options and limits of a reward, and what a function of one's own makes of them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from evals.errors import UsageError
from quatro.rewards import Reward, RewardConfig
from quatro.types import Prompt, Rollout

FUNCTIONS = """
    SEEN = {"text": "π \\u2028", "none": None, "list": [1, [2.5, True]], "block": {"a": {"b": []}}}

    def keywords(prompt, completion, answer, **options):
        return options == SEEN and type(options["list"][1][1]) is bool

    def few(prompt, completion, answer, bonus=1.0):
        return bonus

    class Judge:
        def __call__(self, prompt, completion, answer, *, bonus):
            return bonus

    judge = Judge()
"""
SEEN = {"text": "π \u2028", "none": None, "list": [1, [2.5, True]], "block": {"a": {"b": []}}}


def rewarded(reward: Reward) -> float:
    prompt = Prompt("mine", "p1", "q", None, text="q", token_ids=(1,))
    return reward.score([prompt], [[Rollout(token_ids=(1,), text="a", finish_reason="stop")]])[0][0].reward


def test_options_reach_a_function_as_they_are(functions):
    assert rewarded(functions("keywords", options=SEEN)) == 1.0
    assert rewarded(functions("keywords", options={**SEEN, "none": 0})) == 0.0
    assert rewarded(functions("few")) == 1.0
    assert rewarded(functions("judge", options={"bonus": -2})) == -2.0


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("few", {"bonsu": 2}, "its parameters are (prompt, completion, answer, bonus=1.0)"),
        ("few", {"answer": 2}, "reward.options has answer, which every rollout has of its own"),
        ("judge", {}, "missing a required argument: 'bonus'"),
        ("textwrap:dedent", {}, "missing a required argument: 'text'"),
        ("builtins:max", {}, "no signature found"),
    ],
)
def test_a_function_that_cannot_be_called_so_is_refused_at_the_start(functions, name, options, says):
    with pytest.raises(UsageError, match="cannot load the reward function") as caught:
        functions(name, options=options)
    assert says in str(caught.value)
    assert all(option in str(caught.value) for option in options)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "math", "workers": 2},
        {"name": "countdown", "on_error": "zero"},
        {"name": "countdown", "options": {"a": 1}},
        {"name": "a:f", "options": {"a": [float("inf")]}},
        {"name": "a:f", "options": {"a": {1, 2}}},
        {"name": "a:f", "options": [1]},
        {"name": "a:f", "workers": -1},
        {"name": "model", "options": {}},
        {"name": "sum", "options": {"rewards": []}},
        {"name": "sum", "options": {"rewards": ["math", {"name": "sum", "options": {"rewards": ["math"]}}]}},
        {"name": "sum", "options": {"rewards": ["a:f", "b:f"]}},
        {"name": "sum", "options": {"rewards": [{"name": "math", "timeout_s": 5.0}]}},
        {"name": " a:f"},
        {"name": "a:f()"},
    ],
)
def test_what_a_reward_does_not_take_is_refused(settings):
    with pytest.raises(ValidationError, match=next(reversed(settings))):
        RewardConfig.model_validate(settings)


def test_one_meaning_has_one_form():
    short = RewardConfig(name="a:f")
    assert not short.changed
    assert RewardConfig(name="a:f", workers=0, options={}, on_error="fail", timeout_s=None) == short
    for changed in ({"workers": 1}, {"timeout_s": 10.0}, {"on_error": "zero"}, {"options": {"a": None}}):
        other = RewardConfig.model_validate({"name": "a:f", **changed})
        assert other != short
        assert other.changed
        assert RewardConfig.model_validate(other.model_dump()) == other
        assert RewardConfig.model_validate_json(other.model_dump_json()) == other
    assert RewardConfig(name="a:f", options={"a": (1, 2)}) == RewardConfig(name="a:f", options={"a": [1, 2]})
