"""A tabular policy trained by the real losses ends where the theory says.

One prompt, one-token responses, rows in proportion to a rational pi_old: the empirical dual is then exact and the
expectation over rollouts is a sum.
"""

from __future__ import annotations

import pytest
import torch

from quatro import ops
from quatro.loop.audit import audit
from quatro.registry import METHODS
from quatro.types import Batch

OLD = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REWARD = torch.tensor([1.0, 0.0, 0.4], dtype=torch.float64)
PRE = torch.tensor([0.1, 0.6, 0.3], dtype=torch.float64)


def rows_of(counts: list[int]) -> torch.Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def batch_of(arm_B: torch.Tensor, old_A: torch.Tensor, advantage_B: torch.Tensor, pre_A: torch.Tensor | None) -> Batch:
    size = arm_B.numel()
    return Batch(
        old_logp_BT=old_A.log()[arm_B][:, None],
        mask_BT=torch.ones(size, 1, dtype=torch.bool),
        advantage_B=advantage_B,
        group_B=torch.zeros(size, dtype=torch.long),
        group_size_B=torch.full((size,), size),
        max_new_tokens=1,
        ref_logp_BT=None if pre_A is None else pre_A.log()[arm_B][:, None],
    )


def converge(method, arm_B, old_A, reward_A, *, beta=0.0, estimator="k3", pre_A=None, steps=4000, lr=1.0):
    """Plain gradient descent on the logits, until nothing moves; returns the policy and the advantages per row."""
    logits_A = old_A.log().clone().requires_grad_()
    advantage_B = method.advantages(reward_A[arm_B], torch.zeros_like(arm_B)).value_B
    batch = batch_of(arm_B, old_A, advantage_B, pre_A)
    for _ in range(steps):
        logp_BT = logits_A.log_softmax(-1)[arm_B][:, None]
        terms = list(method.loss(logp_BT, batch).terms)
        if beta:
            terms.append(ops.kl_term(logp_BT, batch, beta=beta, estimator=estimator, how="token-mean"))
        (gradient_A,) = torch.autograd.grad(ops.total_loss(terms), logits_A)
        if gradient_A.abs().max() < 1e-9:
            break
        with torch.no_grad():
            logits_A -= lr * gradient_A
    return logits_A.detach().softmax(-1), advantage_B


def kl(p: torch.Tensor, q: torch.Tensor) -> float:
    return (p * (p / q).log()).sum().item()


@pytest.mark.parametrize("delta", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("log_ratio", ["detached", "attached"])
@pytest.mark.parametrize("loss_norm", ["rows", "sum"])
def test_quatro_converges_to_pi_star_on_the_edge_of_the_trust_region(delta, log_ratio, loss_norm):
    arm_B = rows_of([5, 3, 2])
    method = METHODS["quatro"](delta=delta, log_ratio=log_ratio, loss_norm=loss_norm)
    policy, advantage_B = converge(method, arm_B, OLD, REWARD, lr=1.0 if loss_norm == "rows" else 0.1)
    star = OLD * torch.stack([advantage_B[arm_B == arm][0] for arm in range(3)]).exp()
    assert kl(policy, star) < 1e-9
    assert kl(policy, OLD) == pytest.approx(delta, rel=1e-4)


def test_without_the_stabiliser_nothing_holds_the_policy_back():
    arm_B = rows_of([5, 3, 2])
    policy, _ = converge(METHODS["quatro"](delta=0.1, log_ratio="none"), arm_B, OLD, REWARD)
    assert kl(policy, OLD) > 0.5  # log 2 = .69 is all there is when one arm takes everything


def test_gspo_knows_no_radius():
    """Clipped at 0.2 it stops where its clip is, whatever delta anybody had in mind."""
    policy, _ = converge(METHODS["gspo"](), rows_of([5, 3, 2]), OLD, REWARD)
    assert kl(policy, OLD) > 0.02
    assert not hasattr(METHODS["gspo"](), "delta")


def test_length_normalisation_moves_the_optimum():
    """Two tokens a response: dividing l by the length doubles where A - l vanishes."""
    old_BT = torch.full((2, 2), -0.7, dtype=torch.float64)
    logp_BT = (old_BT + torch.tensor([[0.1], [-0.1]], dtype=torch.float64)).requires_grad_()
    batch = Batch(
        old_logp_BT=old_BT,
        mask_BT=torch.ones(2, 2, dtype=torch.bool),
        advantage_B=torch.tensor([0.2, -0.2], dtype=torch.float64),
        group_B=torch.zeros(2, dtype=torch.long),
        group_size_B=torch.full((2,), 2),
        max_new_tokens=2,
    )

    def gradient(ratio: str) -> torch.Tensor:
        loss = METHODS["quatro"](ratio=ratio).loss(logp_BT, batch)
        return torch.autograd.grad(ops.total_loss(loss.terms), logp_BT)[0]

    assert gradient("sequence").abs().max() < 1e-15  # l = A: the fixed point
    assert gradient("length-normalised").abs().min() > 1e-2


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [("sequence-exact", [0.423, 0.331, 0.245]), ("k3", [0.470, 0.313, 0.217])],
)
def test_reference_kl_lands_on_the_theorem_or_where_k3_lands(estimator, expected):
    """beta = .5, delta = .05: the theorem's mixture for the sequence-level KL; k3 has another gradient."""
    arm_B = rows_of([5, 3, 2])
    method = METHODS["quatro"](delta=0.05)
    policy, advantage_B = converge(
        method, arm_B, OLD, REWARD, beta=0.5, estimator=estimator, pre_A=PRE, lr=0.5, steps=8000
    )
    torch.testing.assert_close(policy, torch.tensor(expected, dtype=torch.float64), atol=6e-4, rtol=0)
    if estimator == "sequence-exact":
        star = OLD * torch.stack([advantage_B[arm_B == arm][0] for arm in range(3)]).exp()
        mixture = star ** (1 / 1.5) * PRE ** (0.5 / 1.5)
        torch.testing.assert_close(policy, mixture / mixture.sum(), atol=1e-4, rtol=0)


def test_the_audit_measures_both_kls_exactly_when_rows_are_in_proportion():
    arm_B = rows_of([5, 3, 2])
    new = torch.tensor([0.55, 0.35, 0.10], dtype=torch.float64)
    batch = batch_of(arm_B, OLD, torch.zeros(10, dtype=torch.float64), None)
    found = audit(new.log()[arm_B][:, None], batch, 0.01)
    assert found["kl/new_old"] == pytest.approx(kl(new, OLD), rel=1e-9)
    assert found["kl/old_new"] == pytest.approx(kl(OLD, new), rel=1e-9)
    assert found["kl/ratio_to_delta"] == pytest.approx(kl(new, OLD) / 0.01, rel=1e-9)


def test_degenerate_groups_pull_back_once_the_policy_has_moved():
    arm_B = rows_of([5, 3, 2])
    method = METHODS["quatro"](delta=0.1)
    advantage_B = method.advantages(torch.ones(10), torch.zeros(10, dtype=torch.long)).value_B
    assert (advantage_B == 0).all()
    moved = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64).log()[arm_B][:, None].requires_grad_()
    loss = method.loss(moved, batch_of(arm_B, OLD, advantage_B, None))
    (gradient_BT,) = torch.autograd.grad(ops.total_loss(loss.terms), moved)
    assert (gradient_BT[arm_B == 0] > 0).all()  # descent lowers what has become too likely
    assert (gradient_BT[arm_B == 2] < 0).all()
