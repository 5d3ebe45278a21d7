"""The page of the test of budgeted QUATRO, from results alone: the same results give the same bytes."""

# Axes: S seeds.
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.special import stdtr

from evals.estimators import Floats
from evals.intervals import half_width, holm
from experiments.best import DISTINCT, distinct
from experiments.replication import markdown
from experiments.replication.cells import ENTROPY, PASS1, POINTS, REALISED, UCC, K, Outcome, compare, pass_at
from experiments.replication.markdown import by_seed, csv_text, filled, grid, number
from experiments.replication.results import (
    ALL,
    Group,
    Results,
    commits,
    difference,
    json_text,
    mean_of,
    training_seconds,
)
from experiments.replication.rules import GREATER, Comparison, Finding, Unit, known, with_common_spread

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
SEEDS = 8  # planned; with fewer nothing is judged
HOLDS, HALF, OPEN = "**holds**", "holds in one of two outcomes", "not shown"
ADVICE = {  # by the design choosing-delta.md recommends it if the claim holds in both outcomes
    "u4": "`method.centred: true` at δ 0.1",
    "u1": "`method.name: budgeted` where rewards have partial credit",
}


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
    """Every pair in every outcome, as it was measured."""
    found = pairs(sweeps)
    return with_common_spread(
        [
            Finding(
                name,
                CLAIMS.get(name, words),
                "design",
                tuple(compare(title, one, two, of, _region(name)) for title, of in (PRIMARY | SECONDARY).items()),
                is_ours=True,
            )
            for name, (words, one, two) in found.items()
        ]
    )


def _region(name: str) -> tuple[float, float]:
    return (-ALIKE, ALIKE) if name == "u5" else GREATER


def _log_kl(group: Group, other: Group) -> Floats:
    """By how much the logarithms of their realised KLs differ (S,)."""
    value_SP = difference(group, other, REALISED.measure)
    assert value_SP is not None
    return value_SP[:, 0]


def at_equal_kl(one: Comparison, group: Group, other: Group) -> Comparison:
    """What is judged: the difference where the realised KLs agree, by a least-squares line, if they do not anyway."""
    log_kl_S, value_S = _log_kl(group, other), np.array(known(one.estimate).by_seed)
    freedom = len(value_S) - 2
    if abs(log_kl_S.mean()) <= CLOSE or freedom < 2:
        return one
    line = np.stack([np.ones_like(log_kl_S), log_kl_S], axis=1)
    inverse = np.linalg.inv(line.T @ line)
    best = inverse @ line.T @ value_S
    error = math.sqrt(inverse[0, 0] * float(np.sum((value_S - line @ best) ** 2)) / freedom)
    mean, half = float(best[0]), half_width(error, freedom)
    adjusted = replace(known(one.estimate), mean=mean, low=mean - half, high=mean + half, error=error, freedom=freedom)
    return replace(one, estimate=adjusted)


def judged(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> dict[str, list[Comparison]]:
    """The primary comparisons of each claim at equal realised KL."""
    arms = {name: pair[1:] for name, pair in pairs(sweeps).items()}
    return {
        one.name: [at_equal_kl(each, *arms[one.name]) for each in one.comparisons[: len(PRIMARY)]]
        for one in findings
        if one.name in CLAIMS
    }


def chances(of: Mapping[str, Sequence[Comparison]]) -> dict[tuple[str, str], float]:
    """Of each comparison of `TOGETHER` the two-sided p that it is 0, adjusted by Holm's rule."""
    names = [(name, one.what) for name in TOGETHER for one in of.get(name, ())]
    found = [known(one.estimate) for name in TOGETHER for one in of.get(name, ())]
    ps = [2 * float(stdtr(one.freedom, -abs(one.mean) / one.error)) if one.error else 1.0 for one in found]
    return dict(zip(names, holm(ps), strict=True))


def verdict(name: str, primary: Sequence[Comparison], p_of: Mapping[tuple[str, str], float]) -> str:
    """What the design's rule says: u1 to u3 by Holm's rule over all six, u4 and u5 by their intervals."""
    primary = primary[1:] if name == "u5" else primary
    if (num_seeds := known(primary[0].estimate).num_seeds) < SEEDS:
        return f"not judged yet ({num_seeds} of {SEEDS} seeds)"
    if name in TOGETHER:
        holding = [known(one.estimate).mean > 0 and p_of[name, one.what] <= 0.05 for one in primary]
    else:
        holding = [one.verdict == "holds" for one in primary]
    return HOLDS if all(holding) else HALF if any(holding) else OPEN


def advice(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> list[str]:
    """What the design says follows for choosing-delta.md: a line for each setting, recommended or not, and why."""
    of_claims, lines = judged(sweeps, findings), []
    p_of = chances(of_claims)
    for name, words in ADVICE.items():
        told = verdict(name, of_claims[name], p_of)
        measured = "; ".join(f"{one.what}: {number(one.estimate, one.unit)}" for one in of_claims[name])
        is_so = "is recommended" if told == HOLDS else "is not recommended"
        lines.append(f"- {words} {is_so}. {name} {told.strip('*')} ({measured}).")
    return lines


def page(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    found, of_claims = pairs(sweeps), judged(sweeps, findings)
    p_of = chances(of_claims)
    of = [sweeps[sweep] for sweep in SWEEPS if sweep in sweeps]
    claims, said = [], dict[str, list[str]]()
    for name, comparisons in of_claims.items():
        words, *arms = found[name]
        raw = next(one for one in findings if one.name == name).comparisons
        texts = []
        for one in raw[: len(PRIMARY)]:
            values = f" ({each})" if (each := by_seed(one.estimate, one.unit)) else ""
            texts.append(f"{one.what}: {number(one.estimate, one.unit)}{values}")
        for n, (one, before) in enumerate(zip(comparisons, raw, strict=False)):
            texts[n] += "" if one == before else f"; at equal KL {number(one.estimate, one.unit)}"
        kl = math.exp(_log_kl(*arms).mean())
        told = verdict(name, comparisons, p_of)
        is_shown = name in TOGETHER and not told.startswith("not judged")
        ps = "<br>".join(f"{p_of[name, one.what]:.2g}" for one in comparisons if is_shown)
        said.setdefault(told, []).append(f"{CLAIMS[name]} ({name})")
        claims.append([name, words, f"{kl:.2f}", "<br>".join(texts), ps, told])
    return filled(
        Path(__file__).with_suffix(".md"),
        findings=findings,
        runs=sum(len(one.runs) for one in of),
        minutes=f"{sum(map(training_seconds, of)) / 60:.0f}",
        programs="; ".join(sorted({text for one in of for text in commits(one)})),
        found=[
            line
            for told in sorted(said, key=lambda told: (HOLDS, HALF, OPEN, told).index(told))
            for line in (f"{told.strip('*').capitalize()}:", "", *(f"- {one}" for one in said[told]), "")
        ],
        claims=grid(["", "difference", "KL", "measured", "p", "verdict"], claims),
    )


def outcomes_csv(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """Every outcome of every pair: accuracy and Pass@k in points, UCC and distinct@8 in answers, entropy in nats."""
    found, rows = pairs(sweeps), []
    for finding in findings:
        words, *arms = found[finding.name]
        cells = [number(one.estimate, replace(one.unit, name="")) for one in finding.comparisons]
        rows.append([finding.name, words, *cells, number(distinct(*arms), Unit(2))])
    return csv_text(["", "difference", *PRIMARY, *SECONDARY, f"distinct@{DISTINCT}, top_p 1"], rows)


def document(sweeps: Mapping[str, Results], findings: Sequence[Finding]) -> str:
    """The comparisons for a program, and the claims' verdicts as the page has them."""
    of_claims = judged(sweeps, findings)
    p_of = chances(of_claims)
    whole = json.loads(markdown.document(findings, schema=1))
    for entry in whole["claims"]:
        name = entry["name"]
        entry["verdict"] = verdict(name, of_claims[name], p_of) if name in of_claims else None
        entry["p_holm"] = [p_of[name, one.what] for one in of_claims.get(name, ())] if name in TOGETHER else None
        for one in entry["comparisons"]:
            del one["verdict"]
    return json_text(whole)
