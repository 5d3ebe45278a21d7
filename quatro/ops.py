"""Tensor operations that methods and the trainer share: groups, ratios, aggregation, KL estimators, entropy."""

# Axes: B rows (rollouts), T response tokens, Q prompts, N rollouts of one prompt, C tokens, V vocabulary.
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from quatro.types import Batch, KlEstimator, LossTerm, Metric

# --- groups ---------------------------------------------------------------------------------------------------------


def pack_groups(value_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The rows of each group side by side: ``(value_QN, mask_QN, group_index_B, slot_B)``, padding 0.

    ``value_QN[group_index_B, slot_B] == value_B``. Groups come in the order of their ids and may have any size; rows
    may come in any order.
    """
    _, group_index_B, size_Q = torch.unique(group_B, return_inverse=True, return_counts=True)
    order_B = torch.argsort(group_index_B, stable=True)
    start_Q = torch.cumsum(size_Q, 0) - size_Q
    slot_B = torch.empty_like(group_index_B)
    slot_B[order_B] = torch.arange(group_B.numel(), device=group_B.device) - start_Q[group_index_B[order_B]]
    num_slots = int(size_Q.max())
    value_QN = value_B.new_zeros(size_Q.numel(), num_slots)
    value_QN[group_index_B, slot_B] = value_B
    mask_QN = torch.arange(num_slots, device=group_B.device) < size_Q[:, None]
    return value_QN, mask_QN, group_index_B, slot_B


def pack_rewards(reward_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`pack_groups` of rewards in float64; raises ValueError for a reward that is not finite."""
    if not bool(torch.isfinite(reward_B).all()):
        raise ValueError(f"rewards must be finite, found {reward_B[~torch.isfinite(reward_B)][0].item()}")
    return pack_groups(reward_B.double(), group_B)


def group_zscore(reward_B: Tensor, group_B: Tensor, *, standardise: bool = True, leave_one_out: bool = False) -> Tensor:
    """(R - mean) / (std + 1e-6) within each group, float64, std with ddof = 1 as verl has it.

    A group whose rewards are all equal gets exactly 0, tested by its range: in float32 the standard deviation of
    equal rewards is not 0. A group of one has mean 0 and std 1, as in verl.
    ``standardise=False`` leaves out the division (Dr. GRPO). ``leave_one_out`` takes the mean over the other rewards of
    the group, which is the same times n / (n - 1) (RLOO).

    Raises ValueError if a reward is not finite.
    """
    reward_QN, mask_QN, group_index_B, slot_B = pack_rewards(reward_B, group_B)
    size_Q = mask_QN.sum(dim=1)
    mean_Q = reward_QN.sum(dim=1) / size_Q
    centred_QN = torch.where(mask_QN, reward_QN - mean_Q[:, None], 0.0)
    std_Q = (centred_QN.square().sum(dim=1) / (size_Q - 1).clamp(min=1)).sqrt()
    alone_Q = size_Q == 1
    centred_QN = torch.where(alone_Q[:, None], reward_QN, centred_QN)
    std_Q = torch.where(alone_Q, 1.0, std_Q)

    highest_Q = reward_QN.masked_fill(~mask_QN, -torch.inf).amax(dim=1)
    is_uniform_Q = (reward_QN.masked_fill(~mask_QN, torch.inf).amin(dim=1) == highest_Q) & ~alone_Q
    scale_Q = std_Q + 1e-6 if standardise else torch.ones_like(std_Q)
    if leave_one_out:
        scale_Q = torch.where(alone_Q, scale_Q, scale_Q * (size_Q - 1) / size_Q)
    advantage_QN = torch.where(is_uniform_Q[:, None], 0.0, centred_QN / scale_Q[:, None])
    return advantage_QN[group_index_B, slot_B]


# --- ratios and aggregation -----------------------------------------------------------------------------------------


def masked_sum(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Sum over real tokens; padding is ignored, NaN included."""
    return torch.where(mask_BT, value_BT, 0.0).sum(dim=-1)


def masked_mean(value_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mean over the real tokens of each row; 0 for a row without any."""
    return masked_sum(value_BT, mask_BT) / mask_BT.sum(dim=-1).clamp(min=1)


def log_ratio(logp_BT: Tensor, batch: Batch) -> Tensor:
    """log pi_theta - log pi_old of every real token, 0 in padding."""
    return torch.where(batch.mask_BT, logp_BT - batch.old_logp_BT, 0.0)


def robust_ratio(log_ratio_B: Tensor, max_log_ratio: float | None) -> Tensor:
    """exp(min(l, C)), with the gradient exp(min(l, C)) dl even where l is above C.

    A clamp inside autograd would zero the gradient of the very rows that most need to be pulled back.
    """
    detached_B = log_ratio_B.detach()
    return detached_B.clamp(max=log_ratio_cap(detached_B, max_log_ratio)).exp() * (1.0 + log_ratio_B - detached_B)


def log_ratio_cap(log_ratio_B: Tensor, max_log_ratio: float | None) -> float:
    """C, or the largest C at which exp(C) times an advantage cannot overflow the number format (float32: 80 nats)."""
    largest = math.log(torch.finfo(log_ratio_B.dtype).max) - 8.0
    return largest if max_log_ratio is None else min(max_log_ratio, largest)


def aggregate(value_BT: Tensor, batch: Batch, how: str) -> tuple[Tensor, Tensor]:
    """``(value, weight)`` such that sum(value * weight) / sum(weight) is the average called ``how`` (verl's agg_loss).

    Rows without a response token do not count.
    """
    mask_BT = batch.mask_BT
    value_BT = torch.where(mask_BT, value_BT, 0.0)
    length_B = mask_BT.sum(dim=-1)
    has_tokens_B = (length_B > 0).to(value_BT.dtype)
    match how:
        case "token-mean":
            return value_BT, mask_BT.to(value_BT.dtype)
        case "seq-mean-token-sum":
            return value_BT.sum(dim=-1), has_tokens_B
        case "seq-mean-token-mean":
            return value_BT.sum(dim=-1) / length_B.clamp(min=1), has_tokens_B
        case "seq-mean-token-sum-norm":
            return value_BT.sum(dim=-1) / batch.max_new_tokens, has_tokens_B
    raise ValueError(f"unknown aggregation {how!r}")


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """max(-r A, -clip(r, 1 - low, 1 + high) A), and a mask that is True where the clipped branch is strictly larger."""
    plain = -ratio * advantage
    clipped = -ratio.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage
    return torch.maximum(plain, clipped), clipped > plain


# --- loss terms the trainer adds for every method -------------------------------------------------------------------


def kl_term(
    logp_BT: Tensor, batch: Batch, *, beta: float, estimator: KlEstimator, how: str, max_log_ratio: float = 20.0
) -> LossTerm:
    """beta KL(pi_theta || pi_pre) as a loss term.

    ``k3`` is verl's low-variance estimator with verl's clamps. Its gradient is that of the FORWARD KL, so it does not
    lead to the optimum of the paper's Thm. w/kl. ``sequence-exact`` leads there: it is the mean over rows of
    s * stopgrad(log pi_theta(o) - log pi_pre(o)). ``k3+`` has the value of k3 and the gradient of k2.

    Raises ValueError if the batch carries no reference log-probabilities.
    """
    if batch.ref_logp_BT is None:
        raise ValueError("the KL term needs reference log-probabilities, and the batch has none")
    difference_BT = torch.where(batch.mask_BT, logp_BT - batch.ref_logp_BT, 0.0)
    if estimator == "sequence-exact":
        ratio_B = robust_ratio(log_ratio(logp_BT, batch).sum(dim=-1), max_log_ratio)
        value_B = ratio_B * difference_BT.sum(dim=-1).detach()
        return LossTerm("kl", value_B, torch.ones_like(value_B), beta)
    value_BT = _KL_PER_TOKEN[estimator](difference_BT)
    value, weight = aggregate(value_BT, batch, how)
    return LossTerm("kl", value, weight, beta)


def k3(difference_BT: Tensor) -> Tensor:
    """verl's low-variance KL estimate per token of log pi_theta - log pi_pre, with verl's clamps."""
    d_BT = (-difference_BT).clamp(-20.0, 20.0)
    return (d_BT.exp() - d_BT - 1.0).clamp(-10.0, 10.0)


def _k3_plus(difference_BT: Tensor) -> Tensor:
    k2_BT = 0.5 * difference_BT.square()
    return k2_BT + (k3(difference_BT) - k2_BT).detach()


_KL_PER_TOKEN: Mapping[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda difference_BT: difference_BT,
    "k2": lambda difference_BT: 0.5 * difference_BT.square(),
    "k3": k3,
    "k3+": _k3_plus,
}


def entropy_term(entropy_BT: Tensor, batch: Batch, *, coefficient: float) -> LossTerm:
    """-coefficient * token mean of the exact entropy; entropy is rewarded, so its sign in the loss is minus."""
    value, weight = aggregate(-entropy_BT, batch, "token-mean")
    return LossTerm("entropy", value, weight, coefficient)


def total_loss(terms: Iterable[LossTerm], weight_sum: Mapping[str, Tensor | float] | None = None) -> Tensor:
    """The sum over terms of coefficient * sum(value * weight) / W; W is in ``weight_sum``, or else of these rows."""
    total: Tensor | float = 0.0
    for term in terms:
        denominator = term.weight.sum() if weight_sum is None else weight_sum[term.name]
        # If no row has a token there is nothing to average: the term is 0, not 0 / 0.
        denominator = torch.as_tensor(denominator).clamp(min=torch.finfo(torch.float32).tiny)
        total = total + term.coefficient * (term.value * term.weight).sum() / denominator
    if not isinstance(total, Tensor):
        raise ValueError("a loss needs at least one term")
    return total


def approx_kl_metric(logp_BT: Tensor, batch: Batch) -> Metric:
    """Token mean of log pi_old - log pi_theta (verl's ppo_kl)."""
    with torch.no_grad():
        return mean_of(-log_ratio(logp_BT, batch), batch.mask_BT)


def mean_of(value: Tensor, weight: Tensor) -> Metric:
    """A metric: the mean of ``value`` with ``weight`` over all rows that it is merged with."""
    weight = weight.to(torch.float64)
    return Metric("mean", (value.detach().to(torch.float64) * weight).sum(), weight.sum())


def of_rows(term: LossTerm, has_loss_B: Tensor) -> LossTerm:
    """``term`` as if there were only the rows that ``has_loss_B`` names: the others have no weight."""
    return replace(term, weight=term.weight * (has_loss_B if term.weight.ndim == 1 else has_loss_B[:, None]))


# --- log-probabilities ----------------------------------------------------------------------------------------------


def logp_and_entropy(
    logits_CV: Tensor, target_C: Tensor, *, temperature: float, entropy_grad: bool, need_entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each target at ``temperature`` and the exact entropy in nats at temperature 1, float32.

    It needs float32 at least: with log-probabilities in bfloat16 a sum over 3,072 tokens came out 0.84 instead of 0.98.
    """
    logits_CV = at_least_float32(logits_CV)
    scaled_CV = logits_CV if temperature == 1.0 else logits_CV / temperature
    logp_C = scaled_CV.gather(-1, target_C[:, None]).squeeze(-1) - scaled_CV.logsumexp(dim=-1)
    if not need_entropy:
        return logp_C, None
    with torch.set_grad_enabled(entropy_grad and torch.is_grad_enabled()):
        plain_CV = logits_CV if entropy_grad else logits_CV.detach()
        all_logp_CV = plain_CV.log_softmax(dim=-1)
        entropy_C = -(all_logp_CV.exp() * all_logp_CV).sum(dim=-1)
    return logp_C, entropy_C


def at_least_float32(value: Tensor) -> Tensor:
    """``value`` in float32 if it has 16 bits, else as it is."""
    return value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
