"""(b) staleness and learning rate, (c) the log-ratio term, (d) cost, (j) loss_norm, (k) the baselines."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from evals.estimators import Floats
from experiments.replication.cells import (
    BASELINES,
    COUNT,
    DELTAS,
    FACTOR,
    MIDDLE,
    NATS,
    PASS1_MARGIN,
    POINTS,
    REALISED_KL,
    SHARE,
    SMALL_ENTROPY,
    SMALL_FACTOR,
    SMALL_PASS1,
    SMALL_UCC,
    K,
    at_lr,
    baseline,
    compare,
    ours,
    quatro,
    theirs,
    within,
    within_factor,
)
from experiments.replication.results import (
    ALL,
    NUCLEUS,
    Group,
    Measure,
    Results,
    Run,
    last,
    log_of,
    max_of,
    mean_of,
    passed,
    table,
    unique,
)
from experiments.replication.rules import GREATER, LESS, Comparison, Finding, Unit, estimate_of

_PASS1 = passed(1, NUCLEUS)
_ENTROPY = last("entropy/token_mean")
_NOT_LESS = (-PASS1_MARGIN, math.inf)
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
        return tuple(
            compare(what, *pair, _PASS1, region, POINTS, margin=0.0 if region == _NOT_LESS else PASS1_MARGIN)
            for what, pair in pairs.items()
        )

    pairs = {
        "K 5, lr 3e-4": (results.group("S1", ours_), results.group("S1", gspo)),
        "K 5, lr 1e-3": (results.group("S4", at_lr(ours_, "0.001")), results.group("S4", at_lr(gspo, "0.001"))),
    }
    beside = tuple(compare(what, *pair, _PASS1, GREATER, POINTS, margin=PASS1_MARGIN) for what, pair in pairs.items())
    collapses = tuple(
        compare(what, *pair, _ENTROPY, LESS, NATS, margin=SMALL_ENTROPY)
        for what, pair in {**staler(gspo), **faster(gspo)}.items()
    )
    margin = "; the margin is ours"
    stale, fast = (
        "Sec. 4.3 “Policy staleness”, Fig. stability (a)",
        "Sec. 4.3 “Large learning rates”, Fig. stability (b)",
    )
    return [
        Finding("b1", "More inner updates lower GSPO's Pass@1", stale, change(staler(gspo), LESS)),
        Finding(
            "b2",
            f"More inner updates do not lower QUATRO's Pass@1 (δ {MIDDLE})",
            stale + margin,
            change(staler(ours_), _NOT_LESS),
        ),
        Finding("b3", "A larger learning rate lowers GSPO's Pass@1", fast, change(faster(gspo), LESS)),
        Finding(
            "b4",
            f"A larger learning rate does not lower QUATRO's Pass@1 (δ {MIDDLE})",
            fast + margin,
            change(faster(ours_), _NOT_LESS),
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
    pairs = {
        "S5, K 2": (
            results.group("S5", quatro("0.1", log_ratio="none")),
            results.group("S5", quatro("0.1", log_ratio="detached")),
        ),
        "S1, K 5": (results.group("S1", quatro("0.1", log_ratio="none")), ours(results, "S1", "0.1")),
    }

    def change(
        measure: Measure, region: tuple[float, float], unit: Unit, margin: float = SMALL_FACTOR
    ) -> tuple[Comparison, ...]:
        sign = "/" if unit is FACTOR else "−"
        return tuple(
            compare(f"{what}: without {sign} with", *pair, measure, region, unit, margin=margin)
            for what, pair in pairs.items()
        )

    where = "Sec. 4.3 “Role of the log-ratio”, Fig. stability (c)"
    return [
        Finding(
            "c1",
            "Without the log-ratio the mean KL of an iteration is larger",
            where,
            change(log_of(mean_of(REALISED_KL)), GREATER, FACTOR),
        ),
        Finding(
            "c2",
            "Without the log-ratio the KL spikes: its largest value is larger",
            where,
            change(log_of(max_of(REALISED_KL)), GREATER, FACTOR),
        ),
        Finding(
            "c3",
            "Without the log-ratio Pass@1 after training is lower (top_p 0.7)",
            where,
            change(_PASS1, LESS, POINTS, PASS1_MARGIN),
            note="The runs without the log-ratio also move further than those that they are compared with (c1); none "
            "was made with a learning rate at which they move as little. So c3 does not tell what the log-ratio does "
            "from what a larger step does.",
        ),
    ]


def cost(results: Results) -> list[Finding]:
    """(d) Shares of the time of an iteration."""
    groups = {"S1": ours(results, "S1", MIDDLE), "S2": ours(results, "S2", MIDDLE)}
    small = tuple(
        Comparison(cell, estimate_of(table(group, _share("perf/dual_s"))), (-math.inf, 0.05), SHARE)
        for cell, group in groups.items()
    )
    most = tuple(
        Comparison(cell, estimate_of(table(group, _share(*_GENERATION, *_LOGPS))), (0.6, 0.9), SHARE)
        for cell, group in groups.items()
    )
    like = (
        compare(
            "S1: QUATRO / GSPO",
            groups["S1"],
            theirs(results, "S1"),
            log_of(_MEDIAN_STEP_S),
            within_factor(1 / 1.1, 1.1),
            FACTOR,
        ),
    )
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
            like,
            is_ours=True,
        ),
    ]


def loss_norm(results: Results) -> list[Finding]:
    """(j) The loss summed over the rollouts of a prompt, or averaged."""
    groups = (results.group("S8", quatro(MIDDLE, loss_norm="sum")), ours(results, "S1", MIDDLE))
    comparisons = (
        compare("Pass@1 (top_p 0.7), sum − rows", *groups, _PASS1, within(SMALL_PASS1), POINTS),
        compare(f"UCC@{K} (top_p 1), sum − rows", *groups, unique(K, ALL), within(SMALL_UCC), COUNT),
        compare("final entropy, sum − rows", *groups, _ENTROPY, within(SMALL_ENTROPY), NATS),
        compare("realised KL, sum / rows", *groups, log_of(mean_of(REALISED_KL)), within(SMALL_FACTOR), FACTOR),
        compare(
            "largest gradient norm, sum / rows",
            *groups,
            log_of(mean_of("grad/norm_max")),
            GREATER,
            FACTOR,
            margin=SMALL_FACTOR,
        ),
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

    def beside(
        delta: str, measure: Measure, unit: Unit, margin: float, names: Sequence[str] = BASELINES
    ) -> tuple[Comparison, ...]:
        own = ours(results, "S2", delta)
        return tuple(
            compare(f"− {name.upper()}", own, theirs(results, "S2", name), measure, GREATER, unit, margin=margin)
            for name in names
        )

    settings = [(f"δ {delta}", ours(results, cell, delta), cell) for cell in ("S1", "S2") for delta in DELTAS]
    settings += [("GSPO", theirs(results, cell), cell) for cell in ("S1", "S2")]
    loses = tuple(
        compare(
            f"{cell}: {name} − base",
            group,
            results.bases_of(group) or {},
            unique(K, ALL),
            LESS,
            COUNT,
            margin=SMALL_UCC,
        )
        for name, group, cell in settings
    )
    largest, smallest = DELTAS[0], DELTAS[-1]
    than = "than every baseline (S2, top_p 0.7)"
    return [
        Finding(
            "k1",
            f"QUATRO (δ {largest}) has a higher Pass@1 {than}",
            "Sec. 4.2, Tab. avg_passk; half of the paper's .46 points is the margin",
            beside(largest, passed(1, NUCLEUS), POINTS, 0.0023),
        ),
        Finding(
            "k2",
            f"QUATRO (δ {smallest}) has a higher Pass@{K} {than}",
            "Sec. 4.2, Tab. avg_passk; half of the paper's 4.32 points is the margin",
            beside(smallest, passed(K, NUCLEUS), POINTS, 0.0216),
        ),
        Finding(
            "k3",
            f"QUATRO (δ {MIDDLE}) has a higher UCC@{K} {than}",
            "Tab. ucc_all, which does not say its δ; it has neither DAPO nor CISPO, which are ours",
            beside(MIDDLE, unique(K, NUCLEUS), COUNT, SMALL_UCC),
        ),
        Finding(
            "k4",
            f"QUATRO (δ {smallest}) has a higher final entropy than GSPO, DAPO and CISPO (S2)",
            "Tab. final_entropy",
            beside(smallest, _ENTROPY, NATS, SMALL_ENTROPY, ("gspo", "dapo", "cispo")),
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
