"""What every registered method must satisfy, whatever it is."""

from __future__ import annotations

import math

import pytest
import torch

from quatro import ops
from quatro.registry import METHODS
from quatro.types import Batch
from tests.quatro.methods.asked import asked

METHOD_NAMES = sorted(METHODS)


def make_rows(seed: int = 0, *, step: float = 0.05) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Batch]:
    """(logp, reward, group, batch): 12 rows in 4 groups, ragged, one row empty, garbage in padding."""
    generator = torch.Generator().manual_seed(seed)
    length_B = torch.randint(1, 7, (12,), generator=generator)
    length_B[5] = 0
    group_B = torch.tensor([0, 1, 2, 3] * 3)[torch.randperm(12, generator=generator)]
    reward_B = torch.rand(12, generator=generator, dtype=torch.float64).round(decimals=1)
    mask_BT = torch.arange(6) < length_B[:, None]
    old_BT = -torch.rand(12, 6, generator=generator, dtype=torch.float64)
    logp_BT = old_BT + step * torch.randn(12, 6, generator=generator, dtype=torch.float64)
    batch = Batch(
        old_logp_BT=old_BT.masked_fill(~mask_BT, math.nan),
        mask_BT=mask_BT,
        advantage_B=torch.randn(12, generator=generator, dtype=torch.float64),
        group_B=group_B,
        group_size_B=torch.bincount(group_B)[group_B],
        max_new_tokens=6,
    )
    return logp_BT.masked_fill(~mask_BT, 1e30).requires_grad_(), reward_B, group_B, batch


def select(batch: Batch, index: torch.Tensor) -> Batch:
    per_row = ("old_logp_BT", "mask_BT", "advantage_B", "group_B", "group_size_B")
    return Batch(**{**batch.__dict__, **{name: getattr(batch, name)[index] for name in per_row}})


def gradient(method, logp_BT: torch.Tensor, batch: Batch) -> torch.Tensor:
    return torch.autograd.grad(ops.total_loss(method.loss(logp_BT, batch).terms), logp_BT)[0]


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_rows_and_groups_in_any_order_give_the_same_advantages(name):
    method = METHODS[name]()
    _, reward_B, group_B, _ = make_rows()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    relabelled = torch.tensor([40, 7, 99, 3])[group_B]
    more = asked(method.needs, 12)
    one = method.advantages(reward_B, group_B, **more).value_B
    other = method.advantages(reward_B[order], relabelled[order], **{key: more[key][order] for key in more}).value_B
    torch.testing.assert_close(other, one[order], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_all_equal_rewards_give_zero_advantages(name):
    for size in range(2, 12):  # the rounded mean of 3 x 0.1 is not 0.1
        for reward in (0.1, 0.7, 1 / 3):
            reward_B = torch.full((size,), reward, dtype=torch.float64)
            method, group_B = METHODS[name](), torch.zeros(size, dtype=torch.long)
            # One solution for all: where one is rarer than another, its reward counts more.
            more = {key: torch.zeros_like(value) for key, value in asked(method.needs, size).items()}
            value_B = method.advantages(reward_B, group_B, **more).value_B
            assert (value_B == 0).all()


@pytest.mark.parametrize("name", METHOD_NAMES)
@pytest.mark.parametrize("cuts", [[12], [1] * 12, [5, 7], [4, 4, 4]])
def test_micro_batches_never_change_a_gradient(name, cuts):
    method = METHODS[name]()
    logp_BT, _, _, batch = make_rows()
    whole = gradient(method, logp_BT, batch)
    sums = {term.name: term.weight.sum() for term in method.loss(logp_BT, batch).terms}
    total = torch.zeros_like(whole)
    for index in torch.arange(12).split(cuts):
        terms = method.loss(logp_BT[index], select(batch, index)).terms
        total += torch.autograd.grad(ops.total_loss(terms, sums), logp_BT)[0]
    torch.testing.assert_close(total, whole, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_weights_do_not_depend_on_the_policy(name):
    method = METHODS[name]()
    logp_BT, _, _, batch = make_rows()
    for one, other in zip(
        method.loss(logp_BT, batch).terms, method.loss(torch.zeros_like(logp_BT), batch).terms, strict=True
    ):
        assert one.name == other.name
        assert torch.equal(one.weight, other.weight)


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_padding_gets_no_gradient_and_extremes_stay_finite(name):
    method = METHODS[name]()
    logp_BT, _, _, batch = make_rows(step=13.0)  # token ratios of many nats
    grad_BT = gradient(method, logp_BT, batch)
    assert torch.isfinite(grad_BT).all()
    assert (grad_BT[~batch.mask_BT] == 0).all()


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_zero_advantages_on_policy_give_no_gradient(name):
    logp_BT, _, _, batch = make_rows(step=0.0)
    zero = Batch(**{**batch.__dict__, "advantage_B": torch.zeros(12, dtype=torch.float64)})
    assert gradient(METHODS[name](), logp_BT, zero).abs().max() == 0


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_first_step_raises_what_did_well(name):
    """On-policy every ratio is 1, so each method's gradient points against the advantage."""
    logp_BT, _, _, batch = make_rows(step=0.0)
    grad_BT = gradient(METHODS[name](), logp_BT, batch)
    mask_BT = batch.mask_BT
    assert (torch.sign(-grad_BT) == torch.sign(batch.advantage_B)[:, None])[mask_BT].all()


def test_quatros_gradient_is_the_papers():
    """dL/dlogp_it = -(1/n) s_i (A_i - l_i) on response tokens."""
    logp_BT, _, _, batch = make_rows()
    l_B = ops.log_ratio(logp_BT, batch).sum(-1).detach()
    expected_B = -(l_B.exp() * (batch.advantage_B - l_B)) / 12
    grad_BT = gradient(METHODS["quatro"](), logp_BT, batch)
    torch.testing.assert_close(grad_BT, torch.where(batch.mask_BT, expected_B[:, None], 0.0))


@pytest.mark.parametrize("clip", [0.2, 0.02])
def test_without_its_log_ratio_and_with_gspos_advantage_and_clip_quatro_is_gspo(clip):
    """The paper's remark on Eq. exact_tr_update. It needs GSPO's ratio too, which is normalised by the length."""
    logp_BT, reward_B, group_B, batch = make_rows(step=0.3)
    has_tokens_B = batch.mask_BT.any(dim=-1)  # GSPO's mean leaves out empty rows, QUATRO's counts them
    logp_BT, batch = logp_BT[has_tokens_B].detach().requires_grad_(), select(batch, has_tokens_B)
    gspo = METHODS["gspo"](clip_low=clip, clip_high=clip)
    advantage_B = gspo.advantages(reward_B, group_B).value_B[has_tokens_B]
    batch = Batch(**{**batch.__dict__, "advantage_B": advantage_B})
    mean_B = ops.log_ratio(logp_BT, batch).sum(dim=-1) / batch.mask_BT.sum(dim=-1)
    clipped_B = -mean_B.exp().clip(1 - clip, 1 + clip) * advantage_B

    def clipped_quatro(**fields: str) -> torch.Tensor:
        (term,) = METHODS["quatro"](log_ratio="none", **fields).loss(logp_BT, batch).terms
        return torch.maximum(term.value, clipped_B).mean()

    ours, theirs = clipped_quatro(ratio="length-normalised"), gspo.loss(logp_BT, batch)
    torch.testing.assert_close(ours, ops.total_loss(theirs.terms), rtol=1e-12, atol=0)
    (ours_BT,) = torch.autograd.grad(ours, logp_BT)
    torch.testing.assert_close(ours_BT, gradient(gspo, logp_BT, batch), rtol=1e-12, atol=1e-15)
    assert (ours_BT == 0).all(dim=-1).any()  # a clip is in force
    assert not torch.isclose(clipped_quatro(ratio="sequence"), ours, rtol=1e-3)


def test_gspo_counts_clipped_samples_and_clipped_tokens():
    """A row whose clip is in force has no gradient; an empty row is no sample."""
    logp_BT, _, _, batch = make_rows(step=0.3)
    gspo = METHODS["gspo"]()
    num_tokens_B = batch.mask_BT.sum(dim=-1)
    is_cut_B = (gradient(gspo, logp_BT, batch) == 0).all(dim=-1) & (num_tokens_B > 0)
    metrics = gspo.loss(logp_BT, batch).metrics
    found = {name: (metric.value / metric.count).item() for name, metric in metrics.items()}
    assert 0 < found["clip_fraction_samples"] == pytest.approx(is_cut_B.sum().item() / 11)
    assert found["clip_fraction"] == pytest.approx((num_tokens_B[is_cut_B].sum() / num_tokens_B.sum()).item())
    assert found["clip_fraction"] != pytest.approx(found["clip_fraction_samples"])


def test_loss_norm_sum_is_group_size_times_rows():
    logp_BT, _, _, batch = make_rows()
    rows, whole = (gradient(METHODS["quatro"](loss_norm=norm), logp_BT, batch) for norm in ("rows", "sum"))
    torch.testing.assert_close(whole, rows * 12 / 4)


def test_an_advantage_of_minus_infinity_is_refused_by_the_config():
    with pytest.raises(ValueError, match="cannot both be null"):
        METHODS["quatro"](boundary_cap=None, advantage_floor=None)


def test_unknown_methods_are_named_with_a_guess():
    with pytest.raises(ValueError, match=r"qatro.*quatro"):
        METHODS["qatro"]


def test_a_method_of_ones_own_is_found_by_its_dotted_path():
    assert METHODS["quatro.methods.gspo:Gspo"] is METHODS["gspo"]
    with pytest.raises(ValueError, match="cannot be imported"):
        METHODS["quatro.methods.nowhere:Nothing"]


def test_the_duals_metrics_are_those_of_its_prompts():
    """Three prompts: one without a signal, and lam of the other two known from the dual itself."""
    from quatro.dual import solve_dual

    reward_QN = torch.tensor([[1.0, 0, 0, 0], [1.0, 1, 0, 0], [1.0, 1, 1, 1]], dtype=torch.float64)
    found = METHODS["quatro"](delta=0.01).advantages(reward_QN.flatten(), torch.arange(3).repeat_interleave(4)).metrics
    lam = sorted(solve_dual(reward_QN[:2], 0.01).lam.tolist())
    assert found["dual/interior_share"] == pytest.approx(2 / 3)
    assert found["dual/degenerate_share"] == pytest.approx(1 / 3)
    assert (found["dual/lam_min"], found["dual/lam_max"]) == pytest.approx(tuple(lam))
    assert found["dual/lam_median"] == pytest.approx(sum(lam) / 2)
    assert found["dual/lam_p10"] == pytest.approx(lam[0] + 0.1 * (lam[1] - lam[0]))
    uniform = METHODS["quatro"]().advantages(torch.ones(4), torch.zeros(4, dtype=torch.long)).metrics
    assert math.isnan(uniform["dual/lam_mean"])
