"""A machine that is busy with something else is slower; no grade, verdict or estimate is another."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.code.grading import asserts
from evals.sandbox import probe
from tests.kit import write_rows

TESTS = {"base": asserts(["assert add(1, 2) == 3"])}
PROGRAMS = [
    "def add(a, b):\n    return a + b",
    "def add(a, b):\n    return a - b",
    "def add(a, b):\n    while True: pass",
    "def add(a, b):\n    return [0] * 10 ** 12",
    "import time\ndef add(a, b):\n    while time.process_time() < 0.5: pass\n    return a + b",
]
ANSWERS = [
    "\\boxed{\\frac{x^2-1}{x-1}}",
    "\\boxed{(x+1)^{40} - (x+1)^{40} + x + 1}",
    "\\boxed{\\int_0^{x+1} e^{t^2} \\sin(t^3) dt}",
    "\\boxed{9^{9^{9^{9}}}}",
    "\\boxed{1+x}",
    "\\boxed{5 or six}",
]


@contextlib.contextmanager
def overloaded() -> Iterator[None]:
    """Four processes that spin for every core."""
    count = 4 * (os.cpu_count() or 1)
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def measured(lab, rows: Path, folder: Path, grader: str) -> dict[str, bytes]:
    """What grading the samples and estimating from the grades writes."""
    graded = lab.run(["eval", "grade", str(rows), "--grader", grader, "-o", str(folder)], root=folder)
    assert graded.code == 0, graded.err
    estimated = lab.run(["eval", "passk", str(folder), "--k", "1,2", "-o", str(folder / "passk.csv")], root=folder)
    assert estimated.code == 0, estimated.err
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


@pytest.mark.parametrize(
    "grader", [pytest.param("math", marks=pytest.mark.slow), pytest.param("code", marks=pytest.mark.long)]
)
def test_fault_15_and_51_grades_and_estimates_are_the_same_on_an_overloaded_machine(lab, tmp_path, grader):
    if grader == "code" and probe().name == "none":
        pytest.skip("no isolation here")
    texts = [f"```python\n{program}\n```" for program in PROGRAMS] if grader == "code" else ANSWERS
    problem = {"answer": None, "tests": TESTS, "entry_point": "add"} if grader == "code" else {"answer": "x+1"}
    rows = [
        {"benchmark": "toy", "id": "p", "sample_index": i, "completion": text, **problem}
        for i, text in enumerate(texts)
    ]
    samples = tmp_path / "toy.jsonl"
    write_rows(samples, rows)
    idle = measured(lab, samples, tmp_path / "idle", grader)
    with overloaded():
        assert measured(lab, samples, tmp_path / "busy", grader) == idle
    outcomes = {json.loads(line)["outcome"] for line in idle["toy.jsonl"].splitlines()}
    assert len(outcomes) >= 2, "the samples should differ"
