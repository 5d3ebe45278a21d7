"""The layouts of runs: hyper-parameters, and what training cost."""

import json
import re
from pathlib import Path

import pytest

from evals.errors import DataError
from evals.tables.formats import to_csv
from evals.tables.runs import PHASES, HyperParameter, cost_table, settings_tables


def cells(table):
    return {
        line.label: [cell and cell.text for cell in line.cells] for section in table.sections for line in section.lines
    }


def test_what_runs_share_stands_once_and_what_differs_in_columns():
    a = [
        HyperParameter("G", "lr", "1e-6", "paper"),
        HyperParameter("G", "clip", "0.2", "verl"),
        HyperParameter("F", "x", "0", "ours", True),
    ]
    b = [
        HyperParameter("G", "lr", "1e-6", "paper"),
        HyperParameter("G", "delta", "0.1", "paper"),
        HyperParameter("F", "x", "0", "ours", True),
    ]
    differing, shared = settings_tables({"A": a, "B": b})
    assert [column.name for column in differing.sections[0].columns] == ["A", "B", "Source"]
    assert cells(differing) == {"clip": ["0.2", None, "verl"], "delta": [None, "0.1", "paper"]}
    assert cells(shared) == {"lr": ["1e-6", "paper"]}, "a usual value that all share is left out"


def test_a_usual_value_is_shown_where_runs_differ_and_sources_are_told_apart():
    runs = {
        name: [HyperParameter("F", "x", value, source, True)]
        for name, value, source in (("A", "0", "ours"), ("B", "1", "set"), ("C", "0", "ours"))
    }
    (table,) = settings_tables(runs)
    assert cells(table) == {"x": ["0", "1", "0", "ours; B: set"]}


def test_one_run_has_one_table():
    (table,) = settings_tables({"A": [HyperParameter("G", "lr", "1e-6", "paper")]})
    assert [column.name for column in table.sections[0].columns] == ["A", "Source"]
    assert to_csv([table], with_ci=False) == "Group,Hyper-parameter,A,Source\nG,lr,1e-6,paper\n"


@pytest.fixture
def make_run(tmp_path):
    def make(name, rows):
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": step, "tokens": 500, "rollouts": 20, **row}) for step, row in rows]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / name

    return make


def test_shares_are_of_all_the_time_and_add_up(make_run):
    run = make_run(
        "r",
        [
            (1, {"perf/step_s": 4.0, "perf/generate_s": 3.0, "perf/log_s": 0.001}),
            (2, {"perf/step_s": 6.0, "perf/generate_s": 3.0, "perf/update_s": 2.0}),
        ],
    )
    table = cost_table({"R": [run]})
    (section,) = table.sections
    names = [column.name for column in section.columns]
    (line,) = section.lines
    found = {name: cell.text or cell.value for name, cell in zip(names, line.cells, strict=True)}
    assert found == {
        "generate": pytest.approx(60),
        "update": pytest.approx(20),
        "other": pytest.approx(20),
        "iterations": "2",
        "s / iteration": 5.0,
        "minutes": pytest.approx(10 / 60),
        "thousand tokens": 1.0,
        "responses / s": 4.0,
    }


def test_an_iteration_that_was_trained_again_counts_once_and_seeds_are_averaged(make_run):
    again = make_run("a", [(1, {"perf/step_s": 9.0}), (1, {"perf/step_s": 1.0})])
    other = make_run("b", [(1, {"perf/step_s": 3.0})])
    table = cost_table({"R": [again, other]})
    found = dict(
        zip([column.name for column in table.sections[0].columns], table.sections[0].lines[0].cells, strict=True)
    )
    assert found["s / iteration"].value == 2.0
    assert "Means of several seeds: R (2)." in table.notes


def test_a_run_without_its_times_is_named(make_run):
    with pytest.raises(DataError, match=r"metrics.jsonl:1: perf/step_s is None"):
        cost_table({"R": [make_run("r", [(1, {"perf/update_s": 1.0})])]})


def test_every_time_of_an_iteration_is_a_phase():
    documented = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(perf/[a-z_]+)`", documented))
    rates = {name for name in named if name.endswith("tokens_per_s")}
    assert set(PHASES) == named - rates - {"perf/step_s", "perf/peak_memory_gib"}
    assert PHASES[-1] == "perf/other_s", "the last is what small phases are added to"
