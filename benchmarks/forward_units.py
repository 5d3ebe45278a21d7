"""What scoring costs beside the update: this tree against an earlier commit, phase by phase.

    python benchmarks/forward_units.py REVISION [--blocks 3]

Log pi_old, the reference and the audit are forward passes; the update is three. Both trees train the same iterations in
turns (K = 1, 4 minibatches of 32 prompts, 4 rollouts, bfloat16, a random model of 2 layers), each in a process of its
own with one thread. Phases are measured in CPU seconds, the first iteration is left out, and what is printed is each
phase's share of the update of the same run, with the range over the blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from earlier import ROOT, told, unpack

PHASES = ("old_logp", "ref_logp", "audit")
SETTINGS = (
    *("steps=3", "prompts_per_step=128", "minibatch_prompts=32", "rollouts_per_prompt=4", "inner_updates=1"),
    *("dtype=bfloat16", "rollout.max_new_tokens=32", "kl.beta=0.001", "microbatch_tokens=4096", "checkpoint.every=0"),
    *("save_rollouts=false", "threads=1"),
)
MODEL = """
import sys
from quatro.policy import embedded
from quatro.tasks import countdown
recipe = countdown.CountdownWarmStart(hidden_size=128, num_heads=4, mlp_size=512)
embedded.make_model(recipe).save_pretrained(sys.argv[1])
embedded.make_tokenizer(recipe.max_positions).save_pretrained(sys.argv[1])
"""
# The stopwatch of the loop counts CPU seconds here.
TRAIN = """
import sys, time, types
from pathlib import Path
from quatro.loop import position
position.time = types.SimpleNamespace(monotonic=time.process_time)
from quatro.config import load_config
from quatro.runs.directory import RunDir
from quatro.train import train
config = load_config("quickstart", overrides=sys.argv[2:])
with RunDir.create(Path(sys.argv[1]), config) as run:
    train(config, run)
"""


def python(tree: Path, code: str, *arguments: str) -> None:
    """Run ``code`` with the packages of ``tree``."""
    subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def shares(run: Path) -> dict[str, float]:
    """CPU seconds of each phase over those of the update, after the first iteration."""
    with (run / "metrics.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file][1:]
    total = {phase: sum(row[f"perf/{phase}_s"] for row in rows) for phase in (*PHASES, "update", "step")}
    return {phase: total[phase] / total["update"] for phase in (*PHASES, "step")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--blocks", type=int, default=3, help="how often each tree is run")
    options = parser.parse_args()
    found: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as scratch:
        earlier, model = unpack(options.revision, Path(scratch) / "earlier"), Path(scratch) / "model"
        python(ROOT, MODEL, str(model))
        for block in range(options.blocks):
            for side, tree in (("before", earlier), ("after", ROOT)):
                run = Path(scratch) / f"{side}-{block}"
                python(tree, TRAIN, str(run), f"model={model}", *SETTINGS)
                found[side].append(shares(run))
    print("| share of the update's CPU seconds | before | after |\n|---|---|---|")
    for phase in PHASES:
        columns = [told([one[phase] for one in found[side]], 3) for side in found]
        print(f"| {phase} | {' | '.join(columns)} |")
    beside = {side: [sum(one[phase] for phase in PHASES) for one in found[side]] for side in found}
    print(f"| all three | {' | '.join(told(values, 3) for values in beside.values())} |")
    ratios = [after / before for before, after in zip(beside["before"], beside["after"], strict=True)]
    whole = [after["step"] / before["step"] for before, after in zip(found["before"], found["after"], strict=True)]
    print(f"scoring after / before: {told(ratios, 3)}; a whole iteration: {told(whole, 3)}")


if __name__ == "__main__":
    main()
