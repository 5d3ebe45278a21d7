"""Writes docs/replication.md, its figures and docs/graded-rewards.md from finished sweeps (`make replicate`).

    python -m experiments.replication [--sweep DIR] [--beyond DIR] [--graded DIR] [--out DIR]

Each page is written if its sweep is there, with a JSON file of its claims beside it.
First it makes what the claims need besides the sweep: samples at temperature 1.5, and counts per problem where an
older program did not keep them. Both are stored in the runs and made once; --no-samples leaves them out.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from evals.files.whole import write_whole
from experiments.replication.extras import missing_counts, missing_samples
from experiments.replication.figures import write_figures
from experiments.replication.graded import graded_rewards
from experiments.replication.page import document, graded_document, graded_page, page, replicate
from experiments.replication.results import read_results
from quatro.sample import measure_samples
from quatro.sweep import is_sweep

DOCS = Path(__file__).parents[2] / "docs"
IMAGES = "images/replication"
NUM_JOBS = 2


def _draw(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "quatro_cli.app", "sample", *arguments]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the replication page from finished sweeps.")
    parser.add_argument("--sweep", type=Path, default=Path("sweeps/paper-small"))
    parser.add_argument("--beyond", type=Path, default=Path("sweeps/beyond-paper"))
    parser.add_argument("--graded", type=Path, default=Path("sweeps/graded-reward"))
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--no-samples", action="store_true", help="draw no samples and measure none again")
    arguments = parser.parse_args()
    pages: dict[str, str] = {}
    if is_sweep(arguments.sweep):
        pages |= _replication(arguments)
    if is_sweep(arguments.graded):
        results = read_results(arguments.graded)
        findings = graded_rewards(results)
        pages |= {"graded-rewards.md": graded_page(results, findings)}
        pages |= {"graded-rewards.json": graded_document(results, findings)}
    if not pages:
        sys.stderr.write(
            f"neither {arguments.sweep} nor {arguments.graded} is a sweep; "
            "run `quatro sweep paper-small --eval countdown --eval-top-p 1,0.7` first\n"
        )
        return 2
    for name, text in pages.items():
        write_whole(arguments.out / name, [text.encode("utf-8")])
    return 0


def _replication(arguments: argparse.Namespace) -> dict[str, str]:
    """The page of the paper's claims and their table; its figures are written on the way."""
    sweeps = [folder for folder in (arguments.sweep, arguments.beyond) if is_sweep(folder)]
    if not arguments.no_samples:
        with ThreadPoolExecutor(NUM_JOBS) as pool:
            list(pool.map(_draw, missing_samples(read_results(arguments.sweep))))
        for folder, n, label in [task for sweep in sweeps for task in missing_counts(sweep)]:
            measure_samples(folder, n=n, label=label)
    found = replicate(*(read_results(folder) for folder in sweeps), *([None] * (2 - len(sweeps))))
    figures = write_figures(found.results, found.errors, arguments.out / IMAGES)
    return {"replication.md": page(found, figures, images=IMAGES), "replication.json": document(found)}


if __name__ == "__main__":
    sys.exit(main())
