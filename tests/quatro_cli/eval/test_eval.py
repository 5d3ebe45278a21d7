"""`quatro eval`: tables for people, and documents for programs."""

import csv
import json
import sys
from math import comb
from pathlib import Path

import pytest
from typer.testing import CliRunner

from evals.estimators import effective_number
from quatro_cli.app import app
from tests.kit import quatro, write_rows

runner = CliRunner()


def write_samples(path: Path, counts: dict[str, list[str]], *, right: set[str], benchmark: str = "toy") -> Path:
    """One row per text; a row is correct where its text is in ``right``."""
    with path.open("w", encoding="utf-8") as file:
        for id, texts in counts.items():
            for index, text in enumerate(texts):
                row = {"benchmark": benchmark, "id": id, "sample_index": index, "completion": text, "answer": "1"}
                file.write(json.dumps({**row, "correct": text in right}) + "\n")
    return path


@pytest.fixture
def samples(tmp_path) -> Path:
    return write_samples(
        tmp_path / "toy.jsonl",
        {"a": ["x", "x", "y", "bad"], "b": ["bad", "bad", "bad", "z"], "c": ["bad"] * 4},
        right={"x", "y", "z"},
    )


def document(*arguments: str) -> dict:
    return json.loads(quatro("eval", *arguments, "--json").stdout)


def test_pass_at_k_is_the_mean_over_all_problems(samples):
    found = document("passk", str(samples), "--k", "1,2,4")
    value = {row["k"]: row["value"] for row in found["rows"] if row["benchmark"] == "toy"}
    expected = {k: ((1 - comb(1, k) / comb(4, k)) + (1 - comb(3, k) / comb(4, k))) / 3 for k in (1, 2, 4)}
    assert value == pytest.approx(expected)
    assert found["metric"] == "pass@k"
    assert {row["benchmark"] for row in found["rows"]} == {"toy", "average"}


def test_ucc_counts_clusters_of_correct_samples(samples):
    found = document("ucc", str(samples), "--similarity", "exact", "--k", "1,4", "--per-problem")
    value = {row["k"]: row["value"] for row in found["rows"] if row["benchmark"] == "toy" and row["metric"] == "ucc@k"}
    assert value == pytest.approx({1: (3 + 1) / 4 / 3, 4: (2 + 1) / 3})
    assert {problem["id"]: problem["clusters"] for problem in found["problems"]} == {"a": [2, 1], "b": [1], "c": []}


def test_the_papers_preset_clusters_in_our_reading(samples):
    found = document("ucc", str(samples), "--preset", "paper", "--k", "1,4")
    settings = {(row["similarity"], row["threshold"], row["linkage"], row["tokens"]) for row in found["rows"]}
    assert settings == {("tfidf", 0.9, "components", "sklearn")}
    assert found["preset"] == "paper"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--preset", "papr"], "--preset 'papr': expected paper"),
        (["--preset", "paper", "--threshold", "0.8"], "--threshold has no effect beside --preset"),
        (["--preset", "paper", "--linkage", "complete"], "--linkage has no effect beside --preset"),
        (["--preset", "paper", "--tokens", "math"], "--tokens has no effect beside --preset"),
    ],
)
def test_a_preset_leaves_nothing_to_choose(samples, options, said):
    assert said in quatro("eval", "ucc", samples, *options, code=2).stderr


def test_the_table_shows_percent_and_the_warnings_go_elsewhere(samples):
    rows = samples.read_text(encoding="utf-8").splitlines(keepends=True)
    samples.write_text("".join(rows[1:]), encoding="utf-8")
    result = quatro("eval", "passk", samples, "--k", "1")
    assert "Pass@k (%)" in result.stdout
    assert "30.6" in result.stdout  # problem a lost its first sample: (2/3 + 1/4 + 0) / 3
    assert "warning" not in result.stdout
    assert "not contiguous" in result.stderr


def test_several_similarities_and_thresholds_are_all_there(samples):
    found = document("ucc", str(samples), "--similarity", "tfidf,edit", "--threshold", "0.5,0.9", "--k", "2")
    assert {(row["similarity"], row["threshold"]) for row in found["rows"]} == {
        (similarity, threshold) for similarity in ("tfidf", "edit") for threshold in (0.5, 0.9)
    }
    shown = runner.invoke(app, ["eval", "ucc", str(samples), "--similarity", "tfidf,edit", "--k", "2"]).stdout
    assert "tfidf >= 0.9" in shown
    assert "edit >= 0.8" in shown


def test_intervals_stand_beside_values(samples):
    found = document("passk", str(samples), "--k", "1", "--ci", "--seed", "3")
    row = found["rows"][0]
    assert row["ci_low"] <= row["value"] <= row["ci_high"]
    shown = runner.invoke(app, ["eval", "passk", str(samples), "--k", "1", "--ci"]).stdout
    assert f"[{100 * row['ci_low']:.1f}, {100 * row['ci_high']:.1f}]" in shown


def test_the_document_says_how_samples_were_drawn_and_by_whom_they_were_judged(samples, tmp_path):
    about = {
        "schema": 1,
        "model": "m",
        "method": "quatro delta=0.01",
        "seed": 5,
        "sampling": {"n": 4, "temperature": 1.0, "top_p": 0.7, "top_k": 0, "max_tokens": 10, "prompt": "plain"},
    }
    (tmp_path / "sampling.json").write_text(json.dumps(about), encoding="utf-8")
    found = document("passk", str(samples), "--label", "Ours")
    assert (found["label"], found["model"], found["method"], found["seed"]) == ("Ours", "m", "quatro delta=0.01", 5)
    assert found["sampling"]["top_p"] == 0.7
    assert found["grader"] == {"version": None, "policy": None}


def test_out_writes_what_json_prints(samples, tmp_path):
    printed = document("passk", str(samples), "-o", str(tmp_path / "results/r.json"))
    assert json.loads((tmp_path / "results/r.json").read_text(encoding="utf-8")) == printed


def test_out_with_a_suffix_of_tables_writes_tidy_rows(samples, tmp_path, monkeypatch):
    printed = document("passk", str(samples), "-o", str(tmp_path / "r.csv"))
    with (tmp_path / "r.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["metric"], int(row["k"]), float(row["value"])) for row in rows] == [
        (row["metric"], row["k"], row["value"]) for row in printed["rows"]
    ]
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for command in ("passk", "ucc"):
        assert "[parquet]'" in quatro("eval", command, samples, "-o", tmp_path / "r.parquet", code=3).stderr


@pytest.fixture
def better(tmp_path) -> Path:
    return write_samples(
        tmp_path / "better.jsonl",
        {"a": ["x", "x", "y", "z"], "b": ["bad", "x", "y", "z"], "c": ["bad"] * 3 + ["x"]},
        right={"x", "y", "z"},
    )


def test_compare_prints_differences_with_intervals_and_p(samples, better, tmp_path):
    arguments = [str(samples), str(better), "--k", "1,4"]
    found = document("compare", *arguments, "-o", str(tmp_path / "c.json"))
    assert json.loads((tmp_path / "c.json").read_text(encoding="utf-8")) == found
    row = next(row for row in found["rows"] if row["k"] == 1)
    assert (row["a"], row["b"]) == pytest.approx((4 / 12, 8 / 12))
    assert row["ci_low"] <= row["difference"] <= row["ci_high"]
    shown = runner.invoke(app, ["eval", "compare", *arguments])
    assert "+33.3" in shown.stdout
    assert f"{row['p']:.4f}" in shown.stdout
    assert str(better) in shown.stderr
    ucc = document("compare", *arguments, "--metric", "ucc@k", "--similarity", "exact")
    assert {row["metric"] for row in ucc["rows"] if "/" not in row["metric"]} == {
        "ucc@k",
        "pairs",
        "ucr",
        "num_clusters",
        "effective_number",
    }
    assert quatro("eval", "compare", *arguments, "--seed", "1").stderr.count("--seed 1 has no effect here") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--similarity", "edit"], "--similarity has no effect beside --metric pass@k"),
        (["--linkage", "greedy"], "--linkage has no effect"),
        (["--metric", "ucc@k", "--also", "maj"], "--also has no effect beside --metric ucc@k"),
        (["--metric", "ucr"], "expected pass@k or ucc@k"),
        (["--also", "distinct"], "it is one of `quatro eval ucc --also`"),
    ],
)
def test_compare_refuses_options_of_the_other_metric(samples, options, said):
    result = runner.invoke(app, ["eval", "compare", str(samples), str(samples), *options])
    assert (result.exit_code, said in result.stderr) == (2, True), result.output


def test_compare_refuses_other_problems_and_other_n(samples, tmp_path):
    fewer = write_samples(tmp_path / "fewer.jsonl", {"a": ["x"] * 4, "b": ["x"] * 4}, right={"x"})
    shorter = write_samples(tmp_path / "shorter.jsonl", {id: ["x"] * 3 for id in "abc"}, right={"x"})
    for other, words in ((fewer, ["'c'", "fewer.jsonl"]), (shorter, ["'a'", "n = 4", "n = 3"])):
        for metric in ("pass@k", "ucc@k"):
            result = quatro("eval", "compare", samples, other, "--metric", metric, code=4)
            assert all(word in result.stderr for word in words)
            assert result.stdout == ""


def test_maj_and_g_pass_stand_in_tables_of_their_own(samples):
    arguments = ["passk", str(samples), "--k", "1,4", "--also", "maj,g-pass", "--tau", "0.5,1"]
    found = document(*arguments)
    assert {(row["metric"], row.get("tau")) for row in found["rows"]} == {
        ("pass@k", None), ("maj@k", None), ("g-pass@k", 0.5), ("g-pass@k", 1.0)
    }  # fmt: skip
    shown = runner.invoke(app, ["eval", *arguments]).stdout
    for title in ("Pass@k (%)", "maj@k (%)", "G-Pass@k (%) (tau = 0.5)", "G-Pass@k (%) (tau = 1)"):
        assert title in shown


def test_ucc_shows_clusters_and_their_effective_number(samples):
    shown = runner.invoke(app, ["eval", "ucc", str(samples), "--similarity", "exact", "--k", "4"]).stdout
    assert all(head in shown for head in ("UCR", "clusters", "effective"))
    rows = document("ucc", str(samples), "--similarity", "exact", "--k", "4")["rows"]
    value = {row["metric"]: row["value"] for row in rows if row["benchmark"] == "toy"}
    assert value["num_clusters"] == pytest.approx((2 + 1 + 0) / 3)
    assert value["pairs"] == pytest.approx(2 / 3)  # one problem has two correct samples or more: 2 of 3 pairs
    # One cluster is 1, none is 0; of sizes 2 and 1 with coverage 2/3 see the test of the estimator.
    assert value["effective_number"] == pytest.approx((effective_number([2, 1]) + 1) / 3)


def test_processes_change_nothing(samples):
    one, two = (document("ucc", str(samples), "--similarity", "edit,exact", "--jobs", jobs) for jobs in "12")
    assert one == two


def test_clusters_prints_representatives_escaped(tmp_path):
    hostile = "\x1b[31mred\x1b[0m \u202e[bold]x[/bold]\r"
    path = write_samples(
        tmp_path / "h.jsonl", {"a\u202eb": [hostile, hostile, "other words"]}, right={hostile, "other words"}
    )
    result = quatro("eval", "clusters", path, "--id", "a\u202eb", "--similarity", "edit")
    assert not {"\x1b", "\u202e", "\r"} & set(result.stdout)
    assert "#1  2 sample(s), 1 different text(s); this one 2 time(s):" in result.stdout
    assert "\\x1b[31mred" in result.stdout
    assert "[bold]x[/bold]" in result.stdout
    found = document("clusters", str(path), "--id", "a\u202eb", "--similarity", "edit")
    assert [cluster["text"] for cluster in found["problems"][0]["clusters"]] == [hostile, "other words"]


def test_clusters_cuts_long_texts_and_many_clusters(tmp_path):
    texts = ["\n".join([letter * 5] * 40) for letter in "abcdefg"]
    path = write_samples(tmp_path / "l.jsonl", {"p": texts}, right=set(texts))
    shown = runner.invoke(app, ["eval", "clusters", str(path), "--id", "p", "--similarity", "edit"]).stdout
    assert "more characters" in shown
    assert "and 2 more cluster(s), of size 1, 1" in shown
    assert len(shown.splitlines()) < 100


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["passk", "--k", "8"], "k = 8"),
        (["passk", "--k", "0"], "at least 1"),
        (["passk", "--k", "a"], "--k a"),
        (["passk", "--k", "1,,2"], "--k 1,,2: expected numbers"),
        (["passk", "--k", ""], "--k '': expected numbers"),
        (["passk", "-b", ""], "-b '': expected names"),
        (["passk", "-b", "toy,"], "-b 'toy,': expected names"),
        (["passk", "--also", ""], "--also '': expected names"),
        (["passk", "-o", "."], "-o .: that is a folder"),
        (["ucc", "--similarity", ""], "--similarity '': expected names"),
        (["ucc", "--similarity", "edit,,exact"], "--similarity 'edit,,exact'"),
        (["ucc", "--threshold", ","], "--threshold ,: expected numbers"),
        (["ucc", "--threshold", "nan"], "--threshold nan: expected numbers"),
        (["similarity", "--similarity", ""], "--similarity '': expected names"),
        (["ucc", "--similarity", ","], "--similarity ',': expected names"),
        (["passk", "-b", "aime24"], "aime24"),
        (["ucc", "--similarity", "exact", "--threshold", "0.5"], "threshold"),
        (["ucc", "--similarity", "edit,exact", "--threshold", "0.5"], "leave it out, or name other similarities"),
        (["ucc", "--similarity", "cosine"], "cosine"),
        (["ucc", "--linkage", "single"], "single"),
        (["ucc", "--tokens", "words"], "words"),
        (["ucc", "--threshold", "high"], "--threshold high"),
        (["passk", "--also", "mode"], "mode"),
        (["passk", "--tau", "0.5"], "--also g-pass"),
        (["passk", "--also", "g-pass", "--tau", "2"], "tau"),
        (["ucc", "--jobs", "0"], "--jobs"),
    ],
)
def test_an_option_that_cannot_be_met_is_refused_with_2(samples, arguments, said):
    result = quatro("eval", arguments[0], samples, *arguments[1:], code=2)
    assert said in result.stderr


def test_no_samples_is_a_usage_error():
    for command in ("passk", "ucc"):
        assert ".jsonl" in quatro("eval", command, code=2).stderr


def test_the_table_says_which_share_of_all_solutions_was_found(tmp_path):
    """Two of a problem's solutions among its samples: two over the exact count."""
    import json

    from quatro.tasks.countdown import problems

    problem = problems("test")[0]
    found = ["2 *9 =18 +8 =26 *3 =78", "5 +8 =13 *2 =26 *3 =78"]
    rows = [
        {"benchmark": "countdown", "id": problem.id, "sample_index": i, "completion": text, "answer": problem.prompt}
        for i, text in enumerate([*found, found[0], "no answer"])
    ]
    file = tmp_path / "countdown.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    result = runner.invoke(app, ["eval", "ucc", str(file), "--k", "4"])
    share = 100 * 2 / 87  # it has 87 solutions
    assert f"countdown: {share:.1f} % of a problem's distinct solutions found" in result.stdout


def test_a_bar_counts_the_problems_of_long_commands(samples, monkeypatch):
    from contextlib import contextmanager

    from quatro_cli.output import Output

    told: dict[str, list] = {}

    @contextmanager
    def progress(self, description, total):
        told[description] = [total]
        yield lambda done, note="": told[description].append(done)

    monkeypatch.setattr(Output, "progress", progress)
    commands = {
        ("ucc", "--jobs", "2"): ("clustering problems", [3, 1, 2, 3]),
        ("similarity",): ("comparing answers", [1, 1]),  # one problem has two correct answers
    }
    for command, (name, expected) in commands.items():
        told.clear()
        document(*command, str(samples))
        assert told == {name: expected}


def test_a_count_in_a_pipe_says_of_what(tmp_path):
    head = {"benchmark": "toy", "id": "a", "answer": "7"}
    rows = [{**head, "sample_index": index, "completion": f"\\boxed{{{7 + index}}}"} for index in range(2)]
    write_rows(path := tmp_path / "toy.jsonl", rows)
    assert "grading answers: 2/2" in quatro("eval", "passk", path).stderr
    assert "problems: 1/1" in quatro("eval", "ucc", path).stderr
