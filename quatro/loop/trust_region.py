"""The distance between two policies, from the sequence log-ratios of rollouts: pure mathematics."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

import torch
from torch import Tensor

MAX_LOG_RATIO = 20.0  # the exponent of s is capped here; capped rows are counted


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
