"""Relatives of QUATRO as methods of your own (docs/methods.md): copy this file into the folder where you call quatro.

`quatro train quickstart -m relatives:Maxrl`
"""

import math
from typing import Literal

import torch
from pydantic import Field

from evals.errors import UsageError
from quatro import ops
from quatro.methods.base import GroupZScore, Method, TokenSurrogate
from quatro.methods.beyond_paper import TemperedQuatro
from quatro.types import Advantages, Loss, LossTerm, Needs


def mean_of_prompt(reward_B, group_B):
    """The mean reward of each rollout's prompt."""
    reward_QN, mask_QN, index_B, _ = ops.pack_rewards(reward_B, group_B)
    return (reward_QN.sum(dim=1) / mask_QN.sum(dim=1))[index_B]


class Maxrl(TokenSurrogate):
    """A = (R - mean) / mean, 0 where nothing was earned: the gradient of log Pass@1 (arXiv 2602.02710)."""

    def advantages(self, reward_B, group_B):
        mean_B = mean_of_prompt(reward_B, group_B)
        if bool((reward_B < 0).any()):  # which would turn the update's direction round
            raise UsageError(f"a reward is {reward_B.min().item():g}; MaxRL needs rewards that are never negative")
        return Advantages(torch.where(mean_B > 0, (reward_B - mean_B) / mean_B, 0.0))


class Pkpo(TokenSurrogate):
    """A_i = k x mean of max(R_i, max R_J) - max R_J over the sets J of k - 1 other rollouts (arXiv 2505.15201)."""

    k: int = Field(4, ge=1, description="k of the objective Pass@k; with k = 1 it is RLOO")

    @property
    def needs(self):
        return Needs(min_rollouts=self.k)

    def advantages(self, reward_B, group_B):
        if self.k == 1:
            return Advantages(ops.group_zscore(reward_B, group_B, standardise=False, leave_one_out=True))
        value_B = torch.zeros(len(reward_B), dtype=torch.float64)
        for group in group_B.unique():
            rows = torch.nonzero(group_B == group)[:, 0]
            sorted_N, order_N = reward_B[rows].double().sort()
            num, k = len(rows), min(self.k, len(rows))  # a prompt that lost rollouts uses all it has
            if k < 2:
                continue
            # The share of the sets J whose best stands at each place; only sets below a rollout add to it.
            shares = [math.comb(place, k - 2) / math.comb(num - 1, k - 1) for place in range(num)]
            gain_NN = (sorted_N[:, None] - sorted_N).tril(-1)
            value_B[rows[order_N]] = k * gain_NN @ torch.tensor(shares, dtype=torch.float64)
        return Advantages(value_B)


class Pmd(Method):
    """Mirror descent at a fixed temperature (Kimi k1.5, arXiv 2501.12599): QUATRO without its ratio and its dual."""

    tau: float = Field(1.0, gt=0, description="temperature, in units of reward per nat")

    def advantages(self, reward_B, group_B):
        return Advantages((reward_B - mean_of_prompt(reward_B, group_B)) / self.tau)

    def loss(self, logp_BT, batch):
        l_B = ops.log_ratio(logp_BT, batch).sum(dim=-1)
        advantage_B = torch.where(batch.mask_BT.any(dim=-1), batch.advantage_B.to(l_B.dtype), 0.0)
        value_B = 0.5 * (advantage_B - l_B).square()
        return Loss([LossTerm("policy", value_B, torch.ones_like(value_B))], {})


class Dppo(GroupZScore):
    """-sg(min(r, c)) A log pi of the tokens whose probability has not moved too far (arXiv 2602.04879)."""

    divergence: Literal["tv", "kl"] = Field("tv", description="total variation, or KL(pi_old || pi_theta), of a token")
    threshold_low: float | None = Field(None, gt=0, description="for a token that became less likely")
    threshold_high: float | None = Field(None, gt=0, description="for one that became more likely; null: .15, kl .05")
    max_ratio: float = Field(20.0, gt=1, description="c")
    aggregate: str = Field("token-mean")

    def loss(self, logp_BT, batch):
        ratio_BT = ops.log_ratio(logp_BT, batch).detach().clamp(-20.0, 20.0).exp()
        advantage_B1 = batch.advantage_B.to(logp_BT.dtype)[:, None]
        is_inside_BT = self.is_inside(logp_BT.detach(), batch, advantage_B1 > 0)
        value_BT = -ratio_BT.clamp(max=self.max_ratio) * advantage_B1 * logp_BT * is_inside_BT
        value, weight = ops.aggregate(value_BT, batch, self.aggregate)
        return Loss([LossTerm("policy", value, weight)], {"clip_fraction": ops.mean_of(~is_inside_BT, batch.mask_BT)})

    def is_inside(self, logp_BT, batch, is_raised_B1):
        """Whether a token may move further the way that its advantage pushes it."""
        usual = {"tv": 0.15, "kl": 0.05}[self.divergence]
        low, high = self.threshold_low or usual, self.threshold_high or usual
        new_BT, old_BT, tiny = logp_BT.exp(), batch.old_logp_BT.exp(), 1e-8
        if self.divergence == "tv":
            return torch.where(is_raised_B1, new_BT - old_BT <= high, old_BT - new_BT <= low)
        others_BT = (1 - old_BT) * ((1 - old_BT + tiny) / (1 - new_BT + tiny)).log()
        kl_BT = old_BT * (batch.old_logp_BT - logp_BT) + others_BT
        return torch.where(is_raised_B1, (kl_BT <= high) | (new_BT <= old_BT), (kl_BT <= low) | (new_BT >= old_BT))


class Steered(TemperedQuatro):
    """QUATRO whose delta follows the token entropy, or with `audit: true` the realised KL, from `delta` downwards."""

    name: str
    steers: Literal["entropy", "kl"] = Field("kl", description="what comes to delta_target")
    delta_target: float = Field(gt=0, description="nats of entropy per token, or of KL per iteration")

    @property
    def min_kl_radius(self):
        return self.delta / 10_000

    def at(self, carried):
        """The method in force, with the delta that was carried here from the iteration before."""
        return self.model_copy(update={"delta": carried.get("delta", self.delta)})

    def carry(self, carried, metrics):
        delta, kl = carried.get("delta", self.delta), max(metrics.get("kl/new_old", math.nan), 1e-12)
        # Entropy needs the strong gain: it falls slowly, and its rate changes little with delta.
        off = 20.0 * (metrics["entropy/token_mean"] / self.delta_target - 1.0)
        step = 0.25 * (math.log(self.delta_target) - math.log(kl)) if self.steers == "kl" else off
        moved = delta if math.isnan(step) else delta * math.exp(min(max(step, -0.5), 0.5))
        return {"delta": min(max(moved, self.min_kl_radius), self.delta)}
