"""The paper's layouts: fed with its own numbers they give its own tables; nothing in a label can do harm."""

import csv
import io
import json
import math

import pytest

from evals.errors import DataError, UsageError
from evals.files.frames import csv_text
from evals.intervals import mean_of_seeds
from evals.results.entries import ENTROPY_METRIC, own_entries, published_entries, renamed
from evals.results.paper import paper
from evals.results.reading import RunHead, read_sources
from evals.tables.formats import markdown_text, to_csv, to_json, to_markdown
from evals.tables.latex import to_latex
from evals.tables.layouts import PAPER_TABLES, build_tables
from evals.tables.parts import Style, decimal_text
from tests.kit import says


def row(benchmark, k, value, metric="pass@k", **extra):
    return {"metric": metric, "benchmark": benchmark, "k": k, "value": value, "num_problems": 30, "n": 256, **extra}


def ucc_row(benchmark, k, value, threshold=0.9, **extra):
    setting = {"similarity": "tfidf", "threshold": threshold, "linkage": "components", "tokens": "math"}
    return row(benchmark, k, value, "ucc@k", **setting, **extra)


@pytest.fixture
def write(tmp_path):
    """Writes a result document and returns its path."""

    def write(name, rows, **head):
        path = tmp_path / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        document = {"schema": 1, "metric": rows[0]["metric"], "rows": rows, **head}
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    return write


def tables(layout, paths, *, metric="pass@k", with_paper=False, **style):
    own, _ = own_entries(read_sources(paths), metric)
    published = published_entries(metric, tables=PAPER_TABLES[layout]) if with_paper else []
    return build_tables(layout, own, published, metric=metric, style=Style(**style))


def records(text):
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture
def papers_own_numbers(write):
    """A file for each of its methods, with the six per-benchmark tables."""
    rows = {}
    for one in paper().series:
        if one.table == "tab:appendix_passk_all":
            found = [row(one.benchmark, k, value / 100) for k, value in one.values().items()]
            rows.setdefault((one.model, one.label), []).extend(found)
    return [write(f"m{i}", found, model=model, label=label) for i, ((model, label), found) in enumerate(rows.items())]


def test_the_papers_benchmarks_give_its_average_table_but_for_the_misprint(papers_own_numbers):
    found = {
        (one["Model"], one["Method"], k): one[str(k)]
        for one in records(to_csv(tables("average", papers_own_numbers), with_ci=False))
        for k in (1, 2, 4, 8, 16, 32, 64, 128, 256)
    }
    printed = {
        (one.model, one.label, k): f"{value:.2f}"
        for one in paper().series
        if one.table == "tab:avg_passk"
        for k, value in one.values().items()
    }
    assert found.keys() == printed.keys()
    assert len(found) == 108
    different = {key: (found[key], printed[key]) for key in found if found[key] != printed[key]}
    assert different == {("Qwen2.5-Math-1.5B", "GMPO", 2): ("37.79", "37.83")}


def test_beside_the_paper_every_published_average_is_as_printed(papers_own_numbers):
    (table,) = tables("average", papers_own_numbers[:1], with_paper=True)
    found = {one["Method"]: one for one in records(to_csv([table], with_ci=False))}
    for one in paper().series:
        if one.table == "tab:avg_passk" and one.model == "Qwen2.5-Math-1.5B":
            assert {str(k): f"{v:.2f}" for k, v in one.values().items()}.items() <= found[
                f"{one.label} (paper)"
            ].items()
    assert "GRPO" in found
    assert {section.title for section in table.sections} == {"Qwen2.5-Math-1.5B"}, "the 7B block has no own row"
    assert any("GMPO (paper), k = 2" in note and "misprint" in note for note in table.notes)


def test_the_published_average_is_over_the_benchmarks_one_has(write):
    path = write("mine", [row("aime24", 1, 0.2), row("amc23", 1, 0.4)], model="org/qwen2.5-math-1.5b")
    (table,) = tables("average", [path], with_paper=True)
    found = {one["Method"]: one["1"] for one in records(to_csv([table], with_ci=False))}
    assert found["mine"] == "30.00"
    assert found["GSPO (paper)"] == decimal_text((16.28 + 51.47) / 2, 2)
    assert "over AMC23, AIME24" in table.title


def test_a_mean_over_other_benchmarks_is_said_to_be_one(write):
    full = write("full", [row("a", 1, 0.2), row("b", 1, 0.4)])
    part = write("part", [row("a", 1, 0.9)])
    (table,) = tables("average", [full, part])
    assert any("part: the mean is over a only" in note for note in table.notes)


def test_ties_as_shown_are_all_best_and_a_lone_number_is_not(write):
    paths = [write("x", [row("a", 1, 0.50001), row("a", 2, 0.7)]), write("y", [row("a", 1, 0.49999)])]
    paths.append(write("z", [row("a", 1, 0.1)]))
    (table,) = tables("benchmarks", paths)
    best = {line.label: [cell and cell.is_best for cell in line.cells] for line in table.sections[0].lines}
    assert best == {"x": [True, False], "y": [True, None], "z": [False, None]}


def test_the_best_is_the_best_of_its_model(write):
    paths = [
        write(name, [row("a", 1, v)], model=m) for name, v, m in (("p", 0.1, "s"), ("q", 0.2, "s"), ("r", 0.9, "l"))
    ]
    (table,) = tables("benchmarks", paths)
    assert [section.title for section in table.sections] == ["s", "l"]
    assert [[line.cells[0].is_best for line in section.lines] for section in table.sections] == [[False, True], [False]]


def test_a_k_that_no_row_of_a_table_has_is_left_out(write):
    first, second = tables("benchmarks", [write("x", [row("a", 1, 0.1), row("b", 1, 0.1), row("b", 256, 0.2)])])
    assert [[column.name for column in table.sections[0].columns] for table in (first, second)] == [["1"], ["1", "256"]]


def test_ucc_is_a_count_with_methods_inside_k(write):
    paths = [
        write(name, [ucc_row("math500", k, v) for k, v in ((8, a), (32, b), (64, c))], label=name)
        for name, a, b, c in (("GRPO", 1.5, 4.0, 6.0), ("Ours", 1.0, 5.0, 9.0))
    ]
    large, small = tables("ucc", paths, metric="ucc@k")
    names = [(column.group, column.name) for column in large.sections[0].columns]
    assert names == [("k = 32", "GRPO"), ("k = 32", "Ours"), ("k = 64", "GRPO"), ("k = 64", "Ours")]
    (line,) = large.sections[0].lines
    assert line.label == "MATH500"
    assert [(cell.value, cell.is_best) for cell in line.cells[:2]] == [(4, False), (5, True)]
    assert [column.is_ours for column in large.sections[0].columns[:2]] == [False, True]
    assert [column.group for column in small.sections[0].columns] == ["k = 8", "k = 8"]
    assert "n = 256" in large.title
    joined = records(to_csv([large, small], with_ci=False))
    assert joined == [
        {"Dataset": "MATH500", "k = 32 GRPO": "4.00", "k = 32 Ours": "5.00"}
        | {"k = 64 GRPO": "6.00", "k = 64 Ours": "9.00", "k = 8 GRPO": "1.50", "k = 8 Ours": "1.00"}
    ]


def test_two_thresholds_never_share_a_table(write):
    path = write("x", [ucc_row("a", 32, 4.0), ucc_row("a", 32, 7.0, threshold=0.95)])
    found = tables("ucc", [path], metric="ucc@k")
    assert [table.sections[0].lines[0].cells[0].value for table in found] == [4.0, 7.0]
    assert [name in table.name for name, table in zip((">= 0.9,", ">= 0.95,"), found, strict=True)] == [True, True]


def test_ucc_at_unequal_n_is_said_to_be_incomparable(write):
    paths = [write("x", [ucc_row("a", 32, 4.0)]), write("y", [{**ucc_row("a", 32, 5.0), "n": 64}])]
    (table,) = tables("ucc", paths, metric="ucc@k")
    assert any("equal n" in note for note in table.notes)


def test_the_published_misprint_is_marked_and_never_best(write):
    path = write("x", [ucc_row("olympiad", 32, 6.0), ucc_row("math500", 32, 6.0)])
    (table,) = [one for one in tables("ucc", [path], metric="ucc@k", with_paper=True) if "k = 32" in str(one.sections)]
    names = [column.full_name for column in table.sections[0].columns]
    line = next(line for line in table.sections[0].lines if line.label == "OlympiadBench")
    cell = dict(zip(names, line.cells, strict=True))
    assert cell["k = 32 Ours (paper)"].value == 15.8
    assert cell["k = 32 Ours (paper)"].is_misprint
    assert cell["k = 32 x"].is_best
    assert not cell["k = 32 Ours (paper)"].is_best
    assert "15.80†" in to_markdown([table], with_ci=False)


def test_the_ucc_average_row_is_the_mean_over_its_benchmarks(write):
    path = write("x", [ucc_row("a", 32, 4.0), ucc_row("b", 32, 7.0)])
    (table,) = tables("ucc", [path], metric="ucc@k", with_average=True)
    assert {line.label: line.cells[0].value for line in table.sections[0].lines} == {"a": 4, "b": 7, "Average": 5.5}


def test_code_has_a_block_a_benchmark_and_mbpp_beside_its_plus(write):
    values = {"mbppplus": 0.1, "humaneval": 0.2, "mbpp": 0.3, "humanevalplus": 0.4}
    path = write("Ours", [row(name, k, value) for name, value in values.items() for k in (1, 8)])
    (table,) = tables("code", [path], with_paper=True)
    assert [section.title for section in table.sections] == ["HumanEval", "HumanEval+", "MBPP / MBPP+"]
    last = table.sections[-1]
    assert [column.full_name for column in last.columns] == [f"{b} {k}" for b in ("MBPP", "MBPP+") for k in (1, 8)]
    found = {line.label: [cell and round(cell.value, 2) for cell in line.cells] for line in last.lines}
    assert found == {
        "GSPO (paper)": [5.41, 29.85, 4.81, 26.98],
        "Ours (paper)": [6.19, 33.77, 5.39, 29.52],
        "Ours": [30, 30, 10, 10],
    }


def test_code_has_the_ks_of_the_paper_where_there_are_any(write):
    path = write("x", [row(name, k, 0.5) for name in ("humaneval", "mbpp") for k in (1, 2, 4, 8, 16)])
    (table,) = tables("code", [path])
    assert [[column.name for column in section.columns] for section in table.sections] == [
        ["1", "4", "8", "16"],
        ["1", "8", "16"],
    ]
    (table,) = tables("code", [write("y", [row("humaneval", 2, 0.5)])])
    assert [column.name for column in table.sections[0].columns] == ["2"]


def test_the_layout_of_code_leaves_maths_out(write):
    (table,) = tables("code", [write("x", [row("humaneval", 1, 0.5), row("math500", 1, 0.5)])])
    assert [section.title for section in table.sections] == ["HumanEval"]


@pytest.fixture
def make_run(tmp_path):
    def make(name, entropies):
        run = tmp_path / name
        run.mkdir()
        (run / "config.yaml").write_text("model: embedded:countdown\n", encoding="utf-8")
        lines = [json.dumps({"step": i, ENTROPY_METRIC: value}) for i, value in enumerate(entropies, start=1)]
        (run / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return run

    return make


def test_final_entropy_is_the_mean_of_the_last_ten_iterations(make_run, write):
    run = make_run("gspo", [9.0] * 5 + [0.1 * i for i in range(1, 11)])
    path = write("Ours", [row("math_train", None, 0.25, "entropy")])
    (table,) = tables("entropy", [path, run], metric="entropy")
    (section,) = table.sections
    assert [column.full_name for column in section.columns] == ["Baselines gspo", "Ours Ours"]
    assert [cell.value for cell in section.lines[0].cells] == pytest.approx([0.55, 0.25])
    assert [cell.is_best for cell in section.lines[0].cells] == [True, False]


def test_a_torn_last_line_does_not_count_and_a_null_one_is_refused(make_run):
    run = make_run("r", [0.5] * 12)
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"step": 13, "entropy/tok')
    (table,) = tables("entropy", [run], metric="entropy")
    assert table.sections[0].lines[0].cells[0].value == 0.5
    with pytest.raises(DataError, match=r"metrics\.jsonl:12: entropy/token_mean is None"):
        tables("entropy", [make_run("s", [0.5] * 11 + [None])], metric="entropy")


def test_a_short_run_is_warned_of(make_run):
    runs = [make_run(name, [0.5] * num) for name, num in (("r", 3), ("s", 10), ("t", 9))]
    _, warnings = own_entries(read_sources(runs), "entropy")
    assert warnings == ["fewer than 10 iterations to average: r (3), t (9)"]


def test_files_of_one_label_complete_one_another(write):
    paths = [write("1", [row("a", 1, 0.2)], label="M"), write("2", [row("b", 1, 0.4)], label="M")]
    (table,) = tables("average", paths)
    assert [(line.label, line.cells[0].value) for line in table.sections[0].lines] == [("M", pytest.approx(30))]


def test_seeds_of_one_label_are_averaged(write):
    values = (0.27, 0.28, 0.35)
    paths = [write(str(i), [row("a", 1, value)], label="M", seed=i) for i, value in enumerate(values)]
    entries, _ = own_entries(read_sources(paths), "pass@k")
    number = entries[0].number("pass@k", "a", 1)
    std = math.sqrt(sum((value - 0.3) ** 2 for value in values) / 2)
    half = 4.302653 * std / math.sqrt(3) / (0.3 * 0.7)  # t(.975, 2) from a printed table, on the logit scale
    low, high = (1 / (1 + math.exp(-math.log(3 / 7) - end)) for end in (-half, half))
    assert (number.value, number.low, number.high) == pytest.approx((0.3, low, high), rel=1e-6)
    (table,) = tables("benchmarks", paths, with_ci=True)
    assert table.notes == ("Means of 3 seeds.",)
    assert table.title.endswith("; 95 %, over seeds only")


def test_an_interval_over_seeds_does_not_leave_the_scale_of_its_metric(write):
    shares = [write(f"p{i}", [row("a", 1, value)], label="M", seed=i) for i, value in enumerate((0.9, 1.0, 0.98))]
    counts = [write(f"u{i}", [ucc_row("a", 4, value)], label="M", seed=i) for i, value in enumerate((3.9, 0.1, 0.2))]
    (share,) = own_entries(read_sources(shares), "pass@k")[0][0].numbers.values()
    (count,) = own_entries(read_sources(counts), "ucc@k")[0][0].numbers.values()
    assert 0.4 < share.low < share.value < share.high < 1.0
    assert 0.0 < count.low < count.value < count.high < 4


def test_two_seeds_have_a_mean_without_an_interval_and_one_note_says_so(write):
    paths = [write(f"m{i}", [row(b, 1, 0.2 * i) for b in ("a", "b")], label="M") for i in (1, 2)]
    paths += [write("base", [row(b, 1, 0.5) for b in ("a", "b")], label="Base")]
    entries, warnings = own_entries(read_sources(paths), "pass@k")
    number = entries[0].number("pass@k", "a", 1)
    assert (number.value, number.low, number.high) == (pytest.approx(0.3), None, None)
    assert warnings == []
    for table in tables("benchmarks", paths):
        means, few = table.notes
        assert means == "Means of several seeds: M (2)."
        says(few, "M", advice="quatro eval ... --ci -o FILE")


def test_files_without_a_label_are_called_by_what_tells_them_apart_or_like_their_run(write, tmp_path):
    paths = [write("one/passk", [row("a", 1, 0.2)]), write("two/passk", [row("a", 1, 0.4)])]
    (table,) = tables("benchmarks", paths)
    assert [line.label for line in table.sections[0].lines] == ["one", "two"]
    (tmp_path / "one" / "config.yaml").write_text("model: embedded:countdown\n", encoding="utf-8")
    deep = write("one/samples/T1-p1/passk", [row("a", 1, 0.3)])
    (table,) = tables("benchmarks", [deep])
    assert [line.label for line in table.sections[0].lines] == ["one"]


def test_a_document_that_names_no_model_or_method_has_those_of_its_run(write, tmp_path):
    path = write("r/samples/T1-p1/passk", [row("a", 1, 0.2)], method="quatro")
    (tmp_path / "r" / "config.yaml").write_text("", encoding="utf-8")
    sources = read_sources([path], describe=lambda run: RunHead(model=f"models/of-{run.name}", method="gspo"))
    (entry,), _ = own_entries(sources, "pass@k")
    assert (entry.label, entry.model, entry.is_ours) == ("r", "of-r", True)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/data/models/My-Model/", "My-Model"),
        ("org/qwen2.5-math-7b", "Qwen2.5-Math-7B"),
        ("runs/mine/checkpoints/step-000100/model", "mine"),
        ("embedded:countdown", "embedded:countdown"),
        ("/data/Qwen2.5-Math-1.5B, S1", "Qwen2.5-Math-1.5B, S1"),
    ],
)
def test_a_model_goes_by_the_name_of_its_folder(write, model, name):
    entries, _ = own_entries(read_sources([write("x", [row("a", 1, 0.2)], model=model)]), "pass@k")
    assert entries[0].model == name


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (["/x/tuned", "/y/tuned/"], ["tuned (x)", "tuned (y)"]),
        (["/x/a/tuned", "/y/a/tuned"], ["tuned (x)", "tuned (y)"]),
        (["/x/a/tuned", "/x/b/tuned", "/y/a/tuned"], ["tuned (x/a)", "tuned (x/b)", "tuned (y/a)"]),
        (
            ["r/checkpoints/step-000001/model", "r/checkpoints/step-000002/model"],
            ["r (step-000001)", "r (step-000002)"],
        ),
        (["tuned", "/x/tuned"], ["tuned (tuned)", "tuned (x/tuned)"]),
        (["x/tuned", "x\\tuned"], ["tuned (x)", "tuned (x)"]),
    ],
)
def test_models_in_folders_of_one_name_are_told_apart_by_the_part_that_differs(write, models, names):
    paths = [write(f"f{i}", [row("a", 1, 0.2)], model=model) for i, model in enumerate(models)]
    entries, _ = own_entries(read_sources(paths), "pass@k")
    assert [entry.model for entry in entries] == names


def test_base_and_runs_with_one_digest_are_one_group_whatever_the_model_was_called(write):
    same = {"base_digest": "d1"}
    paths = [
        write("base", [row("a", 1, 0.2)], model="models/m", **same),
        write("tuned", [row("a", 1, 0.4)], model="/home/me/models/m", **same),
        write("other", [row("a", 1, 0.1)], model="/home/you/m", base_digest="d2"),
    ]
    (table,) = tables("benchmarks", paths)
    assert [(one.title, [line.label for line in one.lines]) for one in table.sections] == [
        ("m (models)", ["base", "tuned"]),
        ("m (you)", ["other"]),
    ]
    assert [line.cells[0].is_best for line in table.sections[0].lines] == [False, True]
    latex = to_latex([table], with_ci=False)
    assert latex.count("multicolumn") == 2
    assert r"tuned & \textbf{40.00}" in latex


def test_a_model_of_the_hub_goes_by_its_id(write):
    model, digest = "org/some-model", "org/some-model@0123abcd"
    entries, _ = own_entries(read_sources([write("x", [row("a", 1, 0.2)], model=model, base_digest=digest)]), "pass@k")
    assert entries[0].model == model


def test_rows_and_models_can_be_renamed(write):
    paths = [write(name, [row("a", 1, 0.2)], model=model) for name, model in (("x", "m"), ("y", "m"), ("z", "n"))]
    entries, _ = own_entries(read_sources(paths), "pass@k")
    new = renamed(entries, ["GSPO", "Ours delta=0.1", "B"], ["One", "Two"])
    assert [(one.label, one.model, one.is_ours) for one in new] == [
        ("GSPO", "One", False),
        ("Ours delta=0.1", "One", True),
        ("B", "Two", False),
    ]
    assert [one.model for one in renamed(entries, None, ["One"])] == ["One"] * 3
    with pytest.raises(UsageError, match="--labels: 2 names, expected 3, one for each of x, y, z"):
        renamed(entries, ["a", "b"], None)
    with pytest.raises(UsageError, match="--models: 3 names, expected 2, one for each of m, n"):
        renamed(entries, None, ["a", "b", "c"])


def test_of_the_paper_only_ones_own_benchmarks_and_ks_are_shown(write):
    path = write("x", [row("amc23", k, 0.5) for k in (1, 8)], model="Qwen2.5-Math-1.5B")
    (table,) = tables("benchmarks", [path], with_paper=True)
    assert [column.name for column in table.sections[0].columns] == ["1", "8"]


@pytest.mark.parametrize("layout", ["benchmarks", "average"])
def test_beside_a_benchmark_that_is_not_in_the_paper_a_note_says_so(write, layout):
    (table,) = tables(layout, [write("x", [row("countdown", 1, 0.5)])], with_paper=True)
    assert [line.label for section in table.sections for line in section.lines] == ["x"]
    assert table.notes == ("The paper has no such numbers.",)


def test_a_method_without_a_number_at_a_k_has_no_column_there(write):
    path = write("x", [ucc_row("math500", k, 0.5) for k in (4, 8)])
    _, table = [None, *tables("ucc", [path], metric="ucc@k", with_paper=True)][-2:]
    names = [column.full_name for column in table.sections[0].columns]
    assert names[0] == "k = 4 x"
    assert "k = 8 GRPO (paper)" in names


def test_seeds_that_do_not_match_are_refused(write):
    paths = [write("1", [row("a", 1, 0.2), row("b", 1, 0.2)], label="M"), write("2", [row("a", 1, 0.4)], label="M")]
    with pytest.raises(DataError, match=r"2 hold pass@1 of 'a', but 1 hold pass@1 of 'b'"):
        tables("benchmarks", paths)


def test_the_same_file_twice_is_refused(write):
    path = write("1", [row("a", 1, 0.2)], label="M")
    with pytest.raises(UsageError, match="2 times"):
        tables("benchmarks", [path, path])


@pytest.mark.parametrize(
    ("metric", "value", "limit"), [("pass@k", 31.66, "1"), ("ucc@k", 9.0, "8"), ("pass@k", -0.1, "1")]
)
def test_a_number_that_cannot_be_is_refused(write, metric, value, limit):
    make = ucc_row if metric == "ucc@k" else row
    with pytest.raises(DataError, match=rf"is {value}, expected a number in \[0, {limit}\]"):
        tables("benchmarks", [write("x", [make("a", 8, value)])], metric=metric)


def test_a_file_of_another_metric_is_refused(write):
    with pytest.raises(DataError, match=r"holds no pass@k, only ucc@k"):
        tables("benchmarks", [write("x", [row("a", 1, 0.1)]), write("y", [ucc_row("a", 8, 1.0)])])


def test_an_unknown_k_is_refused(write):
    with pytest.raises(UsageError, match=r"--k 3: no pass@k at k = 3 in the files, only at 1"):
        tables("benchmarks", [write("x", [row("a", 1, 0.1)])], ks=[3])


def test_the_files_own_average_brings_its_interval(write):
    rows = [row("a", 1, 0.2), row("b", 1, 0.4), row("average", 1, 0.3, ci_low=0.25, ci_high=0.35)]
    (table,) = tables("average", [write("x", rows)])
    cell = table.sections[0].lines[0].cells[0]
    assert (cell.value, cell.low, cell.high) == pytest.approx((30, 25, 35))
    (record,) = records(to_csv([table], with_ci=True))
    assert record == {
        "Method": "x",
        "1": "30.00",
        "1 ci_low": "25.00",
        "1 ci_high": "35.00",
        "1 ci_over": "problems only",
    }
    assert "30.00 \\[25.00, 35.00\\]" in to_markdown([table], with_ci=True)


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (37.275, 2, "37.28"),
        (100 * (0.25 + 0.30) / 2, 0, "28"),
        (0.125, 2, "0.13"),
        (2.5, 0, "3"),
        (31.664999, 2, "31.66"),
    ],
)
def test_ties_are_rounded_up_whatever_binary_makes_of_them(value, digits, text):
    assert decimal_text(value, digits) == text


@pytest.mark.parametrize(
    "text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\tx", "\rx", " =1", "＝1", "\u3000＠A1", "\u200b﹣1"]
)
def test_a_formula_in_csv_is_text(text):
    assert csv_text(text) == f"'{text}".replace("\r", "\n")


@pytest.mark.parametrize("text", ["GRPO", "1", "a=b", "δ=0.1"])
def test_a_harmless_text_in_csv_stays(text):
    assert csv_text(text) == text


def test_hostile_names_stay_in_their_cells(write):
    label = '=HYPERLINK("http://x")|<img src=x>\n\x1b]0;pwned\x07*b*,"\ud800'
    path = write("x", [row("@evil|name", 1, 0.5)], label=label, model="-model")
    found = tables("benchmarks", [path])
    text = to_csv(found, with_ci=False)
    (record,) = records(text)
    assert record["Model"] == "'-model"
    assert record["Method"].startswith("'=HYPERLINK")
    assert list(record) == ["Model", "Method", "1"]
    markdown = to_markdown(found, with_ci=False)
    for one in (text, markdown, to_json("benchmarks", found, with_ci=False)):
        assert "\x1b" not in one
        one.encode("utf-8")
    body = [line for line in markdown.splitlines() if line.startswith("|")]
    assert len(body) == 3, "a line end in a label must not end the row"
    assert {line.replace("\\|", "").count("|") for line in body} == {4}
    assert "<img" not in markdown.replace("\\<", "")


def test_markdown_markup_is_escaped():
    assert markdown_text("a|b *c* <d> [e](f) `g`\nh") == "a\\|b \\*c\\* \\<d> \\[e\\](f) \\`g\\` h"


def test_json_holds_full_precision_and_nothing_that_is_not_json(write):
    (table,) = tables("average", [write("x", [row("a", 1, 1 / 3)])])
    document = json.loads(to_json("average", [table], with_ci=False), parse_constant=pytest.fail)
    (cell,) = document["tables"][0]["sections"][0]["rows"][0]["cells"]
    assert cell == {"value": pytest.approx(100 / 3, abs=1e-12), "text": "33.33", "is_best": False, "is_misprint": False}
    assert document["tables"][0]["unit"] == "percent"


def test_one_seed_has_no_interval_and_none_no_mean():
    assert mean_of_seeds([0.5], [], 1.0)[:3] == (0.5, None, None)
    for values in ([], [0.5, math.nan]):
        with pytest.raises(ValueError, match="finite"):
            mean_of_seeds(values, [], 1.0)
