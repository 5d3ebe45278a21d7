"""The reward of code: what programs earn, which prompts it takes, and what it needs of the machine."""

from __future__ import annotations

import dataclasses

import pytest

import quatro.rewards.code
from evals.code.grading import ALLOW_UNSAFE, asserts
from evals.errors import DataError, MissingError, QuatroError
from evals.sandbox import Tier, probe
from quatro.config import load_config
from quatro.rewards import RewardConfig, check_prompts, make_reward
from quatro.types import Prompt, Rollout
from tests.kit import num_failed, rewards, verdicts

needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
SETS = {"base": asserts(["assert f(1) == 1", "assert f(2) == 2"]), "plus": asserts(["assert f(-3) == 3"])}
PROMPT = Prompt("own", "a", "def f(x):\n", None, "def f(x):\n", (1,), {"entry_point": "f", "tests": SETS})
RIGHT, BASE, HALF, LOOP, NONE = (
    "    return abs(x)",
    "    return x",
    "    return 1",
    "    while True: pass",
    "The function doubles.",
)


def rollouts(*texts: str) -> list[Rollout]:
    return [Rollout((1,), text, "stop") for text in texts]


def scored(texts: list[str], **settings: object):
    reward = make_reward(RewardConfig(name="code", workers=1, **settings))
    try:
        return reward.score([PROMPT], [rollouts(*texts)])
    finally:
        reward.close()


@needs_sandbox
def test_a_program_earns_1_where_every_test_passes():
    found = scored([RIGHT, BASE, HALF, LOOP, NONE], timeout_s=0.5)
    assert rewards(found) == [[1.0, 0.0, 0.0, 0.0, 0.0]]
    assert verdicts(found) == [[True, False, False, False, False]]
    assert num_failed(found) == (0, 1)
    assert [grade.error.partition(":")[0] for group in found for grade in group if grade.error] == ["timeout"]


@needs_sandbox
def test_a_fraction_is_the_share_of_tests_that_pass():
    found = scored([RIGHT, BASE, HALF, NONE], options={"score": "fraction"})
    assert rewards(found) == [[1.0, pytest.approx(2 / 3), pytest.approx(1 / 3), 0.0]]
    assert verdicts(found) == [[True, False, False, False]]


@needs_sandbox
def test_a_failing_sandbox_stops_the_run_and_a_few_failures_earn_0(monkeypatch, caplog):
    grade = quatro.rewards.code.CodeGrader.grade

    def broken(share: int):
        def broken_grade(self, answers):
            found = grade(self, answers)
            bad = {name: dataclasses.replace(one, status="infra_error") for name, one in found[0].verdicts.items()}
            return [
                dataclasses.replace(one, verdicts=bad) if number % share == 0 else one
                for number, one in enumerate(found)
            ]

        return broken_grade

    monkeypatch.setattr(quatro.rewards.code.CodeGrader, "grade", broken(4))
    found = scored([RIGHT] * 32)
    assert (num_failed(found), sum(rewards(found)[0])) == ((8, 0), 24.0)
    assert "8 of 32 programs could not be run" in caplog.text
    monkeypatch.setattr(quatro.rewards.code.CodeGrader, "grade", broken(1))
    with pytest.raises(QuatroError, match="32 of 32"):
        scored([RIGHT] * 32)


def test_prompts_without_usable_tests_are_named():
    check_prompts([PROMPT], "code")
    with pytest.raises(DataError, match="'a' of own has no tests"):
        check_prompts([PROMPT, dataclasses.replace(PROMPT, extra={})], "code")
    with pytest.raises(DataError, match="asserts or calls or stdio"):
        check_prompts([dataclasses.replace(PROMPT, extra={"tests": {"base": {"kind": "?"}}})], "code")


def test_without_isolation_training_on_code_is_refused(monkeypatch):
    monkeypatch.setattr("evals.sandbox.pool.probe", lambda: Tier("none", ()))
    monkeypatch.delenv(ALLOW_UNSAFE, raising=False)
    with pytest.raises(MissingError, match="allow-unsafe-code"):
        make_reward("code")


def test_the_shipped_configuration_trains_on_apps():
    config = load_config("code-1.5b")
    assert (config.data.prompts, config.reward.name, config.reward.timeout_s) == ("apps_train", "code", 4.0)
    assert config.method.delta == load_config("math-1.5b").method.delta
    assert config.optimizer == load_config("math-1.5b").optimizer
