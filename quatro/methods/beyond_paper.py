"""QUATRO with another temperature than its prompt's lam* (does the dual matter?), and with a radius that is steered.

The radius is steered from iteration to iteration, towards a target. Neither is in the paper.
"""

# Axes: B rows (rollouts), Q prompts, N rollouts of one prompt.
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from quatro.dual import DualSolution
from quatro.methods.quatro import Quatro, dual_metrics
from quatro.types import Advantages, Needs, Tensor

# How far log delta moves in an iteration: +0.2 for 1 % too much entropy, -0.17 for twice the target's KL. Entropy
# needs the strong gain: it falls slowly, hardly rises again, and its rate changes little with delta.
ENTROPY_GAIN = 20.0
KL_GAIN = 0.25
MAX_LOG_STEP = 0.5  # log delta moves no further in one iteration
MAX_SHRINKAGE = 10_000.0  # without `delta_bounds`, steering may divide the configured delta by this

Positive = Annotated[float, Field(gt=0, le=1e6)]
_BRACKET, _NUM_HALVINGS = 60.0, 64  # of log lam, which is then known as sharply as float64 allows


class TemperedQuatro(Quatro):
    """Everything but lam is QUATRO's: A = R / lam - log mean exp(R / lam) and the loss; ``dual`` is the paper's method.

    With ``fixed`` and ``zscore`` the KL between pi* and pi_old is no longer delta for each prompt, and `dual/kl_mean`
    says what it is on average. delta then remains what the audit compares the realised KL with.
    """

    temperature: Literal["dual", "batch", "fixed", "zscore"] = Field(
        default="dual",
        description="dual, the paper's method, has a lam* for each prompt; the others are beside it. batch: one lam "
        "for all prompts of an iteration, at which their mean KL is delta; fixed: lam = tau; zscore: A = "
        "sqrt(2 delta) times the z-score, which is what dual gives at a small delta",
    )
    tau: float | None = Field(default=None, gt=0, description="lam of temperature fixed, in units of reward per nat")

    @model_validator(mode="after")
    def _temperature_has_what_it_reads(self) -> TemperedQuatro:
        if self.temperature == "fixed" and self.tau is None:
            raise ValueError("temperature fixed needs tau: set method.tau")
        if self.temperature != "fixed" and self.tau is not None:
            raise ValueError(f"temperature {self.temperature} does not read tau: leave it out, or take fixed")
        return self

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        if self.temperature == "dual":
            return super().advantages(reward_B, group_B)
        import torch

        from quatro.ops import pack_rewards

        groups = _Groups(*pack_rewards(reward_B, group_B))
        lam_Q = self._lam(groups)
        advantage_QN = tilted_QN = groups.tilted(lam_Q)
        if self.temperature == "zscore":
            advantage_QN = (groups.reward_QN - groups.mean(groups.reward_QN)[:, None]) / lam_Q[:, None]
        floor = -math.inf if self.advantage_floor is None else self.advantage_floor
        dual = DualSolution(
            lam=torch.where(groups.mixed_Q, lam_Q, 0.0),
            mu=groups.reward_QN[:, 0] - lam_Q * (advantage_QN[:, 0] + 1.0),
            advantage=torch.where(groups.mixed_Q[:, None], advantage_QN, 0.0).clamp(min=floor),
            kl=groups.mean(tilted_QN.exp() * tilted_QN),
            delta_effective=torch.full_like(lam_Q, self.delta),
            status=["interior" if is_mixed else "degenerate" for is_mixed in groups.mixed_Q.tolist()],
            num_floored=int((groups.mask_QN & groups.mixed_Q[:, None] & (advantage_QN < floor)).sum()),
        )
        value_B = dual.advantage[groups.index_B, groups.slot_B]
        return Advantages(value_B, {"dual/delta": self.delta} | dual_metrics(dual, value_B))

    def _lam(self, groups: _Groups) -> Tensor:
        """lam of each prompt (Q,); 1 where there is no signal."""
        import torch

        lam: Tensor | float = self.tau or 1.0
        if self.temperature == "batch" and bool(groups.mixed_Q.any()):
            lam = groups.lam_of_mean_kl(self.delta, self.boundary_cap or 1.0)
        elif self.temperature == "zscore":
            centred_QN = groups.reward_QN - groups.mean(groups.reward_QN)[:, None]
            lam = groups.mean(centred_QN.square()).sqrt() / math.sqrt(2.0 * self.delta)
        return torch.where(groups.mixed_Q, lam, torch.ones_like(groups.highest_Q))


class _Groups:
    """The rewards of each prompt side by side (`ops.pack_groups`); ``mixed_Q`` says whose differ."""

    def __init__(self, reward_QN: Tensor, mask_QN: Tensor, index_B: Tensor, slot_B: Tensor) -> None:
        import torch

        self.mask_QN, self.index_B, self.slot_B = mask_QN, index_B, slot_B
        self.size_Q = mask_QN.sum(dim=1)
        self.highest_Q = reward_QN.masked_fill(~mask_QN, -torch.inf).amax(dim=1)
        self.reward_QN = torch.where(mask_QN, reward_QN, self.highest_Q[:, None])
        self.range_Q = self.highest_Q - self.reward_QN.amin(dim=1)
        self.mixed_Q = self.range_Q > 0

    def mean(self, value_QN: Tensor) -> Tensor:
        """Over each prompt's rollouts, (Q,)."""
        import torch

        return torch.where(self.mask_QN, value_QN, 0.0).sum(dim=1) / self.size_Q

    def tilted(self, lam_Q: Tensor) -> Tensor:
        """A = R / lam - log mean exp(R / lam), (Q, N)."""
        tilted_QN = (self.reward_QN - self.highest_Q[:, None]) / lam_Q[:, None]
        return tilted_QN - self.mean(tilted_QN.exp()).log()[:, None]

    def lam_of_mean_kl(self, delta: float, boundary_cap: float) -> float:
        """lam at which the mean KL over the prompts with a signal is delta, by bisection of log lam.

        delta is lowered to ``boundary_cap`` times the mean of log(N/m), the largest KL that their best rollouts allow.
        """
        import torch

        limit_Q = -self.mean((self.reward_QN == self.highest_Q[:, None]).double()).log()
        delta = min(delta, boundary_cap * limit_Q[self.mixed_Q].mean().item())
        # Every KL is at most (range / lam)^2 / 8, so that none is above delta at the upper end.
        high = math.log(self.range_Q.max().item()) - 0.5 * math.log(8.0 * delta)
        low = high - _BRACKET
        for _ in range(_NUM_HALVINGS):
            middle = 0.5 * (low + high)
            advantage_QN = self.tilted(torch.full_like(self.highest_Q, math.exp(middle)))
            kl_Q = self.mean(advantage_QN.exp() * advantage_QN)
            low, high = (middle, high) if kl_Q[self.mixed_Q].mean() > delta else (low, middle)
        return math.exp(high)


class ScheduledQuatro(TemperedQuatro):
    """QUATRO with a KL radius that may change over the run; ``constant``, the default, is the paper's method."""

    model_config = ConfigDict(title="Quatro")

    delta_schedule: Literal["constant", "target-entropy", "target-kl"] = Field(
        default="constant",
        description="not in the paper: target-entropy and target-kl begin at delta, and change it so that the token "
        "entropy, or the realised KL(new || old) of an iteration, comes to delta_target",
    )
    delta_target: float | None = Field(
        default=None,
        gt=0,
        description="the target: nats of entropy per token, or nats of KL per iteration (null: those of delta)",
    )
    delta_bounds: Annotated[tuple[Positive, Positive], Field(strict=False)] | None = Field(
        default=None,
        description="smallest and largest delta that steering may choose; null: delta / 10,000 and delta",
    )

    @model_validator(mode="after")
    def _schedule_has_what_it_reads(self) -> ScheduledQuatro:
        for key in ("delta_target", "delta_bounds") if self.delta_schedule == "constant" else ():
            if getattr(self, key) is not None:
                raise ValueError(f"delta_schedule constant does not read {key}: leave it out, or set delta_schedule")
        if self.delta_schedule == "target-entropy" and self.delta_target is None:
            raise ValueError("delta_schedule target-entropy needs delta_target: set method.delta_target")
        if self.temperature == "fixed" and self.delta_schedule != "constant":
            raise ValueError(f"temperature fixed does not read delta: leave delta_schedule {self.delta_schedule} out")
        low, high = self._bounds
        if not low <= self.delta <= high:
            raise ValueError(f"delta_bounds must enclose delta: found [{low:g}, {high:g}] and delta {self.delta:g}")
        return self

    @property
    def _bounds(self) -> tuple[float, float]:
        return self.delta_bounds or (self.delta / MAX_SHRINKAGE, self.delta)

    @property
    def min_kl_radius(self) -> float:
        return self.delta if self.delta_schedule == "constant" else self._bounds[0]

    @property
    def needs(self) -> Needs:
        return Needs(realised_kl=self.delta_schedule == "target-kl")

    def at(self, carried: Mapping[str, float]) -> ScheduledQuatro:
        """The same method with the delta that was carried here."""
        delta = carried.get("delta", self.delta)
        return self if delta == self.delta else self.model_copy(update={"delta": delta})

    def carry(self, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The next delta of a steered schedule; delta stays if the metric is NaN."""
        if self.delta_schedule == "constant":
            return {}
        delta, target = carried.get("delta", self.delta), self.delta_target or self.delta
        if self.delta_schedule == "target-entropy":
            entropy = metrics["entropy/token_mean"]
            return {"delta": steered_to_entropy(delta, entropy=entropy, target=target, bounds=self._bounds)}
        return {"delta": steered_to_kl(delta, kl=metrics["kl/new_old"], target=target, bounds=self._bounds)}


def steered_to_entropy(delta: float, *, entropy: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: larger while the entropy is above the target, smaller below it."""
    return _moved(delta, ENTROPY_GAIN * (entropy - target) / target, bounds)


def steered_to_kl(delta: float, *, kl: float, target: float, bounds: tuple[float, float]) -> float:
    """The next radius: smaller after a realised KL above the target, larger after one below it."""
    return _moved(delta, MAX_LOG_STEP if kl <= 0 else KL_GAIN * (math.log(target) - math.log(kl)), bounds)


def _moved(delta: float, log_step: float, bounds: tuple[float, float]) -> float:
    """``delta`` times e^``log_step`` within ``bounds``; as it is where nothing was observed (NaN)."""
    if math.isnan(log_step):
        return delta
    moved = delta * math.exp(min(max(log_step, -MAX_LOG_STEP), MAX_LOG_STEP))
    return min(max(moved, bounds[0]), bounds[1])
