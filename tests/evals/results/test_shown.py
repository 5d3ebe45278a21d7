"""Results in a session of Python and in a notebook: the tables that the commands print, with nothing raw in them."""

from __future__ import annotations

import json

import pytest

from evals.results.document import Comparison, Result, read_result
from tests.kit import quatro, write_rows

NASTY = "<img src=x onerror=alert(1)>\x1b[2J\u202e"


def samples_of(path, benchmark, correct):
    row = {"benchmark": benchmark, "answer": "1"}
    rows = (
        {**row, "id": str(id), "sample_index": i, "completion": str(i), "correct": i < num}
        for id, num in enumerate(correct)
        for i in range(4)
    )
    return write_rows(path, rows)


@pytest.mark.parametrize("command", ["passk", "ucc", "compare", "flips"])
def test_a_result_reads_as_the_command_prints_it(tmp_path, command):
    a = samples_of(tmp_path / "a.jsonl", "toy", [0, 1, 2] * 4)
    b = samples_of(tmp_path / "b.jsonl", "toy", [1, 2, 2] * 4)
    files = [a, b] if command in ("compare", "flips") else [a]
    told = quatro("eval", command, *files, "--k", "1,4", "-o", tmp_path / "out.json").stdout
    found = Comparison if command == "compare" else Result
    shown = repr(found.read_from(json.loads((tmp_path / "out.json").read_text()), tmp_path / "out.json"))
    assert shown + "\n" == told
    if command == "flips":
        assert all(word in shown for word in ("very hard", "flip@k", "k=4"))


def test_a_notebook_gets_no_markup_from_a_name(tmp_path):
    samples = samples_of(tmp_path / "a.jsonl", NASTY, [1, 2])
    quatro("eval", "passk", samples, "-o", tmp_path / "out.json", "--ci")
    found = read_result(tmp_path / "out.json")
    found.warnings.append(NASTY)
    page = found._repr_html_()
    assert page.count("&lt;img src=x onerror=alert(1)&gt;\\x1b[2J\\u202e") == 2  # a cell and the warning
    for text in (page, repr(found)):
        assert not {"\x1b", "\u202e"} & set(text)
    assert "<img" not in page
    assert "37.5 [" in page
    assert repr(found).endswith(f"\nwarning: {NASTY.encode('unicode_escape').decode()}")
