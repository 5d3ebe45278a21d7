"""`quatro.measure`, `compare` and `clusters` find what the commands print with --json, to the digit."""

from __future__ import annotations

import io
import json
import logging
import sys
from pathlib import Path

import numpy as np
import pytest

import quatro
from evals.errors import UsageError
from tests.kit import quatro as typed
from tests.kit import says

TEXTS = ("x y z w", "x y z v", "p q", "r", "<b>bold</b>\x1b[2J")


@pytest.fixture(scope="module")
def samples(tmp_path_factory) -> dict[str, Path]:
    """Two sides with two benchmarks of 12 problems; in 4 of 6 samples at most a problem's text is right."""
    folder = tmp_path_factory.mktemp("samples")
    for side, shift in (("a", 0), ("b", 1)):
        rows = [
            {"benchmark": benchmark, "id": f"{id:02}", "sample_index": i, "completion": rf"\boxed{{{i % 3}}}"}
            | {"answer": "1", "correct": (id + i * shift) % 5 > i}
            | ({"completion": TEXTS[(id + i) % len(TEXTS)]} if (id + i * shift) % 5 > i else {})
            for benchmark in ("one", "two")
            for id in range(12)
            for i in range(6)
        ]
        (folder / side).mkdir()
        for benchmark in ("one", "two"):
            lines = (json.dumps(row) + "\n" for row in rows if row["benchmark"] == benchmark)
            (folder / side / f"{benchmark}.jsonl").write_text("".join(lines), encoding="utf-8")
    return {side: folder / side for side in ("a", "b")}


def printed(*words):
    return json.loads(typed("eval", *words, "--json").stdout)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, []),
        ({"k": np.array([1, 4]), "ci": True}, ["--k", "1,4", "--ci"]),
        (
            {"k": 2, "n": 5, "label": "A", "per_problem": True},
            ["--k", "2", "--n", "5", "--label", "A", "--per-problem"],
        ),
        ({"benchmarks": "two"}, ["-b", "two"]),
    ],
)
@pytest.mark.parametrize("command", ["passk", "ucc"])
def test_results_are_those_of_the_commands(samples, command, options, words):
    metric = {"passk": "pass@k", "ucc": "ucc@k"}[command]
    assert quatro.measure(samples["a"], **options)[metric].document() == printed(command, samples["a"], *words)


@pytest.mark.parametrize(
    ("metric", "options", "words"),
    [
        ("pass@k", {"also": ["maj", "g-pass"], "tau": [0.5, 1.0]}, ["--also", "maj,g-pass", "--tau", "0.5,1"]),
        ("pass@k", {"also": "pass^k"}, ["--also", "pass^k"]),
        ("ucc@k", {"also": "distinct"}, ["--also", "distinct"]),
        ("ucc@k", {"similarity": ["jaccard", "edit"], "threshold": [0.5, 0.9]}, ["--similarity", "jaccard,edit"]),
        ("ucc@k", {"similarity": "jaccard", "linkage": "complete", "tokens": "whitespace"}, ["--linkage", "complete"]),
    ],
)
def test_options_mean_what_those_of_the_commands_mean(samples, metric, options, words):
    for name in {"threshold", "tokens"} & options.keys():
        words = [*words, f"--{name}", ",".join(map(str, np.atleast_1d(options[name])))]
    if options.get("similarity") == "jaccard":
        words = [*words, "--similarity", "jaccard"]
    command = "ucc" if metric == "ucc@k" else "passk"
    files = sorted(samples["a"].iterdir())
    found = quatro.measure([[files[0]], str(files[1])], metric=metric, **options)
    assert list(found) == [metric]
    assert found[metric].document() == printed(command, *files, *words)


def test_names_beside_each_metric_go_to_it(samples):
    both = quatro.measure(samples["a"], k=[1, 2], also=["distinct", "maj"])
    assert {row.metric for row in both["pass@k"].rows} == {"pass@k", "maj@k"}
    assert {row.metric for row in both["ucc@k"].rows} > {"ucc@k", "distinct@k"}
    frame = both.frame()
    assert frame["value"].tolist() == [row.value for one in both.values() for row in one.rows]
    assert repr(both) == str(both) == "\n".join(map(repr, both.values()))


@pytest.mark.parametrize("metric", ["pass@k", "ucc@k"])
def test_comparisons_are_those_of_the_command(samples, metric):
    found = quatro.compare(samples["a"], samples["b"], [1, 4], metric=metric, n=5)
    assert found.document() == printed("compare", *samples.values(), "--metric", metric, "--k", "1,4", "--n", "5")
    assert len(found.frame()) == len(found.rows)


def test_clusters_are_those_of_the_command_and_escaped(samples):
    found = quatro.clusters(samples["a"], id="04", similarity=["exact", "jaccard"])
    words = ["clusters", samples["a"], "--id", "04", "--similarity", "exact,jaccard"]
    assert found.document() == printed(*words)
    assert f"{found}\n" == typed("eval", *words).stdout
    assert [cluster.size for cluster in found[0].clusters] == found.document()["problems"][0]["sizes"]
    page = found._repr_html_()
    assert "&lt;b&gt;bold&lt;/b&gt;\\x1b[2J" in page
    assert "<b>" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metric": "pass"}, ("pass", "pass@k or ucc@k")),
        ({"metric": "pass@k", "similarity": "exact"}, ("--similarity", "pass@k")),
        ({"metric": "ucc@k", "tau": 0.5}, ("--tau", "ucc@k")),
        ({"tau": 0.25}, ("--tau 0.25", "g-pass")),
        ({"also": "vendy"}, ("vendy",)),
        ({"grader": "maths"}, ("maths", "math, countdown")),
        ({"n": 0}, ("n = 0", "at least 1")),
        ({"k": 2.5}, ("2.5", "number of draws")),
    ],
)
def test_what_is_wrong_is_said_by_name(samples, options, said):
    with pytest.raises(UsageError) as error:
        quatro.measure(samples["a"], **options)
    says(error.value, *said)


def test_names_are_checked_and_samples_needed(samples):
    with pytest.raises(TypeError, match="treshold"):
        quatro.measure(samples["a"], treshold=0.9)
    with pytest.raises(UsageError, match="no samples given"):
        quatro.measure([])


@pytest.fixture
def in_python(monkeypatch):
    """Logs go where they go without the command line."""
    for name in ("quatro", "evals"):
        monkeypatch.setattr(logging.getLogger(name), "handlers", [])
        monkeypatch.setattr(logging.getLogger(name), "propagate", True)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_says_how_far_the_work_is(samples, in_python, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    quatro.measure(samples["a"], metric="ucc@k")
    drawn = screen.getvalue().split("\r")
    assert "clustering problems: 50 %" in drawn
    assert drawn[-1] == "clustering problems: 100 %\n"


def test_elsewhere_only_warnings_are_told(samples, in_python, capsys, caplog):
    found = quatro.measure(samples["a"], k=6, also="distinct")
    assert found.warnings
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == found.warnings
    assert capsys.readouterr() == ("", "")
