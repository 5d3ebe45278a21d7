"""`quatro eval passk` and `quatro eval ucc` (four similarities) of a graded file: the second time against the first.

Processor time of the whole command, start included. Each block writes a file of its own, counts it twice and compares
the two documents, which must be the same. With --against, the first time is also compared with that of an earlier
commit, which is how a file too small to keep anything of it shows that it is no slower.

    python benchmarks/kept_speed.py                                      # 1,547 problems of 256 samples
    python benchmarks/kept_speed.py --problems 30 --n 8 --blocks 5 --against REVISION
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import ucc_speed
from earlier import ROOT, children_cpu_s, told, unpack, write_graded

COMMANDS = {"passk": ["passk", "--json"], "ucc": ["ucc", "--similarity", "tfidf,rouge-l,jaccard,edit", "--json"]}


def made_up(problems: int, n: int, seed: int) -> Iterator[tuple[str, int, str]]:
    """Texts shaped like a model's solutions."""
    for number, texts in enumerate(ucc_speed.workload(problems, n, seed)):
        yield from ((f"p{number}", index, text) for index, text in enumerate(texts))


def run(tree: Path, command: list[str], samples: Path) -> tuple[float, bytes]:
    """CPU seconds of `quatro eval` in ``tree``, and what it printed."""
    start = children_cpu_s()
    cache = samples.with_name("cache")
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quatro_cli", "eval", command[0], str(samples), *command[1:]],
        env={**os.environ, "PYTHONPATH": str(tree), "QUATRO_CACHE": str(cache)},
        cwd=samples.parent,
        check=True,
        stdout=subprocess.PIPE,
    )
    return children_cpu_s() - start, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=ucc_speed.NUM_PROBLEMS)
    parser.add_argument("--n", type=int, default=256, help="samples of a problem")
    parser.add_argument("--blocks", type=int, default=2)
    parser.add_argument("--command", choices=list(COMMANDS), help="one of the two")
    parser.add_argument("--against", metavar="REVISION", help="an earlier commit, for the first time")
    options = parser.parse_args()
    commands = {name: words for name, words in COMMANDS.items() if options.command in (None, name)}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    earlier: dict[str, list[float]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch) / "earlier"
        if options.against:
            unpack(options.against, tree)
        samples = Path(scratch) / "samples.jsonl"
        for block in range(options.blocks):
            for name, words in commands.items():
                write_graded(samples, made_up(options.problems, options.n, block), random.Random(block).random)
                shutil.rmtree(samples.with_name("cache"), ignore_errors=True)
                first, document = run(ROOT, words, samples)
                second, again = run(ROOT, words, samples)
                assert again == document, f"{name}: the second document is another one"
                seconds[name].append(first / second)
                if options.against:
                    before, old = run(tree, words, samples)
                    assert old == document, f"{name}: {options.against} says something else"
                    earlier[name].append(before / first)
    print(f"{options.problems} problems x {options.n} samples, {options.blocks} blocks, CPU seconds of the command")
    for name in commands:
        print(f"{name:6s} first / second {told(seconds[name])}", end="")
        print(f"   {options.against} / first {told(earlier[name])}" if options.against else "")


if __name__ == "__main__":
    main()
