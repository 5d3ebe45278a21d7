"""Samples of GSPO at temperature 1.5, which claim (g) needs besides the sweep.

python -m experiments.replication.hot sweeps/paper-small
"""

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from experiments.replication.cells import theirs
from experiments.replication.results import ALL, BENCHMARK, NUCLEUS, Run, read_results
from experiments.replication.sample_claims import HOT, hot_runs
from quatro.sample.folder import Tag, measure_samples

NUM_SAMPLES = 256
NUM_JOBS = 2


def draw(run: Run, tag: Tag) -> None:
    """Draws, grades and counts the samples; what is there already is kept."""
    folder = tag.folder(run.folder)
    sample = [sys.executable, "-m", "quatro_cli", "sample", str(run.folder), "-b", BENCHMARK, "-n", str(NUM_SAMPLES)]
    how = ["--temperature", f"{tag.temperature:g}", "--top-p", f"{tag.top_p:g}", "--grade", "-o", str(folder)]
    subprocess.run([*sample, *how], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    measure_samples(folder, n=NUM_SAMPLES, label=run.name)


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw GSPO's samples at temperature 1.5.")
    parser.add_argument("sweep", type=Path)
    results = read_results(parser.parse_args().sweep)
    groups = [(theirs(results, cell), tag) for tag in (NUCLEUS, ALL) for cell in ("S1", "S2")]
    missing = [(group[seed], tag) for group, tag in groups for seed in sorted(set(group) - set(hot_runs(group, tag)))]
    with ThreadPoolExecutor(NUM_JOBS) as pool:
        list(pool.map(lambda one: draw(one[0], HOT[one[1]]), missing))


if __name__ == "__main__":
    main()
