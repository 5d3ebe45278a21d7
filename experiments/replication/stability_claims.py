"""(b) staleness and learning rate, (c) the log-ratio term, (d) cost, (j) loss_norm, (k) the baselines."""

from __future__ import annotations

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
from experiments.replication.rules import GREATER, LESS, Comparison, Finding

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
    beside = change(pairs, GREATER)
    collapses = tuple(compare(what, *pair, ENTROPY, LESS) for what, pair in (staler(gspo) | faster(gspo)).items())
    margin = "; the margin is ours"
    stale = "Sec. 4.3 “Policy staleness”, Fig. stability (a)"
    fast = "Sec. 4.3 “Large learning rates”, Fig. stability (b)"
    of_ours = f"QUATRO's Pass@1 (δ {MIDDLE})"
    return [
        Finding("b1", "More inner updates lower GSPO's Pass@1", stale, change(staler(gspo), LESS)),
        Finding(
            "b2",
            f"More inner updates do not lower {of_ours}",
            stale + margin,
            change(staler(ours_), STEADY_PASS1.not_less),
        ),
        Finding("b3", "A larger learning rate lowers GSPO's Pass@1", fast, change(faster(gspo), LESS)),
        Finding(
            "b4",
            f"A larger learning rate does not lower {of_ours}",
            fast + margin,
            change(faster(ours_), STEADY_PASS1.not_less),
        ),
        Finding(
            "b5",
            f"With stale updates and with a large learning rate QUATRO (δ {MIDDLE}) has a higher Pass@1 than GSPO",
            "Fig. stability (a, b)",
            beside,
        ),
        Finding(
            "b6",
            "More inner updates and larger learning rates collapse GSPO's entropy",
            "Fig. limitation, Fig. stability",
            collapses,
        ),
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

    where = "Sec. 4.3 “Role of the log-ratio”, Fig. stability (c)"
    return [
        Finding("c1", "Without the log-ratio the mean KL of an iteration is larger", where, change(REALISED, GREATER)),
        Finding(
            "c2",
            "Without the log-ratio the KL spikes: its largest value is larger",
            where,
            change(factor_of(max_of(REALISED_KL)), GREATER),
        ),
        Finding(
            "c3",
            "Without the log-ratio Pass@1 after training is lower (top_p 0.7)",
            where,
            change(STEADY_PASS1, LESS, "−"),
            note="The runs without the log-ratio also move further than those that they are compared with (c1); none "
            "was made with a learning rate at which they move as little. So c3 does not tell what the log-ratio does "
            "from what a larger step does.",
        ),
    ]


def cost(results: Results) -> list[Finding]:
    """(d) Shares of the time of an iteration."""
    groups = {"S1": ours(results, "S1", MIDDLE), "S2": ours(results, "S2", MIDDLE)}
    dual, sampling = _share("perf/dual_s"), _share(*_GENERATION, *_LOGPS)
    small = tuple(Comparison(cell, measured(group, dual), (-math.inf, 0.05), SHARE) for cell, group in groups.items())
    most = tuple(Comparison(cell, measured(group, sampling), (0.6, 0.9), SHARE) for cell, group in groups.items())
    region = within_factor(1 / 1.1, 1.1)
    like = compare("S1: QUATRO / GSPO", groups["S1"], theirs(results, "S1"), factor_of(_MEDIAN_STEP_S), region)
    where = "Sec. 4.4 “Computational cost”"
    return [
        Finding(
            "d1",
            "The dual takes a small share of an iteration: under 5 %",
            f"{where}; the 5 % are ours",
            small,
            is_ours=True,
        ),
        Finding(
            "d2",
            "Generation and log-probs take 60 to 90 % of it",
            where,
            most,
            note="The forward pass inside an update is part of the update, not of the log-probs. Responses of ten "
            "tokens decide this share here, not the method.",
            is_ours=True,
        ),
        Finding(
            "d3",
            "An iteration takes as long as the baseline's, to 10 %",
            f"{where}; the 10 % are ours",
            (like,),
            is_ours=True,
        ),
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
    return [
        Finding(
            "j1",
            "Summing the loss over the rollouts (main text) or averaging it (appendix) trains the same policy, "
            "though the gradient is larger",
            "Algorithm 1 against App. “Loss derivation”",
            comparisons,
            note="With N rollouts for every prompt the sum is N times the mean. Adam divides the factor out, but the "
            "gradient clip and the reference KL's weight are not scaled with it.",
        )
    ]


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
    than = "than every baseline (S2, top_p 0.7)"
    return [
        Finding(
            "k1",
            f"QUATRO (δ {largest}) has a higher Pass@1 {than}",
            "Sec. 4.2, Tab. avg_passk; half of the paper's .46 points is the margin",
            beside(largest, PASS1._replace(small=0.0023)),
        ),
        Finding(
            "k2",
            f"QUATRO (δ {smallest}) has a higher Pass@{K} {than}",
            "Sec. 4.2, Tab. avg_passk; half of the paper's 4.32 points is the margin",
            beside(smallest, pass_at(K, NUCLEUS)._replace(small=0.0216)),
        ),
        Finding(
            "k3",
            f"QUATRO (δ {MIDDLE}) has a higher UCC@{K} {than}",
            "Tab. ucc_all, which does not say its δ; it has neither DAPO nor CISPO, which are ours",
            beside(MIDDLE, ucc_at_k(NUCLEUS)),
        ),
        Finding(
            "k4",
            f"QUATRO (δ {smallest}) has a higher final entropy than GSPO, DAPO and CISPO (S2)",
            "Tab. final_entropy",
            beside(smallest, ENTROPY, ("gspo", "dapo", "cispo")),
        ),
        Finding(
            "k5",
            f"Training loses distinct solutions: UCC@{K} (top_p 1) falls below the base's whatever the method",
            "not stated; the paper compares trained models only",
            loses,
            is_ours=True,
        ),
    ]


def _share(*metrics: str) -> Measure:
    """The share of the run's time that the phases took (1,)."""

    def share(run: Run) -> Floats:
        return np.array([sum(run.values(metric).sum() for metric in metrics) / run.values("perf/step_s").sum()])

    return Measure(f"share of {' and '.join(metrics)}", share)


_MEDIAN_STEP_S = Measure("median perf/step_s", lambda run: np.array([np.median(run.values("perf/step_s"))]))
