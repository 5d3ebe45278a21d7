"""Tokens from logits: temperature, top_k, top_p and inverse-CDF draws with one given uniform per row."""

# Axes: S distributions (KV-cache slots), B or L rows that draw from them, V vocabulary, C candidates left by top_k.
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evals.errors import DivergedError
from quatro.policy.device import upload
from quatro.types import Sampling

# Logits of more entries than this are sampled in slices: weights, their float64 sums and what they are made of are
# what the engine holds beside the model (16 bytes an entry).
MAX_SAMPLED_LOGITS = 1 << 24


def draw_rows(
    logits_SV: Tensor,
    slot_L: NDArray[np.int64],
    uniform_L: NDArray[np.float64],
    sampling: Sampling,
    *,
    with_entropy: bool,
) -> tuple[NDArray[np.int64], NDArray[np.float32], NDArray[np.float32] | None]:
    """As `draw_tokens`, for arrays of the host, in slices of bounded size: ``(token_L, logp_L, entropy_L or None)``.

    Raises DivergedError if the logits are not finite.
    """
    num_slots, vocabulary = logits_SV.shape
    slots_at_once = max(1, MAX_SAMPLED_LOGITS // vocabulary)
    # By slot, so that each slice has a stretch of the rows: a GPU is waited for once, whatever the number of slices.
    order_L = np.argsort(slot_L, kind="stable")
    slot, uniform = (upload(array[order_L], logits_SV.device) for array in (slot_L, uniform_L))
    firsts = np.arange(0, num_slots, slots_at_once)
    cuts = [*np.searchsorted(slot_L[order_L], firsts).tolist(), len(slot_L)]
    slices = []
    for first, (start, stop) in zip(firsts.tolist(), pairwise(cuts), strict=True):
        here = slot[start:stop] - first
        part_SV = logits_SV[first : first + slots_at_once]
        drawn = draw_tokens(part_SV, here, uniform[start:stop], sampling, with_entropy=with_entropy)
        columns = [drawn.token_B, drawn.logp_B, drawn.is_finite.expand(stop - start)]
        columns += [] if drawn.entropy_S is None else [drawn.entropy_S[here]]
        slices.append(torch.stack([column.double() for column in columns]))  # which holds each of them exactly
    found = np.empty((len(slices[0]), len(slot_L)))
    found[:, order_L] = torch.cat(slices, dim=1).cpu().numpy()
    if not found[2].all():
        raise DivergedError(
            "the policy's logits are not finite while sampling; resume from an earlier checkpoint, "
            "or lower optimizer.lr"
        )
    entropy_L = found[3].astype(np.float32) if with_entropy else None
    return found[0].astype(np.int64), found[1].astype(np.float32), entropy_L


class DrawnTokens(NamedTuple):
    """``logp_B`` is at the sampling temperature before truncation, ``entropy_S`` in nats at temperature 1."""

    token_B: Tensor
    logp_B: Tensor
    entropy_S: Tensor | None
    is_finite: Tensor  # scalar bool: False if any logit was NaN or +inf, or a row had no possible token


def draw_tokens(
    logits_SV: Tensor, slot_B: Tensor, uniform_B: Tensor, sampling: Sampling, *, with_entropy: bool
) -> DrawnTokens:
    """Row b draws from distribution ``slot_B[b]`` with the float64 uniform ``uniform_B[b]`` in [0, 1).

    Equal slots and uniforms give equal tokens. A token of probability 0 (in float32) is never drawn. top_k goes
    first, top_p keeps the smallest set of the rest whose mass reaches p, as in transformers and vLLM. Temperature 0
    is the argmax, whose log-probability under that policy is 0.
    """
    logits_SV = logits_SV.float()
    if sampling.temperature == 0.0:
        top_S, token_S = logits_SV.max(-1)
        token_B = token_S[slot_B]
        entropy_S = _softmax(logits_SV).entropy_S() if with_entropy else None
        return DrawnTokens(token_B, torch.zeros_like(top_S)[slot_B], entropy_S, torch.isfinite(top_S).all())

    drawn = whole = _softmax(logits_SV / sampling.temperature if sampling.temperature != 1.0 else logits_SV)
    if with_entropy and sampling.temperature != 1.0:
        whole = _softmax(logits_SV)
    if sampling.top_k > 0 or sampling.top_p < 1.0:
        weight_SC, candidate_SC = _truncate(drawn.weight_SV, sampling)
        token_B = candidate_SC[slot_B, _inverse_cdf(weight_SC, slot_B, uniform_B)]
    else:
        token_B = _inverse_cdf(drawn.weight_SV, slot_B, uniform_B)
    logp_B = drawn.below_top_SV[slot_B, token_B] - drawn.sum_S.log()[slot_B]
    entropy_S = whole.entropy_S() if with_entropy else None
    return DrawnTokens(token_B, logp_B, entropy_S, torch.isfinite(drawn.sum_S).all())


class _Softmax(NamedTuple):
    """One pass over the logits: weights in proportion to the probabilities, the largest being 1, and their sum."""

    below_top_SV: Tensor  # logits less the largest one
    weight_SV: Tensor
    sum_S: Tensor

    def entropy_S(self) -> Tensor:
        # -inf logits are legal (masked tokens) and 0 * -inf is not 0 in floating point.
        mean_S = (self.weight_SV * self.below_top_SV.clamp(min=-1e30)).sum(-1) / self.sum_S
        return self.sum_S.log() - mean_S


def _softmax(logits_SV: Tensor) -> _Softmax:
    below_top_SV = logits_SV - logits_SV.amax(-1, keepdim=True)
    weight_SV = below_top_SV.exp()
    return _Softmax(below_top_SV, weight_SV, weight_SV.sum(-1))


def _inverse_cdf(weight_SC: Tensor, slot_B: Tensor, uniform_B: Tensor) -> Tensor:
    """Column drawn by each row in proportion to its slot's weights.

    All slots lie on one line of partial sums and each row looks up ``start + u * (end - start)`` of its own stretch: no
    (B, V) copy of distributions that several rows share.
    """
    num_columns = weight_SC.shape[-1]
    _, line = _with_sums(weight_SC.reshape(-1))
    end_S = line[num_columns - 1 :: num_columns]
    start_S = torch.cat((line.new_zeros(1), end_S[:-1]))
    end_B, start_B = end_S[slot_B], start_S[slot_B]
    # u near 1 may round up to the end of the stretch, which belongs to the next slot.
    below_end_B = torch.nextafter(end_B, start_B) if line.is_floating_point() else end_B - 1
    at_B = torch.minimum(start_B + (uniform_B * (end_B - start_B)).to(line.dtype), below_end_B)
    # right=True: the first partial sum above the point, so a flat step (weight 0) is never the one.
    column_B = torch.searchsorted(line, at_B, right=True) - slot_B * num_columns
    # NaN sends the search anywhere; the caller stops on the sums, and until then the index must be a valid one.
    return column_B.clamp(0, num_columns - 1)


def _with_sums(weight: Tensor) -> tuple[Tensor, Tensor]:
    """``weight`` and its partial sums along the last axis, in float64 or, on a GPU, in whole numbers in proportion.

    A GPU's scan adds in no fixed order. Whole numbers, here up to 2^61, come to the same sums in any.
    """
    if weight.device.type == "cpu":
        return weight, weight.cumsum(-1, dtype=torch.float64)
    whole = torch.ldexp(weight, 61 - torch.frexp(weight.sum()).exponent).to(torch.int64)
    return whole, whole.cumsum(-1)


def _truncate(weight_SV: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Candidates in descending order: their weights (0 where top_p cuts them off) and token ids, both (S, C)."""
    if 0 < sampling.top_k < weight_SV.shape[-1]:
        weight_SC, candidate_SC = weight_SV.topk(sampling.top_k, dim=-1)
    else:
        weight_SC, candidate_SC = weight_SV.sort(dim=-1, descending=True, stable=True)
    if sampling.top_p < 1.0:
        summed_SC, mass_SC = _with_sums(weight_SC)
        weight_SC = weight_SC * (mass_SC - summed_SC < sampling.top_p * mass_SC[:, -1:].double())
    return weight_SC, candidate_SC
