"""What goes beyond the paper: every setting of the second sweep, and whether `auto` holds the realised KL at delta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evals.estimators import Floats
from experiments.replication.cells import FACTOR, REALISED_KL, K, within_factor
from experiments.replication.results import (
    ALL,
    NUCLEUS,
    Measure,
    Results,
    Run,
    last,
    log_of,
    mean_of,
    passed,
    table,
    unique,
)
from experiments.replication.rules import Comparison, Estimate, Finding, Unit, estimate_of

PERCENT = Unit(1, "", scale=100.0, is_signed=False)
PLAIN = Unit(2, "", is_signed=False)

CELLS = {
    "E1": "the number of inner updates fixed, or as many as the realised KL allows",
    "E2": "δ falls from 0.1 to 0.001 over the run",
    "E3": "δ steered to a token entropy of 0.95, or to a realised KL of 0.01",
}


def _over_delta(run: Run) -> Floats:
    """The mean realised KL over the mean delta of a run (1,)."""
    # `kl/ratio_to_delta` is the KL over the radius of that very step, which a schedule moves.
    rows = [row for row in run.rows if (row.get(REALISED_KL) or 0) > 0]
    delta = np.mean([row[REALISED_KL] / row["kl/ratio_to_delta"] for row in rows])
    return np.array([np.mean([row[REALISED_KL] for row in rows]) / delta])


COLUMNS: Mapping[str, tuple[Measure, Unit]] = {
    "updates a step": (mean_of("optimizer_steps"), PLAIN),
    "realised KL": (mean_of(REALISED_KL), Unit(4, "", is_signed=False)),
    "KL / δ": (log_of(_over_delta), Unit(2, "", is_ratio=True)),
    "final entropy": (last("entropy/token_mean"), PLAIN),
    "Pass@1, %": (passed(1, ALL), PERCENT),
    f"Pass@{K}, top_p 0.7, %": (passed(K, NUCLEUS), PERCENT),
    f"UCC@{K}": (unique(K, ALL), PLAIN),
    f"UCC@{K}, top_p 0.7": (unique(K, NUCLEUS), PLAIN),
}


@dataclass(frozen=True)
class Setting:
    """One setting of the sweep: its cell, its keys as text, its numbers by column."""

    cell: str
    words: str
    num_seeds: int
    numbers: Mapping[str, Estimate | None]


def settings_of(results: Results, columns: Mapping[str, tuple[Measure, Unit]]) -> list[Setting]:
    """All settings in the order of the plan, each with these columns."""
    found = []
    for cell in results.cells:
        for settings, group in results.groups(cell):
            numbers = {name: estimate_of(table(group, measure)) for name, (measure, _) in columns.items()}
            found.append(Setting(cell, words_of(settings), len(group), numbers))
    return found


def words_of(settings: Mapping[str, str]) -> str:
    """The settings as a person would say them: keys without the method's block, its name first."""
    parts = [f"{key.removeprefix('method.')} {value}" for key, value in settings.items() if key != "method.name"]
    return ", ".join([settings.get("method.name", "quatro").upper(), *parts])


def budget(results: Results) -> list[Finding]:
    """Whether `inner_updates: auto` brings the realised KL to within a factor of 2 of delta."""
    comparisons = []
    for cell in results.cells:
        for settings, group in results.groups(cell):
            if settings.get("inner_updates") == "auto":
                ratio = estimate_of(table(group, log_of(_over_delta)))
                what = f"{cell}: {REALISED_KL} / δ, {words_of(settings)}"
                comparisons.append(Comparison(what, ratio, within_factor(0.5, 2.0), FACTOR))
    if not comparisons:
        return []
    claim = "`inner_updates: auto` brings the realised KL to δ, to a factor of 2"
    return [Finding("x1", claim, "not in the paper", tuple(comparisons))]
