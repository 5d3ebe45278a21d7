"""What the vectors are made from: batches and rewards drawn from a seed, and every case's settings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from mpmath import mpf

SEED = 20260101
META = {
    "verl": "0.9.1",
    "torch": "2.13.0+cpu",
    "python": "3.11.7",
    "tolerance": {
        "advantages_abs": 1e-6,
        "loss_and_grad_rel": 1e-6,
        "metrics_rel": 1e-6,
        "note": "QUATRO and most baselines agree to 1e-9; verl makes float32 constants for one-response groups "
        "(1+1e-6) and GPG alpha (B/M), hence 1e-6",
    },
    "seed": SEED,
}

Batch = dict[str, Any]


def rounded(value: Any) -> Any:
    """``value`` with every number in it as the files hold it: 12 digits, and minus infinity in words."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [rounded(item) for item in value]
    if not isinstance(value, float | mpf):
        return value
    return "-inf" if value == -math.inf else float(f"{float(value):.12g}")


# --- batches --------------------------------------------------------------------------------------------------------


def batches() -> dict[str, Batch]:
    """Eight batches from one stream of random numbers; padding holds garbage on purpose."""
    rng = np.random.default_rng(SEED)
    made = {}

    def permuted(*rewards: float) -> list[float]:
        return rng.permutation(rewards).tolist()

    all_equal = [float(rng.integers(2))] * 4
    rewards = [*permuted(1, 0, 0, 0), *permuted(1, 1, 1, 0), *all_equal]
    made["binary_mild"] = _batch(rng, rewards, [4, 4, 4], width=7, drift=0.25)

    rewards = [*permuted(1, 1, 0, 0), *permuted(1, 1, 1, 0), *[1.0] * 4]
    made["binary_onpolicy"] = _batch(rng, rewards, [4, 4, 4], width=7, drift=None)

    all_equal = [round(rng.uniform(0.2, 0.9), 3)] * 4
    rewards = [*(1.5 * rng.standard_normal(8)).round(6).tolist(), *all_equal]
    shifts = {"ref_log_probs": {1: 3.2, 6: -4.0}}
    made["continuous_stale"] = _batch(rng, rewards, [4, 4, 4], width=6, drift=0.8, ref_drift=0.6, shifts=shifts)

    rng.integers(4, size=12)  # twelve draws of which nothing is used: the rewards with their ties are written out
    rewards = [0.5, 1.0, 0.25, 0.0, 1.0, 0.0, 1.0, 0.5, 1.0, 0.5, 0.0, 0.25]
    made["interleaved_ties"] = _batch(rng, rewards, [4, 4, 4], width=5, drift=0.4)
    made["interleaved_ties"]["group_ids"] = [0, 1, 2] * 4

    rewards = [*permuted(1, 1, 0, 0), *permuted(1, 0, 0), 1.0]
    made["uneven_groups"] = _batch(rng, rewards, [4, 3, 1], width=6, drift=0.3)

    rewards = [*permuted(1, 1, 0, 0), *rng.random(4).round(6).tolist()]
    made["empty_response"] = _batch(rng, rewards, [4, 4], width=6, drift=0.3, empty_row=2)

    rewards = permuted(1, 1, 0, 0) * 2
    shifts = {"old_log_probs": {0: -26.0, 1: -24.0, 3: 27.0, 5: -1.6}, "ref_log_probs": {2: -23.0, 4: 25.0}}
    made["extreme_ratio"] = _batch(rng, rewards, [4, 4], width=4, drift=0.3, has_hole=False, shifts=shifts)

    rewards = [*permuted(*_binary(8, 1)), *permuted(*_binary(8, 4)), *permuted(*_binary(8, 7))]
    made["n8_binary"] = _batch(rng, rewards, [8, 8, 8], width=5, drift=0.2)
    return rounded(made)


def _batch(
    rng: np.random.Generator,
    rewards: Sequence[float],
    group_sizes: Sequence[int],
    *,
    width: int,
    drift: float | None,
    ref_drift: float = 0.25,
    has_hole: bool = True,
    empty_row: int | None = None,
    shifts: dict[str, dict[int, float]] | None = None,
) -> Batch:
    """Rows of up to ``width`` tokens; log pi_old is ``drift`` nats (sd) a token away, log pi_pre ``ref_drift``.

    The first row of full width has a hole. ``shifts`` sets the first token of a row that far from log pi_theta.
    """
    num_rows = len(rewards)
    length = rng.integers(1, width + 1, num_rows)
    length[rng.integers(num_rows)] = width
    mask = np.arange(width) < length[:, None]
    if has_hole:
        mask[int(np.argmax(length == width)), 2] = False
    if empty_row is not None:
        mask[empty_row] = False
    logp = -(rng.exponential(0.7, mask.shape) + 0.001)
    old = logp if drift is None else logp - drift * rng.standard_normal(mask.shape)
    ref = logp + ref_drift * rng.standard_normal(mask.shape)
    logps = {"log_probs": logp, "old_log_probs": old, "ref_log_probs": ref}
    for name, shift_of in (shifts or {}).items():
        for row, shift in shift_of.items():
            logps[name][row, 0] = logp[row, 0] + shift
    garbage = {"log_probs": -3.3, "old_log_probs": -1.1, "ref_log_probs": -0.2}
    return {
        **{name: np.where(mask, value, garbage[name]).tolist() for name, value in logps.items()},
        "response_mask": mask.astype(int).tolist(),
        "rewards": [float(reward) for reward in rewards],
        "group_ids": [id for id, size in enumerate(group_sizes) for _ in range(size)],
    }


def _binary(size: int, num_correct: int) -> list[float]:
    return [1.0] * num_correct + [0.0] * (size - num_correct)


# --- duals ----------------------------------------------------------------------------------------------------------


def duals() -> Iterator[tuple[str, list[float], float]]:
    """Name, rewards and delta of each case."""
    for size, counts in ((2, [1]), (4, [1, 2, 3]), (8, [1, 4, 7]), (16, [1, 8, 15])):
        for num_correct in counts:
            for delta in (0.001, 0.01, 0.1):
                yield f"binary N={size} c={num_correct}", _binary(size, num_correct), delta
    rng = np.random.default_rng(SEED + 1)
    for number in range(4):
        rewards = rounded(10.0 ** rng.uniform(-2, 2) * rng.standard_normal(8))
        for delta in (0.0001, 0.01, 0.3):
            yield f"continuous {number}", rewards, delta
    base = rng.random(6)
    yield "base", rounded(base), 0.05
    yield "shift +1000", rounded(base + 1000.0), 0.05
    yield "scale x1e6", rounded(base * 1e6), 0.05
    yield "scale x1e-6", rounded(base * 1e-6), 0.05
    near_tie = [1.0, 1.0 - 1e-9, 0.2, 0.0]
    yield "near tie at the top", rounded(near_tie), 0.5
    yield "near tie, beyond log(4/2)", rounded(near_tie), 0.7
    yield "exact tie, beyond log(4/2)", [1.0, 1.0, 0.2, 0.0], 0.7
    yield "all equal", [0.7] * 5, 0.01
    yield "N=1", [1.0], 0.01
    yield "just inside the boundary", _binary(8, 7), 0.1335
    yield "just outside the boundary", _binary(8, 7), 0.1336


# --- budgets --------------------------------------------------------------------------------------------------------


def budgets() -> Iterator[tuple[str, list[list[float]], float, float]]:
    """Name, rewards of each group, delta and spread of each case."""
    rng = np.random.default_rng(SEED + 2)
    partial = rounded([(scale * rng.random(size)).round(3) for scale, size in ((1, 8), (0.1, 6), (0.01, 8), (0, 4))])
    binary = [_binary(8, count) for count in (1, 3, 7, 8, 0)]
    outlier = [*binary, [10.0 * reward for reward in _binary(8, 2)]]
    for name, groups in (("partial", partial), ("binary", binary), ("outlier", outlier)):
        for delta in (0.03, 0.001):
            for spread in (1.0, 1.5, 3.0, math.inf):
                yield f"{name} spread={spread:g}", groups, delta, spread


# --- losses ---------------------------------------------------------------------------------------------------------


def quatro_cases() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Id, batch and settings of each case."""
    mild, stale = "binary_mild", "continuous_stale"
    cases = []
    for name in (mild, "binary_onpolicy", stale, "interleaved_ties", "n8_binary"):
        cases += [(name, delta, "detached", 0.0) for delta in (0.001, 0.01, 0.1)] + [(name, 0.1, "none", 0.0)]
    cases += [(mild, 0.1, "detached", 0.001), (mild, 0.1, "none", 0.001), (stale, 0.1, "detached", 0.1)]
    cases += [(stale, 0.1, "detached", 0.1, "seq-mean-token-sum"), (stale, 0.1, "attached", 0.0)]
    cases += [(stale, 1.0, "detached", 0.0), ("uneven_groups", 0.01, "detached", 0.0)]
    cases += [("extreme_ratio", 0.1, "detached", 0.0, "token-mean", 20.0)]
    for batch, delta, log_ratio, beta, *rest in cases:
        kl_agg, cap = (*rest, *("token-mean", None)[len(rest) :])
        hyper = {
            "delta": delta,
            "log_ratio": log_ratio,
            "kl_loss_coef": beta,
            "kl_loss_type": "low_var_kl",
            "kl_agg": kl_agg,
            "max_log_ratio": cap,
            "ratio": "sequence, unnormalised: exp(sum_t mask*(logp-old))",
            "normaliser": "1/number of responses",
        }
        yield f"quatro/{batch}/delta={delta}/{log_ratio}/kl={beta}/{kl_agg}/C={cap}", batch, hyper


Settings = tuple[str, dict[str, Any]]


def baseline_cases(table: Sequence[Settings]) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Id, method, batch and verl's settings of each case: every row of the table on every batch but `n8_binary`."""
    for batch, rows in batches().items():
        if batch == "n8_binary":
            continue
        sizes = [rows["group_ids"].count(id) for id in set(rows["group_ids"])]
        for number, (method, changes) in enumerate(table):
            if method == "pkpo" and set(sizes) != {4}:  # k is the size of every group
                continue
            estimator = "gpg" if method == "gpg" else "grpo"
            defaults = {
                "adv_estimator": estimator,
                "loss_mode": {"grpo": "vanilla", "dapo": "vanilla", "pkpo": "vanilla", "gmpo": "geo_mean"}.get(
                    method, method
                ),
                "clip_ratio_low": 0.2,
                "clip_ratio_high": 0.2,
                "clip_ratio_c": 3.0,
                "loss_agg_mode": "seq-mean-token-mean" if method == "gspo" else "token-mean",
                "kl_loss_coef": 0.0,
                "kl_loss_type": "low_var_kl",
                "norm_adv_by_std": True,
                "note": "",
            }
            yield f"{method}/{batch}/{number}", method, batch, defaults | changes


def _clip(low: float, high: float, **more: Any) -> dict[str, Any]:
    return {"clip_ratio_low": low, "clip_ratio_high": high, **more}


def _kl(coefficient: float, **more: Any) -> dict[str, Any]:
    return {"kl_loss_coef": coefficient, **more}


BASELINES: list[Settings] = [
    ("grpo", {"note": "verl defaults"}),
    ("grpo", _kl(0.001, note="verl defaults + paper's auxiliary KL")),
    ("grpo", _kl(0.1, kl_loss_type="k1")),
    ("grpo", _kl(0.1, kl_loss_type="k2")),
    ("grpo", _kl(0.1, kl_loss_type="k3+", note="straight-through: k3 value, k2 gradient")),
    ("grpo", _kl(0.1, loss_agg_mode="seq-mean-token-mean", note="DeepSeekMath aggregation")),
    ("grpo", {"loss_agg_mode": "seq-mean-token-sum-norm", "norm_adv_by_std": False, "note": "Dr.GRPO"}),
    ("dapo", _clip(0.2, 0.28, clip_ratio_c=10.0, note="official DAPO script: clip-higher, c=10, token-mean, no KL")),
    ("dapo", _clip(0.2, 0.28) | _kl(0.001, note="clip-higher, default c, paper KL")),
    ("gspo", {"note": "paper's Table of hyper-parameters eps=0.2"}),
    ("gspo", _kl(0.001)),
    ("gspo", _clip(0.0003, 0.0004, note="official GSPO scripts' clip range")),
    ("gspo", {"loss_agg_mode": "token-mean", "note": "what verl>=0.8 does with the default loss_agg_mode"}),
    ("gmpo", _clip(0.4, 0.4, note="official GMPO script; log-space clip")),
    ("gmpo", _kl(0.001, note="verl default clip")),
    ("gpg", {"note": "no ratio, no clip"}),
    ("gpg", _kl(0.001)),
    ("cispo", _clip(10.0, 0.2, note="official CISPO script: effectively no lower bound")),
    ("cispo", _kl(0.001, note="verl default clip")),
]

RELATIVES: list[Settings] = [
    ("grpo", {"adv_estimator": "rloo", "norm_adv_by_std": False, "note": "RLOO: the mean of the others"}),
    ("dppo", _clip(0.15, 0.15, loss_mode="dppo_tv", clip_ratio_c=20.0, note="the authors' script for TV")),
    ("dppo", _clip(0.02, 0.05, loss_mode="dppo_tv", clip_ratio_c=1.5, note="tight, and two-sided")),
    ("dppo", _clip(0.05, 0.05, loss_mode="dppo_kl", clip_ratio_c=20.0, note="the authors' script for KL")),
    ("dppo", _clip(0.001, 0.003, loss_mode="dppo_kl", clip_ratio_c=1.5) | _kl(0.001)),
    ("pkpo", {"adv_estimator": "grpo_passk", "k": 4, "note": "verl's k is N, and its advantage 1/N of ours"}),
]


def _corrected(level: str, kind: str, cap: float, **more: Any) -> dict[str, Any]:
    return {"correction": {"level": level, "kind": kind, "cap": cap}, **more}


CORRECTIONS: list[Settings] = [
    ("grpo", _corrected("sequence", "truncate", 2.0, note="verl's defaults")),
    ("grpo", _corrected("token", "truncate", 2.0, loss_agg_mode="seq-mean-token-mean")),
    ("gspo", _corrected("token", "mask", 1.1)),
    ("gmpo", _corrected("sequence", "truncate", 1.05, note="of tokens verl's gmpo takes the geometric mean")),
    ("gpg", _corrected("sequence", "mask", 3.0, note="TRL's defaults")),
    ("cispo", _corrected("token", "truncate", 1.05)),
]


def overlong_cases() -> Iterator[dict[str, Any]]:
    """Length, limit, buffer, factor and unshaped score of each case of DAPO's soft overlong punishment."""
    for factor in (1.0, 0.5):
        for length in (1, 11, 12, 13, 16, 19, 20):
            for score in (1.0, -1.0, 0.0):
                yield {
                    "length": length,
                    "max_resp_len": 20,
                    "buffer_len": 8,
                    "penalty_factor": factor,
                    "score": score,
                }
