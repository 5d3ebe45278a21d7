"""The one-dimensional dual of the per-prompt trust region (paper, Eqs. dual_objective to optimal_policy).

For one prompt with rewards R_1..R_N and radius delta:

    f(lam)   = lam (delta + log mean_i exp(R_i / lam))          convex, lam* = argmin over lam > 0
    f'(lam)  = delta - KL(p_lam || uniform),                    p_lam = softmax(R / lam)
    mu*      = f(lam*) - lam* (delta + 1)
    A_i      = (R_i - mu*) / lam* - 1 = log(N p_lam*(i))

f is flat at its minimum, so minimising it finds lam only to about 1e-6; the root of f' is sharp. `solve_dual` finds
the root by Newton steps inside a bracket, in u = log(1 / lam), where log KL is nearly a straight line of slope 2.
"""

# Axes: Q prompts, N rollouts of one prompt. Work arrays are (N, Q): numpy adds rows faster than columns.
import math
import sys
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from evals.errors import UsageError

Array = NDArray[np.float64]

STATUSES = ("interior", "capped", "boundary", "degenerate")
_MAX_STEPS = 200
_MAX_STRIDE = 2.0  # of u = log tau while no upper bracket is known
_TOLERANCE = 1e-13  # relative error of the KL at which a prompt counts as solved


@dataclass(frozen=True)
class DualSolution:
    """Per prompt: ``lam``, ``mu``, ``kl`` and ``delta_effective`` (Q,) float64, ``status`` a list of Q words.

    ``advantage`` (Q, N) is 0 in padding. ``kl`` is KL(p || uniform) of the tilted rollouts before flooring.
    ``num_floored`` rows were raised to the advantage floor. If the rewards came as a tensor, all arrays are tensors
    on its device. The words of ``status``:

        interior     the KL equals delta
        capped       delta was lowered to ``boundary_cap`` times the largest possible KL, log(N/m) with m best rollouts
        boundary     delta is beyond the largest possible KL, and there is no cap: lam 0, mu NaN, losers -inf
        degenerate   all rewards are equal, or N = 1: advantage 0, lam 0, mu NaN
    """

    lam: Any
    mu: Any
    advantage: Any
    kl: Any
    delta_effective: Any
    status: list[str]
    num_floored: int


@dataclass(frozen=True)
class _Rewards:
    """The rewards of each prompt as z in [-1, 0], the best rollout 0, and what undoes that: R = max + scale z.

    ``weight`` is 0 in padding and 1 elsewhere, ``size`` is its sum, ``limit`` is the KL as lam goes to 0.
    """

    z_NQ: Array
    weight_NQ: Array
    size_Q: Array
    max_Q: Array
    scale_Q: Array
    mixed_Q: NDArray[np.bool_]
    limit_Q: Array

    @classmethod
    def of(cls, reward_QN: Any, mask_QN: Any) -> Self:
        reward_NQ = np.array(reward_QN, dtype=np.float64, copy=True, ndmin=2).T
        mask_NQ = None if mask_QN is None else np.atleast_2d(mask_QN).astype(bool).T
        if mask_NQ is not None:
            if not mask_NQ.any(axis=0).all():
                raise UsageError(f"prompt {int(np.argmin(mask_NQ.any(axis=0)))} has no rollout")
            # A copy of a real reward is neutral for max and min; its weight is zeroed below.
            first_Q = np.argmax(mask_NQ, axis=0)
            reward_NQ = np.where(mask_NQ, reward_NQ, reward_NQ[first_Q, np.arange(reward_NQ.shape[1])])
            if mask_NQ.all():
                mask_NQ = None
        if not np.isfinite(reward_NQ).all():
            row, prompt = np.argwhere(~np.isfinite(reward_NQ))[0]
            raise UsageError(f"reward {reward_NQ[row, prompt]} of rollout {row} of prompt {prompt} is not finite")
        max_Q = reward_NQ.max(axis=0)
        with np.errstate(over="ignore"):
            range_Q = max_Q - reward_NQ.min(axis=0)
        if not np.isfinite(range_Q).all():
            raise UsageError(
                f"the rewards of prompt {int(np.argmax(~np.isfinite(range_Q)))} lie further apart than float64"
            )
        mixed_Q = range_Q > 0
        scale_Q = np.where(mixed_Q, range_Q, 1.0)
        z_NQ = (reward_NQ - max_Q) / scale_Q
        weight_NQ = np.ones_like(z_NQ) if mask_NQ is None else mask_NQ.astype(np.float64)
        size_Q = weight_NQ.sum(axis=0)
        limit_Q = np.log(size_Q / ((z_NQ == 0) * weight_NQ).sum(axis=0))
        return cls(z_NQ, weight_NQ, size_Q, max_Q, scale_Q, mixed_Q, limit_Q)


def solve_dual(
    reward_QN: Any,
    delta: float,
    *,
    mask_QN: Any = None,
    boundary_cap: float | None = 0.95,
    advantage_floor: float | None = -20.0,
) -> DualSolution:
    """Multipliers and advantages of the per-prompt trust region, in float64 (paper, Eq. dual_empirical).

    ``reward_QN`` is an array or tensor (Q, N), ``delta`` a KL radius in nats, ``mask_QN`` True where a rollout is real.
    mean_i exp(A_i) = 1 and mean_i A_i exp(A_i) = delta_effective hold to 1e-9 unless a row was floored.

    Raises ValueError if ``delta`` is not positive and finite, a reward is not finite, or a prompt has no rollout.
    """
    posed = _Posed.of(reward_QN, delta, mask_QN, boundary_cap)
    return posed.solution(posed.taus(), advantage_floor)


def solve_budget(
    reward_QN: Any,
    delta: float,
    spread: float = 3.0,
    *,
    mask_QN: Any = None,
    boundary_cap: float | None = 0.95,
    advantage_floor: float | None = -20.0,
) -> tuple[DualSolution, float]:
    """The trust region of an iteration: maximise sum_q E[R] with mean_q KL_q <= delta and KL_q <= spread x delta.

    The mean is over the prompts whose rewards differ. By the conditions of Karush, Kuhn and Tucker
    lam_q = max(lam_0, lam*_q(spread x delta)), where lam_0, returned beside the solution, is the price at which the
    mean is delta; it is 0 where the caps alone keep the mean within delta. ``spread`` 1 is `solve_dual`. ``spread``
    infinity is one lam for all prompts: their mean KL is delta, or ``boundary_cap`` times the mean of log(N/m) where
    that is less. Scaling all rewards scales lam and changes no advantage. The other arguments are those of
    `solve_dual`.

    Raises ValueError as `solve_dual`, or if ``spread`` is below 1.
    """
    if not spread >= 1:
        raise UsageError(f"spread is how many times delta one prompt may spend, and at least 1; found {spread!r}")
    posed = _Posed.of(reward_QN, delta * spread if math.isfinite(spread) else delta, mask_QN, boundary_cap)
    rewards, mixed_Q = posed.rewards, posed.rewards.mixed_Q
    cap_Q = posed.taus() if math.isfinite(spread) else np.full_like(posed.delta_Q, np.inf)
    if not mixed_Q.any():
        return posed.solution(cap_Q, advantage_floor), 0.0
    most = np.where(np.isinf(cap_Q), rewards.limit_Q, posed.delta_Q)[mixed_Q].mean()
    if math.isinf(spread) and boundary_cap is not None:
        delta = min(delta, boundary_cap * most)
    if most <= delta * (1 + _TOLERANCE):
        posed.code_Q[mixed_Q & np.isinf(cap_Q)] = STATUSES.index("boundary")
        return posed.solution(cap_Q, advantage_floor), 0.0
    largest = rewards.scale_Q[mixed_Q].max()
    scale_Q = rewards.scale_Q / largest
    size = rewards.size_Q[mixed_Q]
    picked = rewards.z_NQ[:, mixed_Q], rewards.weight_NQ[:, mixed_Q], size
    tau = _solve_price(*picked, scale_Q[mixed_Q], cap_Q[mixed_Q], delta)
    tau_Q = np.minimum(scale_Q * tau, cap_Q)
    below_Q = mixed_Q & (tau_Q < cap_Q)
    posed.code_Q[below_Q] = 0
    every = _kl_and_slope(np.where(below_Q, tau_Q, 0.0), rewards.z_NQ, rewards.weight_NQ, rewards.size_Q)[0]
    posed.delta_Q[below_Q] = every[below_Q]
    tau_Q[~mixed_Q] = np.inf
    return posed.solution(tau_Q, advantage_floor), float(largest / tau)


@dataclass(frozen=True)
class _Posed:
    """The problem of each prompt: its rewards, its radius after the cap, and the number of its status."""

    reward_QN: Any
    rewards: _Rewards
    delta_Q: Array
    code_Q: NDArray[np.int64]

    @classmethod
    def of(cls, reward_QN: Any, delta: float, mask_QN: Any, boundary_cap: float | None) -> Self:
        if not (delta > 0 and math.isfinite(delta)):
            raise UsageError(f"delta is a KL radius in nats and must be positive and finite, found {delta!r}")
        if boundary_cap is not None and not 0 < boundary_cap < 1:
            raise UsageError(f"boundary_cap is a share of log(N/m) strictly between 0 and 1, found {boundary_cap!r}")
        rewards = _Rewards.of(_to_numpy(reward_QN), None if mask_QN is None else _to_numpy(mask_QN))
        delta_Q = np.full_like(rewards.limit_Q, delta)
        if boundary_cap is not None:
            delta_Q = np.minimum(delta_Q, boundary_cap * rewards.limit_Q)
        is_beyond_Q = delta_Q >= rewards.limit_Q
        code_Q = np.where(~rewards.mixed_Q, 3, np.where(is_beyond_Q, 2, np.where(delta_Q < delta, 1, 0)))
        return cls(reward_QN, rewards, delta_Q, code_Q)

    def taus(self) -> Array:
        """range / lam* of each prompt; infinite without an interior optimum."""
        tau_Q, pick = np.full_like(self.delta_Q, np.inf), _picked(self.code_Q < 2)
        rewards = self.rewards
        if tau_Q[pick].size:
            z_NQ, weight_NQ = rewards.z_NQ[:, pick], rewards.weight_NQ[:, pick]
            tau_Q[pick] = _solve_tau(z_NQ, weight_NQ, rewards.size_Q[pick], self.delta_Q[pick])
        return tau_Q

    def solution(self, tau_Q: Array, advantage_floor: float | None) -> DualSolution:
        """What the prompts have at lam = range / ``tau_Q``."""
        rewards, delta_Q = self.rewards, self.delta_Q
        solved_Q, boundary_Q = np.isfinite(tau_Q), self.code_Q == 2
        advantage_NQ = np.zeros_like(rewards.z_NQ)
        kl_Q, log_mean_Q = np.zeros_like(tau_Q), np.zeros_like(tau_Q)
        if solved_Q.any():
            pick = _picked(solved_Q)
            tilted_NQ = tau_Q[pick] * rewards.z_NQ[:, pick]
            log_mean_Q[pick], p_NQ = _log_mean_exp(tilted_NQ, rewards.weight_NQ[:, pick], rewards.size_Q[pick])
            kl_Q[pick] = (p_NQ * tilted_NQ).sum(axis=0) - log_mean_Q[pick]
            advantage_NQ[:, pick] = tilted_NQ - log_mean_Q[pick]
        if boundary_Q.any():
            limit_Q = rewards.limit_Q[boundary_Q]
            advantage_NQ[:, boundary_Q] = np.where(rewards.z_NQ[:, boundary_Q] == 0, limit_Q, -np.inf)
            kl_Q[boundary_Q] = delta_Q[boundary_Q] = limit_Q
        delta_Q[~rewards.mixed_Q] = 0.0

        num_floored = 0
        if advantage_floor is not None:
            low_NQ = (advantage_NQ < advantage_floor) & (rewards.weight_NQ > 0)
            num_floored = int(low_NQ.sum())
            advantage_NQ = np.maximum(advantage_NQ, advantage_floor)
        advantage_NQ = np.where(rewards.weight_NQ > 0, advantage_NQ, 0.0)

        lam_Q = np.where(solved_Q, rewards.scale_Q / tau_Q, 0.0)
        mu_Q = np.where(solved_Q, rewards.max_Q + lam_Q * (log_mean_Q - 1.0), np.nan)
        like = self.reward_QN
        return DualSolution(
            lam=_like(lam_Q, like),
            mu=_like(mu_Q, like),
            advantage=_like(np.ascontiguousarray(advantage_NQ.T), like),
            kl=_like(kl_Q, like),
            delta_effective=_like(delta_Q, like),
            status=[STATUSES[code] for code in self.code_Q.tolist()],
            num_floored=num_floored,
        )


def _picked(mask_Q: NDArray[np.bool_]) -> Any:
    """``mask_Q`` as an index, which copies nothing where it takes all."""
    return slice(None) if mask_Q.all() else mask_Q


def _kl_and_slope(tau_Q: Array, z_NQ: Array, weight_NQ: Array, size_Q: Array) -> tuple[Array, Array]:
    """KL(softmax(tau z) || uniform) of each prompt, and its derivative by log tau, the variance of tau z."""
    tilted_NQ = tau_Q * z_NQ
    log_mean_Q, p_NQ = _log_mean_exp(tilted_NQ, weight_NQ, size_Q)
    p_NQ *= tilted_NQ
    first_Q = p_NQ.sum(axis=0)  # E_p[tau z]
    p_NQ *= tilted_NQ
    return first_Q - log_mean_Q, p_NQ.sum(axis=0) - first_Q * first_Q


def _solve_price(z_NQ: Array, weight_NQ: Array, size_Q: Array, scale_Q: Array, cap_Q: Array, delta: float) -> float:
    """t at which the KL of tau = min(t scale, cap) is delta in the mean over prompts, which it is below all caps."""
    u = low = 0.5 * math.log(8.0 * delta / np.square(scale_Q).mean())  # as in `_solve_tau`
    high = math.inf
    for _ in range(_MAX_STEPS):
        tau_Q = np.minimum(scale_Q * math.exp(u), cap_Q)
        kl_Q, slope_Q = _kl_and_slope(tau_Q, z_NQ, weight_NQ, size_Q)
        gap = kl_Q.mean() / delta - 1.0
        low, high = (u, high) if gap < 0 else (low, u)
        slope = slope_Q[tau_Q < cap_Q].sum() / kl_Q.sum()
        newton = u - math.log1p(gap) / slope if slope > 0 else math.nan
        reach = min(high, low + _MAX_STRIDE)
        last, u = u, newton if low < newton < reach else reach if math.isinf(high) else 0.5 * (low + high)
        if abs(gap) <= _TOLERANCE or abs(u - last) <= 4e-16 * max(1.0, abs(last)):
            break
    return math.exp(last)


def _solve_tau(z_NQ: Array, weight_NQ: Array, size_Q: Array, delta_Q: Array) -> Array:
    """tau with KL(softmax(tau z) || uniform) = delta, for z with maximum 0 and minimum -1, delta < log(N/m)."""
    mean_Q = (z_NQ * weight_NQ).sum(axis=0) / size_Q
    variance_Q = (np.square(z_NQ - mean_Q) * weight_NQ).sum(axis=0) / size_Q
    # Var(z) <= 1/4 under every tilt, so KL <= tau^2 / 8: a lower bracket without evaluating anything.
    low_Q = 0.5 * np.log(8.0 * delta_Q)
    high_Q = np.full_like(low_Q, np.inf)
    u_Q = np.maximum(0.5 * np.log(2.0 * delta_Q / variance_Q), low_Q)  # KL ~ tau^2 Var / 2 at small tau
    solution_Q = u_Q.copy()

    active = np.arange(u_Q.size)
    for _ in range(_MAX_STEPS):
        tau_Q = np.exp(u_Q)
        kl_Q, slope_Q = _kl_and_slope(tau_Q, z_NQ, weight_NQ, size_Q)
        gap_Q = kl_Q / delta_Q - 1.0

        below_Q = gap_Q < 0
        low_Q = np.where(below_Q, u_Q, low_Q)
        high_Q = np.where(below_Q, high_Q, u_Q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            newton_Q = u_Q - np.log1p(gap_Q) * kl_Q / slope_Q
        # Outside the bracket, or no slope (a plateau between two reward levels): bisect, or step out while unbounded.
        reach_Q = np.minimum(high_Q, low_Q + _MAX_STRIDE)
        fallback_Q = np.where(np.isinf(high_Q), reach_Q, 0.5 * (low_Q + high_Q))
        next_Q = np.where((newton_Q > low_Q) & (newton_Q < reach_Q), newton_Q, fallback_Q)
        solution_Q[active] = u_Q

        going_Q = (np.abs(gap_Q) > _TOLERANCE) & (np.abs(next_Q - u_Q) > 4e-16 * np.maximum(1.0, np.abs(u_Q)))
        if not going_Q.any():
            break
        u_Q = next_Q
        if going_Q.mean() < 0.8:  # most prompts need fewer steps than the last one
            active, u_Q, low_Q, high_Q = active[going_Q], u_Q[going_Q], low_Q[going_Q], high_Q[going_Q]
            z_NQ, weight_NQ = z_NQ[:, going_Q], weight_NQ[:, going_Q]
            size_Q, delta_Q = size_Q[going_Q], delta_Q[going_Q]
    solution: Array = np.exp(solution_Q)
    return solution


def _log_mean_exp(tilted_NQ: Array, weight_NQ: Array, size_Q: Array) -> tuple[Array, Array]:
    """log mean_i exp(tilted_i) and the softmax; expm1 keeps 1e-16 relative accuracy where delta is tiny."""
    p_NQ = np.expm1(tilted_NQ)
    shift_Q = (p_NQ * weight_NQ).sum(axis=0) / size_Q
    p_NQ += 1.0
    p_NQ *= weight_NQ
    p_NQ /= (shift_Q + 1.0) * size_Q
    return np.log1p(shift_Q), p_NQ


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _to_numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if _is_tensor(value) else np.asarray(value)


def _like(value: Array, template: Any) -> Any:
    if not _is_tensor(template):
        return value
    return sys.modules["torch"].from_numpy(np.ascontiguousarray(value)).to(template.device)
