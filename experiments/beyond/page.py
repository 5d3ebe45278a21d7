"""The page of what goes beyond the paper, and its table of claims: the same results give the same bytes."""

from collections.abc import Sequence
from pathlib import Path

from experiments.beyond import graded, updates_and_radii
from experiments.replication import markdown
from experiments.replication.markdown import claims_table, filled, grid, summary
from experiments.replication.results import Results, commits, training_seconds
from experiments.replication.rules import Finding, with_common_spread

CELLS = {
    "S0": "5 full-batch updates on each batch of rollouts",
    "S11": "as many updates as the realised KL allows (`inner_updates: auto`)",
    "S12": "δ falls from 0.1 to 0.001 over the run (removed because of y1)",
    "S13": "δ steered to a token entropy of 0.95 or to a realised KL of 0.01 "
    "(removed; [methods.md](methods.md#beyond-the-paper) has code for it)",
    "S14": "rewards 1 / (1 + distance from the target)",
}
TITLES = {"l": "Graded rewards (l)", "x": "`inner_updates: auto` (x)", "y": "A δ that changes over a run (y)"}


def findings_of(results: Results) -> list[Finding]:
    """Every claim judged."""
    return with_common_spread(
        [*updates_and_radii.budget(results), *updates_and_radii.schedules(results), *graded.graded_rewards(results)]
    )


def page(results: Results, findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    of_each = {title: [one for one in findings if one.name.startswith(letter)] for letter, title in TITLES.items()}
    return filled(
        Path(__file__).with_suffix(".md"),
        findings=findings,
        runs=sum(run.cell in CELLS for run in results.runs),
        programs="; ".join(commits(results)) or "unknown",
        minutes=f"{training_seconds(results) / 60:.0f}",
        cells=grid(["cell", "training"], ([name, words] for name, words in CELLS.items())),
        summary=summary(of_each),
        claims=claims_table(findings),
    )


def document(results: Results, findings: Sequence[Finding]) -> str:
    """The claims for a program."""
    return markdown.document(findings, schema=1, num_runs=len(results.runs))
