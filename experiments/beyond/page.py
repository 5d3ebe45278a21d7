"""The page of what goes beyond the paper, and its table of claims: the same results give the same bytes."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.beyond import graded, updates_and_radii
from experiments.replication import markdown
from experiments.replication.markdown import NOTE, TIMES, claims_table, settings_head, settings_row, summary
from experiments.replication.results import Results, commits, training_seconds
from experiments.replication.rules import Finding, both_rules, with_common_spread

CELLS = {
    "S0": "5 full-batch updates on each batch of rollouts",
    "S11": "as many updates as the realised KL allows (`inner_updates: auto`)",
    "S12": "δ falls from 0.1 to 0.001 over the run, which the program no longer offers because of y1",
    "S13": "δ steered to a token entropy of 0.95, or to a realised KL of 0.01, by a method that is now one of your own",
    "S14": "rewards 1 / (1 + distance from the target)",
}
TITLES = {"l": "Graded rewards", "x": "As many updates as the realised KL allows", "y": "Radii that change over a run"}


def findings_of(results: Results) -> list[Finding]:
    """Every claim judged."""
    return with_common_spread(
        [*updates_and_radii.budget(results), *updates_and_radii.schedules(results), *graded.graded_rewards(results)]
    )


def page(results: Results, findings: Sequence[Finding]) -> str:
    """The whole page as Markdown; ``findings`` are those of `findings_of`."""
    runs = [run for run in results.runs if run.cell in CELLS]
    of_each = {title: [one for one in findings if one.name.startswith(letter)] for letter, title in TITLES.items()}
    lines = [
        "# Beyond the paper\n",
        NOTE,
        "",
        "Methods that the paper does not have, on the embedded task of [replication.md](replication.md) and by its "
        "rule of verdicts. All cells train as S0 does but for what is said of them, from three base models.",
        "",
        f"- Runs: {len(runs)} of `configs/sweeps/beyond-paper.yaml`, whose other runs are those of "
        "[ablation.md](ablation.md). `quatro sweep beyond-paper` makes them anew, but for S12 and S13, whose "
        "schedules the program no longer has (S13's is in [methods.md](methods.md)); their results are in "
        "`experiments/results/`.",
        f"- Program: {'; '.join(commits(results)) or 'unknown'}.",
        f"- Training of all runs: {training_seconds(results) / 60:.0f} minutes, one thread each. {TIMES}",
        "- Cells: " + "; ".join(f"**{name}** {words}" for name, words in CELLS.items()) + ".",
        "",
        "## Summary",
        "",
        *summary(of_each),
        "## Claims",
        "",
        *claims_table(findings),
        "",
        "## Every setting",
        "",
        *settings_head(["cell", "setting"]),
    ]
    for cell in CELLS:
        for settings, group in results.groups(cell):
            shown = ", ".join(f"{key.removeprefix('method.')} {value}" for key, value in settings.items())
            lines.append(settings_row([cell, shown], group))
    return "\n".join([*lines, "", *both_rules(findings)]).rstrip() + "\n"


def document(results: Results, findings: Sequence[Finding]) -> str:
    """The claims for a program."""
    return markdown.document(findings, schema=1, num_runs=len(results.runs))
