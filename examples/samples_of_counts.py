"""The counts that a result keeps, as samples: `quatro eval compare` then needs no texts.

    python examples/samples_of_counts.py ucc.json > counts.jsonl
    quatro eval compare counts.jsonl others.jsonl --metric ucc@k --similarity exact --k 8

`quatro eval ucc --per-problem -o ucc.json`, or --ci in place of --per-problem, keeps the counts of every problem. Each
cluster becomes as many samples with the same text, so that `--similarity exact` finds the clusters again. Benchmarks
have other names: nothing of theirs, such as a grader, goes with such texts.
"""

import json
import sys
from pathlib import Path

import quatro


def main(path: Path) -> None:
    """Prints a line for each sample of the counts in ``path``; the counts must be of one way of clustering."""
    for problem in quatro.read_result(path).problems or sys.exit(f"{path} keeps no counts; measure with --per-problem"):
        right = [f"solution {at}" for at, size in enumerate(problem.clusters or ()) for _ in range(size)]
        for index in range(problem.n):
            is_correct = index < len(right)
            sample = {"completion": right[index] if is_correct else "wrong", "correct": is_correct, "answer": "?"}
            place = {"benchmark": f"counts-of-{problem.benchmark}", "id": problem.id, "sample_index": index}
            print(json.dumps({**place, **sample}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
