"""Four problems for a server."""

import json
from pathlib import Path

import pytest

TOY = [{"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 5)]


@pytest.fixture
def toy(tmp_path: Path) -> str:
    """Four problems whose answer is 67."""
    path = tmp_path / "toy.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in TOY), encoding="utf-8")
    return str(path)
