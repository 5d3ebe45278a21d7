"""Metrics and records of an iteration's rollouts, before anything is learnt from them."""

# Axes: B rows (rollouts).

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from evals.benchmarks.prompts import THOUGHT
from quatro.config import Config
from quatro.loop.draw import has_signal
from quatro.loop.position import Drawn, Iteration
from quatro.methods.base import Method
from quatro.types import Advantages


def iteration_metrics(it: Iteration, advantages: Advantages, method: Method, config: Config) -> dict[str, float]:
    """Metrics of an iteration before anything is learnt: its rollouts, and what the ``method`` makes of them."""
    metrics = {"step": float(it.step), "lr": it.lr, **rollout_metrics(it.drawn, config), **advantages.metrics}
    groups, rollout = it.learnt.groups, config.rollout
    if rollout.dynamic_sampling and (missing := sum(not has_signal(group.rewards) for group in groups)):
        metrics["sampling/missing_prompts"] = float(missing)
    if rollout.mask_truncated:
        metrics["length/masked"] = float(sum(one.finish_reason == "length" for one in it.learnt.rollouts))
    metrics |= source_metrics(it, [one.name for one in config.data.sources])
    if method.kl_radius is not None:
        metrics["dual/share_without_success"] = share_without_success(it.learnt, advantages.value_B)
    return metrics


def rollout_metrics(drawn: Drawn, config: Config) -> dict[str, float]:
    """Metrics of unshaped rewards, accuracy, groups, lengths and the sampler's exact entropy (NaN if unknown).

    A dropped rollout that holds the place of its group has neither a reward nor a verdict.
    """
    groups, rollouts = drawn.groups, drawn.rollouts
    all_grades = [grade for group in groups for _, grade in group.drawn]
    grades = [grade for group in groups for grade in group.grades if not grade.is_dropped]
    reward_B = np.array([grade.reward for grade in grades] or [np.nan], dtype=np.float64)
    correct = [grade.correct for grade in grades if grade.correct is not None]
    length_B = np.array([len(rollout.token_ids) for rollout in rollouts])
    total_B = length_B + np.repeat([len(one.prompt.token_ids) for one in groups], [len(one.kept) for one in groups])
    is_uniform = [min(group.rewards) == max(group.rewards) for group in groups]
    is_graded = len(correct) == len(reward_B)
    correct_QN = [[grade.correct for grade in group.grades] for group in groups]
    all_right = np.mean([all(group) for group in correct_QN]) if is_graded else np.nan
    all_wrong = np.mean([not any(group) for group in correct_QN]) if is_graded else np.nan
    entropies = [rollout.entropy for rollout in rollouts]
    known = [value for entropy in entropies if entropy is not None for value in entropy]
    truncated_B = [rollout.finish_reason == "length" for rollout in rollouts]
    rounds = {"sampling/rounds": len(drawn) / config.prompts_per_step} if config.rollout.dynamic_sampling else {}
    unfinished_B = [bool(rollout.thought) and not rollout.text for rollout in rollouts]
    thoughts = {"length/unfinished_thoughts": float(np.mean(unfinished_B))} if config.rollout.thinking else {}
    return rounds | {
        "reward/mean": reward_B.mean(),
        "reward/std": reward_B.std(),
        "reward/errors": float(sum(bool(grade.error) and not grade.is_timeout for grade in all_grades)),
        "reward/timeouts": float(sum(grade.is_timeout for grade in all_grades)),
        **logged_means(drawn),
        "accuracy/mean": float(np.mean(correct)) if correct else float("nan"),
        "groups/mixed_share": 1.0 - float(np.mean(is_uniform)),
        "groups/all_right_share": float(all_right),
        "groups/all_wrong_share": float(all_wrong),
        "length/mean": length_B.mean(),
        "length/max": float(length_B.max()),
        "length/truncated_share": float(np.mean(truncated_B)),
        **thoughts,
        "length/padded_over_real": len(total_B) * float(total_B.max()) / float(total_B.sum()),
        "entropy/token_mean": float(np.mean(known)) if None not in entropies and known else float("nan"),
        "rollouts": float(len(length_B)),
        "tokens": float(length_B.sum()),
    }


def logged_means(drawn: Drawn) -> dict[str, float]:
    """`reward/parts/NAME`: the mean of each number that rewards logged, over the rollouts that have it."""
    values = defaultdict[str, list[float]](list)
    for group in drawn.groups:
        for grade in group.grades:
            for name, value in () if grade.is_dropped else grade.logged.items():
                values[name].append(value)
    return {f"reward/parts/{name}": float(np.mean(values[name])) for name in sorted(values)}


def source_metrics(it: Iteration, names: Sequence[str]) -> dict[str, float]:
    """Of each source, where there are several: the mean reward of what was drawn, and its share of what is learnt."""
    found = dict[str, float]()
    for name in filter(None, names):
        own = [group for group in it.drawn.groups if group.prompt.source == name]
        rewards = [grade.reward for group in own for grade in group.grades if not grade.is_dropped]
        found[f"reward/mean/{name}"] = float(np.mean(rewards)) if rewards else float("nan")
        found[f"prompts/share/{name}"] = float(np.mean([one.prompt.source == name for one in it.learnt.groups]))
    return found


def share_without_success(learnt: Drawn, advantage_B: Tensor) -> float:
    """The share of the prompts' KL(pi* || pi_old) of those none of whose rollouts is correct.

    pi* weighs the rollouts of a prompt by e^A, whose mean is 1 for QUATRO but not for every advantage. NaN
    if a rollout has no verdict, or no prompt a signal.
    """
    groups = [group.grades for group in learnt.groups]
    if any(grade.correct is None and not grade.is_dropped for group in groups for grade in group):
        return float("nan")
    tilted_QN = [A_N - A_N.exp().mean().log() for A_N in advantage_B.split([len(group) for group in groups])]
    kl_Q = np.array([(tilted_N * tilted_N.exp()).mean().item() for tilted_N in tilted_QN])
    is_unsolved_Q = np.array([not any(grade.correct for grade in group) for group in groups])
    return float(kl_Q[is_unsolved_Q].sum() / kl_Q.sum()) if kl_Q.sum() > 0 else float("nan")


def rollout_records(drawn: Drawn, advantage_B: Any) -> Iterator[dict[str, Any]]:
    """A row of a samples file (which `replay` and `eval` read) for each rollout, with its reward and advantage.

    A rollout that was dropped has neither of the two, and `is_dropped`; one that could not be graded has its `error`.
    """
    advantages = iter(advantage_B.tolist())
    num_written: Counter[tuple[str, str]] = Counter()
    for group in drawn.groups:
        prompt = group.prompt
        for place, (rollout, grade) in enumerate(group.drawn):
            advantage = next(advantages) if place in group.kept else None
            # A prompt may come twice if a batch crosses the end of an epoch.
            index = num_written[prompt.benchmark, prompt.id]
            num_written[prompt.benchmark, prompt.id] += 1
            record = {
                "benchmark": prompt.benchmark,
                "id": prompt.id,
                "sample_index": index,
                "completion": rollout.text,
                "answer": prompt.answer,
                "finish_reason": rollout.finish_reason,
                "reward": None if grade.is_dropped else grade.reward,
                "advantage": None if grade.is_dropped else advantage,
                "num_tokens": len(rollout.token_ids),
            }
            optional = {
                "source": prompt.source,
                THOUGHT: rollout.thought,
                "reward_parts": dict(grade.logged),
                "is_dropped": grade.is_dropped,
                "error": grade.error,
            }
            record |= {name: value for name, value in optional.items() if value}
            yield record if grade.correct is None else record | {"correct": bool(grade.correct)}
