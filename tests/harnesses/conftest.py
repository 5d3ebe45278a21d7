"""The same responses for every harness, and what quatro says of the log that a harness wrote of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import quatro

N, NUM_PROBLEMS = 8, 13  # with 13 values a sum in another order would have another last digit
WAYS = (
    "First I add {} and then I stop, which makes \\boxed{{{}}}",
    "Count up from {}: one more, one more, and one more again. So it is \\boxed{{{}}}.",
    "I know it by heart, since {} years. \\boxed{{{}}}",
)
METRICS = ("pass@k", "pass^k", "ucc@k", "distinct@k")


@pytest.fixture(scope="session")
def responses() -> dict[str, list[str]]:
    """By prompt N responses each, some right, in more or less different words; the first problem has none."""
    rng = random.Random(11)
    return {
        f"What is {answer}?": [
            rng.choice(WAYS).format(rng.randrange(10), answer if rng.random() < 0.1 * (answer - 3) else -1)
            for _ in range(N)
        ]
        for answer in range(3, 3 + NUM_PROBLEMS)
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, responses: dict[str, list[str]]) -> Path:
    """The current folder, with the problems as `sums/test.jsonl`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (tmp_path / "sums").mkdir()
    answers = [prompt[8:-1] for prompt in responses]
    rows = [{"id": f"p{answer}", "input": f"What is {answer}?", "target": answer} for answer in answers]
    (tmp_path / "sums/test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


@pytest.fixture
def said_by_quatro(tmp_path: Path) -> Callable[[Path, str], dict[str, float]]:
    """``said_by_quatro(log, tool)``: what quatro makes of a log, by the names that our plug-ins use."""

    def said(log: Path, tool: str) -> dict[str, float]:
        samples = tmp_path / "imported.jsonl"
        quatro("eval", "import", log, "--from", tool, "-o", samples)
        found = {}
        for words in (
            ("passk", "--k", "1,2,4", "--also", "pass^k"),
            ("ucc", "--k", "2,4"),
            ("ucc", "--k", "2", "--similarity", "exact", "--also", "distinct"),
            ("ucc", "--k", "2", "--similarity", "tfidf", "--threshold", "0.7", "--linkage", "complete"),
        ):
            rows = json.loads(quatro("eval", words[0], samples, *words[1:], "--json").stdout)["rows"]
            assert {row["n"] for row in rows if row["metric"] != "distinct@k"} == {N}
            assert rows[0]["num_problems"] == NUM_PROBLEMS
            found |= {name_of(row): row["value"] for row in rows if row["metric"] in METRICS}
        return found

    return said


def name_of(row: dict[str, object]) -> str:
    parts = [str(row["metric"]).replace("k", str(row["k"]))]
    if "similarity" in row:
        parts.append(str(row["similarity"]))
        parts += [] if row["similarity"] == "exact" else [f"{row['threshold']:g}", str(row["linkage"])]
        parts += ["math"] if row["similarity"] == "tfidf" else []
    return "/".join(parts)
