"""Runs what is missing of the study that DESIGN.md describes; one file for each run, written as soon as it is measured.

    python -m experiments.real_model.study --list              # what is done, and what comes next
    python -m experiments.real_model.study [--at-once 12]      # goes on to the end; on a GPU several side by side
    python -m experiments.real_model.study --only base         # one of them

Each run is trained and sampled by the commands that anyone would type, in a folder that is deleted once its results are
in experiments/real_model/results. An interrupted run goes on where it was.
"""

import argparse
import json
import lzma
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.files.strict_json import parse_row, read_lines
from evals.files.whole import write_whole
from quatro.runs.metrics import read_metrics

RESULTS = Path(__file__).parent / "results"
ARMS = {
    "quatro-0.1": ("method.name=quatro", "method.delta=0.1"),
    "quatro-0.01": ("method.name=quatro", "method.delta=0.01"),
    "grpo": ("method.name=grpo",),
    "gspo": ("method.name=gspo",),
}
RATES = ("5e-6", "1e-5")
CALIBRATION_SEED, SEEDS = 100, (1, 2, 3)


@dataclass(frozen=True)
class Job:
    """A model to measure: ``steps`` iterations of ``arm``, or the base; then ``n`` samples of ``limit`` problems."""

    arm: str
    rate: str
    seed: int
    steps: int
    limit: int
    n: int

    @property
    def name(self) -> str:
        return "base" if self.arm == "base" else f"{self.arm}-lr{self.rate}-seed{self.seed}"

    @property
    def path(self) -> Path:
        return RESULTS / f"{self.name}.json.xz"


def calibrations() -> list[Job]:
    """The runs that choose the learning rate of each arm."""
    return [Job(arm, rate, CALIBRATION_SEED, 15, 60, 16) for arm in ARMS for rate in RATES]


def jobs() -> list[Job]:
    """What there is to do, as far as the rates are known; seed by seed, so that a part of it is balanced."""
    rates = {arm: rate for arm in ARMS if (rate := best_rate(arm))}
    tests = [Job(arm, rates[arm], seed, 30, 100, 64) for seed in SEEDS for arm in ARMS if arm in rates]
    return [*calibrations(), Job("base", "", 0, 0, 100, 64), *tests]


def best_rate(arm: str) -> str | None:
    """The rate with the higher Pass@1 of the calibration, the smaller of equals; None before both were run."""
    done = [job for job in calibrations() if job.arm == arm and job.path.exists()]
    if len(done) < len(RATES):
        return None
    return max(reversed(done), key=lambda job: (pass_at_1(read(job.path)), -float(job.rate))).rate


def read(path: Path) -> dict[str, Any]:
    """What `write` was given, as `measured` of a run."""
    found: dict[str, Any] = json.loads(lzma.decompress(path.read_bytes()))
    return found


def write(path: Path, found: Mapping[str, Any]) -> None:
    """What `read` then returns; the same gives the same bytes."""
    text = json.dumps(found, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    write_whole(path, [lzma.compress(text.encode("utf-8"), preset=9 | lzma.PRESET_EXTREME)])


def pass_at_1(found: dict[str, Any]) -> float:
    """The share of right samples."""
    verdicts = [bool(correct) for rows in found["samples"].values() for _, correct in rows]
    return sum(verdicts) / len(verdicts)


def measured(job: Job, work: Path) -> dict[str, Any]:
    """Trains and samples: configuration, metrics, samples with verdicts, log-ratios by length, and the seconds."""
    run, samples, began_s = work / job.name, work / f"{job.name}-samples", time.monotonic()
    if job.arm != "base":
        _quatro(*(["train", str(run), "--resume"] if (run / "config.yaml").exists() else _train_command(job, run)))
    trained_s = time.monotonic()
    model = "smollm2-started" if job.arm == "base" else str(run)
    settings = f"-b word-problems --limit {job.limit} -n {job.n} --max-tokens 64 --grade -o".split()
    _quatro("sample", model, *settings, str(samples))
    rows = list(_rows(samples / "word-problems.jsonl"))
    found: dict[str, Any] = {
        "job": vars(job),
        "samples": {row["id"]: [] for row in rows},
        "seconds": {"training": trained_s - began_s, "sampling": time.monotonic() - trained_s},
    }
    for row in rows:
        found["samples"][row["id"]].append([row["completion"], row["correct"]])
    if job.arm != "base":
        found["config"] = (run / "config.yaml").read_text(encoding="utf-8")
        found["metrics"] = [{name: _short(value) for name, value in row.items()} for row in read_metrics(run)]
        if job.seed in SEEDS:
            found["log_ratios"] = log_ratios(run, job.steps)
    return found


def _train_command(job: Job, run: Path) -> list[str]:
    settings = (*ARMS[job.arm], f"optimizer.lr={job.rate}", f"seed={job.seed}", f"steps={job.steps}", "kl.beta=0")
    settings += ("prompts_per_step=8", "minibatch_prompts=4")
    # The last two checkpoints: the last iteration's rollouts, by the policy that drew them and by the one they made.
    settings += (f"checkpoint.every={job.steps - 1}", "checkpoint.keep=2")
    return ["train", "smollm2", *(word for one in settings for word in ("-s", one)), "-o", str(run)]


def log_ratios(run: Path, steps: int) -> list[list[float]]:
    """``[number of tokens, log s]`` of each whole rollout of the last iteration, s = pi_theta(o) / pi_old(o)."""
    import torch

    from quatro.policy.device import find_device
    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.tasks.word_problems import items, prompt_of

    prompts = {item.id: prompt_of(item.text) for item in items("train")}
    folders = [run / "checkpoints" / f"step-{step:06d}" for step in (steps - 1, steps)]
    device = find_device("auto")
    old, new = (load_model(str(folder / "model"), torch.float32, device) for folder in folders)
    tokenizer = load_tokenizer(str(folders[0] / "model"))

    def log_probability(model: Any, prompt: list[int], answer: list[int]) -> float:
        ids = torch.tensor([prompt + answer], device=device)
        with torch.no_grad():
            logp = model(ids).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
        return float(logp.gather(1, ids[0, len(prompt) :, None]).sum(dtype=torch.float64))

    found = []
    for row in _rows(run / "rollouts" / f"step-{steps:06d}.jsonl"):
        if row["finish_reason"] == "stop":
            prompt = tokenizer(prompts[row["id"]]).input_ids
            answer = [*tokenizer(row["completion"]).input_ids, tokenizer.eos_token_id]
            found.append(
                [row["num_tokens"], log_probability(new, prompt, answer) - log_probability(old, prompt, answer)]
            )
    return found


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line, _ in read_lines(path):
        if (row := parse_row(line, f"{path}:{number}")) is not None:
            yield row


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _quatro(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "quatro_cli", *arguments], check=True)


def run(job: Job, work: Path) -> None:
    """Measures ``job``, writes its results, and deletes what it made in ``work``."""
    before_s = sum(os.times()[:4])
    found = measured(job, work)
    found["cpu_s"] = sum(os.times()[:4]) - before_s
    RESULTS.mkdir(parents=True, exist_ok=True)
    write(job.path, found)
    for folder in (work / job.name, work / f"{job.name}-samples"):
        shutil.rmtree(folder, ignore_errors=True)  # the base has no run
    sys.stdout.write(f"{job.path}: Pass@1 {pass_at_1(found):.3f}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run what is missing of the study of a real model.")
    parser.add_argument("--work", type=Path, default=Path("runs/real-model"), help="folder for runs under way")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="so many side by side")
    parser.add_argument("--only", metavar="NAME", help="this one")
    parser.add_argument("--list", action="store_true", help="say what is done and what is missing")
    options = parser.parse_args()
    if options.list:
        sys.stdout.write("".join(f"{'done' if job.path.exists() else '-':5} {job.name}\n" for job in jobs()))
        return 0
    if options.only:
        run(next(job for job in jobs() if job.name == options.only), options.work)
        return 0

    def go(job: Job) -> int:
        command = [sys.executable, "-m", "experiments.real_model.study", "--only", job.name]
        command += ["--work", str(options.work)]
        return subprocess.run(command, check=False).returncode

    with ThreadPoolExecutor(options.at_once) as pool:
        while missing := [job for job in jobs() if not job.path.exists()]:
            if any(pool.map(go, missing)):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
