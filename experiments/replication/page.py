"""The replication page and its table of claims, from results alone: the same results give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.replication import delta_claims, markdown, sample_claims, small_n, stability_claims
from experiments.replication.cells import (
    CELLS,
    DELTAS,
    KINDS,
    MIDDLE,
    OTHERS,
    PASS1,
    REALISED_KL,
    UCC,
    K,
    compare,
    measured,
    ours,
    pass_at,
    theirs,
    within,
)
from experiments.replication.markdown import both_rules, claims_table, grid, number, summary
from experiments.replication.results import ALL, NUCLEUS, Results, commits, training_seconds
from experiments.replication.rules import (
    Finding,
    Unit,
    Verdict,
    known,
    pooled_spread,
    sister_tables,
    spreads,
    with_common_spread,
)
from experiments.replication.small_n import DualError

SECTIONS = "abcdefghijk"  # of page.md: the letters of the claims in each

# Claims with little chance in them: computed exactly, from many samples of the base, or of what hardly varies.
_SURE = ("d", "e", "h1", "h2", "h3", "h4", "i4")
_AT_THEIR_BEST = {
    "Pass@1, top_p 0.7": PASS1,
    "Pass@1, top_p 1": pass_at(1, ALL),
    f"Pass@{K}, top_p 0.7": pass_at(K, NUCLEUS),
    f"UCC@{K}, top_p 1": UCC,
}


@dataclass(frozen=True)
class Replication:
    """All findings, and what the page says besides."""

    results: Results
    findings: tuple[Finding, ...]
    errors: tuple[DualError, ...]


def replicate(results: Results) -> Replication:
    """Every claim judged."""
    errors = small_n.dual_errors(results.distinct_bases(ours(results, "S1", DELTAS[0])))
    findings = [
        *delta_claims.trade_off(results),
        *stability_claims.stability(results),
        *stability_claims.log_ratio(results),
        *stability_claims.cost(results),
        *delta_claims.dual(results),
        *sample_claims.flips(results),
        *sample_claims.temperature(results),
        *small_n.rollouts(results, errors),
        *delta_claims.where_it_acts(results),
        *stability_claims.loss_norm(results),
        *stability_claims.baselines(results),
    ]
    return Replication(results, tuple(with_common_spread(findings)), tuple(errors))


def page(found: Replication, figures: Sequence[str], *, images: str) -> str:
    """The whole page as Markdown; ``figures`` are in the folder ``images`` beside it."""
    results = found.results
    notes = {
        letter: [f"{one.name}: {one.note}\n" for one in found.findings if one.name.startswith(letter) and one.note]
        for letter in SECTIONS
    }
    return markdown.filled(
        Path(__file__).with_suffix(".md"),
        {name: f"{images}/{name}.png" for name in figures},
        runs=len(results.runs),
        not_run=_not_run(results),
        programs="; ".join(commits(results)) or "unknown",
        minutes=f"{training_seconds(results) / 60:.0f}",
        summary=summary(_by_origin(found.findings)),
        without_the_sure=_without_the_sure(found.findings),
        realised_kl=REALISED_KL,
        cells="; ".join(f"**{name}** {words}" for name, words in CELLS.items()),
        claims=claims_table(found.findings),
        spreads=_spreads(found.findings),
        both_rules=both_rules(found.findings),
        rollouts=small_n.section(results, found.errors) if found.errors else "",
        realised=_realised(results),
        beside_the_base=_beside_the_base(found.findings),
        at_their_best=_at_their_best(found),
        **notes,
    )


def document(found: Replication) -> str:
    """The claims for a program: every comparison with its estimate, the value of each seed, region and verdict."""
    results = found.results
    about = {"num_runs": len(results.runs), "num_points": results.num_points, "versions": commits(results)}
    return markdown.document(found.findings, schema=2, **about)


def _not_run(results: Results) -> str:
    missing = results.num_points - len(results.runs)
    unknown = (
        " Nor can they be added: the runs that are kept did not record which weights they began with."
        if any(run.digest is None for run in results.runs)
        else ""
    )
    return f" {missing} planned runs are not done: claims that need them are undecided.{unknown}" if missing else ""


def _by_origin(findings: Sequence[Finding]) -> dict[str, list[Finding]]:
    """The paper's claims, and those that it does not state; without an empty list."""
    found = {
        "Claims of the paper": [finding for finding in findings if not finding.is_ours],
        "Claims that the paper does not state, or that this task cannot test": [
            finding for finding in findings if finding.is_ours
        ],
    }
    return {whose: some for whose, some in found.items() if some}


def _without_the_sure(findings: Sequence[Finding]) -> list[str]:
    """How many comparisons are decided of those that seeds of training could leave open."""
    counted = {
        name: [one for finding in findings for one in finding.comparisons if finding.name.startswith(_SURE) == is_sure]
        for name, is_sure in (("sure", True), ("open", False))
    }
    decided = sum(one.verdict is not Verdict.undecided for one in counted["open"])
    return [
        f"{len(counted['sure'])} of them hardly depend on the seed: they are exact (e1, e2), from samples of the base "
        "(h1 to h4), or of times (d), λ (e3, e4) and the realised KL over δ (i4). Of the other "
        f"{len(counted['open'])} comparisons {decided} are decided.",
        "",
    ]


def _beside_the_base(findings: Sequence[Finding]) -> list[str]:
    """That the common spread of k5 is also one of other comparisons, and whether it decides anything."""
    of_base = [finding for finding in findings if finding.name == "k5"]
    of_runs = [finding for finding in findings if finding.name != "k5"]
    sisters = next((one.sisters for one in of_base[0].comparisons if one.sisters and one.estimate), None)
    spreads_of = [
        pooled_spread(sister_tables(some).get(sisters, ())) if sisters else None for some in (of_base, of_runs)
    ]
    if None in spreads_of:
        return []
    base, runs = (math.sqrt(one.variance) for one in spreads_of if one is not None)
    measured = [one for one in of_base[0].comparisons if one.estimate is not None]
    own = [
        replace(one.estimate, low=one.estimate.own_low, high=one.estimate.own_high) for one in measured if one.estimate
    ]
    changed = sum(one.verdict is not replace(one, estimate=it).verdict for one, it in zip(measured, own, strict=True))
    return [
        "k5: Differences from the base and differences between runs share one spread over seeds, though it is "
        f"{base:.2f} solutions for the former and {runs:.2f} for the latter. So the intervals of a5 are somewhat too "
        "wide and those of k5 somewhat too narrow. With each comparison's own spread "
        f"{changed or 'none'} of k5 would be decided otherwise.",
        "",
    ]


def _at_their_best(found: Replication) -> list[str]:
    """QUATRO beside GSPO in the cell where GSPO has its highest Pass@1: chosen after the results, so no claim."""
    cells = {cell: (ours(found.results, cell, MIDDLE), theirs(found.results, cell)) for cell in CELLS}

    passed_1 = {cell: known(measured(pair[1], PASS1.measure)).mean for cell, pair in cells.items() if all(pair)}
    best = max(passed_1, key=passed_1.__getitem__, default=None)
    if best is None:
        return []
    comparisons = [
        compare(f"{best}, {name}", *cells[best], outcome, within(0.0)) for name, outcome in _AT_THEIR_BEST.items()
    ]
    extra = with_common_spread([*found.findings, Finding("", "", "", tuple(comparisons))])[-1]
    lines = [
        f"In {best} GSPO has its highest Pass@1 of all cells. It was chosen after the results were known, so that this "
        "is no claim:",
        "",
    ]
    rows = []
    for (name, outcome), one in zip(_AT_THEIR_BEST.items(), extra.comparisons, strict=True):
        plain = replace(outcome.unit, is_signed=False)
        gspo, quatro = (plain.text(known(measured(group, outcome.measure)).mean) for group in reversed(cells[best]))
        rows.append([name, gspo, quatro, number(one.estimate, outcome.unit)])
    return [*lines, *grid([f"{best}: {CELLS[best]}", "GSPO", f"QUATRO, δ {MIDDLE}", "difference"], rows), ""]


def _realised(results: Results) -> list[str]:
    """Realised KL over delta by cell: the number that transfers to other tasks."""
    ratio = Unit(2, "", is_ratio=True)
    rows = []
    for cell in ("S7", "S2", "S1", "S9"):
        groups = [(delta, ours(results, cell, delta)) for delta in DELTAS]
        found = [measured(group, delta_claims.relative_to(delta)) for delta, group in groups]
        if all(found):
            rows.append([f"{cell}: {CELLS[cell]}", *(number(one, ratio) for one in found)])
    if not rows:
        return []
    about = (
        "The mean realised KL of an iteration over δ. Above 1 the optimiser's noise moves the policy further than δ."
    )
    return [about, "", *grid(["cell", *(f"δ {delta}" for delta in DELTAS)], rows), ""]


def _spreads(findings: Sequence[Finding]) -> list[str]:
    """How much further apart the seeds of some methods lie: a finding of its own."""
    rows = []
    for one in spreads(findings):
        if OTHERS not in one.of_kind or len(one.of_kind) == 1:
            continue
        unit = Unit(one.unit.digits + 1, one.unit.name, one.unit.scale, is_signed=False)
        unit = Unit(3, "", is_signed=False) if one.unit.is_ratio else unit
        cells = []
        others = one.of_kind[OTHERS][0]
        for kind in KINDS:
            deviation, freedom = one.of_kind.get(kind, (0.0, 0))
            shown = f"{unit.text(deviation)} {unit.name}".strip()
            times = f"; {deviation / others:.1f} times" if kind and others else ""
            cells.append(f"{shown} ({freedom}{times})" if freedom else "–")
        rows.append([one.measure, *cells])
    return grid(["measure", *(kind or "others" for kind in KINDS)], rows)
