"""A long run with evaluations, checkpoints and pruning: does the process grow, and what is left behind?

Trains in a process of its own and looks at it from outside, as the kernel counts: resident memory, open files, child
processes. Ends with exit code 1 if memory grows by 30 MB after the first tenth, or if anything is left. For programs in
the sandbox there is `python benchmarks/sandbox.py --soak 100000`.

    python benchmarks/soak.py --steps 2000 --out soak
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from earlier import children, status_mb

MOST_GROWTH_MB = 30
SETTINGS = (
    *("prompts_per_step=8", "minibatch_prompts=8", "rollouts_per_prompt=8", "inner_updates=2", "threads=1"),
    *("checkpoint.every=10", "checkpoint.keep=2", "eval.every=10", "eval.benchmark=countdown", "eval.n=1"),
)


def looked_at(pid: int, run: Path) -> dict[str, float]:
    """One row of the table."""
    rows = (run / "metrics.jsonl").read_bytes().count(b"\n")
    files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    memory_mb = round(status_mb(pid, "RssAnon"), 1)  # without mapped files, of which other processes hold the pages too
    return {"iterations": rows, "memory_mb": memory_mb, "files": files, "children": len(children(pid))}


def watch(command: list[str], run: Path, every: int) -> list[dict[str, float]]:
    """A row for each ``every`` iterations while the command runs."""
    looks: list[dict[str, float]] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        while child.poll() is None:
            time.sleep(0.05)
            try:
                look = looked_at(child.pid, run)
            except (OSError, StopIteration):  # not begun, or just ended
                continue
            if look["iterations"] >= every * (len(looks) + 1):
                looks.append(look)
                print("  ".join(f"{name} {value:g}" for name, value in look.items()), flush=True)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}")
    return looks


def leftovers(run: Path, steps: int) -> list[str]:
    """What should not be there after the run, and what is wrong with its metrics."""
    found = [str(path) for path in run.rglob("*") if path.name.endswith((".tmp", ".old"))]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(run).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(f"process {path.parent.name}")
        except OSError:
            continue
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    if [row["step"] for row in rows] != list(range(1, steps + 1)):
        found.append("rows of metrics.jsonl are missing or twice")
    found += [
        f"{key} of iteration {row['step']} is {value}"
        for row in rows
        for key, value in row.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]
    kept = sorted(path.name for path in (run / "checkpoints").glob("step-*"))
    return found + ([] if len(kept) <= 2 else [f"{len(kept)} checkpoints, and two are kept"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=Path("soak"), help="folder of the run")
    args = parser.parse_args()
    run = args.out.absolute()
    settings = [word for one in (*SETTINGS, f"steps={args.steps}") for word in ("-s", one)]
    command = [sys.executable, "-m", "quatro_cli", "train", "quickstart", *settings, "-o", str(run)]
    looks = watch(command, run, max(1, args.steps // 20))
    growth = max(look["memory_mb"] for look in looks) - looks[1]["memory_mb"]
    left = leftovers(run, args.steps)
    files, processes = ({look[name] for look in looks} for name in ("files", "children"))
    print(f"growth after a tenth of the run: {growth:.1f} MB; open files {files}, child processes {processes}")
    print("\n".join(left) or "nothing is left behind, and every metric is finite")
    sys.exit(1 if left or growth >= MOST_GROWTH_MB else 0)


if __name__ == "__main__":
    main()
