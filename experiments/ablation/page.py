"""The page of the ablation and its table of claims, from results alone: the same results give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.replication.cells import ENTROPY, PASS1, POINTS, REALISED, UCC, K, Outcome, compare, measured, quatro
from experiments.replication.markdown import (
    Columns,
    both_rules,
    claims_table,
    filled,
    settings_head,
    settings_row,
    summary,
)
from experiments.replication.results import Group, Results, commits, mean_of
from experiments.replication.rules import (
    GREATER,
    LESS,
    Comparison,
    Finding,
    Unit,
    finding,
    known,
    with_common_spread,
)

DESIGN = Path(__file__).parent / "DESIGN.md"
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
_GAINS_SHOWN = ("Pass@1, top_p 0.7, %", "accuracy in training, %")

_PERCENT, _PLAIN = Unit(1, "", 100.0, is_signed=False), Unit(2, "", is_signed=False)
_SHOWN: Columns = {
    "realised KL, nats": (REALISED.measure, Unit(4, "", is_ratio=True)),
    "share of the KL without success, %": (mean_of("dual/share_without_success"), _PERCENT),
    "accuracy in training, %": (mean_of("accuracy/mean"), _PERCENT),
    "Pass@1, top_p 0.7, %": (PASS1.measure, _PERCENT),
    f"UCC@{K}, top_p 1": (UCC.measure, _PLAIN),
    "final entropy, nats": (ENTROPY.measure, _PLAIN),
}


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


def _by_kind(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The predictions, and the cells of which nothing was predicted."""
    open_ones = ("t41", "t42")
    return {
        "Predictions": [one for one in findings if one.name not in open_ones],
        "Without a prediction": [one for one in findings if one.name in open_ones],
    }


def page(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    used = [run for name in CELLS for kind in ARMS for run in arm(sweeps, name, kind).values()]
    later = [run for name in CELLS for kind in WORDS if kind not in ARMS for run in arm(sweeps, name, kind).values()]
    planned = 8 * len(CELLS) * len(ARMS)
    missing = f"; {planned - len(used)} planned ones are not done" if len(used) < planned else ""
    minutes = sum(float(run.values("perf/step_s").sum()) for run in [*used, *later]) / 60
    programs = {text for cell in CELLS.values() if cell.sweep in sweeps for text in commits(sweeps[cell.sweep])}
    arms = settings_head(["cell", "arm"], _SHOWN)
    for name, cell in CELLS.items():
        for kind, words in WORDS.items():
            if group := arm(sweeps, name, kind):
                arms.append(settings_row([f"{name}: {cell.words}", words], group, _SHOWN))
    return filled(
        Path(__file__).with_suffix(".md"),
        first=len(used),
        missing=missing,
        second=len(later),
        minutes=f"{minutes:.0f}",
        programs="; ".join(sorted(programs)),
        summary=summary(_by_kind(findings)),
        design=DESIGN.read_text(encoding="utf-8").strip(),
        claims=claims_table(findings),
        without_stabiliser=_without_stabiliser(sweeps),
        arms=arms,
        both_rules=both_rules(findings),
    )


def _without_stabiliser(sweeps: Mapping[str, Results]) -> list[str]:
    """What t51 leaves out: where the arm is the best one, and that it moves further than any other."""
    best, moves = [], []
    for name in CELLS:
        groups = {kind: group for kind in ARMS if (group := arm(sweeps, name, kind))}
        if not set(_PAIR) <= groups.keys():
            continue

        def shown(kind: str, outcome: str, groups: Mapping[str, Group] = groups) -> str:
            measure, unit = _SHOWN[outcome]
            return unit.text(known(measured(groups[kind], measure)).mean)

        passed_1 = {kind: known(measured(group, PASS1.measure)).mean for kind, group in groups.items()}
        log_kl = {kind: known(measured(groups[kind], REALISED.measure)).mean for kind in _PAIR}
        moves.append(f"{math.exp(log_kl['none'] - log_kl['dual']):.0f} times in {name}")
        if max(passed_1, key=lambda kind: passed_1[kind]) == "none":
            gains = (
                f"{of.removesuffix(', %')}, {shown('none', of)} % (dual: {shown('dual', of)} %)" for of in _GAINS_SHOWN
            )
            best.append(f"In {name} the arm without it is nominally the best of all: {'; '.join(gains)}.")
    if not moves:
        return []
    return [
        f"t51: {' '.join(best)} Without the stabiliser an iteration also moves the policy further than the dual does: "
        f"{', '.join(moves)}. No run was made without it at a learning rate at which it moves as little, so t51 does "
        "not tell what the stabiliser does from what a larger step does.",
        "",
    ]
