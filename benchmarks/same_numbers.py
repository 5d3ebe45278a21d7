"""Training of an earlier commit against this tree's: metrics and weights must be the same byte for byte.

    python benchmarks/same_numbers.py REVISION [--only NAME]

A refactoring changes no number. Each configuration is trained by both trees through the command line, on the embedded
model; every metric but times, every rollouts file and every weight of the last checkpoint is compared. Exits with 1 if
anything differs.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from earlier import ROOT, unpack

EVALUATED = ("eval.every=1", "eval.benchmark=countdown", "eval.n=1")
SMALL = (
    *("steps=3", "prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=3"),
    *("optimizer.lr=1e-3", "optimizer.warmup_steps=0", "checkpoint.every=1"),
)
# Quickstart as it is shipped but shorter, then what the test of a stop at any moment trains.
CONFIGURATIONS: dict[str, tuple[str, ...]] = {
    "quickstart": ("steps=5",),
    "four minibatches": ("steps=3", "minibatch_prompts=8", "inner_updates=2"),
    "plain": SMALL,
    "no log-ratio": (*SMALL, "method.log_ratio=none"),
    "dapo": (*SMALL, "method.name=dapo"),
    "gspo": (*SMALL, "method.name=gspo"),
    "auto, large radius": (*SMALL, "inner_updates=auto", "method.delta=5"),
    "auto, evaluated": (*SMALL, "inner_updates=auto", "method.delta=0.5", *EVALUATED),
    "one pass, evaluated": (*SMALL, "inner_updates=1", *EVALUATED),
    "bfloat16": (*SMALL, "dtype=bfloat16"),
    "adapter": (*SMALL, "policy.lora.rank=4"),
}


def train(tree: Path, out: Path, settings: tuple[str, ...]) -> None:
    """Run `quatro train quickstart` of ``tree``."""
    options = [word for setting in settings for word in ("-s", setting)]
    subprocess.run(
        [sys.executable, "-P", "-m", "quatro_cli", "train", "quickstart", *options, "-o", str(out)],
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        cwd=out.parent,
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def metrics_of(run: Path) -> list[dict[str, Any]]:
    """One object a step, without times and memory."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [{name: value for name, value in row.items() if not name.startswith(("perf/", "env/"))} for row in rows]


def hashes_of(run: Path) -> dict[str, str]:
    """SHA-256 of the weights of the last checkpoint and of every rollouts file."""
    *_, last = sorted((run / "checkpoints").glob("step-*"))
    files = [*(last / "model").glob("*.safetensors"), *(run / "rollouts").iterdir()]
    return {str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def differences(before: Path, after: Path) -> list[str]:
    """What is not the same in two runs, in words."""
    found = []
    old, new = metrics_of(before), metrics_of(after)
    if len(old) != len(new):
        found.append(f"{len(old)} and {len(new)} rows of metrics")
    for name in sorted({name for row in (*old, *new) for name in row}):
        pairs = [(one.get(name), other.get(name)) for one, other in zip(old, new, strict=False)]
        if any(one != other for one, other in pairs):
            step, (one, other) = next((step, pair) for step, pair in enumerate(pairs, 1) if pair[0] != pair[1])
            found.append(f"{name} of step {step}: {one} and {other}")
    old_hashes, new_hashes = hashes_of(before), hashes_of(after)
    found += [
        name for name in sorted(old_hashes.keys() | new_hashes.keys()) if old_hashes.get(name) != new_hashes.get(name)
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--only", choices=list(CONFIGURATIONS), help="one configuration")
    options = parser.parse_args()
    num_different = 0
    with tempfile.TemporaryDirectory() as scratch:
        earlier = unpack(options.revision, Path(scratch) / "earlier")
        for number, (name, settings) in enumerate(CONFIGURATIONS.items()):
            if options.only not in (None, name):
                continue
            runs = [Path(scratch) / f"{side}-{number}" for side in ("before", "after")]
            try:
                train(earlier, runs[0], settings)
                train(ROOT, runs[1], settings)
            except subprocess.CalledProcessError as error:
                sys.exit(f"{name}: {error.stderr.decode(errors='replace')[-2000:]}")
            found = differences(*runs)
            num_different += bool(found)
            print(f"{name:26} {'the same' if not found else 'DIFFERENT'}", flush=True)
            for line in found[:10]:
                print(f"    {line}")
    sys.exit(num_different > 0)


if __name__ == "__main__":
    main()
