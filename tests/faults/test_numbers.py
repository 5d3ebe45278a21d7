"""Every fault of docs/guarantees.md has a test that is named after it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUM_FAULTS = 53
NOT_YET = {53}


def numbers_of_tests() -> set[int]:
    """7 for `test_fault_07_a_flipped_bit`, 15 and 48 for `test_fault_15_and_48_a_killed_grader`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_fault_"):
                leading = re.match(r"(_and|_\d\d)+", node.name.removeprefix("test_fault"))
                found |= set(map(int, re.findall(r"\d\d", leading[0])))
    return found


def test_every_fault_is_on_the_page_and_has_a_test():
    page = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    rows = [int(number) for number in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)]
    assert len(rows) == len(set(rows))
    assert set(rows) | NOT_YET == set(range(1, NUM_FAULTS + 1))
    assert numbers_of_tests() == set(rows)
