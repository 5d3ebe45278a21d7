"""What the claims need besides the sweep: samples at temperature 1.5, and counts of every problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from evals.results.document import read_result
from experiments.replication.cells import theirs
from experiments.replication.results import ALL, BENCHMARK, NUCLEUS, Results
from experiments.replication.sample_claims import HOT, hot_runs
from quatro.sample.measure import UCC

NUM_SAMPLES = 256
_HOT_CELLS = ("S1", "S2")


def missing_samples(results: Results) -> Iterator[list[str]]:
    """Arguments of `quatro sample` for every run of GSPO that has not been sampled hot."""
    for tag in (NUCLEUS, ALL):
        for cell in _HOT_CELLS:
            group = theirs(results, cell)
            for seed in sorted(set(group) - set(hot_runs(group, tag))):
                run = group[seed].folder
                yield [
                    *(str(run), "-b", BENCHMARK, "-n", str(NUM_SAMPLES), "--grade"),
                    *("--temperature", f"{HOT[tag].temperature:g}", "--top-p", f"{tag.top_p:g}"),
                    *("-o", str(HOT[tag].folder(run))),
                ]


def missing_counts(sweep: Path) -> Iterator[tuple[Path, int, str]]:
    """Folder, samples a problem and label: hot samples, and those that were measured without counts of every problem.

    Other samples without a result are the sweep's to measure: they may be incomplete.
    """
    for file in sorted(sweep.glob(f"*/*/samples/*/{BENCHMARK}.jsonl")):
        measured = file.parent / UCC
        is_missing = (
            not read_result(measured).problems if measured.is_file() else file.parent.name in map(str, HOT.values())
        )
        if is_missing:
            yield file.parent, NUM_SAMPLES, file.parents[2].name
