"""Every number of metrics.jsonl is computed again, by other code, from responses, weights and configuration.

Three iterations have groups that are all right, all wrong and mixed, responses that could not be graded, an optimiser
step without a gradient and one that is not finite.
"""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from quatro.config import load_config
from quatro.loop.position import PHASES
from quatro.policy.base import Update
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy
from quatro.rollout.prompts import PromptStream
from quatro.rollout.transformers import TransformersEngine
from quatro.runs.directory import RunDir
from quatro.train import train
from quatro.types import Rollout
from tests.kit import read_rows, write_rows

DELTA, LR, WARMUP, TEMPERATURE, NUM_PROMPTS, NUM_ROLLOUTS = 0.2, 0.0015, 20, 0.8, 4, 5
# What the reward makes of the four prompts of each iteration.
KINDS = (("right", "wrong", "digits", "digits"), ("digits", "right", "digits", "right"), ("digits", "fails") * 2)
SKIPPED = (1, 1)  # the iteration, and the optimiser step in it, whose advantages become NaN
REWARD = """
def grade(prompt, completion, answer):
    words = completion.split()
    share = sum(word.isdigit() for word in words) / max(1, len(words))
    if answer == "digits":
        return {"reward": share, "correct": share > 0.75, "words": len(words)}
    if answer == "fails" and len(words) % 2:
        raise ValueError("an odd number of words")
    return {"reward": float(answer == "right"), "correct": answer == "right"}
"""


@dataclass
class Case:
    """A run: how it makes its optimiser steps, and what the engine tells."""

    minibatch: int
    passes: int
    beta: float
    coefficient: float
    is_told: bool  # whether the engine gives log-probabilities and entropies


CASES = {
    "two passes over two minibatches": Case(2, 2, 0.3, 0.0, is_told=True),
    "three passes, the update's own old log-probabilities": Case(4, 3, 0.0, 0.02, is_told=False),
}


class Recorder:
    """The weights before each optimiser step and after the last one, and what the engine drew in each iteration."""

    def __init__(self, patch: pytest.MonkeyPatch, case: Case) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []
        self.drawn: list[tuple[list[tuple[int, ...]], list[list[Rollout]]]] = []
        update, generate = LocalPolicy.update, TransformersEngine.generate
        skipped = SKIPPED[0] * case.passes * NUM_PROMPTS // case.minibatch + SKIPPED[1]

        def recorded(policy: LocalPolicy, rows: Any, objective: Any, **options: Any) -> Update:
            if len(self.weights) == skipped:
                rows = rows.with_batch(advantage_B=rows.batch.advantage_B * math.nan)
            self.policy = policy
            self._keep()
            return update(policy, rows, objective, **options)

        def told(rollout: Rollout) -> Rollout:
            """A sampler whose log-probabilities differ from the trainer's, or one that tells none."""
            if not case.is_told:
                return replace(rollout, logp=None, entropy=None)
            assert rollout.logp is not None
            return replace(rollout, logp=tuple(value + off(place) for place, value in enumerate(rollout.logp)))

        def noted(*arguments: Any, **options: Any) -> list[list[Rollout]]:
            groups = [list(map(told, group)) for group in generate(*arguments, **options)]
            self.drawn.append(([prompt.token_ids for prompt in arguments[1]], groups))
            return groups

        patch.setattr(LocalPolicy, "update", recorded)
        patch.setattr(TransformersEngine, "generate", noted)

    def end(self) -> None:
        self._keep()

    def _keep(self) -> None:
        self.weights.append({name: value.clone() for name, value in self.policy.model.state_dict().items()})


def off(place: int) -> float:
    """By how much the sampler's log-probability of a token is too high."""
    return 0.01 * (place % 3 - 0.5)


class ByHand:
    """The model under weights of one moment: what it says of each token of a response."""

    def __init__(self, folder: Path) -> None:
        self.model = load_model(str(folder), torch.float32, "cpu")

    def at(self, weights: dict[str, torch.Tensor]) -> None:
        self.model.load_state_dict(weights)

    def tokens(self, prompt: Sequence[int], response: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """log pi of each token at the temperature of sampling, and the entropy at temperature 1."""
        logits = self.model(torch.tensor([[*prompt, *response]])).logits[0, len(prompt) - 1 : -1].double()
        share, plain = torch.softmax(logits / TEMPERATURE, -1), torch.softmax(logits, -1)
        return share[range(len(response)), list(response)].log(), -(plain * plain.log()).sum(-1)


def dual(rewards: Sequence[float]) -> tuple[str, float, float, float, list[float]]:
    """Status, lam, mu, KL and advantages of one prompt, from KL(softmax(R / lam) || uniform) = delta."""
    R = np.array(rewards)
    if R.min() == R.max():
        return "degenerate", math.nan, math.nan, 0.0, [0.0] * len(R)
    largest = 0.95 * math.log(len(R) / (R.max() == R).sum())

    def tilted(lam: float) -> np.ndarray:
        weight = np.exp((R - R.max()) / lam)
        return weight / weight.sum()

    def kl(lam: float) -> float:
        p = tilted(lam)
        return float((p * np.log(np.maximum(p, 1e-300) * len(R))).sum())

    wanted = min(DELTA, largest)
    lam = brentq(lambda lam: kl(lam) - wanted, 1e-3, 1e3, xtol=1e-14)
    mu = lam * (math.log(np.mean(np.exp((R - R.max()) / lam))) + R.max() / lam) - lam
    return "capped" if largest < DELTA else "interior", lam, mu, wanted, list(np.log(len(R) * tilted(lam)))


def k3(d: np.ndarray) -> np.ndarray:
    return np.exp(-d) + d - 1


def spread(values: Sequence[float]) -> float:
    """The standard error of a mean."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values)))


def expected(
    number: int, applied: int, case: Case, recorder: Recorder, by_hand: ByHand, rows: list[dict[str, Any]]
) -> dict[str, float]:
    """All numbers of iteration ``number`` (from 0) but those of perf/.

    ``applied`` optimiser steps were taken before it, and ``rows`` are its responses with their rewards.
    """
    steps = range(NUM_PROMPTS // case.minibatch * case.passes)
    prompts, groups = recorder.drawn[number]
    responses = [(prompt, one.token_ids) for prompt, group in zip(prompts, groups, strict=True) for one in group]
    group_of = np.repeat(range(NUM_PROMPTS), NUM_ROLLOUTS)
    weights = recorder.weights[number * len(steps) : (number + 1) * len(steps) + 1]

    def said(weights: dict[str, torch.Tensor], which: Sequence[int]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        by_hand.at(weights)
        found = [by_hand.tokens(*responses[i]) for i in which]
        return [logp for logp, _ in found], [entropy for _, entropy in found]

    everything = range(len(responses))
    with torch.no_grad():
        old, entropy = said(weights[0], everything)
        pre, _ = said(recorder.weights[0], everything)
        new, _ = said(weights[-1], everything)
    reward = np.array([row["reward"] for row in rows])
    right = [row.get("correct") for row in rows]
    known = [value for value in right if value is not None]
    length = np.array([len(response) for _, response in responses])
    total = length + [len(prompt) for prompt, _ in responses]
    solved = [dual(reward[group_of == q]) for q in range(NUM_PROMPTS)]
    status = [one[0] for one in solved]
    signal = [one for one in solved if one[0] != "degenerate"]
    lam = [one[1] for one in signal]
    advantage = np.array([value for one in solved for value in one[4]])
    assert advantage == pytest.approx([row["advantage"] for row in rows], abs=1e-9)
    lost = sum(one[3] for q, one in enumerate(solved) if not any(np.array(right)[group_of == q]))

    losses, kls, entropies, ratios, logps, totals, norms, shares = ([] for _ in range(8))
    num_applied = num_skipped = num_zero = 0
    for step in steps:
        start = step * case.minibatch % NUM_PROMPTS
        which = [i for i in everything if start <= group_of[i] < start + case.minibatch]
        logp, now = said(weights[step], which)
        l = torch.stack([(a - old[i]).sum() for a, i in zip(logp, which, strict=True)])
        s = l.detach().exp()
        shares.append(float(s.sum() ** 2 / (s**2).sum() / len(s)))
        if (number, step) == SKIPPED:
            num_skipped += 1
            continue
        value = -l.exp() * (torch.tensor(advantage[which]) - l.detach())
        token_kl = torch.cat([torch.exp(pre[i] - a) - (pre[i] - a) - 1 for a, i in zip(logp, which, strict=True)])
        loss = value.mean() + case.beta * token_kl.mean() - case.coefficient * torch.cat(now).mean()
        by_hand.model.zero_grad()
        loss.backward()
        norms.append(math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in by_hand.model.parameters())))
        losses += value.tolist()
        kls += token_kl.tolist()
        entropies += torch.cat(now).tolist()
        ratios += torch.cat([a - old[i] for a, i in zip(logp, which, strict=True)]).tolist()
        logps += torch.cat(logp).tolist()
        totals.append(float(loss.detach()))
        if norms[-1] < 1e-6:
            num_zero += 1
        else:
            num_applied += 1

    l = np.array([float((a - b).sum()) for a, b in zip(new, old, strict=True)])
    s = np.exp(l)
    of_prompt = {
        name: [value[group_of == q].mean() for q in range(NUM_PROMPTS)]
        for name, value in (("new_old", s * l - s + 1), ("old_new", s - 1 - l))
    }
    new_old = of_prompt["new_old"]
    gap = advantage - l
    parts = [row["reward_parts"]["words"] for row in rows if "reward_parts" in row]
    differences = -np.array([off(place) for one in old for place in range(len(one))])
    return {
        "step": number + 1,
        "lr": LR * (1 + applied) / WARMUP,
        "reward/mean": reward.mean(),
        "reward/std": math.sqrt((reward**2).mean() - reward.mean() ** 2),
        "reward/errors": sum("error" in row for row in rows),
        "reward/timeouts": 0,
        "reward/parts/words": sum(parts) / len(parts),
        "accuracy/mean": sum(known) / len(known),
        "groups/mixed_share": sum(one != "degenerate" for one in status) / NUM_PROMPTS,
        **{
            f"groups/all_{name}_share": math.nan
            if None in right
            else sum(all(right[i] is value for i in everything if group_of[i] == q) for q in range(NUM_PROMPTS)) / 4
            for name, value in (("right", True), ("wrong", False))
        },
        "length/mean": length.mean(),
        "length/max": max(length),
        "length/truncated_share": sum(row["finish_reason"] == "length" for row in rows) / len(rows),
        "length/padded_over_real": len(rows) * max(total) / sum(total),
        "entropy/token_mean": float(torch.cat(entropy).mean()),
        "rollouts": len(rows),
        "tokens": sum(length),
        "dual/delta": DELTA,
        **{
            f"dual/{name}_share": status.count(name) / NUM_PROMPTS
            for name in ("interior", "capped", "boundary", "degenerate")
        },
        "dual/floored_rows": 0,
        **{f"dual/lam_p{level}": np.quantile(lam, level / 100) for level in (10, 90)},
        "dual/lam_median": np.median(lam),
        "dual/lam_min": min(lam),
        "dual/lam_max": max(lam),
        "dual/lam_mean": np.mean(lam),
        "dual/mu_mean": np.mean([one[2] for one in signal]),
        "dual/kl_mean": np.mean([one[3] for one in signal]),
        "advantage/min": min(advantage),
        "advantage/mean": np.mean(advantage),
        "advantage/max": max(advantage),
        "dual/share_without_success": math.nan if None in right else lost / sum(one[3] for one in solved),
        "ratio/capped_share": 0,
        "approx_kl": -np.mean(ratios),
        "loss": sum(totals),
        "loss/policy": np.mean(losses),
        **({"loss/kl": np.mean(kls)} if case.beta else {}),
        **({"loss/entropy": -np.mean(entropies)} if case.coefficient else {}),
        "logp_max": max(logps),
        **{f"log_ratio/before_{name}": 0 for name in ("mean", "std", "max")},
        **(
            {
                "mismatch/dlogp_abs_mean": np.abs(differences).mean(),
                "mismatch/dlogp_abs_max": np.abs(differences).max(),
                "mismatch/k3": k3(-differences).mean(),
            }
            if case.is_told
            else {}
        ),
        "grad/norm": np.mean(norms),
        "grad/norm_max": max(norms),
        "grad/skipped_steps": num_skipped,
        "grad/zero_steps": num_zero,
        "optimizer_steps": num_applied,
        "inner/passes": case.passes,
        "staleness/steps_max": num_applied - 1,
        "ratio/ess_share_min": min(shares),
        **(
            {"kl/reference": np.mean(k3(torch.cat([a - b for a, b in zip(old, pre, strict=True)]).numpy()))}
            if case.beta
            else {}
        ),
        "log_ratio/after_mean": l.mean(),
        "log_ratio/after_std": l.std(),
        "log_ratio/after_max": np.abs(l).max(),
        "kl/capped_share": 0,
        **{f"kl/{name}": np.mean(values) for name, values in of_prompt.items()},
        **{f"kl/{name}_se": spread(values) for name, values in of_prompt.items()},
        **{f"kl/prompt_p{level}": np.quantile(new_old, level / 100) for level in (10, 90)},
        "kl/prompt_median": np.median(new_old),
        "kl/prompt_above_3delta_share": np.mean([value > 3 * DELTA for value in new_old]),
        "kl/ratio_to_delta": np.mean(new_old) / DELTA,
        "target/gap_mean": np.abs(gap).mean(),
        "target/above_share": np.mean(gap < 0),
    }


def check_perf(row: dict[str, Any], passes: int, memory: tuple[int, int]) -> None:
    """Seconds add up, a rate is its tokens over its seconds, and memory is that of this process, in GiB."""
    perf = {key.removeprefix("perf/"): value for key, value in row.items() if key.startswith("perf/")}
    seconds = {phase: perf.pop(f"{phase}_s") for phase in (*PHASES, "other")}
    assert perf.pop("step_s") == pytest.approx(sum(seconds.values()))
    assert seconds["eval"] == 0
    assert perf.pop("tokens_per_s") == pytest.approx(row["tokens"] / sum(seconds.values()))
    assert perf.pop("generate_tokens_per_s") == pytest.approx(row["tokens"] / seconds["generate"])
    assert perf.pop("update_tokens_per_s") == pytest.approx(row["tokens"] * passes / seconds["update"])
    unit = 2**30 if sys.platform == "darwin" else 2**20
    assert memory[0] / unit <= perf.pop("peak_memory_gib") <= memory[1] / unit
    assert perf == {}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_number_of_an_iteration_is_what_it_says_it_is(tiny_folder, tmp_path, monkeypatch, case):
    (tmp_path / "its_reward.py").write_text(REWARD, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    order = PromptStream(range(12), 0).next(12)
    problems: list[Any] = [None] * 12
    for number, kind in zip(order, sum(KINDS, ()), strict=True):
        problem = " ".join(str(one % 10) for one in range(number, 2 * number + 3))
        problems[number] = {"id": f"p{number}", "problem": problem, "answer": kind}
    write_rows(tmp_path / "problems.jsonl", problems)
    config = load_config(
        "quickstart",
        overrides=[
            *(f"model={tiny_folder}", "data.prompts=problems.jsonl", "threads=1"),
            "reward={name: 'its_reward:grade', on_error: zero}",
            *("steps=3", f"prompts_per_step={NUM_PROMPTS}", f"rollouts_per_prompt={NUM_ROLLOUTS}"),
            *(f"minibatch_prompts={case.minibatch}", f"inner_updates={case.passes}", f"kl.beta={case.beta}"),
            *(f"entropy_coefficient={case.coefficient}", f"method.delta={DELTA}", f"rollout.temperature={TEMPERATURE}"),
            *(f"optimizer.lr={LR}", f"optimizer.warmup_steps={WARMUP}", "on_nonfinite=skip", "checkpoint.every=0"),
            "rollout.stop=['5']",
        ],
    )
    recorder = Recorder(monkeypatch, case)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with RunDir.create(tmp_path / "run", config) as run:
        train(config, run)
    recorder.end()
    memory = before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert len(recorder.weights) == 3 * case.passes * NUM_PROMPTS // case.minibatch + 1

    by_hand, applied = ByHand(tiny_folder), 0
    for number, row in enumerate(read_rows(tmp_path / "run/metrics.jsonl")):
        check_perf(row, case.passes, memory)
        responses = read_rows(tmp_path / f"run/rollouts/step-{number + 1:06d}.jsonl")
        wanted = expected(number, applied, case, recorder, by_hand, responses)
        applied += wanted["optimizer_steps"]
        found = {
            key: math.nan if value is None else value
            for key, value in row.items()
            if not key.startswith(("perf/", "env/"))
        }
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            assert found[key] == pytest.approx(value, rel=1e-3, abs=1e-4, nan_ok=True), (number + 1, key)
