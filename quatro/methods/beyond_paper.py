"""QUATRO with another temperature than its prompt's lam*: does the dual matter? Not in the paper."""

# Axes: B rows (rollouts), Q prompts, N rollouts of one prompt.
from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator

from quatro.dual import DualSolution
from quatro.methods.quatro import Quatro, dual_metrics
from quatro.types import Advantages, Tensor

_BRACKET, _NUM_HALVINGS = 60.0, 64  # of log lam, which is then known as sharply as float64 allows


class TemperedQuatro(Quatro):
    """Everything but lam is QUATRO's: A = R / lam - log mean exp(R / lam) and the loss; ``dual`` is the paper's method.

    With ``fixed`` and ``zscore`` the KL between pi* and pi_old is no longer delta for each prompt, and `dual/kl_mean`
    says what it is on average. delta then remains what the audit compares the realised KL with.
    """

    model_config = ConfigDict(title="Quatro")

    temperature: Literal["dual", "batch", "fixed", "zscore"] = Field(
        default="dual",
        description="dual, the paper's method, has a lam* for each prompt; the others are beside it. batch: one lam "
        "for all prompts of an iteration, at which their mean KL is delta; fixed: lam = tau; zscore: A = "
        "sqrt(2 delta) times the z-score, which is what dual gives at a small delta",
    )
    tau: float | None = Field(default=None, gt=0, description="lam of temperature fixed, in units of reward per nat")

    @model_validator(mode="before")
    @classmethod
    def _a_radius_that_was_not_steered(cls, block: Any) -> Any:
        """Every run of QUATRO that was begun while a radius could be steered says in its file that its own was not."""
        if isinstance(block, dict) and block.get("delta_schedule") == "constant":
            return {key: block[key] for key in block if key not in ("delta_schedule", "delta_target", "delta_bounds")}
        return block

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
