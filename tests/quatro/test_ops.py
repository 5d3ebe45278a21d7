"""Groups, aggregation, KL estimators and robust ratios."""

from __future__ import annotations

import math

import pytest
import torch

from quatro import ops
from quatro.types import Batch, Loss, LossTerm


def make_batch(lengths: list[int], *, seed: int = 0, garbage: float = float("nan")) -> tuple[torch.Tensor, Batch]:
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths)
    mask_BT = torch.arange(width) < torch.tensor(lengths)[:, None]
    logp_BT = -torch.rand(len(lengths), width, generator=generator, dtype=torch.float64)
    old_BT = -torch.rand(len(lengths), width, generator=generator, dtype=torch.float64)
    ref_BT = -torch.rand(len(lengths), width, generator=generator, dtype=torch.float64)
    pad = ~mask_BT
    batch = Batch(
        old_logp_BT=old_BT.masked_fill(pad, garbage),
        mask_BT=mask_BT,
        advantage_B=torch.randn(len(lengths), generator=generator, dtype=torch.float64),
        group_B=torch.arange(len(lengths)) // 2,
        group_size_B=torch.full((len(lengths),), 2),
        max_new_tokens=width,
        ref_logp_BT=ref_BT.masked_fill(pad, garbage),
    )
    return logp_BT.masked_fill(pad, garbage).requires_grad_(), batch


def test_the_first_reward_that_is_not_finite_is_named():
    with pytest.raises(ValueError, match=r"found -inf$"):
        ops.pack_rewards(torch.tensor([1.0, -torch.inf, torch.nan]), torch.zeros(3, dtype=torch.long))


@pytest.mark.parametrize(("log_ratio", "counted"), [(19.0, 19.0), (20.0, 20.0), (25.0, 20.0)])
def test_the_weight_of_a_row_in_the_exact_kl_ends_at_20_nats(log_ratio, counted):
    """s (log pi - log pi_pre) with s = e^min(l, 20); here pi_pre is pi_old."""
    _, batch = make_batch([1])
    moved = (batch.old_logp_BT + log_ratio).requires_grad_()
    batch = Batch(**{**batch.__dict__, "ref_logp_BT": batch.old_logp_BT})
    term = ops.kl_term(moved, batch, beta=1.0, estimator="sequence-exact", how="token-mean")
    assert ops.total_loss([term]).item() == pytest.approx(math.exp(counted) * log_ratio)


def test_the_exact_kl_pushes_each_row_by_its_own_log_ratio():
    """Its gradient is s * stopgrad(log pi - log pi_pre) at every token of the row: the second factor is a weight."""
    _, batch = make_batch([1])
    moved = (batch.old_logp_BT + 0.5).requires_grad_()
    batch = Batch(**{**batch.__dict__, "ref_logp_BT": batch.old_logp_BT - 1.5})
    term = ops.kl_term(moved, batch, beta=1.0, estimator="sequence-exact", how="token-mean")
    (grad_BT,) = torch.autograd.grad(ops.total_loss([term]), moved)
    assert grad_BT[batch.mask_BT].tolist() == pytest.approx([math.exp(0.5) * 2.0])


def test_entropy_is_rewarded_token_by_token():
    _, batch = make_batch([1, 3])
    entropy_BT = torch.arange(1.0, 1.0 + batch.mask_BT.numel()).reshape(batch.mask_BT.shape)
    term = ops.entropy_term(entropy_BT, batch, coefficient=0.5)
    assert ops.total_loss([term]).item() == pytest.approx(-0.5 * entropy_BT[batch.mask_BT].mean().item())


def test_packing_groups_and_picking_them_out_is_the_identity():
    group_B = torch.tensor([7, 3, 7, 3, 3, 9])
    value_B = torch.arange(6.0)
    value_QN, mask_QN, index_B, slot_B = ops.pack_groups(value_B, group_B)
    assert value_QN[index_B, slot_B].tolist() == value_B.tolist()
    assert mask_QN.sum(1).tolist() == [3, 2, 1]
    assert value_QN.tolist() == [[1, 3, 4], [0, 2, 0], [5, 0, 0]]


def test_zscore_by_hand():
    reward_B = torch.tensor([1.0, 0.0, 0.0, 0.7, 0.7, 5.0])
    group_B = torch.tensor([0, 0, 0, 1, 1, 2])
    score_B = ops.group_zscore(reward_B, group_B)
    std = math.sqrt((4 / 9 + 1 / 9 + 1 / 9) / 2)
    assert score_B[0].item() == pytest.approx((2 / 3) / (std + 1e-6))
    assert score_B[3:5].tolist() == [0.0, 0.0]
    assert score_B[5].item() == pytest.approx(5.0 / (1 + 1e-6))
    assert ops.group_zscore(reward_B, group_B, standardise=False)[0].item() == pytest.approx(2 / 3)


def test_aggregations_by_hand_ignore_padding_and_empty_rows():
    mask_BT = torch.tensor([[True, True, False], [True, False, False], [False, False, False]])
    value_BT = torch.tensor([[1.0, 3.0, math.nan], [10.0, math.inf, 0.0], [math.nan, 0.0, 0.0]], dtype=torch.float64)
    _, batch = make_batch([3, 3, 3])
    batch = Batch(**{**batch.__dict__, "mask_BT": mask_BT, "max_new_tokens": 4})

    def average(how: str) -> float:
        value, weight = ops.aggregate(value_BT, batch, how)
        return ((value * weight).sum() / weight.sum()).item()

    assert average("token-mean") == pytest.approx(14 / 3)
    assert average("seq-mean-token-sum") == pytest.approx((4 + 10) / 2)
    assert average("seq-mean-token-mean") == pytest.approx((2 + 10) / 2)
    assert average("seq-mean-token-sum-norm") == pytest.approx((4 + 10) / 4 / 2)
    with pytest.raises(ValueError, match="median"):
        ops.aggregate(value_BT, batch, "median")


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3+", "sequence-exact"])
@pytest.mark.parametrize("how", ["token-mean", "seq-mean-token-sum"])
def test_kl_terms_survive_garbage_in_padding(estimator, how):
    logp_BT, batch = make_batch([3, 1, 2, 3])
    term = ops.kl_term(logp_BT, batch, beta=0.5, estimator=estimator, how=how)
    total = ops.total_loss([term])
    (gradient,) = torch.autograd.grad(total, logp_BT)
    assert torch.isfinite(total)
    assert (gradient[~batch.mask_BT] == 0).all()
    assert (gradient[batch.mask_BT] != 0).any()


def test_k3_has_the_value_it_claims_and_k3_plus_the_gradient_of_k2():
    logp_BT, batch = make_batch([2, 2])
    difference = (logp_BT - batch.ref_logp_BT).detach()

    def gradient_and_value(estimator: str) -> tuple[torch.Tensor, float]:
        total = ops.total_loss([ops.kl_term(logp_BT, batch, beta=1.0, estimator=estimator, how="token-mean")])
        return torch.autograd.grad(total, logp_BT)[0], total.item()

    value = (torch.exp(-difference) + difference - 1).mean().item()
    assert gradient_and_value("k3")[1] == pytest.approx(value)
    assert gradient_and_value("k3+")[1] == pytest.approx(value)
    torch.testing.assert_close(gradient_and_value("k3+")[0], difference / 4)
    torch.testing.assert_close(gradient_and_value("k2")[0], difference / 4)


def test_k3_is_clamped_where_verl_clamps_it():
    """e^30 - 31 and e^-30 + 29 both end at 10; verl's d stops at 20 nats."""
    difference = torch.tensor([-30.0, 30.0, -21.0, 0.5], dtype=torch.float64, requires_grad=True)
    value = ops.k3(difference)
    expected = torch.tensor([10.0, 10.0, 10.0, math.exp(-0.5) - 0.5], dtype=torch.float64)
    torch.testing.assert_close(value.detach(), expected)
    huge = torch.tensor([-5000.0, 5000.0], requires_grad=True)  # e^5000 alone would make the gradient 0 x inf
    (gradient,) = torch.autograd.grad(ops.k3(huge).sum(), huge)
    assert gradient.tolist() == [0.0, 0.0]


def test_kl_needs_a_reference():
    logp_BT, batch = make_batch([2, 2])
    with pytest.raises(ValueError, match="reference"):
        ops.kl_term(logp_BT, Batch(**{**batch.__dict__, "ref_logp_BT": None}), beta=1, estimator="k3", how="token-mean")


def test_robust_ratio_stops_growing_but_keeps_its_gradient():
    l_B = torch.tensor([0.5, 100.0, -50.0], dtype=torch.float64, requires_grad=True)
    ratio_B = ops.robust_ratio(l_B, 20.0)
    (gradient,) = torch.autograd.grad(ratio_B.sum(), l_B)
    expected = torch.tensor([math.exp(0.5), math.exp(20), math.exp(-50)], dtype=torch.float64)
    torch.testing.assert_close(ratio_B.detach(), expected)
    torch.testing.assert_close(gradient, expected)


def test_a_ratio_never_overflows_whatever_the_cap():
    for dtype in (torch.float32, torch.float64):
        ratio_B = ops.robust_ratio(torch.tensor([5000.0], dtype=dtype), None) * 1e3
        assert torch.isfinite(ratio_B).all()
    assert ops.robust_ratio(torch.tensor([30.0]), 20.0).item() == pytest.approx(math.exp(20), rel=1e-6)


def test_nothing_to_average_is_a_term_of_zero():
    empty = LossTerm("kl", torch.zeros(2), torch.zeros(2), 1.0)
    assert ops.total_loss([empty]).item() == 0.0


def test_total_loss_of_two_halves_with_shared_weights_is_the_whole():
    value_B, weight_B = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 1.0, 3.0])
    whole = ops.total_loss([LossTerm("a", value_B, weight_B, 2.0)])
    sums = {"a": weight_B.sum()}
    halves = [ops.total_loss([LossTerm("a", value_B[s], weight_B[s], 2.0)], sums) for s in (slice(1), slice(1, 3))]
    torch.testing.assert_close(sum(halves), whole)
    with pytest.raises(ValueError, match="term"):
        ops.total_loss(Loss([]).terms)


def test_log_probabilities_and_entropy_against_a_plain_softmax():
    logits_CV = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    target_C = torch.tensor([0, 1, 2, 3, 6])
    logp_C, entropy_C = ops.logp_and_entropy(
        logits_CV, target_C, temperature=2.0, entropy_grad=False, need_entropy=True
    )
    torch.testing.assert_close(logp_C, torch.log_softmax(logits_CV / 2, -1)[torch.arange(5), target_C])
    torch.testing.assert_close(entropy_C, torch.distributions.Categorical(logits=logits_CV).entropy())
    assert (
        ops.logp_and_entropy(logits_CV.bfloat16(), target_C, temperature=1.0, entropy_grad=False, need_entropy=False)[
            0
        ].dtype
        is torch.float32
    )
