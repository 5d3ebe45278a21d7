"""Wall time of `quatro --help` beside that of an interpreter that only imports torch; the fastest of several runs.

python benchmarks/startup.py
"""

from __future__ import annotations

import subprocess
import sys
import time

REPEATS = 10


def fastest(*arguments: str) -> float:
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    bare, ours = fastest("-c", "pass"), fastest("-m", "quatro_cli", "--help")
    peer = fastest("-c", "import torch")
    print(f"python {bare:.2f} s   quatro --help {ours:.2f} s   import torch {peer:.2f} s   ratio {peer / ours:.1f}")


if __name__ == "__main__":
    main()
