"""The layout of hyper-parameters."""

from evals.tables.formats import to_csv
from evals.tables.runs import HyperParameter, settings_tables


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
