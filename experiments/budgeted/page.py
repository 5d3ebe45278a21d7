"""The page of the test of budgeted QUATRO, from results alone: the same results give the same bytes."""

# Axes: S seeds.
from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from evals.estimators import Floats, ucc_at_k
from evals.intervals import half_width, holm
from experiments.replication import markdown
from experiments.replication.cells import ENTROPY, PASS1, POINTS, REALISED, UCC, K, Outcome, compare, pass_at
from experiments.replication.markdown import NOTE, TIMES, number, settings_head, settings_row
from experiments.replication.results import ALL, Group, Results, commits, difference, mean_of, training_seconds
from experiments.replication.rules import GREATER, Comparison, Finding, Unit, estimate_of, known, with_common_spread

DESIGN = Path(__file__).parent / "DESIGN.md"
SWEEPS = {"budgeted-palindrome": ("P1", "O", "P2"), "budgeted-countdown": ("S9", "C2")}
PRIMARY = {"accuracy in training": Outcome(mean_of("accuracy/mean"), POINTS, 0.005), "Pass@1, top_p 0.7": PASS1}
SECONDARY = {
    "Pass@1, top_p 1": pass_at(1, ALL),
    f"Pass@{K}, top_p 1": pass_at(K, ALL),
    f"UCC@{K}, top_p 1": UCC,
    "final entropy": ENTROPY,
}
CLOSE = math.log(1.05)  # of two realised KLs; beyond it a difference is adjusted
ALIKE = 0.012  # of Pass@1, for u5
DISTINCT = 8
BATCH, ZSCORE = {"method.temperature": "batch"}, {"method.temperature": "zscore"}
BUDGETED, CENTRED = {"method.name": "budgeted"}, {"method.centred": "true"}
_DUAL = {"method.name": "quatro", "method.temperature": "dual"}
CLAIMS = {
    "u1": "With partial credit a budget beats the dual",
    "u2": "Where one prompt in eight pays ten times as much, a budget beats one λ for the batch",
    "u3": "Where one prompt in eight pays ten times as much, a budget beats the dual",
    "u4": "At δ 0.1 centred advantages beat the exact ones",
    "u5": "At δ 0.1 centred advantages are no different from the z-score in Pass@1",
}
TOGETHER = ("u1", "u2", "u3")  # by Holm's rule


def arm(sweeps: Mapping[str, Results], cell: str, settings: Mapping[str, str]) -> Group:
    """The runs of ``cell`` with ``settings``, whatever their delta; empty where none is done."""
    results = next((sweeps[sweep] for sweep, cells in SWEEPS.items() if cell in cells and sweep in sweeps), None)
    for found, group in results.groups(cell) if results is not None else []:
        told = {key: text for key, text in found.items() if key not in ("method.delta", "method.preset")}
        if _DUAL | told == _DUAL | dict(settings):
            return group
    return {}


def pairs(sweeps: Mapping[str, Results]) -> dict[str, tuple[str, Group, Group]]:
    """What is compared: its words, and its two arms. O's dual is that of P1: its advantages know no scale."""
    dual, budgeted, outlier = arm(sweeps, "P1", {}), arm(sweeps, "P1", BUDGETED), arm(sweeps, "O", BUDGETED)
    centred = arm(sweeps, "C2", CENTRED)
    found = {
        "u1": ("P1: budgeted − dual", budgeted, dual),
        "u2": ("O: budgeted − batch", outlier, arm(sweeps, "O", BATCH)),
        "u3": ("O: budgeted − dual", outlier, dual),
        "u4": ("C2: centred − dual", centred, arm(sweeps, "C2", {})),
        "u5": ("C2: centred − z-score", centred, arm(sweeps, "C2", ZSCORE)),
        "u6": ("P1: budgeted centred − dual", arm(sweeps, "P1", BUDGETED | CENTRED), dual),
        "u7": ("P1: budgeted − batch", budgeted, arm(sweeps, "P1", BATCH)),
        "u8": ("P2 − P1, dual", arm(sweeps, "P2", {}), dual),
        "u9": ("S9: QUATRO − GSPO", arm(sweeps, "S9", {}), arm(sweeps, "S9", {"method.name": "gspo"})),
    }
    return {name: pair for name, pair in found.items() if set(pair[1]) & set(pair[2])}


def findings_of(sweeps: Mapping[str, Results]) -> list[Finding]:
    """Every pair in every outcome, the claims' primary outcomes at equal realised KL."""
    found = pairs(sweeps)
    raw = [
        Finding(
            name,
            CLAIMS.get(name, words),
            "design",
            tuple(compare(title, one, two, of, _region(name)) for title, of in (PRIMARY | SECONDARY).items()),
            is_ours=True,
        )
        for name, (words, one, two) in found.items()
    ]
    return [
        replace(
            finding, comparisons=tuple(_at_equal_kl(each, *found[finding.name][1:]) for each in finding.comparisons)
        )
        for finding in with_common_spread(raw)
    ]


def _region(name: str) -> tuple[float, float]:
    return (-ALIKE, ALIKE) if name == "u5" else GREATER


def _log_kl(group: Group, other: Group) -> Floats:
    """By how much the logarithms of their realised KLs differ (S,)."""
    value_SP = difference(group, other, REALISED.measure)
    assert value_SP is not None
    return value_SP[:, 0]


def _at_equal_kl(one: Comparison, group: Group, other: Group) -> Comparison:
    """The difference where the realised KLs agree, by a least-squares line over seeds, if they do not agree anyway."""
    log_kl_S, value_S = _log_kl(group, other), np.array(known(one.estimate).by_seed)
    freedom = len(value_S) - 2
    if one.what not in PRIMARY or abs(log_kl_S.mean()) <= CLOSE or freedom < 2:
        return one
    line = np.stack([np.ones_like(log_kl_S), log_kl_S], axis=1)
    inverse = np.linalg.inv(line.T @ line)
    best = inverse @ line.T @ value_S
    error = math.sqrt(inverse[0, 0] * float(np.sum((value_S - line @ best) ** 2)) / freedom)
    mean, half = float(best[0]), half_width(error, freedom)
    adjusted = replace(known(one.estimate), mean=mean, low=mean - half, high=mean + half, error=error, freedom=freedom)
    return replace(one, what=f"{one.what}, at equal KL", estimate=adjusted)


def chances(findings: Sequence[Finding]) -> dict[tuple[str, str], float]:
    """Of each primary comparison of `TOGETHER` the two-sided p that it is 0, adjusted by Holm's rule."""
    names = [(f.name, one.what) for f in findings if f.name in TOGETHER for one in f.comparisons[: len(PRIMARY)]]
    found = [known(one.estimate) for f in findings if f.name in TOGETHER for one in f.comparisons[: len(PRIMARY)]]
    ps = [2 * float(stdtr(one.freedom, -abs(one.mean) / one.error)) if one.error else 1.0 for one in found]
    return dict(zip(names, holm(ps), strict=True))


def verdict(finding: Finding, p_of: Mapping[tuple[str, str], float]) -> str:
    """What the design's rule says: u1 to u3 by Holm's rule over all six, u4 and u5 by their intervals."""
    primary = finding.comparisons[1:2] if finding.name == "u5" else finding.comparisons[: len(PRIMARY)]
    if finding.name in TOGETHER:
        holding = [known(one.estimate).mean > 0 and p_of[finding.name, one.what] <= 0.05 for one in primary]
    else:
        holding = [one.verdict == "holds" for one in primary]
    return "**holds**" if all(holding) else "holds in one of two outcomes" if any(holding) else "does not hold"


def distinct(group: Group, other: Group) -> str:
    """The difference in distinct@8, each seed's over the problems that both solve eight times or more."""
    rows = []
    for seed in sorted(set(group) & set(other)):
        sizes = zip(group[seed].counts(ALL).clusters, other[seed].counts(ALL).clusters, strict=True)
        common = [pair for pair in sizes if min(map(sum, pair)) >= DISTINCT]
        rows.append([np.mean([ucc_at_k(sum(a), a, DISTINCT) - ucc_at_k(sum(b), b, DISTINCT) for a, b in common])])
    return number(estimate_of(np.array(rows)), Unit(2, ""))


def page(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    found, p_of = pairs(sweeps), chances(findings)
    of = [sweeps[sweep] for sweep in SWEEPS if sweep in sweeps]
    num_runs, minutes = sum(len(one.runs) for one in of), sum(map(training_seconds, of)) / 60
    lines = [
        "# Does a budget help?\n",
        NOTE,
        "",
        "`method.name: budgeted` gives an iteration one KL budget, where QUATRO gives each prompt the same "
        "([methods.md](methods.md)). The test below was written and committed before its first run.",
        "",
        f"- Runs: {num_runs} of 96. Training: {minutes:.0f} minutes of one thread. {TIMES}",
        "- `quatro sweep experiments/budgeted/palindrome.yaml`, `countdown.yaml` make them anew.",
        f"- Program: {'; '.join(sorted({text for one in of for text in commits(one)}))}.",
        "",
        "## Hypotheses",
        "",
        "Differences with 95 % intervals; KL is the ratio of the realised KLs. p is Holm's, over the six of u1 to u3.",
        "",
        "| | hypothesis | difference | KL | measured | p | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for finding in findings:
        if finding.name in CLAIMS:
            words, *arms = found[finding.name]
            measured = finding.comparisons[: len(PRIMARY)]
            lines.append(
                f"| {finding.name} | {finding.claim} | {words} | {math.exp(_log_kl(*arms).mean()):.2f} | "
                + "<br>".join(f"{one.what}: {number(one.estimate, one.unit)}" for one in measured)
                + f" | {'<br>'.join(f'{p:.2g}' for one in measured if (p := p_of.get((finding.name, one.what))))} | "
                f"{verdict(finding, p_of)} |"
            )
    outcomes = [*PRIMARY, *SECONDARY]
    lines += [
        "",
        "## Every outcome",
        "",
        f"| | difference | {' | '.join(outcomes)} | distinct@{DISTINCT}, top_p 1 |",
        f"|{'---|' * (len(outcomes) + 3)}",
    ]
    for finding in findings:
        words, *arms = found[finding.name]
        cells = [number(one.estimate, replace(one.unit, name="")) for one in finding.comparisons]
        lines.append(f"| {finding.name} | {words} | {' | '.join(cells)} | {distinct(*arms)} |")
    lines += ["", "## Every arm", "", *settings_head(["cell", "setting"])]
    for results in of:
        for cell in dict.fromkeys(run.cell for run in results.runs):
            for settings, group in results.groups(cell):
                shown = ", ".join(f"{key.removeprefix('method.')} {value}" for key, value in settings.items())
                lines.append(settings_row([cell, shown], group))
    design = DESIGN.read_text(encoding="utf-8").strip()
    return "\n".join([*lines, "", "## Design, written before the first run", "", design]) + "\n"


def document(findings: Sequence[Finding]) -> str:
    """The comparisons for a program."""
    return markdown.document(findings, schema=1)
