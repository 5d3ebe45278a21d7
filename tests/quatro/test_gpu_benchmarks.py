"""The GPU benchmarks on a small shape and the CPU: that they run anywhere and go on, not how fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
SCRIPT = str(FOLDER / "gpu.py")
# What a machine with torch and transformers may lack, and of that what training needs.
CARRIED = ("pydantic", "pydantic_core", "annotated_types", "typing_inspection")
MISSING = (*CARRIED, "math_verify", "latex2sympy2", "antlr4", "rapidfuzz", "rouge_score", "nltk", "trl", "quatro", "_")


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))


@pytest.mark.long
@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_without_a_device_it_says_so():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 3
    assert "--tiny --device cpu" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_every_part_runs_without_installation_and_is_measured_once(tmp_path):
    installed, site, wheels, out = Path(sysconfig.get_path("purelib")), tmp_path / "site", tmp_path / "wheels", tmp_path
    site.mkdir()
    wheels.mkdir()
    for path in installed.iterdir():
        if not path.name.lower().startswith(MISSING) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    for name in CARRIED:
        with zipfile.ZipFile(wheels / f"{name}.whl", "w") as wheel:
            for path in (installed / name).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    wheel.write(path, path.relative_to(installed))

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", SCRIPT, "--tiny", "--device", "cpu", "--out", str(out), *options]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    refused = run()
    assert refused.returncode == 3
    assert "No module named 'pydantic" in refused.stderr
    assert "--wheels" in refused.stderr

    stopped = run("--wheels", str(wheels), "--part", "gradients", "--minutes", "0.0001")
    assert stopped.returncode == 75

    done = run("--wheels", str(wheels))
    assert done.returncode == 0, done.stderr
    page = next(out.glob("gpu-*.md")).read_text(encoding="utf-8")
    assert [line for line in done.stdout.splitlines() if line[:1] == "|"] == [
        line for line in page.splitlines() if line[:1] == "|"
    ]
    for part in ("update", "lora", "gradients", "decode", "iteration", "constants"):
        assert f"--part {part}`" in page
    assert "| ragged, 4-10 tokens |" in page
    assert json.loads(next(out.glob("gpu-*.json")).read_text(encoding="utf-8"))["call_us"] > 0
    assert "out of memory" not in page

    again = run("--wheels", str(wheels))
    assert again.returncode == 0
    assert "measured in" not in again.stderr
    assert again.stdout == done.stdout


def test_operations_are_counted_by_hand(benchmarks):
    """One row, prompt 3, response 2, one layer: 6 a weight and token, the head for 2 tokens, attention 6 L D n^2."""
    import gpu_update

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
