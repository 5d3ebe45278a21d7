"""The comparison with TRL's trainer on a small case: that both sides run and fill the table, not how fast."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "train_vs_trl.py"


@pytest.mark.trl
def test_the_table_is_filled_and_a_second_call_measures_nothing(tmp_path):
    pytest.importorskip("trl")
    saved = tmp_path / "results.md"

    def run() -> subprocess.CompletedProcess[str]:
        options = ("--quick", "--dtypes", "float32", "--records", str(tmp_path / "r.jsonl"), "--save", str(saved))
        return subprocess.run([sys.executable, str(SCRIPT), *options], capture_output=True, text=True)

    done, again = run(), run()
    assert done.returncode == 0, done.stderr
    assert again.returncode == 0, again.stderr
    assert "float32, audited, block 0: measured" in done.stderr
    assert "measured" not in again.stderr
    table = [line for line in done.stdout.splitlines() if line[:1] == "|"]
    assert [line.count("|") for line in table] == [4] * len(table)
    assert "tuned (8 rows)" in table[0]
    assert sum(" x (" in line for line in table) == 5
    assert saved.read_text(encoding="utf-8").count(table[2]) == 2
