"""(b) staleness and learning rate, (c) the log-ratio term, (d) cost, (j) loss_norm, (k) the baselines."""

import math
from collections.abc import Sequence

import numpy as np

from evals.estimators import Floats
from experiments.replication.cells import (
    BASELINES,
    DELTAS,
    ENTROPY,
    MIDDLE,
    PASS1,
    REALISED,
    REALISED_KL,
    SHARE,
    STEADY_PASS1,
    UCC,
    K,
    Outcome,
    at_lr,
    baseline,
    compare,
    factor_of,
    measured,
    ours,
    pass_at,
    quatro,
    theirs,
    ucc_at_k,
    within_factor,
)
from experiments.replication.results import NUCLEUS, Group, Measure, Results, Run, max_of, mean_of
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, finding

_GENERATION = ("perf/generate_s",)
_LOGPS = ("perf/old_logp_s", "perf/ref_logp_s")


def stability(results: Results) -> list[Finding]:
    """(b) More updates on the same rollouts, and larger learning rates."""
    ours_, gspo = quatro(MIDDLE), baseline("gspo")

    def staler(settings: dict[str, str]) -> dict[str, tuple[Group, Group]]:
        return {
            "full batches, K 5 − 1": (results.group("S1", settings), results.group("S7", settings)),
            "4 minibatches, K 2 − 1": (results.group("S3", settings), results.group("S2", settings)),
        }

    def faster(settings: dict[str, str]) -> dict[str, tuple[Group, Group]]:
        slow, usual = results.group("S4", at_lr(settings, "0.0001")), results.group("S1", settings)
        fast = results.group("S4", at_lr(settings, "0.001"))
        return {
            "K 5, lr 3e-4 − 1e-4": (usual, slow),
            "K 5, lr 1e-3 − 3e-4": (fast, usual),
            "K 5, lr 1e-3 − 1e-4": (fast, slow),
        }

    def change(pairs: dict[str, tuple[Group, Group]], region: tuple[float, float]) -> tuple[Comparison, ...]:
        return tuple(compare(what, *pair, STEADY_PASS1, region) for what, pair in pairs.items())

    pairs = {
        "K 5, lr 3e-4": (results.group("S1", ours_), results.group("S1", gspo)),
        "K 5, lr 1e-3": (results.group("S4", at_lr(ours_, "0.001")), results.group("S4", at_lr(gspo, "0.001"))),
    }
    return [
        finding("b1", change(staler(gspo), LESS)),
        finding("b2", change(staler(ours_), STEADY_PASS1.not_less)),
        finding("b3", change(faster(gspo), LESS)),
        finding("b4", change(faster(ours_), STEADY_PASS1.not_less)),
        finding("b5", change(pairs, GREATER)),
        finding("b6", (compare(what, *pair, ENTROPY, LESS) for what, pair in (staler(gspo) | faster(gspo)).items())),
    ]


def log_ratio(results: Results) -> list[Finding]:
    """(c) Without the log-ratio term KL spikes and the reward falls."""
    without, detached = (quatro("0.1", log_ratio=kind) for kind in ("none", "detached"))
    pairs = {
        "S5, K 2": (results.group("S5", without), results.group("S5", detached)),
        "S1, K 5": (results.group("S1", without), ours(results, "S1", "0.1")),
    }

    def change(outcome: Outcome, region: tuple[float, float], sign: str = "/") -> tuple[Comparison, ...]:
        return tuple(compare(f"{what}: without {sign} with", *pair, outcome, region) for what, pair in pairs.items())

    return [
        finding("c1", change(REALISED, GREATER)),
        finding("c2", change(factor_of(max_of(REALISED_KL)), GREATER)),
        finding("c3", change(STEADY_PASS1, LESS, "−")),
    ]


def cost(results: Results) -> list[Finding]:
    """(d) Shares of the time of an iteration."""
    groups = {"S1": ours(results, "S1", MIDDLE), "S2": ours(results, "S2", MIDDLE)}
    dual, sampling = _share("perf/dual_s"), _share(*_GENERATION, *_LOGPS)
    small = [Comparison(cell, measured(group, dual), (-math.inf, 0.05), SHARE) for cell, group in groups.items()]
    most = [Comparison(cell, measured(group, sampling), (0.6, 0.9), SHARE) for cell, group in groups.items()]
    region = within_factor(1 / 1.1, 1.1)
    like = compare("S1: QUATRO / GSPO", groups["S1"], theirs(results, "S1"), factor_of(_MEDIAN_STEP_S), region)
    return [
        finding("d1", small),
        finding("d2", most),
        finding("d3", [like]),
    ]


def loss_norm(results: Results) -> list[Finding]:
    """(j) The loss summed over the rollouts of a prompt, or averaged."""
    groups = (results.group("S8", quatro(MIDDLE, loss_norm="sum")), ours(results, "S1", MIDDLE))
    comparisons = (
        compare("Pass@1 (top_p 0.7), sum − rows", *groups, PASS1, PASS1.alike),
        compare(f"UCC@{K} (top_p 1), sum − rows", *groups, UCC, UCC.alike),
        compare("final entropy, sum − rows", *groups, ENTROPY, ENTROPY.alike),
        compare("realised KL, sum / rows", *groups, REALISED, REALISED.alike),
        compare("largest gradient norm, sum / rows", *groups, factor_of(mean_of("grad/norm_max")), GREATER),
    )
    return [finding("j1", comparisons)]


def baselines(results: Results) -> list[Finding]:
    """(k) QUATRO beside the six baselines, and everything beside the base.

    At each k it is the delta with the highest value in the paper's own table: 0.1 for Pass@1, 0.001 for Pass@256 (there
    0.1 is below four baselines) and for the final entropy, where the paper has three baselines. Tab. ucc_all does not
    say its delta.
    """

    def beside(delta: str, outcome: Outcome, names: Sequence[str] = BASELINES) -> tuple[Comparison, ...]:
        own = ours(results, "S2", delta)
        return tuple(compare(f"− {name.upper()}", own, theirs(results, "S2", name), outcome, GREATER) for name in names)

    settings = [(f"δ {delta}", ours(results, cell, delta), cell) for cell in ("S1", "S2") for delta in DELTAS]
    settings += [("GSPO", theirs(results, cell), cell) for cell in ("S1", "S2")]
    loses = tuple(
        compare(f"{cell}: {name} − base", group, results.bases_of(group) or {}, UCC, LESS)
        for name, group, cell in settings
    )
    largest, smallest = DELTAS[0], DELTAS[-1]
    return [
        finding("k1", beside(largest, PASS1._replace(small=0.0023))),
        finding("k2", beside(smallest, pass_at(K, NUCLEUS)._replace(small=0.0216))),
        finding("k3", beside(MIDDLE, ucc_at_k(NUCLEUS))),
        finding("k4", beside(smallest, ENTROPY, ("gspo", "dapo", "cispo"))),
        finding("k5", loses),
    ]


def _share(*metrics: str) -> Measure:
    """The share of the run's time that the phases took (1,)."""

    def share(run: Run) -> Floats:
        return np.array([sum(run.values(metric).sum() for metric in metrics) / run.values("perf/step_s").sum()])

    return Measure(f"share of {' and '.join(metrics)}", share, 1.0)


_MEDIAN_STEP_S = Measure("median perf/step_s", lambda run: np.array([np.median(run.values("perf/step_s"))]))
