"""The reward of reasoning-gym: the library's scores, mixed prompts, hostile answers, and prompts of something else."""

from __future__ import annotations

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

from evals.benchmarks.loading import load_problems
from evals.errors import DataError, UsageError
from evals.sandbox import probe
from quatro.config import load_config
from quatro.config.blocks import DataConfig
from quatro.rewards import RewardConfig, check_prompts, make_grader, make_reward
from quatro.rollout.prompts import load_sources
from quatro.types import Prompt, Rollout
from tests.kit import num_failed, rewards, verdicts

needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")


def prompt_of(name: str, number: int = 0) -> Prompt:
    problem = load_problems(name)[number]
    return Prompt(name, problem.id, problem.problem, problem.answer, problem.problem, (1,), problem.extra)


def rollouts(*texts: str) -> list[Rollout]:
    return [Rollout((1,), text, "stop") for text in texts]


def scored(prompts: list[Prompt], texts: list[list[str]], **options: object):
    reward = make_reward(RewardConfig(name="reasoning-gym", options=options))
    try:
        return reward.score(prompts, [rollouts(*group) for group in texts])
    finally:
        reward.close()


def test_a_reward_is_the_library_s_score_and_correct_the_whole_of_it():
    palindrome, path, word = prompt_of("palindrome"), prompt_of("shortest-path"), prompt_of("spell-backward")
    there = path.answer[0]
    longer = there + {"l": "r", "r": "l", "u": "d", "d": "u"}[there] + path.answer
    texts = [
        [palindrome.answer, "aba", "abc", ""],
        [path.answer, longer, "x", path.answer + "\0"],
        [word.answer, word.answer[:-1], "\ud800", "z" * 20_000],
    ]
    found = scored([palindrome, path, word], texts)
    assert rewards(found)[0] == [1, 0.05, 0.02, 0]
    assert rewards(found)[1] == [1, 0.5, 0, 0]
    assert rewards(found)[2] == pytest.approx([1, 1 - 1 / len(word.answer), 0, 0])
    assert verdicts(found) == [[True, False, False, False]] * 3
    assert num_failed(found) == (0, 0)
    assert rewards(scored([palindrome, path, word], texts, partial=False)) == [[1, 0, 0, 0]] * 3


def test_a_response_that_was_cut_off_earns_nothing():
    prompt = prompt_of("palindrome")
    reward = make_grader("reasoning-gym")
    found = reward.score([prompt], [[Rollout((1,), prompt.answer, "length"), Rollout((1,), prompt.answer, "stop")]])
    assert rewards(found) == [[0, 1]]


@needs_sandbox
def test_prompts_of_several_tasks_and_answers_that_are_code(tmp_path):
    trace = tmp_path / "trace"
    attack = f"__import__('os').system('touch {trace}')"
    prompts = [
        prompt_of("reasoning-gym:countdown", 1),
        prompt_of("palindrome"),
        prompt_of("reasoning-gym:prime_factorization"),
    ]
    found = scored(
        prompts, [[attack, f"so <answer>{prompts[0].answer}</answer>"], [attack], [attack, prompts[2].answer]]
    )
    assert verdicts(found) == [[False, True], [False], [False, True]]
    assert num_failed(found) == (1, 0)  # of the prime factors; countdown's checker has a score for what it cannot read
    assert "ValueError" in found[2][0].error
    assert not trace.exists()


def test_a_prompt_of_something_else_is_refused():
    prompt = Prompt("own", "a", "1+1?", "2", "1+1?", (1,), {})
    with pytest.raises(DataError, match=r"^prompt .a. of own is no item of reasoning-gym: its column .* None"):
        check_prompts([prompt], "reasoning-gym")
    check_prompts([prompt_of("palindrome")], "reasoning-gym")
    column = {**prompt_of("palindrome").extra["reasoning_gym"], "digest": "0" * 12}
    other = Prompt("palindrome", "a", "aba:", "aba", "aba:", (1,), {"reasoning_gym": column})
    with pytest.raises(UsageError, match="another problem"):
        check_prompts([other], "reasoning-gym")


@pytest.mark.parametrize("name", ["palindrome", "shortest-path", "spell-backward"])
def test_the_presets_fit_their_task(name):
    config = load_config(f"quickstart-{name}")
    assert (config.data.prompts, config.model, config.reward.name) == (name, f"embedded:{name}", "reasoning-gym")
    longest = max(len(problem.problem) for problem in load_problems(name, split="train"))
    assert longest <= config.data.max_prompt_tokens
    with pytest.raises(ValueError, match=f"expected {name}: embedded:{name} knows no other words"):
        load_config(f"quickstart-{name}", overrides=["data.prompts=countdown", "reward=countdown"])


def test_a_task_takes_its_own_template_unless_told_otherwise():
    about = ["data.prompts=reasoning-gym:gcd", "reward=reasoning-gym", "model=some/model"]
    assert load_config("math-1.5b", overrides=[*about, "data.template=chat"]).data.template == "chat"


@pytest.mark.parametrize("name", ["palindrome", "reasoning-gym:gcd"])
def test_training_takes_the_training_split(name):
    ((_, problems, _),) = load_sources(DataConfig(prompts=name))
    assert all("/train/" in problem.id for problem in problems)
    assert {problem.problem for problem in problems}.isdisjoint(problem.problem for problem in load_problems(name))
    assert DataConfig(prompts=name).template == ("plain" if name == "palindrome" else "reasoning-gym")
