"""Similarities that a built-in one is added to, and those of the user's own, from the outside."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from evals.similarity.catalogue import SIMILARITIES, Similarity
from quatro_cli.app import app

ROOT = Path(__file__).parents[3]
TEXTS = ["add one", "add two", "take one", "take two"]
runner = CliRunner()


@pytest.fixture
def samples(tmp_path, monkeypatch):
    """Two problems with the four texts, all right, in a folder that is the current one."""
    monkeypatch.chdir(tmp_path)
    rows = [
        {"benchmark": "toy", "id": id, "sample_index": index, "completion": text, "answer": "1", "correct": True}
        for id in "pq" for index, text in enumerate(TEXTS)
    ]  # fmt: skip
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def invoke(*arguments):
    result = runner.invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def first_letter(unique, tokens):
    """1 where the first letters are equal, else 0.25."""
    letter_U = np.array([text[0] for text in unique.texts])
    return np.where(letter_U[:, None] == letter_U, 1.0, 0.25)


def test_one_function_and_one_entry_make_a_similarity(samples, monkeypatch, tmp_path):
    entry = Similarity("First letter", f"{__name__}:first_letter", "equal beginnings", 0.7, has_tokens=True)
    monkeypatch.setitem(SIMILARITIES, "first-letter", entry)
    assert "edit, first-letter." in " ".join(invoke("eval", "ucc", "--help").split())
    assert "0.9 (tfidf), 0.7 (first-letter), 0.8 (others)" in " ".join(invoke("eval", "ucc", "--help").split())
    shown = invoke("eval", "ucc", samples, "--similarity", "first-letter", "--k", "4", "-o", "ucc.json")
    assert "first-letter >= 0.7, components, math tokens" in shown
    rows = json.loads(Path("ucc.json").read_text(encoding="utf-8"))["rows"]
    assert [row["value"] for row in rows if (row["metric"], row["benchmark"]) == ("ucc@k", "toy")] == [2.0]
    assert "first-letter" in invoke("table", "ucc.json", "--metric", "ucc@k")
    assert "first-letter" in invoke("eval", "similarity", samples, "-o", "similarity.json")
    for what in (["similarity", "similarity.json"], ["heatmap", samples, "--id", "p", "--similarity", "first-letter"]):
        invoke("plot", *what, "-o", f"{what[0]}.svg")
    assert "First letter" in Path("similarity.svg").read_text(encoding="utf-8")
    assert "first-letter" in Path("heatmap.svg").read_text(encoding="utf-8")
    generate = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    module = importlib.util.module_from_spec(generate)
    generate.loader.exec_module(module)
    assert "| `first-letter` | equal beginnings | 0.7 | yes |  |" in module.similarity_page()
    refused = runner.invoke(app, ["eval", "ucc", samples, "--similarity", "first-letter", "--backend", "reference"])
    assert (refused.exit_code, "'first-letter' has no reference" in refused.stderr) == (2, True)
