"""How long `quatro --help` and every refusal take beside an interpreter that only imports torch, by the clock and in
processor time, which other processes on the machine change less; the least of several runs, all taken in turn.

A refusal must take less than half of `import torch`.

    python benchmarks/startup.py
"""

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from earlier import ROOT, children_cpu_s

REPEATS = 5
TORCH = "import torch"
LIMIT = 0.5

CASES: dict[str, tuple[str, int]] = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8"))
SMALL = ("steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "inner_updates=1")
MAKE_MODEL = """
from quatro.policy import embedded
from quatro.tasks import countdown
recipe = countdown.CountdownWarmStart(hidden_size=32, num_heads=1, num_layers=1, mlp_size=64)
embedded.make_model(recipe).save_pretrained("model")
embedded.make_tokenizer(recipe.max_positions).save_pretrained("model")
"""


class Seconds(NamedTuple):
    """Of a process and those that it waited for: ``wall`` by the clock, ``cpu`` of processors at work."""

    wall: float
    cpu: float


def timed(folder: Path, *arguments: str, code: int = 0) -> Seconds:
    """What an interpreter with ``arguments`` took; raises RuntimeError where it ended with another code."""
    start, before = time.perf_counter(), children_cpu_s()
    done = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, encoding="utf-8", check=False)
    taken = Seconds(time.perf_counter() - start, children_cpu_s() - before)
    if done.returncode != code:
        raise RuntimeError(f"{' '.join(arguments)} ended with {done.returncode}, expected {code}:\n{done.stderr}")
    return taken


def make_inputs(folder: Path) -> None:
    """Puts `empty`, `model` and a small `run` there."""
    # The Hub is not asked: where there is no network, looking up its name alone may take seconds.
    os.environ |= {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    (folder / "empty").mkdir()
    timed(folder, "-c", MAKE_MODEL)
    settings = [part for setting in SMALL for part in ("-s", setting)]
    model = ["-s", "model=model"]
    timed(folder, "-m", "quatro_cli", "train", "quickstart", *model, *settings, "-o", "run")


def main() -> int:
    """Prints what every refusal takes; 1 if one takes too long."""
    taken: dict[str, list[Seconds]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        for _ in range(REPEATS):
            for case in ("pass", TORCH):
                taken.setdefault(case, []).append(timed(folder, "-c", case))
            for case, (typed, code) in CASES.items():
                taken.setdefault(case, []).append(timed(folder, "-m", "quatro_cli", *typed.split(), code=code))
    least = {case: Seconds(*map(min, zip(*found, strict=True))) for case, found in taken.items()}
    print(f"{'':45s}   wall      cpu   shares of {TORCH}")
    for case, (wall, cpu) in least.items():
        shares = f"{wall / least[TORCH].wall:4.2f}  {cpu / least[TORCH].cpu:4.2f}"
        print(f"{case:45s} {wall:5.2f} s  {cpu:5.2f} s   {shares}")
    largest = max(CASES, key=lambda case: least[case].cpu)
    share = least[largest].cpu / least[TORCH].cpu
    print(f"the most processor time takes {largest!r}: {share:.2f} of {TORCH}, the limit is {LIMIT}")
    return int(share >= LIMIT)


if __name__ == "__main__":
    sys.exit(main())
