"""QUATRO: query-adaptive trust-region policy optimisation (paper, Algorithm 1 and Eq. exact_tr_update)."""

# Axes: B rows (rollouts), T response tokens, Q prompts, N rollouts of one prompt.
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from quatro.dual import STATUSES, DualSolution, solve_dual
from quatro.methods.base import Method
from quatro.types import Advantages, Batch, Loss, LossTerm, Metric, Tensor


class Quatro(Method):
    """The policy of each prompt is pulled towards its optimum pi* = pi_old exp(A), where KL(pi* || pi_old) = delta.

    Let l = log pi_theta(o) / pi_old(o) be the log-ratio of the whole response, neither clipped nor divided by its
    length, and s = e^l:

        loss = -(1/n) sum_i s_i (A_i - stopgrad(l_i)),        dloss/dlogp_it = -(1/n) s_i (A_i - l_i)

    A row above pi* (l > A) is pushed down, and a row below pi* is pushed up: no gradient is ever masked. In
    expectation the gradient is that of KL(pi_theta || pi*). A prompt whose rewards are all equal has A = 0 and stays
    in the loss: once the policy has moved, its rows pull it back to pi_old.

    `quatro/dual.py` solves for lam*, mu* and A. `TemperedQuatro` (beyond_paper.py) adds experiments with lam.
    """

    STATED_BY_PAPER: ClassVar[frozenset[str]] = frozenset({"log_ratio", "ratio"})

    name: Literal["quatro"] = "quatro"
    delta: float = Field(
        default=0.01,
        gt=0,
        le=1e6,
        description="KL radius of each prompt, in nats. The paper uses 0.1 (accuracy), 0.01 and 0.001 (diversity)",
    )
    log_ratio: Literal["detached", "none", "attached"] = Field(
        default="detached",
        description="the stabiliser -l of the loss; none is the paper's ablation (Fig. stability c); attached has the "
        "same expected gradient with a higher variance",
    )
    ratio: Literal["sequence", "length-normalised"] = Field(
        default="sequence",
        description="the ratio s of the whole sequence; length-normalised is an ablation that moves the optimum away "
        "from pi*",
    )
    loss_norm: Literal["rows", "sum"] = Field(
        default="rows",
        description="rows: the mean over rollouts (the paper's appendix). sum: N times that (the main text); as Adam "
        "ignores scale, it only makes the other terms N times smaller in comparison",
    )
    max_log_ratio: float | None = Field(
        default=20.0,
        gt=0,
        description="C, in nats: s = exp(min(l, C)) cannot overflow; null: the largest that the number format allows",
    )
    boundary_cap: float | None = Field(
        default=0.95,
        gt=0,
        lt=1,
        description="delta is capped at this share of log(N/m), the largest possible KL for a prompt whose best reward "
        "is earned by m of N rollouts",
    )
    advantage_floor: float | None = Field(
        default=-20.0, lt=0, description="advantages below this value are raised to it, in nats"
    )
    centred: bool = Field(
        default=False, description="not in the paper: A minus its mean over the prompt's rollouts (docs/methods.md)"
    )

    @model_validator(mode="after")
    def _advantages_stay_finite(self) -> Self:
        if self.boundary_cap is None and self.advantage_floor is None:
            raise ValueError(
                "boundary_cap and advantage_floor cannot both be null: a delta beyond log(N/m) would give an "
                "advantage of -inf; set one of them (defaults: 0.95 and -20)"
            )
        return self

    @property
    def kl_radius(self) -> float:
        return self.delta

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        """A_i = (R_i - mu*) / lam* - 1, with the lam* and mu* of the prompt that row i answers (paper, Eq. adv)."""
        from quatro.ops import pack_rewards

        reward_QN, mask_QN, group_index_B, slot_B = pack_rewards(reward_B, group_B)
        dual, metrics = self.solve(reward_QN, mask_QN)
        advantage_QN = dual.advantage
        if self.centred:
            advantage_QN = advantage_QN - advantage_QN.sum(dim=1, keepdim=True) / mask_QN.sum(dim=1, keepdim=True)
        value_B = advantage_QN[group_index_B, slot_B]
        return Advantages(value_B, {"dual/delta": self.delta} | dual_metrics(dual, value_B) | metrics)

    def solve(self, reward_QN: Tensor, mask_QN: Tensor) -> tuple[DualSolution, dict[str, float]]:
        """lam, mu and A of each prompt, and metrics besides those of every dual."""
        return solve_dual(reward_QN, self.delta, mask_QN=mask_QN, **self.limits), {}

    @property
    def limits(self) -> dict[str, float | None]:
        """What keeps advantages finite."""
        return {"boundary_cap": self.boundary_cap, "advantage_floor": self.advantage_floor}

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        """One term, -s_i (A_i - stopgrad(l_i)) for row i with s_i = exp(min(l_i, C)) (paper, Eq. exact_tr_update)."""
        import torch

        from quatro import ops

        token_log_ratio_BT = ops.log_ratio(logp_BT, batch)
        log_ratio_B = token_log_ratio_BT.sum(dim=-1)
        if self.ratio == "length-normalised":
            log_ratio_B = log_ratio_B / batch.mask_BT.sum(dim=-1).clamp(min=1)

        stabiliser_B = {
            "detached": log_ratio_B.detach(),
            "none": torch.zeros_like(log_ratio_B),
            "attached": log_ratio_B,
        }[self.log_ratio]
        # An empty response has no tokens to learn from: its advantage counts as 0.
        advantage_B = torch.where(batch.mask_BT.any(dim=-1), batch.advantage_B.to(log_ratio_B.dtype), 0.0)
        value_B = -ops.robust_ratio(log_ratio_B, self.max_log_ratio) * (advantage_B - stabiliser_B)
        weight_B = torch.ones_like(value_B)
        if self.loss_norm == "sum":
            size_B = batch.group_size_B.to(value_B.dtype)
            value_B, weight_B = value_B * size_B, 1.0 / size_B

        capped_B = (log_ratio_B > ops.log_ratio_cap(log_ratio_B, self.max_log_ratio)).to(value_B.dtype)
        metrics: dict[str, Metric] = {
            "ratio/capped_share": ops.mean_of(capped_B, torch.ones_like(capped_B)),
            "approx_kl": ops.approx_kl_metric(logp_BT, batch),
        }
        # 1/n: policy/torch_policy.py divides a term by its weight, summed over all micro-batches and ranks.
        return Loss([LossTerm("policy", value_B, weight_B)], metrics)


def dual_metrics(dual: DualSolution, advantage_B: Tensor) -> dict[str, float]:
    """Metrics of the dual; those of lam and mu are over the prompts with an interior or capped optimum."""
    num_prompts = len(dual.status)
    metrics = {f"dual/{word}_share": dual.status.count(word) / num_prompts for word in STATUSES}
    metrics["dual/floored_rows"] = float(dual.num_floored)
    solved_Q = dual.lam > 0
    names = ("lam_p10", "lam_median", "lam_p90", "lam_min", "lam_max", "lam_mean", "mu_mean", "kl_mean")
    values: list[Any] = [float("nan")] * len(names)  # no prompt with a signal: unknown, not absent
    if bool(solved_Q.any()):
        lam_Q, mu_Q = np.sort(dual.lam[solved_Q].cpu().numpy()), dual.mu[solved_Q]
        levels = np.interp([0.1, 0.5, 0.9], np.linspace(0.0, 1.0, lam_Q.size), lam_Q)
        kl_Q = dual.kl[solved_Q]
        values = [*levels, lam_Q[0], lam_Q[-1], *(each.mean().item() for each in (lam_Q, mu_Q, kl_Q))]
    metrics |= {f"dual/{name}": value for name, value in zip(names, map(float, values), strict=True)}
    metrics |= {
        "advantage/min": advantage_B.min().item(),
        "advantage/mean": advantage_B.mean().item(),
        "advantage/max": advantage_B.max().item(),
    }
    return metrics
