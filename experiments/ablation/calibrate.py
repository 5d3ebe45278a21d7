"""Finds the tau of temperature fixed and the delta of temperature zscore that move the policy as far as the dual does.

    python -m experiments.ablation.calibrate

Each arm trains 30 iterations from three base models. The mean of log KL(pi_new || pi_old) over the last 20 is compared
with that of the dual on the same seeds, and the arm's knob is corrected until they differ by less than 5 %, in at most
5 rounds. What was tried is written to experiments/ablation/calibration.json; a cell that is there is not tried again.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evals.files.whole import write_whole
from quatro.runs.metrics import read_metrics

OUT = Path(__file__).parent / "calibration.json"
STEPS, FIRST = 30, 11  # iterations before the 11th warm up
SEEDS = (0, 1, 2)
CLOSE, MOST_ROUNDS = math.log(1.05), 5
NUM_JOBS = 2


@dataclass(frozen=True)
class Task:
    """A cell of the ablation: a configuration, its delta, and what else it sets."""

    name: str
    config: str
    model: str
    delta: float
    more: tuple[str, ...] = ()


TASKS = (
    Task("countdown, delta 0.01", "quickstart", "embedded:countdown", 0.01),
    Task("countdown, delta 0.1", "quickstart", "embedded:countdown", 0.1),
    Task("palindrome, partial credit", "quickstart-palindrome", "embedded:palindrome", 0.01),
    Task(
        "palindrome, rewards 0 and 1",
        "quickstart-palindrome",
        "embedded:palindrome",
        0.01,
        ("reward.options.partial=false",),
    ),
    Task("spell-backward", "quickstart-spell-backward", "embedded:spell-backward", 0.01),
)


def main() -> None:
    wanted = set(sys.argv[1:]) or {task.name for task in TASKS}
    found: dict[str, Any] = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {}
    with tempfile.TemporaryDirectory() as scratch:
        for task in TASKS:
            if task.name in wanted and task.name not in found:
                found[task.name] = calibrated(task, Path(scratch))
                text = json.dumps(found, indent=1) + "\n"
                write_whole(OUT, [text.encode("utf-8")])
                sys.stdout.write(f"{task.name}: {json.dumps(found[task.name])}\n")


def calibrated(task: Task, scratch: Path) -> dict[str, Any]:
    """The target, and for each arm its knob and every value that was tried with its log KL over the dual's."""
    dual = trained(task, f"{task.name}-dual", (f"method.delta={task.delta}",), scratch)
    tau = float(np.mean([np.mean(values(run, "dual/lam_mean")) for run in dual]))
    target = np.array([log_kl(run) for run in dual])

    def fitted(arm: str, start: float, power: float) -> dict[str, Any]:
        knob, tried = start, []
        for number in range(MOST_ROUNDS):
            keys = (f"method.tau={knob}", f"method.delta={task.delta}") if arm == "fixed" else (f"method.delta={knob}",)
            runs = trained(task, f"{task.name}-{arm}-{number}", (f"method.temperature={arm}", *keys), scratch)
            gap = float(np.mean([log_kl(run) for run in runs] - target))
            tried.append([knob, gap])
            if abs(gap) < CLOSE:
                break
            knob = float(f"{knob * math.exp(power * gap):.4g}")
        return {"knob": min(tried, key=lambda one: abs(one[1]))[0], "tried": tried}

    # To second order the KL of a step is proportional to 1 / tau^2, and to delta.
    fixed = fitted("fixed", float(f"{tau:.4g}"), 0.5)
    return {"log_kl": target.tolist(), "fixed": fixed, "zscore": fitted("zscore", task.delta, -1.0)}


def trained(task: Task, name: str, keys: tuple[str, ...], scratch: Path, method: str = "quatro") -> list[Path]:
    """The runs of all seeds; a base model that ``task`` numbers is that of all of them."""

    def train(seed: int) -> Path:
        run = scratch / name.replace(" ", "-").replace(",", "") / str(seed)
        settings = (
            f"model={task.model if '@' in task.model else f'{task.model}@{seed % 3 + 1}'}",
            f"seed={seed}",
            f"steps={STEPS}",
            "audit.prompts=all",
            *task.more,
        )
        command = [sys.executable, "-m", "quatro_cli", "train", task.config, "-m", method, "-o", str(run)]
        command += [part for text in (*settings, *keys) for part in ("-s", text)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return run

    with ThreadPoolExecutor(NUM_JOBS) as pool:
        return list(pool.map(train, SEEDS))


def values(run: Path, metric: str) -> list[float]:
    return [row[metric] for row in read_metrics(run) if row["step"] >= FIRST]


def log_kl(run: Path) -> float:
    return float(np.log(np.mean(values(run, "kl/new_old"))))


if __name__ == "__main__":
    main()
