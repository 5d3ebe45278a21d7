"""Benchmarks in the paper's order, under their titles."""

from evals.benchmarks.catalogue import registry
from evals.results.document import Comparison, DifferenceRow, Result, Row
from evals.results.entries import own_entries
from evals.results.paper import BENCHMARKS
from evals.results.reading import read_sources
from evals.results.shown import in_order, rows_in_order, title_of, without_lone_average
from evals.tables.layouts import build_tables, comparison_table
from evals.tables.parts import Style


def test_the_papers_benchmarks_stand_in_its_order_then_others_as_they_come_and_the_average_last():
    names = ["average", "zzz", *sorted(BENCHMARKS, reverse=True), "aaa", "mbpp", "humanevalplus", "zzz"]
    assert in_order(names) == [*BENCHMARKS, "humanevalplus", "mbpp", "zzz", "aaa", "average"]


def test_the_average_of_one_benchmark_is_that_benchmark():
    assert without_lone_average(["average", "amc23"]) == ["amc23"]
    assert without_lone_average(["average", "amc23", "math500"]) == ["math500", "amc23", "average"]
    assert without_lone_average(["zzz", "aaa"]) == ["zzz", "aaa"]


def test_a_benchmark_goes_by_its_title_and_an_unknown_one_by_its_name():
    found = [title_of(name) for name in (*BENCHMARKS, "mbppplus", "mine", "average")]
    assert found == ["MATH500", "AMC23", "AIME24", "AIME25", "MinervaMath", "OlympiadBench", "MBPP+", "mine", "Average"]


def test_a_users_own_benchmark_has_the_title_that_its_file_gives(tmp_path, monkeypatch):
    file = tmp_path / "quatro-benchmarks.toml"
    file.write_text('[mine]\ntitle = "My problems"\nfile = "p.jsonl"\n', encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(file))
    assert title_of("mine") == "My problems"
    assert in_order(["other", "mine", "olympiad"]) == ["olympiad", "mine", "other"]
    assert list(registry())[-1] == "mine"


def test_rows_of_one_benchmark_keep_their_order():
    rows = [
        Row(metric="pass@k", benchmark=name, k=k, value=0.5, num_problems=1, n=8)
        for name in ("average", "amc23", "math500")
        for k in (8, 1)
    ]
    assert [(row.benchmark, row.k) for row in rows_in_order(rows)] == [
        (name, k) for name in ("math500", "amc23", "average") for k in (8, 1)
    ]


def test_tables_of_a_file_in_alphabetical_order_are_in_the_papers(tmp_path):
    rows = [Row(metric="pass@k", benchmark=name, k=1, value=0.5, num_problems=1, n=8) for name in sorted(BENCHMARKS)]
    Result(metric="pass@k", rows=rows, label="x").write(tmp_path / "x.json")
    ucc_rows = [row.model_copy(update={"metric": "ucc@k", "similarity": "exact"}) for row in rows]
    Result(metric="ucc@k", rows=ucc_rows, label="x").write(tmp_path / "u.json")
    titles = list(map(title_of, BENCHMARKS))
    own, _ = own_entries(read_sources([tmp_path / "x.json"]), "pass@k")
    assert [table.name for table in build_tables("benchmarks", own, metric="pass@k", style=Style())] == titles
    (average,) = build_tables("average", own, metric="pass@k", style=Style())
    assert average.title.endswith(f"over {', '.join(titles)}")
    own, _ = own_entries(read_sources([tmp_path / "u.json"]), "ucc@k")
    (table,) = [one for one in build_tables("ucc", own, metric="ucc@k", style=Style()) if one.sections]
    assert [line.label for line in table.sections[0].lines] == titles


def test_a_comparison_names_its_sides_by_what_tells_them_apart():
    rows = [
        DifferenceRow(
            metric="pass@k",
            benchmark=name,
            k=1,
            a=0,
            b=1,
            difference=1,
            ci_low=1,
            ci_high=1,
            p=0.01,
            num_problems=2,
            n=8,
        )
        for name in sorted(BENCHMARKS)
    ]
    made = Comparison(
        metric="pass@k", a="runs/base/samples/T1-p1", b="runs/tuned/samples/T1-p1", bootstrap_seed=0, rows=rows
    )
    (table,) = comparison_table(made)
    assert [column.name for column in table.sections[0].columns] == ["base", "tuned", "difference", "p", "p, Holm"]
    assert [line.label.partition(",")[0] for line in table.sections[0].lines] == list(map(title_of, BENCHMARKS))
    (table,) = comparison_table(made.model_copy(update={"a": "a.jsonl", "b": "./a.jsonl"}))
    assert [column.name for column in table.sections[0].columns][:2] == ["a.jsonl", "a.jsonl"]
