"""Dynamic sampling and responses without a loss, for any method; overlong shaping, a need that one may declare."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from quatro.config import load_config
from quatro.loop.draw import asked_of, draw, has_signal, learns_from, overlong_penalty, rewards_of
from quatro.loop.metrics import iteration_metrics, rollout_metrics, rollout_records, share_without_success
from quatro.loop.position import Drawn, Group, Iteration, Stopwatch
from quatro.processes.stop import StopCheck
from quatro.processes.world import World
from quatro.registry import METHODS
from quatro.rewards import Grade
from quatro.types import Advantages, Needs, Prompt, Rollout, SameSolution


def parts_with(rewards_of: dict[int, list[float]], *settings: str) -> Any:
    """Prompt number i earns ``rewards_of[i % len]``; the stream counts up. ``settings`` are of `rollout`."""
    counter = iter(range(10_000))

    def next_prompts(count: int) -> list[Prompt]:
        return [Prompt("b", str(next(counter)), "", None, "", (1,)) for _ in range(count)]

    def generate(prompts: list[Prompt], seeds: list[list[int]], sampling: Any, **_: Any) -> list[list[Rollout]]:
        return [[Rollout((seed,), "", "stop") for seed in group] for group in seeds]

    def score(prompts: list[Prompt], groups: Any) -> list[list[Grade]]:
        rewards = [rewards_of[int(prompt.id) % len(rewards_of)] for prompt in prompts]
        return [[Grade(reward, reward > 0) for reward in group] for group in rewards]

    return SimpleNamespace(
        policy=SimpleNamespace(world=World()),
        config=load_config(
            "quickstart",
            overrides=["prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=2"]
            + [f"rollout.{one}" for one in settings],
        ),
        stream=SimpleNamespace(next=next_prompts, position=0),
        engine=SimpleNamespace(generate=generate, state=dict),
        reward=SimpleNamespace(score=score, state=dict),
        sampling=None,
        stop=StopCheck(None, World()),
        stopwatch=Stopwatch(),
    )


def test_dynamic_sampling_fills_the_batch_with_prompts_that_have_a_signal():
    rewards = {0: [0.0, 1.0], 1: [1.0, 1.0], 2: [0.0, 0.0]}
    parts = parts_with(rewards, "dynamic_sampling=true", "max_sampling_rounds=5")
    kept, everything = draw(1, parts)
    assert [group.prompt.id for group in kept.groups] == ["0", "3", "6", "9"]
    assert len(everything) == 12
    seeds = [rollout.token_ids for rollout in everything.rollouts]
    assert len(set(seeds)) == len(seeds)  # no round repeats another's random streams


def test_places_that_dynamic_sampling_cannot_fill_are_held_by_prompts_without_a_loss_and_counted():
    """Of three rounds of four prompts, the second and the eighth alone have rewards that differ."""
    rewards = {i: [0.0, 1.0] if i in (1, 7) else [1.0, 1.0] for i in range(12)}
    parts = parts_with(rewards, "dynamic_sampling=true", "max_sampling_rounds=3", "mask_truncated=true")
    rollout = parts.config.rollout
    learnt, everything = draw(7, parts)
    assert [group.prompt.id for group in learnt.groups] == ["1", "7", "0", "2"]
    assert len(everything) == 12
    assert [learns_from(group, rollout) for group in learnt.groups] == [[True] * 2] * 2 + [[False] * 2] * 2
    it = Iteration(7, learnt, everything, 0.1)
    reward_B, group_B = rewards_of(learnt, Needs(), 10)
    metrics = iteration_metrics(it, METHODS["gspo"]().advantages(reward_B, group_B), METHODS["gspo"](), parts.config)
    found = [metrics[name] for name in ("sampling/missing_prompts", "sampling/rounds", "length/masked")]
    assert found == [2, 3, 0]
    assert "sampling/missing_prompts" not in iteration_metrics(
        Iteration(7, Drawn(learnt.groups[:2]), everything, 0.1), Advantages(reward_B), METHODS["gspo"](), parts.config
    )


def test_a_response_that_was_cut_has_no_loss_where_that_is_asked():
    group = grouped("p", [Grade(1.0), Grade(0.0)], [Rollout((1,), "", "length"), Rollout((2,), "", "stop")])
    for settings, wanted in (((), [True, True]), (("mask_truncated=true",), [False, True])):
        assert learns_from(group, parts_with({}, *settings).config.rollout) == wanted


def test_without_dynamic_sampling_one_round_is_all():
    kept, everything = draw(1, parts_with({0: [1.0, 1.0]}))
    assert kept is everything
    assert len(kept) == 4


def test_signal_is_an_exact_difference_or_a_single_response():
    assert has_signal([0.7, 0.7 + 1e-12])
    assert not has_signal([0.7] * 8)
    assert has_signal([0.3])


def test_overlong_penalty_by_hand():
    """Limit 20, buffer 8: nothing up to 12 tokens, half at 16, the whole factor at 20."""
    assert [overlong_penalty(length, 20, 8, 2.0) for length in (1, 12, 13, 16, 20)] == [0, 0, -0.25, -1, -2]
    assert overlong_penalty(20, 20, 0, 2.0) == 0


def grouped(name: str, grades: list[Grade], rollouts: list[Rollout] | None = None) -> Group:
    """A group of prompt ``name``; by default the text of each rollout is its place behind the name."""
    found = rollouts or [Rollout((j,), f"{name}{j}", "stop") for j in range(len(grades))]
    return Group(Prompt("b", name, "", None, "", (1,)), list(zip(found, grades, strict=True)))


def test_shaping_leaves_the_rewards_that_are_reported_alone():
    rollouts = [Rollout((1,) * 4, "", "stop"), Rollout((1,) * 10, "", "length")]
    drawn = Drawn([grouped("0", [Grade(1.0, True)] * 2, rollouts)])
    reward_B, group_B = rewards_of(drawn, Needs(overlong_buffer=None), 10)  # a fifth of 10 is 2 tokens
    assert (reward_B.tolist(), group_B.tolist()) == ([1.0, 0.0], [0, 0])
    assert rewards_of(drawn, Needs(), 10)[0].tolist() == [1.0, 1.0]
    assert drawn.groups[0].rewards == [1.0, 1.0]


def test_dropped_rollouts_leave_their_group_and_an_empty_group_keeps_one_without_a_signal():
    dropped = Grade(0.0, is_dropped=True, error="KeyError: 'a'")
    late = Grade(0.5, error="timeout: it ran longer than 3 s", is_timeout=True)
    grades = [[Grade(1.0), dropped, Grade(0.0)], [dropped, dropped, dropped], [late, Grade(0.5), Grade(0.5)]]
    drawn = Drawn([grouped(name, row) for name, row in zip("xyz", grades, strict=True)])
    texts = [[rollout.text for rollout in group.rollouts] for group in drawn.groups]
    assert texts == [["x0", "x2"], ["y0"], ["z0", "z1", "z2"]]
    assert [group.rewards for group in drawn.groups] == [[1.0, 0.0], [0.0], [0.5, 0.5, 0.5]]
    assert rewards_of(drawn, Needs(), 10)[1].tolist() == [0, 0, 1, 2, 2, 2]
    rows = list(rollout_records(drawn, np.array([0.5, -0.5, 0.0, 1.0, 2.0, 3.0])))
    assert [(row["completion"], row["sample_index"]) for row in rows] == [
        (f"{name}{j}", j) for name in "xyz" for j in range(3)
    ]
    assert [row["advantage"] for row in rows] == [0.5, None, -0.5, None, None, None, 1.0, 2.0, 3.0]
    assert [row["reward"] for row in rows] == [1.0, None, 0.0, None, None, None, 0.5, 0.5, 0.5]
    assert [row.get("error") for row in rows if row.get("is_dropped")] == ["KeyError: 'a'"] * 4
    metrics = rollout_metrics(drawn, load_config("quickstart"))
    assert metrics["reward/mean"] == 0.5  # of the five that have a reward
    assert metrics["rollouts"] == 6
    assert (metrics["reward/errors"], metrics["reward/timeouts"]) == (4, 1)


def test_the_kl_of_prompts_without_a_correct_response_is_told():
    """.02 against .05 takes the same radius as 0 against 1: two of three prompts are solved, one is not."""
    rewards = [[1.0, 0.0, 0.0], [0.05, 0.02, 0.02], [0.02, 0.02, 0.05], [1.0, 1.0, 1.0]]
    correct = [[value == 1 for value in row] for row in rewards]
    reward_B = torch.tensor(rewards, dtype=torch.float64).flatten()
    method = METHODS["quatro"](delta=0.01)
    advantage_B = method.advantages(reward_B, torch.arange(4).repeat_interleave(3)).value_B

    def share(grades: list[list[Grade]], values: torch.Tensor = advantage_B) -> float:
        return share_without_success(Drawn([grouped("p", row) for row in grades]), values)

    grades = [[Grade(*one) for one in zip(*row, strict=True)] for row in zip(rewards, correct, strict=True)]
    assert share(grades) == pytest.approx(2 / 3)
    assert math.isnan(share([[Grade(0.5), *grades[0][1:]], *grades[1:]]))  # a rollout without a verdict
    assert math.isnan(share(grades, torch.zeros(12, dtype=torch.float64)))
    lost = [[Grade(0.0, is_dropped=True)], *grades]  # it holds the place of a group that lost all its rollouts
    assert share(lost, torch.cat([torch.zeros(1, dtype=torch.float64), advantage_B])) == pytest.approx(2 / 3)


def test_the_share_without_success_is_of_a_kl_whatever_the_advantages_are():
    """e^A of a z-score has another mean than 1; the KL is that of the policy which it weighs."""
    reward_B = torch.tensor([1.0] + [0.0] * 7 + [0.02] * 7 + [0.0], dtype=torch.float64)
    chosen = METHODS["quatro"](delta=0.1, temperature="zscore").advantages(
        reward_B, torch.arange(2).repeat_interleave(8)
    )
    weight_QN = chosen.value_B.exp().reshape(2, 8)
    share_QN = weight_QN / weight_QN.sum(dim=1, keepdim=True)
    kl_Q = (share_QN * (8 * share_QN).log()).sum(dim=1)
    assert kl_Q.mean().item() == pytest.approx(chosen.metrics["dual/kl_mean"])
    grades = [[Grade(value, value == 1.0) for value in row] for row in reward_B.reshape(2, 8).tolist()]
    found = share_without_success(Drawn([grouped("p", row) for row in grades]), chosen.value_B)
    assert found == pytest.approx((kl_Q[1] / kl_Q.sum()).item())


def test_an_iteration_learns_from_what_was_not_dropped():
    parts = parts_with({0: [0.0, 1.0]})
    parts.reward.score = lambda prompts, groups: [[Grade(0.0, is_dropped=True), Grade(1.0)] for _ in prompts]
    learnt, everything = draw(1, parts)
    assert learnt is everything
    assert [group.rewards for group in learnt.groups] == [[1.0]] * 4
    assert rewards_of(learnt, Needs(), 10)[0].tolist() == [1.0] * 4


def test_a_saved_iteration_is_as_it_was():
    """Thoughts apart from answers, dropped rollouts at their place, and log-probabilities of some responses only."""
    rollouts = [
        Rollout((1, 2), "a", "stop", (-1.0, -2.0), None, "so</think>"),
        Rollout((4,), "b", "stop", None, (0.5,)),
        Rollout((3, 3, 3), "", "length"),
    ]
    grades = [Grade(1.0, True, {"words": 2.0}), Grade(0.0, is_dropped=True, error="KeyError"), Grade(0.0, False)]
    drawn = Drawn([grouped("p", grades, rollouts), grouped("q", grades[:1], rollouts[2:])])
    tensors, plain = drawn.state({("", "p"): 1, ("", "q"): 0})
    assert all(bool(tensor.isfinite().all()) for tensor in tensors.values())
    prompts = [group.prompt for group in reversed(drawn.groups)]
    assert Drawn.from_state(tensors, json.loads(json.dumps(plain)), prompts) == drawn


@pytest.mark.parametrize("unknown", [(), (0,), (1,), (0, 1)])
def test_the_entropy_is_computed_if_the_engine_gave_it_for_some_responses_only(unknown):
    rollouts = [Rollout((1,), "", "stop", None, None if place in unknown else (0.5,)) for place in range(2)]
    drawn = Drawn([grouped("p", [Grade(0.0)] * 2, rollouts)])
    assert Iteration(1, drawn, drawn, 0.1).needs_entropy == bool(unknown)


# --- what else a method asks ----------------------------------------------------------------------------------------

RESPONSES = [[(3, 4), (5,)], [(6, 7, 8), (), (9,)], [(2, 2)]]  # the token ids of each prompt's
LOGPS = [-0.7, -0.5, -2.1, 0.0, -0.9, -0.4]


class Ranks(World):
    """``gathered``: what all ranks bring, call after call; while it is empty the ``own`` values are noted."""

    own: list[torch.Tensor]
    gathered: list[torch.Tensor]

    def gather(self, value_B: torch.Tensor) -> torch.Tensor:
        self.own.append(value_B)
        return self.gathered.pop(0) if self.gathered else value_B


def parts_of(rank: int, size: int, gathered: list[torch.Tensor]) -> Any:
    """A tenth of a token's id is its surprise; what stands in the padding is no number."""
    world = Ranks(rank, size)
    world.own, world.gathered = [], gathered

    def score(rows: Any) -> Any:
        ids_BT = rows.ids_BL[:, 1 : 1 + rows.batch.mask_BT.shape[1]]
        return SimpleNamespace(logp_BT=torch.where(rows.batch.mask_BT, -0.1 * ids_BT, torch.nan))

    policy = SimpleNamespace(world=world, device=torch.device("cpu"), score=score)
    sampling = SimpleNamespace(max_new_tokens=4)
    return SimpleNamespace(policy=policy, stopwatch=Stopwatch(), sampling=sampling, config=load_config("quickstart"))


def with_ids(grades: list[list[Grade]] | None = None, **known: Any) -> Drawn:
    rollouts = [[Rollout(ids, str(ids), "stop", **known) for ids in group] for group in RESPONSES]
    found = grades or [[Grade(1.0, True)] * len(group) for group in RESPONSES]
    return Drawn([grouped(str(i), found[i], group) for i, group in enumerate(rollouts)])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_old_log_probabilities_come_from_the_trainer_if_the_sampler_is_silent(size):
    """Each rank scores its own prompts, and all get those of all rows, in their order."""
    drawn, needs = with_ids(), Needs(old_logp=True)
    ranks = [parts_of(rank, size, []) for rank in range(size)]
    for parts in ranks:
        asked_of(drawn, needs, parts)
    gathered = [torch.cat(values) for values in zip(*(parts.policy.world.own for parts in ranks), strict=True)]
    for rank in range(size):
        found = asked_of(drawn, needs, parts_of(rank, size, list(gathered)))
        assert found["old_logp_B"].tolist() == pytest.approx(LOGPS)
        assert found["length_B"].tolist() == [2, 1, 3, 0, 1, 2]
        assert found.keys() == {"old_logp_B", "length_B"}


def test_old_log_probabilities_are_the_samplers_if_it_gave_all():
    drawn, parts = with_ids(logp=()), parts_of(0, 1, [])
    for group in drawn.groups:
        for rollout, _ in group.drawn:
            object.__setattr__(rollout, "logp", (-0.25,) * len(rollout.token_ids))
    parts.policy.score = None
    assert asked_of(drawn, Needs(old_logp=True), parts)["old_logp_B"].tolist() == [-0.5, -0.25, -0.75, 0, -0.25, -0.5]
    object.__setattr__(drawn.rollouts[-1], "logp", None)
    with pytest.raises(TypeError):  # one is missing: all are scored
        asked_of(drawn, Needs(old_logp=True), parts)


def test_solutions_are_those_of_each_prompts_correct_responses():
    dropped = Grade(0.0, is_dropped=True)
    grades = [[Grade(0.2, False), Grade(1.0, True)], [Grade(1.0), dropped, Grade(1.0)], [Grade(0.0, False)]]
    needs = Needs(solutions=SameSolution(similarity="exact"))
    found = asked_of(with_ids(grades), needs, parts_of(0, 1, []))
    assert {key: value.tolist() for key, value in found.items()} == {"solution_B": [-1, 0, 0, 1, -1]}
    assert asked_of(with_ids(), Needs(), parts_of(0, 1, [])) == {}


def test_a_saved_iteration_keeps_what_its_method_asked():
    drawn, parts = with_ids(), parts_of(0, 1, [])
    parts.stream = SimpleNamespace(prompts=[group.prompt for group in drawn.groups])
    asked = {"old_logp_B": torch.tensor(LOGPS, dtype=torch.float64), "solution_B": torch.arange(6)}
    for one in (asked, {}):
        tensors, plain = Iteration(1, drawn, drawn, 0.1, asked=one).state(parts)
        found = Iteration.from_state(tensors, json.loads(json.dumps(plain)), parts).asked
        assert found.keys() == one.keys()
        assert all(torch.equal(found[name], one[name]) for name in one)
