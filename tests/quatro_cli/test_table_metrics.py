"""`quatro table` takes every document that `quatro eval` writes, in every format."""

import csv
import io
import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro, read_json

runner = CliRunner()
WORDS = ("one way", "another way to it", "a third", "one way or so")


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    for name, share in (("base", 2), ("tuned", 5)):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as stream:
            for benchmark in ("toy_a", "toy_b"):
                for problem in range(3):
                    for index in range(8):
                        row = {"benchmark": benchmark, "id": str(problem), "sample_index": index, "answer": "1"}
                        row |= {"completion": WORDS[(index + problem) % 4], "correct": index < share * problem}
                        stream.write(json.dumps(row) + "\n")

    def make(name, *arguments):
        out = folder / f"{name}.json"
        quatro("eval", *arguments, "-o", out)
        return out

    base, tuned = folder / "base.jsonl", folder / "tuned.jsonl"
    return {
        "passk": make("passk", "passk", tuned, "--also", "maj,g-pass,pass^k", "--tau", ".25,.5", "--ci", "--k", "1,4"),
        "ucc": make("ucc", "ucc", tuned, "--also", "distinct", "--threshold", ".5,.9", "--k", "1,2"),
        "other": make("other", "ucc", base, "--threshold", ".5,.9", "--k", "1,2"),
        "similarity": make("similarity", "similarity", tuned),
        "flips": make("flips", "flips", base, tuned, "--k", "1,4"),
        "compare_passk": make("compare_passk", "compare", base, tuned, "--k", "1,4", "--also", "maj"),
        "compare_ucc": make("compare_ucc", "compare", base, tuned, "--metric", "ucc@k", "--k", "1,4"),
    }


def table(*arguments):
    return quatro("table", *arguments).stdout


NAMES = (
    ["passk", "ucc", "similarity", "flips"]  # the metric of the document
    + [f"passk {metric}" for metric in ("maj@k", "g-pass@k", "pass^k")]
    + [f"ucc {metric}" for metric in ("pairs", "ucr", "num_clusters", "effective_number", "distinct@k")]
    + ["flips flip", "compare_passk", "compare_ucc"]
)


@pytest.mark.parametrize("name", NAMES)
def test_every_document_and_metric_has_a_table(documents, name):
    document, _, metric = name.partition(" ")
    asked = [documents[document], *(["--metric", metric] if metric else [])]
    markdown = table(*asked)
    assert "toy" in markdown
    found = json.loads(table(*asked, "--format", "json"))
    assert found["tables"]
    assert all(one["sections"] and one["sections"][0]["rows"] for one in found["tables"])
    assert table(*asked, "--format", "csv").count("\n") >= 2
    assert "\\toprule" in table(*asked, "--format", "latex")


def test_the_metrics_of_a_file_that_are_not_shown_are_named(documents):
    path = str(documents["other"])
    says = "ucc@k is shown; the files also hold pairs, ucr, num_clusters, effective_number: choose with --metric\n"
    assert runner.invoke(app, ["table", path]).stderr == says
    assert runner.invoke(app, ["table", path, "--metric", "ucr"]).stderr == ""


def test_flips_have_a_table_for_each_bucket(documents):
    found = list(csv.DictReader(io.StringIO(table(documents["flips"], "--format", "csv", "--k", "4"))))
    assert table(documents["flips"], "--metric", "flip@k") == table(documents["flips"])
    rows = read_json(documents["flips"])["rows"]
    expected = [f"{100 * row['value']:.2f}" for row in rows if row["metric"] == "flip@k" and row["k"] == 4]
    assert sorted(row["4"] for row in found) == sorted(expected)


def test_two_results_of_another_metric_are_compared(documents):
    text = table(documents["other"], documents["ucc"], "--metric", "ucr", "--format", "csv")
    assert text.splitlines()[0] == "Setting,Dataset,other,ucc"


def test_a_comparison_shows_its_difference_and_is_given_alone(documents):
    header = table(documents["compare_passk"], "--format", "csv", "--ci").splitlines()[0]
    assert "difference ci_low" in header
    for more in ([documents["ucc"]], ["--k", "1"], ["--layout", "ucc"]):
        quatro("table", documents["compare_passk"], *more, code=2)


@pytest.mark.parametrize("format", ["csv", "markdown", "latex"])
def test_p_is_not_rounded_to_zero(documents, format):
    document = json.loads(documents["compare_passk"].read_text(encoding="utf-8"))
    (row,) = [row for row in document["rows"] if (row["benchmark"], row["metric"], row["k"]) == ("toy_a", "pass@k", 1)]
    text = table(documents["compare_passk"], "--format", format)
    assert f"{row['p']:.4f}" in text
    assert f"{100 * row['a']:.2f}" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--metric", "ucr", "--k", "1"], "ucr has no k"),
        (["--metric", "ucr", "--average"], "--average is for"),
        (["--metric", "ucr", "--with-paper"], "the paper has no table of ucr"),
    ],
)
def test_options_that_would_be_ignored_are_refused(documents, options, message):
    assert message in " ".join(quatro("table", documents["ucc"], *options, code=2).stderr.split())


def test_an_unknown_metric_names_those_in_the_file(documents):
    result = quatro("table", documents["ucc"], "--metric", "ucrr", code=4)
    assert "only ucc@k, pairs, ucr, num_clusters" in " ".join(result.stderr.split())


def test_distinct_over_other_problems_for_each_model_says_how_many(documents, tmp_path):
    few = tmp_path / "few.json"
    text = (documents["ucc"].parent / "base.jsonl").read_text(encoding="utf-8").replace('"id": "2"', '"id": "two"')
    (tmp_path / "few.jsonl").write_text(text.replace('"correct": true', '"correct": false', 5), encoding="utf-8")
    made = ["eval", "ucc", str(tmp_path / "few.jsonl"), "--also", "distinct", "--threshold", ".5", "--k", "1,2"]
    quatro(*made, "-o", few)
    whole = json.loads(documents["ucc"].read_text(encoding="utf-8"))["rows"]
    counts = [json.loads(few.read_text(encoding="utf-8"))["rows"], whole]
    found = [
        {row["benchmark"]: row["num_problems"] for row in rows if row["metric"] == "distinct@k"} for rows in counts
    ]
    assert found[0] != found[1]
    told = quatro("table", few, documents["ucc"], "--metric", "distinct@k")
    line = next(line for line in told.stderr.splitlines() if line.startswith("warning: toy_a"))
    assert f"few {found[0]['toy_a']} of 3" in line
    assert f"ucc {found[1]['toy_a']} of 3" in line
    alone = runner.invoke(app, ["table", str(few), "--metric", "distinct@k"])
    assert "of 3" not in alone.stderr


@pytest.mark.parametrize("name", ["passk", "ucc", "flips", "compare_passk"])
@pytest.mark.parametrize("options", [[], ["--format", "json"]])
def test_a_result_without_rows_is_refused_by_its_name(documents, tmp_path, name, options):
    file = tmp_path / "none.json"
    document = json.loads(documents[name].read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "rows": []}), encoding="utf-8")
    found = runner.invoke(app, ["table", str(file), *options])
    assert (found.exit_code, found.stdout) == (4, "")
    assert f"{file}: it has no rows" in found.stderr


def test_titles_name_a_mean_as_such(documents):
    said = runner.invoke(app, ["table", str(documents["ucc"]), "--metric", "distinct@k"]).stdout
    assert "average over benchmarks" in said
    assert "on Average" not in said
