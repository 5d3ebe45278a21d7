"""QUATRO's dual, loss and gradient in 60 digits, from the paper's definitions; shares no code with `quatro`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpmath import diff, exp, findroot, inf, log, mpf, sqrt, workdps

DIGITS = 60

Record = dict[str, Any]


@workdps(DIGITS)
def dual(rewards: Sequence[float], delta: float) -> Record:
    """argmin over lam > 0 of lam (delta + log mean exp(R / lam)), and the advantages (R - mu) / lam - 1 (Eq. adv).

    Found as the zero of the numerical derivative. Without an interior optimum: `boundary` if ``delta`` is at least
    log(N / m), m rewards being the largest, and `degenerate` if the rewards are all equal.
    """
    reward, radius = [mpf(value) for value in rewards], mpf(delta)
    size, largest = len(reward), max(reward)
    num_largest = reward.count(largest)
    if num_largest == size:
        return _record("degenerate", mpf(0), None, largest, mpf(0), [mpf(0)] * size)
    limit = log(mpf(size) / num_largest)
    if radius >= limit:
        advantages = [limit if value == largest else -inf for value in reward]
        return _record("boundary", mpf(0), None, largest, limit, advantages)

    def objective(lam: Any) -> Any:
        return lam * (radius + log(sum(exp(value / lam) for value in reward) / size))

    mean = sum(reward) / size
    spread = sqrt(sum((value - mean) ** 2 for value in reward) / size)

    def slope(log_lam: Any) -> Any:
        return diff(objective, spread * exp(log_lam)) / radius

    low = high = -log(2 * radius) / 2  # lam approaches spread / sqrt(2 delta) as delta goes to 0
    while slope(low) > 0:
        low -= 1
    while slope(high) < 0:
        high += 1
    lam = spread * exp(findroot(slope, (low, high), solver="anderson", tol=mpf(10) ** -70, maxsteps=200))
    f_min = objective(lam)
    mu = f_min - lam * (radius + 1)
    advantages = [(value - mu) / lam - 1 for value in reward]
    kl = sum(exp(value) * value for value in advantages) / size
    return _record("interior", lam, mu, f_min, kl, advantages)


@workdps(DIGITS)
def budget(groups: Sequence[Sequence[float]], delta: float, spread: float) -> Record:
    """maximise sum_q E[R] with mean_q KL_q <= ``delta`` and KL_q <= ``spread`` delta, over the groups with a signal.

    lam_q = max(lam_0, lam*_q(spread delta)), lam_0 where the mean KL is ``delta``: found by bisection of its logarithm.
    """
    rewards = [[mpf(value) for value in group] for group in groups]
    is_mixed = [min(reward) < max(reward) for reward in rewards]
    caps = [dual(group, mpf(delta) * spread)["lam"] if spread < inf else mpf(0) for group in groups]

    def at(lam_0: Any) -> tuple[list[Any], list[list[Any]], Any]:
        lams = [max(lam_0, cap) if mixed else mpf(0) for cap, mixed in zip(caps, is_mixed, strict=True)]
        advantages = [_tilted(reward, lam) for reward, lam in zip(rewards, lams, strict=True)]
        kls = [sum(exp(value) * value for value in row) / len(row) for row in advantages]
        return lams, advantages, sum(kls) / sum(is_mixed)

    low, high = mpf(-100), mpf(100)
    if at(exp(low))[2] <= delta * (1 + mpf(10) ** -50):
        lams, advantages, _ = at(mpf(0))
        return {"lam_0": mpf(0), "lam": lams, "advantages": advantages}
    for _ in range(300):
        middle = (low + high) / 2
        low, high = (middle, high) if at(exp(middle))[2] > delta else (low, middle)
    lams, advantages, _ = at(exp(high))
    return {"lam_0": exp(high), "lam": lams, "advantages": advantages}


def _tilted(reward: Sequence[Any], lam: Any) -> list[Any]:
    if not lam:
        return [mpf(0)] * len(reward)
    log_mean = log(sum(exp(value / lam) for value in reward) / len(reward))
    return [value / lam - log_mean for value in reward]


def _record(status: str, lam: Any, mu: Any, f_min: Any, kl: Any, advantages: Sequence[Any]) -> Record:
    return {"status": status, "lam": lam, "mu": mu, "f_min": f_min, "kl_star": kl, "advantages": advantages}


@workdps(DIGITS)
def loss(batch: Record, hyper: Record) -> Record:
    """Loss, its gradient by each log pi_theta, and what they are made of.

    With l the sum of a response's log-ratios and w = exp(min(l, C)): loss -(1/n) sum w (A - l), gradient -(1/n) w (A -
    l) on each token. The ablations: `none` has no l in the bracket; `attached` differentiates it too, which takes
    another 1 off.
    """
    masks, num_rows = batch["response_mask"], len(batch["rewards"])
    duals, advantages = _group_duals(batch, hyper["delta"])
    logp, old, ref = ([[mpf(x) for x in row] for row in batch[f"{name}log_probs"]] for name in ("", "old_", "ref_"))

    log_ratios, policy_loss, pulls = [], mpf(0), []
    for row in range(num_rows):
        log_ratio = sum(p - q for p, q, real in zip(logp[row], old[row], masks[row], strict=True) if real)
        cap = hyper["max_log_ratio"]
        weight = exp(log_ratio if cap is None else min(log_ratio, mpf(cap)))
        gap = advantages[row] - (0 if hyper["log_ratio"] == "none" else log_ratio)
        policy_loss -= weight * gap / num_rows
        pulls.append(weight * (gap - (1 if hyper["log_ratio"] == "attached" else 0)) / num_rows)
        log_ratios.append(log_ratio)

    num_tokens = sum(map(sum, masks))
    kl_count = num_tokens if hyper["kl_agg"] == "token-mean" else sum(map(any, masks))
    kl_sum, old_minus_new, gradient = mpf(0), mpf(0), []
    for row, mask in enumerate(masks):
        slopes = []
        for column, real in enumerate(mask):
            kl, kl_slope = k3(ref[row][column] - logp[row][column])
            kl_sum += kl * real
            old_minus_new += (old[row][column] - logp[row][column]) * real
            slopes.append(-float(pulls[row] - hyper["kl_loss_coef"] * kl_slope / kl_count) * real)
        gradient.append(slopes)
    kl_loss = kl_sum / kl_count
    return {
        "advantages": advantages,
        "duals": duals,
        "log_ratio_seq": log_ratios,
        "policy_loss": policy_loss,
        "kl_loss": kl_loss,
        "loss": policy_loss + hyper["kl_loss_coef"] * kl_loss,
        "grad_log_probs": gradient,
        "approx_kl": old_minus_new / num_tokens,
        "clip_fraction": 0.0,
    }


def _group_duals(batch: Record, delta: float) -> tuple[list[Record], list[Any]]:
    """The dual of each group, by id, and every row's advantage."""
    group_ids, duals, advantages = batch["group_ids"], [], [mpf(0)] * len(batch["rewards"])
    for id in sorted(set(group_ids)):
        rows = [row for row, group in enumerate(group_ids) if group == id]
        solved = dual([batch["rewards"][row] for row in rows], delta)
        for row, advantage in zip(rows, solved.pop("advantages"), strict=True):
            advantages[row] = advantage
        duals.append({"group_id": id, **solved})
    return duals, advantages


def k3(difference: Any) -> tuple[Any, Any]:
    """e^d - d - 1 of d = log pi_pre - log pi_theta, and its slope by log pi_theta, both with verl's clamps."""
    if abs(difference) > 20:
        difference, slope = mpf(20) * (1 if difference > 0 else -1), mpf(0)
    else:
        slope = 1 - exp(difference)
    value = exp(difference) - difference - 1
    return (value, slope) if value <= 10 else (mpf(10), mpf(0))
