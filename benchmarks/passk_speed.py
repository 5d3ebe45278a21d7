"""Pass@k by the published product for every problem and k, and by our table, in one process.

The usual way (Chen et al. 2021, section 2.1): 1 - prod over i = n-c+1 .. n of (1 - k / i), once for each problem and k.

    python benchmarks/passk_speed.py
    python benchmarks/passk_speed.py --rows 400000     # also reads and evaluates a graded file of that many rows
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from earlier import cpu_s, peak_mb

from evals.estimators import pass_at_ks
from evals.metrics.passk_ucc import passk_result
from evals.samples.reading import read_samples


def usual(n: int, c: int, k: int) -> float:
    if n - c < k:
        return 1.0
    return 1.0 - float(np.prod(1.0 - k / np.arange(n - c + 1, n + 1)))


def write_graded(path: Path, num_rows: int, n: int, rng: np.random.Generator) -> None:
    """A graded file, of which three in ten rows are correct."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(num_rows):
            text = f"We compute step {number} by step. " * 20 + "The answer is \\boxed{42}."
            row = {"benchmark": "made-up", "id": f"p{number // n}", "sample_index": number % n, "completion": text}
            file.write(json.dumps({**row, "answer": "42", "correct": bool(rng.random() < 0.3)}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=1547)
    parser.add_argument("--n", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--rows", type=int, default=0, help="rows of a graded file to read and evaluate")
    options = parser.parse_args()

    rng = np.random.default_rng(0)
    ks = [2**i for i in range(options.n.bit_length()) if 2**i <= options.n]
    c_P = rng.integers(0, options.n + 1, size=options.problems).tolist()
    n_P = [options.n] * options.problems
    spent: dict[str, list[float]] = {"usual": [], "ours": []}
    worst = 0.0
    for _ in range(options.repeats):  # alternating, so that a busy machine slows both
        usual_s, expected = cpu_s(lambda: [[usual(options.n, c, k) for k in ks] for c in c_P])
        our_s, found = cpu_s(lambda: pass_at_ks(n_P, c_P, ks))
        spent["usual"].append(usual_s)
        spent["ours"].append(our_s)
        worst = max(worst, float(np.abs(found - np.array(expected)).max()))
    usual_ms, ours_ms = (1e3 * float(np.median(times)) for times in spent.values())
    print(f"{options.problems} problems x {len(ks)} ks at n = {options.n}: usual {usual_ms:.1f} ms, "
          f"ours {ours_ms:.2f} ms, ratio {usual_ms / ours_ms:.0f}, largest difference {worst:.1e}")  # fmt: skip
    if options.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graded.jsonl"
            write_graded(path, options.rows, options.n, rng)
            size = path.stat().st_size
            start = time.perf_counter()
            passk_result(read_samples([path]))
            wall = time.perf_counter() - start
        about = f"Pass@k of a graded file of {options.rows} rows ({size / 2**20:.0f} MB)"
        print(f"{about}: {wall:.1f} s, peak {peak_mb():.0f} MB")


if __name__ == "__main__":
    main()
