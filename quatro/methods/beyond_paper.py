"""QUATRO with another temperature than its prompt's lam*: does the dual matter? Not in the paper."""

# Axes: B rows (rollouts), Q prompts, N rollouts of one prompt.
import math
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from quatro.dual import DualSolution, solve_budget
from quatro.methods.quatro import Quatro
from quatro.types import Tensor


class TemperedQuatro(Quatro):
    """Everything but lam is QUATRO's: A = R / lam - log mean exp(R / lam) and the loss; ``dual`` is the paper's method.

    With ``fixed`` and ``zscore`` the KL between pi* and pi_old is no longer delta for each prompt, and `dual/kl_mean`
    says what it is on average. delta then remains what the audit compares the realised KL with.
    """

    model_config = ConfigDict(title="Quatro")

    temperature: Literal["dual", "batch", "fixed", "zscore"] = Field(
        default="dual",
        description="dual, the paper's: a lam* for each prompt. Our own: batch, one lam for all prompts of an "
        "iteration, at which their mean KL is delta; fixed, lam = tau; zscore, A = sqrt(2 delta) times the z-score",
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
    def _temperature_has_what_it_reads(self) -> Self:
        if self.temperature == "fixed" and self.tau is None:
            raise ValueError("temperature fixed needs tau: set method.tau")
        if self.temperature != "fixed" and self.tau is not None:
            raise ValueError(f"temperature {self.temperature} does not read tau: leave it out, or take fixed")
        return self

    def solve(self, reward_QN: Tensor, mask_QN: Tensor) -> tuple[DualSolution, dict[str, float]]:
        if self.temperature == "dual":
            return super().solve(reward_QN, mask_QN)
        if self.temperature == "batch":
            return solve_budget(reward_QN, self.delta, math.inf, mask_QN=mask_QN, **self.limits)[0], {}
        import torch

        size_Q = mask_QN.sum(dim=1)
        highest_Q = reward_QN.masked_fill(~mask_QN, -torch.inf).amax(dim=1)
        reward_QN = torch.where(mask_QN, reward_QN, highest_Q[:, None])
        mixed_Q = highest_Q > reward_QN.amin(dim=1)

        def mean(value_QN: Tensor) -> Tensor:
            return torch.where(mask_QN, value_QN, 0.0).sum(dim=1) / size_Q

        centred_QN = reward_QN - mean(reward_QN)[:, None]
        lam: Tensor | float = self.tau or mean(centred_QN.square()).sqrt() / math.sqrt(2.0 * self.delta)
        lam_Q = torch.where(mixed_Q, lam, 1.0)
        tilted_QN = (reward_QN - highest_Q[:, None]) / lam_Q[:, None]
        tilted_QN = tilted_QN - mean(tilted_QN.exp()).log()[:, None]
        advantage_QN = centred_QN / lam_Q[:, None] if self.temperature == "zscore" else tilted_QN
        advantage_QN = torch.where(mixed_Q[:, None], advantage_QN, 0.0)
        floor = -math.inf if self.advantage_floor is None else self.advantage_floor
        return DualSolution(
            lam=torch.where(mixed_Q, lam_Q, 0.0),
            mu=reward_QN[:, 0] - lam_Q * (advantage_QN[:, 0] + 1.0),
            advantage=torch.where(mask_QN, advantage_QN, 0.0).clamp(min=floor),
            kl=mean(tilted_QN.exp() * tilted_QN),
            delta_effective=torch.full_like(lam_Q, self.delta),
            status=["interior" if is_mixed else "degenerate" for is_mixed in mixed_Q.tolist()],
            num_floored=int((mask_QN & (advantage_QN < floor)).sum()),
        ), {}
