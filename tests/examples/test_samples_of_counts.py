"""Samples that are made of the counts of a result have the numbers of that result."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from tests.kit import quatro, write_rows

EXAMPLE = Path(__file__).parents[2] / "examples/samples_of_counts.py"


def test_they_are_measured_as_the_samples_were(tmp_path, monkeypatch, capsys):
    texts = {"p": ["x", "x", "y", "no"], "q": ["no"] * 4, "r": ["x", "y", "z", "z"]}
    rows = [
        {"benchmark": "toy", "id": id, "sample_index": at, "completion": text, "answer": "1", "correct": text != "no"}
        for id, own in texts.items()
        for at, text in enumerate(own)
    ]
    monkeypatch.chdir(tmp_path)
    how = ("--similarity", "exact", "--k", "1,2,4")
    quatro("eval", "ucc", write_rows(tmp_path / "samples.jsonl", rows), *how, "--per-problem", "-o", "ucc.json")
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "ucc.json"])
    capsys.readouterr()
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    Path("counts.jsonl").write_text(capsys.readouterr().out, encoding="utf-8")
    quatro("eval", "ucc", "counts.jsonl", *how, "-o", "again.json")
    values = [
        {(row["metric"], row["k"]): row["value"] for row in json.loads(Path(name).read_text(encoding="utf-8"))["rows"]}
        for name in ("ucc.json", "again.json")
    ]
    assert values[0] == values[1]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), "again.json"])
    with pytest.raises(SystemExit, match="keeps no counts"):
        runpy.run_path(str(EXAMPLE), run_name="__main__")
