"""Methods and a reward that look at a prompt's correct responses together: `ucpo`, `cluster-weighted`, `rarity`."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
import torch

from evals.clustering import cluster
from quatro.registry import METHODS
from quatro.rewards import Grade, RewardConfig, make_reward
from quatro.types import Prompt, Rollout, SameSolution, rarity


def rows(seed: int, *, graded: bool = False) -> dict[str, list[Any]]:
    """Responses to seven prompts in mixed order: rewards, solutions, lengths and log-probabilities."""
    of = random.Random(seed)
    groups = [group for group in range(7) for _ in range(of.randint(1, 8))]
    of.shuffle(groups)
    rewards = [of.choice((0.0, 0.3, 1.0) if graded else (0.0, 1.0)) for _ in groups]
    return {
        "reward": rewards,
        "group": groups,
        "solution": [of.randint(0, 3) if reward == 1 else -1 for reward in rewards],
        "length": [of.randint(0, 9) for _ in groups],
        "logp": [-of.expovariate(0.2) for _ in groups],
    }


def advantages(name: str, of: dict[str, list[Any]], **fields: Any) -> tuple[list[float], dict[str, float]]:
    method = METHODS[name](**fields)
    keys = {"ucpo": {"old_logp_B": "logp", "length_B": "length"}, "cluster-weighted": {"solution_B": "solution"}}
    more = {key: torch.tensor(np.array(of[column])) for key, column in keys.get(name, {}).items()}
    found = method.advantages(torch.tensor(of["reward"], dtype=torch.float64), torch.tensor(of["group"]), **more)
    return found.value_B.tolist(), dict(found.metrics)


def shared(of: dict[str, list[Any]], tau: float) -> list[float]:
    """The factors of UCPO, response by response."""
    factors = []
    for i, (reward, group) in enumerate(zip(of["reward"], of["group"], strict=True)):
        earned = [j for j, g in enumerate(of["group"]) if g == group and of["reward"][j] > 0]
        weight = {j: math.exp(of["logp"][j] / max(1, of["length"][j])) for j in earned}
        inverse = {j: 1 / max(1e-6, weight[j] / sum(weight.values())) for j in earned}
        m = len(earned)
        factors.append(m * ((1 - tau) / m + tau * inverse[i] / sum(inverse.values())) if reward > 0 else 1.0)
    return factors


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("tau", [0.2, 1.0])
def test_ucpo_multiplies_grpos_advantages_by_how_rare_a_response_is(tau, graded):
    for seed in range(20):
        of = rows(seed, graded=graded)
        plain, factors = advantages("grpo", of)[0], shared(of, tau)
        found, metrics = advantages("ucpo", of, tau=tau)
        assert found == pytest.approx([a * factor for a, factor in zip(plain, factors, strict=True)], rel=1e-9)
        assert metrics["ucpo/factor_max"] == pytest.approx(max(factors))
        assert advantages("ucpo", of, tau=0.0)[0] == plain
        if not graded:  # each prompt keeps what its correct responses have in all
            for group in set(of["group"]):
                right = [g == group and reward > 0 for g, reward in zip(of["group"], of["reward"], strict=True)]
                assert sum(itertools.compress(found, right)) == pytest.approx(sum(itertools.compress(plain, right)))


def test_ucpo_worked():
    """The numbers of docs/methods.md; and a response that is next to impossible takes the share of q = 1e-6."""
    of = {"reward": [1.0, 1.0, 1.0, 0.0], "group": [0] * 4, "length": [10] * 4, "logp": [-1.0, -5.0, -10.0, -2.0]}
    assert advantages("ucpo", of)[0] == pytest.approx([0.4606, 0.4904, 0.5490, -1.5], abs=1e-4)
    of["logp"] = [-1.0, -1.0, -900.0, -2.0]
    weight = 1e6 / (1e6 + 4)
    assert advantages("ucpo", of)[0][2] == pytest.approx(0.5 * (0.8 + 0.2 * 3 * weight), rel=1e-5)


def test_cluster_weights_worked():
    """The numbers of docs/methods.md."""
    of = {"reward": [1.0, 1.0, 1.0, 0.0], "group": [0] * 4, "solution": [0, 0, 1, -1]}
    found, metrics = advantages("cluster-weighted", of)
    assert found == [0.0, 0.0, 0.5, -0.5]
    assert metrics == {"solutions/per_prompt": 2.0, "solutions/rarity": pytest.approx(2 / 3)}


def test_a_correct_response_earns_the_share_of_the_others_that_differ():
    for seed in range(20):
        of = rows(seed)
        earned = []
        for i, (reward, group, own) in enumerate(zip(of["reward"], of["group"], of["solution"], strict=True)):
            others = [s for j, s in enumerate(of["solution"]) if j != i and of["group"][j] == group and s >= 0]
            differing = sum(s != own for s in others)
            earned.append(reward * (differing / len(others) if own >= 0 and others else 1.0))
        found, metrics = advantages("cluster-weighted", of)
        assert found == pytest.approx(advantages("grpo", {**of, "reward": earned}, standardise=False)[0], abs=1e-12)
        solved = {(g, s) for g, s in zip(of["group"], of["solution"], strict=True) if s >= 0}
        assert metrics["solutions/per_prompt"] == len(solved) / len({group for group, _ in solved})
        assert metrics["solutions/rarity"] == pytest.approx(sum(earned) / sum(of["reward"]))


def test_without_a_correct_response_there_is_nothing_to_count():
    of = {"reward": [0.0, 0.5], "group": [0, 0], "solution": [-1, -1]}
    found, metrics = advantages("cluster-weighted", of)
    assert (found, metrics["solutions/per_prompt"]) == ([-0.25, 0.25], 0.0)
    assert math.isnan(metrics["solutions/rarity"])


TEXTS = ("6 * 7 = 42 apples", "6 times 7 is 42 apples", "  42, by counting them one after another", "6 * 7 = 42 apples")
WORDS = Prompt("word-problems", "p", "How many?", "42", "How many?", (1,))
DIGITS = Prompt("countdown", "d", "1 2 -> 3", "1 2 -> 3", "1 2 -> 3", (1,))


def drawn(*texts: str) -> list[Rollout]:
    return [Rollout((1,), text, "stop") for text in texts]


@pytest.mark.parametrize("fields", [{}, {"similarity": "rouge-l", "threshold": 0.5}, {"similarity": "jaccard"}])
def test_the_solutions_are_the_clusters_of_eval_ucc_among_what_is_correct(fields):
    for is_right in itertools.product([False, True], repeat=4):
        right = [text for text, counts in zip(TEXTS, is_right, strict=True) if counts]
        labels = iter(cluster(right, **{"similarity": "rouge-l", **fields}))
        wanted = [next(labels) if counts else -1 for counts in is_right]
        assert SameSolution(**fields).solutions(WORDS, drawn(*TEXTS), is_right) == wanted
    assert len(set(SameSolution(**fields).solutions(WORDS, drawn(*TEXTS), [True] * 4))) in (2, 3)


def test_short_answers_are_compared_as_they_are_but_for_the_space_around_them():
    rollouts = drawn("1 + 2 = 3", " 1 + 2 = 3", "2 + 1 = 3")
    assert SameSolution().solutions(DIGITS, rollouts, [True] * 3) == [0, 0, 1]
    assert SameSolution(similarity="edit", threshold=0.5).solutions(DIGITS, rollouts, [True] * 3) == [0, 0, 0]


@pytest.mark.parametrize("fields", [{"similarity": "exact", "threshold": 0.5}, {"threshold": 0.5}])
def test_a_threshold_that_would_be_ignored_is_refused(fields):
    with pytest.raises(ValueError, match=r"threshold 0\.5 needs a similarity"):
        METHODS["cluster-weighted"](**fields)


def test_what_counts_as_correct():
    grades = [Grade(1.0, True), Grade(1.0, False), Grade(0.5), Grade(0.0), Grade(0.5, is_dropped=True), Grade(0, True)]
    assert [grade.is_right for grade in grades] == [True, False, True, False, False, True]


def test_the_reward_is_what_the_method_learns_from():
    """Two prompts in one call, as they are graded: the first has three right responses, the second one."""
    of = [[r"\boxed{4} by 2 + 2", r"\boxed{4} by 2 + 2", r"so \boxed{4}", r"\boxed{5}"], [r"\boxed{4}", "four"]]
    block = {"name": "rarity", "options": {"rewards": [{"name": "math", "weight": 2.0}], "similarity": "exact"}}
    reward = make_reward(RewardConfig.model_validate(block))
    question = Prompt("mine", "p", "2 + 2?", "4", "2 + 2?", (1,))
    scored = reward.score([question] * 2, [drawn(*texts) for texts in of])
    reward.close()
    assert [[grade.reward for grade in grades] for grades in scored] == [[1.0, 1.0, 2.0, 0.0], [2.0, 0.0]]
    assert [[grade.correct for grade in grades] for grades in scored] == [[True] * 3 + [False], [True, False]]
    assert scored[0][0].logged == {"math": 1.0, "rarity": 0.5}
    assert rarity([0, 0, 1, -1]) == [grade.logged["rarity"] for grade in scored[0]]


def test_the_label_under_which_the_rarity_is_logged_is_refused():
    for part in ({"name": "math", "label": "rarity"}, {"name": "rarity", "options": {"rewards": ["math"]}}):
        with pytest.raises(ValueError, match="another label than rarity"):
            RewardConfig.model_validate({"name": "rarity", "options": {"rewards": [part]}})


def test_the_names_of_a_reward_are_those_that_it_is_made_of():
    inside = {"name": "rarity", "options": {"rewards": ["math"]}}
    assert RewardConfig.model_validate(inside).names == ("rarity", "math")
    both = {"name": "sum", "options": {"rewards": ["code", inside]}}
    assert RewardConfig.model_validate(both).names == ("code", "rarity", "math")
