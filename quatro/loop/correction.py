"""Importance weights pi_old / pi_sampler, for an engine whose probabilities are not the trainer's.

They are those of TRL 1.16 and verl 0.9.1. A weight multiplies the gradient of the method's loss through the
log-probability of its token; so it is the same for every method, whatever the loss averages over. The KL to the
reference and the entropy bonus have none.
"""

# Axes: B rows (rollouts), T response tokens.

import torch
from torch import Tensor

from quatro.config.blocks import CorrectionConfig
from quatro.processes.world import World

MAX_LOG_WEIGHT = 20.0  # nats, as verl bounds it


def importance_weights(
    correction: CorrectionConfig, old_logp_BT: Tensor, sampler_logp_BT: Tensor, mask_BT: Tensor
) -> tuple[Tensor, Tensor]:
    """``(weights, which of them were above the cap)`` in float64: of each token (B, T), or of each response (B, 1)."""
    log_weight = torch.where(mask_BT, old_logp_BT.double() - sampler_logp_BT.double(), 0.0)
    if correction.level == "sequence":
        log_weight = log_weight.sum(dim=-1, keepdim=True)
    weight = log_weight.clamp(-MAX_LOG_WEIGHT, MAX_LOG_WEIGHT).exp()
    is_cut = weight > correction.cap
    return weight.masked_fill(is_cut, correction.cap if correction.kind == "truncate" else 0.0), is_cut


def with_gradient_times(weight: Tensor, logp_BT: Tensor) -> Tensor:
    """``logp_BT`` to the bit, whose gradient is multiplied by ``weight``."""
    held_BT = logp_BT.detach()
    return held_BT + weight.to(logp_BT.dtype) * (logp_BT - held_BT)


def correction_metrics(
    correction: CorrectionConfig, old_logp_BT: Tensor, sampler_logp_BT: Tensor, mask_BT: Tensor, world: World
) -> dict[str, float]:
    """Of the weights of all ranks: the mean, the share above the cap, and the effective sample size as a share."""
    known_BT = mask_BT & old_logp_BT.isfinite()  # a step that was not finite knows no log pi_old
    weight, is_cut = importance_weights(correction, old_logp_BT, sampler_logp_BT, known_BT)
    counts = known_BT if correction.level == "token" else known_BT.any(dim=-1, keepdim=True)
    weight, is_cut = world.gather(weight[counts]), world.gather(is_cut[counts].double())
    return {
        "correction/weight_mean": weight.mean().item(),
        "correction/cut_share": is_cut.mean().item(),
        "correction/ess_share": (weight.mean().square() / weight.square().mean()).item(),
    }
