"""The GPU benchmarks on a small shape and the CPU: that they run, not how fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPTS = ("gpu_update.py", "gpu_rollout.py")


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(FOLDER / script), *options], capture_output=True, text=True)


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_device_they_say_so(script):
    done = run(script)
    assert done.returncode == 3
    assert "--tiny --device cpu" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_tiny_shape_fills_a_table(script, tmp_path):
    done = run(script, "--tiny", "--device", "cpu", "--save", str(tmp_path / "results.md"))
    assert done.returncode == 0, done.stderr
    table = [line for line in (tmp_path / "results.md").read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert len(table) >= 4
    assert all("quatro" in line or "trl" in line or "transformers" in line or "ratio" in line for line in table[2:])
    assert all(line in done.stdout for line in table)


def test_operations_are_counted_by_hand():
    """One row, prompt 3, response 2, one layer: 6 a weight and token, the head for 2 tokens, attention 6 L D n^2."""
    sys.path.insert(0, str(FOLDER))
    try:
        import gpu_update
    finally:
        sys.path.remove(str(FOLDER))
    from quatro.policy.rows import collate
    from quatro.types import Prompt, Rollout

    prompt = Prompt("b", "0", "p", None, "p", (1, 2, 3))
    rows = collate([prompt], [[Rollout((4, 5), "", "stop")]], torch.zeros(1), max_new_tokens=4)
    shape = {
        "vocab_size": 7,
        "hidden_size": 4,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 10,
    }
    weights = 4 * 4 + 4 * 2 + 4 * 2 + 4 * 4 + 3 * 4 * 10
    assert gpu_update.operations(rows, shape) == 6 * weights * 5 + 6 * 4 * 7 * 2 + 6 * 4 * 5**2
