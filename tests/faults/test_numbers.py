"""Every fault of docs/guarantees.md has a test that is named after it, and a mutant that the test notices."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUM_FAULTS = 54


def test_every_fault_is_on_the_page_and_has_a_test_and_a_mutant():
    parts = runpy.run_path(str(Path(__file__).with_name("guards.py")))
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \*\*([\d, ]+)\*\* ", page, re.MULTILINE)
    rows = [int(number) for entry in entries for number in entry.split(",")]
    assert len(rows) == len(set(rows))
    assert set(rows) == set(range(1, NUM_FAULTS + 1))
    assert set(parts["tests_by_fault"](ROOT / "tests")) == set(rows)
    assert {guard.fault for guard in parts["GUARDS"]} == set(rows)
