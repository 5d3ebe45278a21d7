"""The page about the choice of delta: a rule, where it held and where it failed, and what delta does on each task."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from experiments.beyond.page import CELLS as BEYOND
from experiments.replication.cells import (
    CELLS,
    DELTAS,
    MIDDLE,
    PASS1,
    POINTS,
    REALISED_KL,
    UCC,
    K,
    compare,
    measured,
    ours,
    quatro,
)
from experiments.replication.delta_claims import entropy, pass_1, pass_k, trend, ucc_k
from experiments.replication.markdown import (
    SIGNS,
    filled,
    grid,
    number,
    telling,
)
from experiments.replication.results import ALL, NUCLEUS, Group, Measure, Results, difference, table
from experiments.replication.rules import (
    Comparison,
    Estimate,
    Finding,
    Unit,
    Verdict,
    estimate_of,
    finding,
    known,
    with_common_spread,
)

MOST_OVER_DELTA = 2.0
_EARLY_KL = Measure("log mean kl/new_old early", lambda run: np.log(run.values(REALISED_KL)[10:20].mean(keepdims=True)))
_RATIO = Unit(2, "", is_ratio=True)

# Task -> sweep, and its cells with all three delta: the first of them is what the claims about the task are of.
TASKS = {
    "countdown": ("paper-small", {name: CELLS[name] for name in ("S1", "S2", "S7", "S9")}),
    "countdown, other bases": ("beyond-paper", {name: BEYOND[name] for name in ("S0", "S14")}),
    "countdown-hard": ("paper-small", {"S6": "K = 5 full batches"}),
    "palindrome": ("palindrome", {"P1": "K = 5 full batches, partial credit"}),
    "spell-backward": ("spell-backward", {"W1": "K = 5 full batches, the share of right letters"}),
}


@dataclass(frozen=True)
class Regime:
    """A task with a way of training, and its runs by delta."""

    task: str
    words: str
    groups: Mapping[str, Group]

    def over_delta(self, delta: str) -> Estimate | None:
        """The realised KL over delta in the iterations that the rule looks at, as a logarithm."""
        found = table(self.groups[delta], _EARLY_KL)
        return None if found is None else estimate_of(found - np.log(float(delta)))

    @property
    def chosen(self) -> str:
        """What the rule says: the smallest delta whose realised KL is at most twice delta, else the largest."""
        for delta in reversed(DELTAS):
            found = self.over_delta(delta)
            if found is not None and found.mean <= np.log(MOST_OVER_DELTA):
                return delta
        return DELTAS[0]

    @property
    def rival(self) -> str:
        """The delta with the highest Pass@1 (top_p 0.7) besides the chosen one."""
        others = [delta for delta in DELTAS if delta != self.chosen]
        return max(others, key=lambda delta: known(measured(self.groups[delta], PASS1.measure)).mean)


def regimes(sweeps: Mapping[str, Results]) -> Iterator[Regime]:
    """Every task and way of training whose runs of all three deltas are there."""
    for task, (sweep, cells) in TASKS.items():
        for cell, words in cells.items():
            groups = {delta: sweeps[sweep].group(cell, quatro(delta)) for delta in DELTAS} if sweep in sweeps else {}
            if groups and all(groups.values()):
                yield Regime(task, f"{cell}: {words}", groups)


def findings_of(sweeps: Mapping[str, Results]) -> list[Finding]:
    """The rule (r1, r2), and the paper's trade on every task but countdown, which has a page."""
    findings = _of_the_rule(list(regimes(sweeps)))
    for task, (sweep, cells) in list(TASKS.items())[1:]:
        cell = next(iter(cells))
        if sweep not in sweeps or not all(ours(sweeps[sweep], cell, delta) for delta in DELTAS):
            continue
        for n, trade in enumerate((entropy(), pass_k(NUCLEUS), ucc_k(ALL), pass_1(NUCLEUS)), 1):
            comparisons = trend(sweeps[sweep], (cell,), trade)
            findings.append(
                Finding(f"{cell}.{n}", f"{task}: {trade.claim}", "Sec. 4.2, on other tasks", comparisons, is_ours=True)
            )
    return with_common_spread(findings)


def page(sweeps: Mapping[str, Results], findings: Sequence[Finding], advice: list[str]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`, ``advice`` follows from another test."""
    found = list(regimes(sweeps))
    everything, of = findings, {one.name: one for one in findings}
    beside_rival, beside_middle = (of[name].comparisons for name in ("r1", "r2"))
    findings = [one for one in findings if not one.name.startswith("r")]
    regime_rows = (_row(regime, one) for regime, one in zip(found, beside_rival, strict=True))
    heads = ["task", "training", "early KL / δ at 0.1; 0.01; 0.001", "rule", "rival", "Pass@1, rule − rival"]
    outcome, gaps = _outcome(found, beside_rival, beside_middle)
    return filled(
        Path(__file__).with_suffix(".md"),
        findings=everything,
        most=f"{MOST_OVER_DELTA:g}",
        margin=f"{100 * PASS1.small:g}",
        K=str(K),
        regimes=grid([*heads, f"UCC@{K}, rule − δ 0.001"], regime_rows),
        outcome=outcome,
        gaps=gaps,
        trades=_trades(findings),
        advice=advice,
    )


def _trades(findings: Sequence[Finding]) -> list[str]:
    """A line for each task: the verdict on each trade, and by how much the ends of delta differ."""
    rows: dict[str, list[str]] = {}
    for one in findings:
        task, end = f"{one.name.partition('.')[0]}: {one.claim.partition(': ')[0]}", one.comparisons[0]
        text = f"{SIGNS[one.verdict]} {number(end.estimate, replace(end.unit, name=''))}"
        if end.verdict is not one.verdict and (step := telling(one)) is not None and step is not end:
            text += f"; {step.what.partition('step ')[2]}: {number(step.estimate, replace(step.unit, name=''))}"
        rows.setdefault(task, []).append(text)
    heads = ["task", "higher entropy, nats", f"higher Pass@{K}, points", f"higher UCC@{K}", "lower Pass@1, points"]
    return grid(heads, ([task, *cells] for task, cells in rows.items()))


def _of_the_rule(found: Sequence[Regime]) -> list[Finding]:
    """What the rule chose in each regime: r1 against the best of the other deltas, r2 against the middle one."""

    def beside(regime: Regime, delta: str) -> Comparison:
        what = f"{regime.words}: δ {regime.chosen} − {delta}"
        return compare(what, regime.groups[regime.chosen], regime.groups[delta], PASS1, PASS1.not_less)

    return [
        finding("r1", (beside(regime, regime.rival) for regime in found)),
        finding("r2", (beside(regime, MIDDLE) for regime in found if regime.chosen != MIDDLE)),
    ]


def _row(regime: Regime, beside_rival: Comparison) -> list[str]:
    chosen, rival, smallest = regime.chosen, regime.rival, DELTAS[-1]
    ratios = "; ".join(_RATIO.text(one.mean) if (one := regime.over_delta(delta)) else "–" for delta in DELTAS)
    gap = f"{SIGNS[beside_rival.verdict]} {number(beside_rival.estimate, POINTS)}"
    cost = "0"
    if chosen != smallest:
        cost = number(estimate_of(difference(regime.groups[chosen], regime.groups[smallest], UCC.measure)), UCC.unit)
    return [regime.task, regime.words, ratios, chosen, rival, gap, cost]


def _outcome(
    found: Sequence[Regime], beside_rival: Sequence[Comparison], beside_middle: Sequence[Comparison]
) -> tuple[str, list[str]]:
    """What the table says of the rule, and how it did where it did not choose the middle delta."""
    count = Counter(one.verdict for one in beside_rival)
    kept, lost, open_ones = (count[verdict] for verdict in (Verdict.holds, Verdict.does_not, Verdict.undecided))
    said = (
        f"In {kept} of {len(found)} ways of training, the Pass@1 of the rule's δ was at most {100 * PASS1.small:g} "
        "points below that of the better of the other two δ. "
        f"In {lost} it fell further below, and {open_ones} are undecided."
    )
    if not beside_middle:
        return f"{said} It chose δ {MIDDLE} in all of them.", []
    in_table = {one.what for one in beside_rival}
    shown = [
        f"- {SIGNS[one.verdict]} {one.what}: {number(one.estimate, POINTS)}"
        for one in beside_middle
        if one.what not in in_table
    ]
    gaps = (
        [f"Where the rule chose another δ than {MIDDLE}, and the rival is not {MIDDLE}:", "", *shown] if shown else []
    )
    unsure = sum(one.verdict is Verdict.undecided for one in beside_middle)
    if all(known(one.estimate).mean < 0 for one in beside_middle):
        said = (
            f"Take δ {MIDDLE} on these tasks. The rule below measures the realised KL, but nothing here shows that its "
            f"choice is better. In {len(beside_middle)} ways of training it chose another δ, and Pass@1 was lower "
            f"(undecided in {unsure} of them). The rule does tell down to which δ the realised KL follows δ.\n\n{said}"
        )
    return said, gaps
