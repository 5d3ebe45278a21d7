"""The distance between two policies, from the sequence log-ratios of rollouts, and a budget of it.

With `inner_updates: auto` passes are made until the realised KL comes to 0.8 of delta, and no further than delta. That
goes beyond the paper. There K is chosen, and nothing bounds the realised KL by delta.
"""

# Axes: B rows (rollouts), T response tokens.
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from quatro.policy.base import Policy
from quatro.policy.rows import Rows
from quatro.types import Metric

MAX_LOG_RATIO = 20.0  # the exponent of s is capped here; capped rows are counted
ENOUGH = 0.8  # no pass begins above this share of the budget; one taken back aims at more than this
AIM = 0.9  # a pass that overshoots is taken back to about this share of the budget
MAX_TRIES = 6


def sequence_log_ratio(new_logp_BT: Tensor, old_logp_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """l_i = log pi_new(o_i) / pi_old(o_i) in float64, not divided by the length."""
    return torch.where(mask_BT, new_logp_BT.double() - old_logp_BT.double(), 0.0).sum(dim=-1)


def kl_new_old(log_ratio_B: Tensor) -> Tensor:
    """s l - s + 1 of each row. Its mean over rollouts of pi_old estimates KL(pi_new || pi_old) and is never negative.

    The exponent of s is capped, so that no single row can make the mean infinite.
    """
    capped_B = log_ratio_B.clamp(max=MAX_LOG_RATIO)
    s_B = capped_B.exp()
    return s_B * capped_B - s_B + 1.0


def summarise(log_ratio_B: Tensor, prefix: str) -> dict[str, float]:
    """Mean, standard deviation and largest magnitude of the sequence log-ratios."""
    return {
        f"{prefix}_mean": log_ratio_B.mean().item(),
        f"{prefix}_std": log_ratio_B.std(correction=0).item(),
        f"{prefix}_max": log_ratio_B.abs().max().item(),
    }


def effective_sample_share(log_ratio_B: Tensor) -> float:
    """(sum s)^2 / (n sum s^2): 1 if all rows count alike, 1/n if one row dominates."""
    scaled_B = (log_ratio_B.double().clamp(max=MAX_LOG_RATIO) - log_ratio_B.max().clamp(max=MAX_LOG_RATIO)).exp()
    return (scaled_B.sum().square() / scaled_B.square().sum() / scaled_B.numel()).item()


@dataclass
class BudgetState:
    """Between two passes: the weights ``before`` the last pass, their KL, and the numbers of `KlBudget.metrics`."""

    before: list[Tensor]
    kl_before: float = 0.0
    num_checks: int = 0
    kept_share: float = 1.0
    is_reached: bool = False

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """``(tensors, JSON values)``; numbers are hexadecimal text, which keeps every bit."""
        plain = {"kl_before": self.kl_before.hex(), "kept_share": self.kept_share.hex()}
        return (
            {f"{number:06d}": value for number, value in enumerate(self.before)},
            plain | {"num_checks": self.num_checks, "is_reached": self.is_reached},
        )

    @classmethod
    def from_state(cls, tensors: Mapping[str, Tensor], plain: Mapping[str, Any], device: torch.device) -> Self:
        return cls(
            [value.to(device) for _, value in sorted(tensors.items())],
            kl_before=float.fromhex(plain["kl_before"]),
            num_checks=plain["num_checks"],
            kept_share=float.fromhex(plain["kept_share"]),
            is_reached=plain["is_reached"],
        )


class KlBudget:
    """The budget of one iteration: KL(pi_new || pi_old) <= ``radius``, estimated from its rollouts.

    Adam's first step alone can overshoot a small radius, and then no number of passes helps. So a pass that overshoots
    is taken back along the straight line towards the weights before it, until the KL fits. Adam's moments and the
    learning rate's schedule stay as after the whole pass. The budget costs a copy of the weights, and a forward pass
    for each call of `is_spent` and each try. Every call updates ``state``.
    """

    def __init__(self, policy: Policy, radius: float, state: BudgetState | None = None) -> None:
        self.policy = policy
        self.radius = radius
        self.state = state or BudgetState(policy.snapshot())

    @property
    def metrics(self) -> dict[str, float]:
        return {
            "inner/kl_checks": float(self.state.num_checks),
            "inner/backtrack": self.state.kept_share,
            "inner/budget_reached": float(self.state.is_reached),
        }

    def is_spent(self, rows: Rows) -> bool:
        """Whether the pass just made was the last one; the weights are moved back if it overshot.

        ``rows`` are all rows of the iteration, with log pi_old.
        """
        kl = self._measure(rows)
        if not kl <= self.radius:  # NaN is no KL that fits
            self._take_back(rows, kl)
            self.state.is_reached = True
        elif kl >= ENOUGH * self.radius:
            self.state.is_reached = True
        else:
            self.state.kl_before = kl
            self.state.before = []  # given back before the next copy is made
            self.state.before = self.policy.snapshot()
        return self.state.is_reached

    def _take_back(self, rows: Rows, kl: float) -> None:
        """Move the weights along the line from before the pass (share 0) to after it (share 1).

        sqrt(KL) is about linear along that line.
        """
        kl_at = {0.0: self.state.kl_before, 1.0: kl}
        share = 1.0
        for _ in range(MAX_TRIES):
            wanted = _crossing(kl_at, AIM * self.radius)
            self.policy.scale_move(self.state.before, wanted / share)
            share = wanted
            kl_at[share] = self._measure(rows)
            if ENOUGH * self.radius <= kl_at[share] <= self.radius:
                break
        else:
            fitting = max(tried for tried, kl in kl_at.items() if kl <= self.radius)
            self.policy.scale_move(self.state.before, fitting / share)
            share = fitting
        self.state.kept_share = share

    def _measure(self, rows: Rows) -> float:
        self.state.num_checks += 1
        batch = rows.batch
        l_B = sequence_log_ratio(self.policy.score(rows).logp_BT, batch.old_logp_BT, batch.mask_BT)
        value_B = kl_new_old(l_B)
        return self.policy.world.reduce({"kl": Metric("mean", value_B.sum(), float(value_B.numel()))})["kl"]


def _crossing(kl_at: Mapping[float, float], kl: float) -> float:
    """The share at which the KL should be ``kl``, if sqrt(KL) is linear through the two known shares nearest to it.

    If that lies outside the shares known to be below and above ``kl``, the share halfway between those two.
    """
    goal = math.sqrt(kl)
    # Rounding may leave a KL of -1e-17; NaN is too far.
    root_at = {share: math.inf if math.isnan(value) else math.sqrt(max(value, 0.0)) for share, value in kl_at.items()}
    low = max(share for share, root in root_at.items() if root < goal)
    high = min(share for share, root in root_at.items() if root >= goal and share > low)
    (a, root_a), (b, root_b) = sorted(root_at.items(), key=lambda item: abs(item[1] - goal))[:2]
    guess = a + (goal - root_a) * (b - a) / (root_b - root_a) if root_b != root_a else low
    return guess if low < guess < high else (low + high) / 2.0
