"""Writes docs/replication.md, its figures and docs/replication.json from finished sweeps (`make replicate`).

    python -m experiments.replication [--sweep DIR] [--beyond DIR] [--out DIR]

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
from experiments.replication.page import document, page, replicate
from experiments.replication.results import read_results
from quatro.sample import measure_samples

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
    parser.add_argument("--out", type=Path, default=DOCS)
    parser.add_argument("--no-samples", action="store_true", help="draw no samples and measure none again")
    arguments = parser.parse_args()
    sweeps = [folder for folder in (arguments.sweep, arguments.beyond) if (folder / "sweep.yaml").is_file()]
    if arguments.sweep not in sweeps:
        sys.stderr.write(f"{arguments.sweep} is no sweep; run `quatro sweep paper-small --eval countdown ...` first\n")
        return 2
    if not arguments.no_samples:
        with ThreadPoolExecutor(NUM_JOBS) as pool:
            list(pool.map(_draw, missing_samples(read_results(arguments.sweep))))
        for folder, n, label in [task for sweep in sweeps for task in missing_counts(sweep)]:
            measure_samples(folder, n=n, label=label)
    found = replicate(*(read_results(folder) for folder in sweeps), *([None] * (2 - len(sweeps))))
    figures = write_figures(found.results, found.errors, arguments.out / IMAGES)
    for name, text in {
        "replication.md": page(found, figures, images=IMAGES),
        "replication.json": document(found),
    }.items():
        write_whole(arguments.out / name, [text.encode("utf-8")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
