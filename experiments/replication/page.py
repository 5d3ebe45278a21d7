"""The replication page and its table of claims, from results alone: the same results give the same bytes."""

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
from experiments.replication.markdown import claims_table, csv_text, grid, number, summary
from experiments.replication.results import ALL, NUCLEUS, Results, commits, training_seconds
from experiments.replication.rules import (
    Finding,
    Unit,
    known,
    spreads,
    with_common_spread,
)
from experiments.replication.small_n import DualError

SECTIONS = "abcdefghijk"  # of page.md: the letters of the claims in each

_LABELS = {"final entropy/token_mean": "final entropy", "log mean kl/new_old": "log of the mean realised KL"}
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
    of_paper, others = ([one for one in found.findings if one.is_ours is is_ours] for is_ours in (False, True))
    about = summary({"Claims of the paper": of_paper, "Other claims": others})
    return markdown.filled(
        Path(__file__).with_suffix(".md"),
        {name: f"{images}/{name}.png" for name in figures},
        found.findings,
        runs=len(results.runs),
        not_run=_not_run(results),
        programs="; ".join(commits(results)) or "unknown",
        minutes=f"{training_seconds(results) / 60:.0f}",
        of_the_paper=about[0].removeprefix("- "),
        summary=about[1:],
        realised_kl=REALISED_KL,
        cells=grid(["cell", "training"], ([name, words] for name, words in CELLS.items())),
        of_paper=claims_table(of_paper),
        others=claims_table(others, with_number=False),
        rollouts=small_n.section(found.errors) if found.errors else "",
        realised=_realised(results),
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
        " They cannot be added later: the archive of the finished runs does not say with which weights those began."
        if any(run.digest is None for run in results.runs)
        else ""
    )
    return f" {missing} planned runs are not done, and claims that need them are undecided.{unknown}" if missing else ""


def _at_their_best(found: Replication) -> list[str]:
    """QUATRO and GSPO in the cell where GSPO has its highest Pass@1: chosen after the results, so no claim."""
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
        f"GSPO has its highest Pass@1 in {best}. We chose this cell after seeing the results, so this is no claim:",
        "",
    ]
    rows = []
    for (name, outcome), one in zip(_AT_THEIR_BEST.items(), extra.comparisons, strict=True):
        plain = replace(outcome.unit, is_signed=False)
        gspo, quatro = (plain.text(known(measured(group, outcome.measure)).mean) for group in reversed(cells[best]))
        rows.append([name, gspo, quatro, number(one.estimate, outcome.unit)])
    return [*lines, *grid([f"{best}: {CELLS[best]}", "GSPO", f"QUATRO, δ {MIDDLE}", "QUATRO − GSPO"], rows), ""]


def _realised(results: Results) -> list[str]:
    """Realised KL over delta by cell: the number that transfers to other tasks."""
    ratio = Unit(2, "", is_ratio=True)
    rows = []
    for cell in ("S7", "S2", "S1", "S9"):
        groups = [(delta, ours(results, cell, delta)) for delta in DELTAS]
        found = [measured(group, delta_claims.relative_to(delta)) for delta, group in groups]
        if all(found):
            rows.append([cell, *(number(one, ratio) for one in found)])
    if not rows:
        return []
    about = "The table shows the mean realised KL of an iteration, divided by δ:"
    return [about, "", *grid(["cell", *(f"δ {delta}" for delta in DELTAS)], rows), ""]


def spreads_csv(findings: Sequence[Finding]) -> str:
    """The standard deviation over seeds of paired differences, by measure and kind of comparison."""
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
            times = f", {deviation / others:.1f} times" if kind and others else ""
            cells.append(f"{shown} ({freedom}{times})" if freedom else "–")
        rows.append([_LABELS.get(one.measure, one.measure), *cells])
    return csv_text(["measure (degrees of freedom, times the others)", *(kind or "others" for kind in KINDS)], rows)
