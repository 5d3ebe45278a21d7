"""What all tests on SmolLM2 share: batches of 4 x 4, and `quatro` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.kit import read_rows, settings

BATCH = ["prompts_per_step=4", "rollouts_per_prompt=4", "minibatch_prompts=2", "inner_updates=2", "steps=1"]
LIMIT_S = 600


def command(*words: object, num_ranks: int = 1) -> subprocess.CompletedProcess[str]:
    """``quatro *words`` in processes of their own, which torchrun starts if they are several; they must also end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    done = subprocess.run(
        [sys.executable, *(launcher if num_ranks > 1 else []), "-m", "quatro_cli", *map(str, words)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def trained(path: Path, *pairs: str, num_ranks: int = 1) -> dict[str, Any]:
    """The metrics of a run of one iteration."""
    command("train", "smollm2", *settings(*BATCH, *pairs), "-o", path, num_ranks=num_ranks)
    (row,) = read_rows(path / "metrics.jsonl")
    return row
