"""The page of the ablation and its table of claims, from results alone: the same results give the same bytes."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.replication.cells import ENTROPY, PASS1, POINTS, REALISED, UCC, K, Outcome, compare, measured, quatro
from experiments.replication.markdown import COLUMNS, claims_table, filled, grid, summary
from experiments.replication.results import Group, Results, commits, mean_of
from experiments.replication.rules import (
    GREATER,
    LESS,
    Comparison,
    Finding,
    finding,
    known,
    with_common_spread,
)

ARMS = ("dual", "fixed", "zscore", "none")
WORDS = {
    "dual": "dual",
    "fixed": "fixed",
    "zscore": "z-score",
    "none": "no stabiliser",
    "batch": "one λ for all prompts",
    "dual32": "dual, N = 32",
    "fixed32": "fixed, N = 32",
}


WIDE = "32"


class Cell(NamedTuple):
    """A cell of the design: a sweep, and its cells by arm, `WIDE` for those with N = 32 and "" for all others."""

    sweep: str
    delta: str
    words: str
    places: Mapping[str, str]


CELLS = {
    "C1": Cell("beyond-paper", "0.01", "countdown, δ 0.01", {"dual": "S0", "": "S15"}),
    "C2": Cell("beyond-paper", "0.1", "countdown, δ 0.1", {"dual": "S0", "none": "S0", "batch": "S17", "": "S16"}),
    "P1": Cell("palindrome", "0.01", "palindrome, partial credit", {"dual": "P1", "batch": "P4", WIDE: "P5", "": "P2"}),
    "P2": Cell("palindrome", "0.01", "palindrome, rewards 0 and 1", {"": "P3"}),
    "W1": Cell("spell-backward", "0.01", "spell-backward", {"dual": "W1", "": "W2"}),
}

# At delta 0.1 the margin of Pass@1 is twice as large.
OUTCOMES = {
    "accuracy in training": Outcome(mean_of("accuracy/mean"), POINTS, 0.005),
    "Pass@1, top_p 0.7": PASS1,
    f"UCC@{K}, top_p 1": UCC,
    "final entropy": ENTROPY,
}
GAINS = ("accuracy in training", "Pass@1, top_p 0.7")
_PAIR = ("none", "dual")

# What the page has of arms: columns of `COLUMNS`, without intervals.
_LINE = ("realised KL, nats", "accuracy in training, %", "Pass@1 (top_p 0.7), %")


def arm(sweeps: Mapping[str, Results], name: str, kind: str) -> Group:
    """The runs of an arm in the cell ``name``; empty where they are not there."""
    cell = CELLS[name]
    results = sweeps.get(cell.sweep)
    if results is None:
        return {}
    if kind == "dual" and "dual" in cell.places:
        return results.group(cell.places["dual"], quatro(cell.delta))
    place = cell.places.get(WIDE) if kind.endswith(WIDE) else cell.places.get(kind, cell.places[""])
    for settings, group in results.groups(place) if place else []:
        found = "none" if settings.get("method.log_ratio") == "none" else settings.get("method.temperature")
        if found == kind.removesuffix(WIDE):
            return group
    return {}


def findings_of(sweeps: Mapping[str, Results]) -> list[Finding]:
    """The predictions of the design, judged."""

    def beside(name: str, kind: str, outcome: str, region: tuple[float, float] | None) -> Comparison:
        dual = f"dual{WIDE}" if kind.endswith(WIDE) else "dual"
        of = OUTCOMES[outcome]
        if of is PASS1 and CELLS[name].delta == "0.1":
            of = of._replace(small=2 * of.small)
        what = f"{name}, {outcome}: {WORDS[kind]} − dual"
        pair = arm(sweeps, name, kind), arm(sweeps, name, dual)
        # A prediction of no difference is a region, so that a difference beyond the margin contradicts it.
        return compare(what, *pair, of, region or of.alike)

    def claim(
        name: str,
        names: Sequence[str],
        kind: str,
        outcomes: Sequence[str] = tuple(OUTCOMES),
        region: tuple[float, float] | None = None,
    ) -> Finding:
        return finding(name, (beside(name, kind, outcome, region) for name in names for outcome in outcomes))

    findings = [
        claim("t11", ("C1", "C2", "P2"), "fixed"),
        claim("t12", ("C1", "C2", "P2"), "zscore"),
        claim("t21", ("P1",), "fixed", GAINS, GREATER),
        claim("t31", ("P1",), "zscore"),
        claim("t41", ("W1",), "fixed"),
        claim("t42", ("W1",), "zscore"),
        claim("t51", tuple(CELLS), "none", ("Pass@1, top_p 0.7",), LESS),
        claim("t61", ("C2",), "batch"),
        claim("t63", ("P1",), "batch", GAINS, GREATER),
        claim("t64", ("P1",), "fixed32", GAINS, GREATER),
    ]
    return with_common_spread(findings)


def page(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    used = [run for name in CELLS for kind in ARMS for run in arm(sweeps, name, kind).values()]
    later = [run for name in CELLS for kind in WORDS if kind not in ARMS for run in arm(sweeps, name, kind).values()]
    planned = 8 * len(CELLS) * len(ARMS)
    missing = f" ({planned - len(used)} planned ones were not made)" if len(used) < planned else ""
    minutes = sum(float(run.values("perf/step_s").sum()) for run in [*used, *later]) / 60
    programs = {text for cell in CELLS.values() if cell.sweep in sweeps for text in commits(sweeps[cell.sweep])}
    shown = [kind for kind in WORDS if any(arm(sweeps, name, kind) for name in CELLS)]
    rows = [[name, *(_cell(arm(sweeps, name, kind)) for kind in shown)] for name in CELLS]
    return filled(
        Path(__file__).with_suffix(".md"),
        findings=findings,
        first=len(used),
        missing=missing,
        second=len(later),
        minutes=f"{minutes:.0f}",
        programs="; ".join(sorted(programs)),
        summary=summary({"Predictions and later questions": findings}),
        claims=claims_table(findings),
        without_stabiliser=_without_stabiliser(sweeps),
        arms=grid(["cell", *(WORDS[kind] for kind in shown)], rows),
    )


def _cell(group: Group) -> str:
    """Pass@1, with the realised KL in brackets; nothing for an arm that was not run."""
    return f"{_mean(group, _LINE[2])} ({_mean(group, _LINE[0])})" if group else ""


def _mean(group: Group, column: str) -> str:
    measure, unit = COLUMNS[column]
    found = measured(group, measure)
    return unit.text(found.mean) if found else "–"


def _without_stabiliser(sweeps: Mapping[str, Results]) -> list[str]:
    """What t51 leaves out: where the arm is the best one, and that it moves further than any other."""
    best, moves = [], []
    for name in CELLS:
        groups = {kind: group for kind in ARMS if (group := arm(sweeps, name, kind))}
        if not set(_PAIR) <= groups.keys():
            continue

        passed_1 = {kind: known(measured(group, PASS1.measure)).mean for kind, group in groups.items()}
        log_kl = {kind: known(measured(groups[kind], REALISED.measure)).mean for kind in _PAIR}
        moves.append(f"{math.exp(log_kl['none'] - log_kl['dual']):.0f} in {name}")
        if max(passed_1, key=lambda kind: passed_1[kind]) == "none":
            right, passed = ([f"{_mean(groups[kind], of)} %" for kind in _PAIR] for of in _LINE[1:])
            best.append(
                f"In {name} the arm without the stabiliser has the highest means. Its accuracy in training is "
                f"{right[0]} (the dual's {right[1]}), and its Pass@1 is {passed[0]} (the dual's {passed[1]})."
            )
    if not moves:
        return []
    return [
        f"t51: {' '.join(best)} Without the stabiliser the realised KL of an iteration is larger by a factor of "
        f"{', '.join(moves)}. We made no run with a learning rate that makes the steps equally large, so the "
        "step size may be the cause.",
    ]
