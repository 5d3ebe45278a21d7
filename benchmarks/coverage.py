"""How often a 95 % interval holds the truth: writes results/coverage.json, which docs/measuring.md shows as a table.

docs/measuring.md says what is drawn. Of five problems of a family about half share one p; of three seeds the logits
shift by 0.2 with the seed and by 0.3 with seed and problem (standard deviations); a right answer is one of eight
solutions, whose chances fall by a factor that differs from problem to problem.
"""

import json
from itertools import product
from pathlib import Path

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from evals.estimators import hit_table
from evals.intervals import average_paired_differences, half_width, mean_intervals

N, DRAWS = 64, 2000
CASES = ("mean", "mean of three seeds", "mean, families of problems", "UCC", "difference of 0", "difference")


def drawn(case, beta, k, num, rng):  # arrays (S, P, draws) of each model, and the truth of each problem, (P, draws)
    p, is_difference = np.clip(rng.beta(*beta, size=(num, DRAWS)), 1e-12, 1 - 1e-12), case.startswith("difference")
    if "families" in case:
        p = np.where(rng.random(p.shape) < 0.5, p[np.arange(num) // 5 * 5], p)
    if case == "UCC":
        share = rng.random(p.shape)[..., None] ** np.arange(8)
        chance = p[..., None] * share / share.sum(-1, keepdims=True)
        sizes = rng.multinomial(N, np.concatenate([chance, 1 - p[..., None]], -1))[..., :-1]
        return [hit_table(N, [k])[0][sizes].sum(-1)[None]], (1 - (1 - chance) ** k).sum(-1)
    shifts = np.zeros((1, num, DRAWS))
    if "seeds" in case:
        shifts = 0.2 * rng.normal(size=(3, 1, DRAWS)) + 0.3 * rng.normal(size=(3, num, DRAWS))
    models = [expit(logit(p) + shifts), expit(logit(p) + shifts + (case == "difference"))][: 1 + is_difference]
    true = [(1 - (1 - one) ** k).mean(0) for one in models]
    return [hit_table(N, [k])[0][rng.binomial(N, one)] for one in models], true[-1] - is_difference * true[0]


def candidates(value_PD, rng):
    num, mean, off = len(value_PD), value_PD.mean(0), value_PD - value_PD.mean(0)
    mean_BD = np.sort(rng.multinomial(num, [1 / num] * num, size=2000) / num @ value_PD, axis=0)
    half = half_width(1, num - 1) * off.std(0) / (num - 1) ** 0.5
    skew = (off**3).sum(0) / 6 / np.maximum((off**2).sum(0), 1e-99) ** 1.5
    bias = ndtri(np.clip(((mean_BD < mean).mean(0) + (mean_BD <= mean).mean(0)) / 2, 1e-4, 1 - 1e-4))
    at = [ndtr(bias + (bias + z) / (1 - skew * (bias + z))) for z in (-1.96, 1.96)]
    bca = [mean_BD[np.clip(2000 * level, 0, 1999).astype(int), np.arange(len(mean))] for level in at]
    share = np.clip(mean, 1e-9, 1 - 1e-9)
    ends = [expit(logit(share) + sign * half / share / (1 - share)) for sign in (-1, 1)]
    percentile = np.percentile(mean_BD, (2.5, 97.5), axis=0)
    return {"percentile": percentile, "BCa": bca, "t": [mean - half, mean + half], "logit t": ends}


rows = []
for case, beta, k in product(CASES, ((1, 1), (0.3, 1)), (1, 16)):
    truth = np.mean([drawn(case, beta, k, 500, np.random.default_rng(seed))[1].mean() for seed in range(1000, 1008)])
    for num in (10, 20, 30, 100, 500):
        values, _ = drawn(case, beta, k, num, rng := np.random.default_rng(num))
        make = average_paired_differences if len(values) > 1 else mean_intervals
        families = [np.arange(num) // 5] if "families" in case else ()
        printed = make(*([one] for one in values), [k if case == "UCC" else 1.0] * DRAWS, families=families)
        ends = {"printed": np.array([one[1:3] for one in printed]).T}
        if case in ("mean", *CASES[-2:]):
            ends |= candidates(values[-1][0] - (values[0][0] if len(values) > 1 else 0), rng)
        held = {name: float(np.mean((low <= truth) & (truth <= high))) for name, (low, high) in ends.items()}
        rows.append(
            {"case": case, "beta": beta, "k": k, "problems": num, "truth": round(float(truth), 4), "held": held}
        )
Path(__file__).with_name("results").joinpath("coverage.json").write_text(json.dumps(rows, indent=1) + "\n")
