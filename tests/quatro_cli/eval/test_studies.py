"""`quatro eval flips | similarity` and their figures, from the outside."""

import json

import pytest
from typer.testing import CliRunner

from evals.samples import graded as samples_graded
from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()


@pytest.fixture
def files(tmp_path):
    """Base and tuned samples: 8 of each of two problems, the base never solves the second."""

    def write(name, counts, folder="."):
        path = tmp_path / folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", encoding="utf-8") as stream:
            for id, correct in counts.items():
                for index in range(8):
                    text = f"first take {index % 3} then add one" if index < correct else "no"
                    line = {"benchmark": "toy", "id": id, "sample_index": index, "completion": text, "answer": "1"}
                    stream.write(json.dumps(line | {"correct": index < correct}) + "\n")
        return str(path)

    return {
        "base": write("base", {"p": 3, "q": 0}),
        "tuned": write("tuned", {"p": 8, "q": 4}),
        "other": write("other", {"p": 8}),
    }


def invoke(*arguments):
    return quatro(*arguments)


def test_flips_are_printed_in_percent_and_as_a_document(files, tmp_path):
    shown = invoke("eval", "flips", files["base"], files["tuned"], "--k", "8").stdout
    lines = [line.split()[1:] for line in shown.splitlines() if line.startswith("toy")]
    assert lines[:2] == [["very", "hard", "1", "8", "100.0"]] * 2  # newly solved, and flip@8
    assert lines[2] == ["medium", "1", "8", "0.0"]
    assert not any(line[0] == "hard" for line in lines)
    out = tmp_path / "flips.json"
    document = json.loads(invoke("eval", "flips", files["base"], files["tuned"], "--json", "-o", out).stdout)
    assert json.loads(out.read_text(encoding="utf-8")) == document
    assert document["metric"] == "flip@k"
    assert {(row["metric"], row["k"]) for row in document["rows"]} == {("flip", None), ("flip@k", 8)}


def test_flips_of_different_problems_end_with_4_and_a_large_k_with_2(files):
    assert "samples of 'q' (toy)" in quatro("eval", "flips", files["base"], files["other"], code=4).stderr
    quatro("eval", "flips", files["base"], files["tuned"], "--k", "9", code=2)


def test_similarity_shows_every_measure(files):
    shown = invoke("eval", "similarity", files["tuned"]).stdout
    assert [line.split()[1] for line in shown.splitlines()[2:]] == ["tfidf", "rouge-l", "jaccard", "edit"]
    document = json.loads(invoke("eval", "similarity", files["tuned"], "--similarity", "edit", "--json").stdout)
    assert [sum(row["histogram"]) for row in document["rows"]] == [8 * 7 // 2 + 4 * 3 // 2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("eval", "similarity", "--similarity", "magic"),
        ("eval", "similarity", "--tokens", "magic"),
        ("plot", "heatmap", "--id", "p", "--similarity", "magic"),
    ],
    ids=" ".join,
)
def test_names_of_options_are_checked_before_any_file_is_read(arguments):
    assert "nowhere" not in quatro(*arguments, "nowhere.jsonl", code=2).stderr


def test_a_part_of_a_benchmark_is_warned_of_by_every_study(files, tmp_path, monkeypatch):
    (tmp_path / "own.toml").write_text('[toy]\nfile = "toy.jsonl"\ncount = 30\n', encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "own.toml"))
    tuned = files["tuned"]
    studies = [["passk", tuned], ["similarity", tuned]]
    for arguments in [*studies, ["flips", files["base"], tuned]]:
        assert invoke("eval", *arguments).stderr.count("toy has 30 problems, but the samples hold only 2") == 1, (
            arguments
        )


@pytest.mark.slow
def test_every_result_has_its_figure(files, tmp_path):
    pytest.importorskip("matplotlib")
    made = {
        "passk": ["passk", files["tuned"], "--ci"],
        "ucc": ["ucc", files["tuned"]],
        "flips": ["flips", files["base"], files["tuned"]],
        "similarity": ["similarity", files["tuned"]],
    }
    for name, arguments in made.items():
        document, figure = tmp_path / f"{name}.json", tmp_path / f"{name}.png"
        invoke("eval", *arguments, "-o", document)
        assert invoke("plot", name, document, "-o", figure).stdout == f"{figure}\n"
        assert figure.read_bytes().startswith(b"\x89PNG")
    figure = tmp_path / "heatmap.svg"
    invoke("plot", "heatmap", files["base"], files["tuned"], "--id", "p", "-o", figure)
    assert b"</svg>" in figure.read_bytes()


def test_a_figure_of_other_numbers_or_of_equal_labels_is_refused(files, tmp_path):
    pytest.importorskip("matplotlib")
    passk, flips = tmp_path / "passk.json", tmp_path / "flips.json"
    invoke("eval", "passk", files["tuned"], "--label", "Ours", "-o", passk)
    invoke("eval", "flips", files["base"], files["tuned"], "--label", "Ours", "-o", flips)
    wrong = quatro("plot", "flips", passk, "-o", tmp_path / "x.png", code=4)
    assert "quatro eval flips BASE TUNED" in wrong.stderr
    # Another k would work: the same command with --k 8.
    other_k = quatro("plot", "flips", flips, "--k", "5", "-o", tmp_path / "x.png", code=2)
    assert "--k 5: no flip@k at k = 5 in the files, only at 8" in other_k.stderr
    again = tmp_path / "again.json"
    again.write_bytes(flips.read_bytes())
    twice = quatro("plot", "flips", flips, again, "-o", tmp_path / "x.png", code=2)
    assert "both labelled 'Ours'" in twice.stderr
    assert not (tmp_path / "x.png").exists()
    without = runner.invoke(app, ["plot", "heatmap", "--id", "p"])
    assert (without.exit_code, "no samples given" in without.stderr) == (2, True)
    quatro("plot", "heatmap", files["base"], "--id", "none", code=2)


def test_members_of_clusters_are_shown_with_their_samples_and_the_nearest_text(tmp_path):
    texts = ["a b c d e", "a b c d f", "wrong", "a b c d e", "a x y d f", "quite other words"]
    rows = [
        {"benchmark": "toy", "id": "p", "sample_index": i, "completion": text, "answer": "1", "correct": i != 2}
        for i, text in enumerate(texts)
    ]
    path = tmp_path / "toy.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    asked = ["eval", "clusters", path, "--id", "p", "--similarity", "jaccard", "--threshold", "0.4"]
    shown = invoke(*asked).stdout
    (found,) = json.loads(invoke(*asked, "--json").stdout)["problems"]
    assert [(one["size"], one["num_distinct"], one["times"]) for one in found["clusters"]] == [(4, 3, 2), (1, 1, 1)]
    # Of 15 pairs of draws, 5 have the wrong sample and a right one, 6 are within and 4 across clusters.
    assert found["ucc"] == pytest.approx({"1": 5 / 6, "2": (5 + 6 + 2 * 4) / 15, "4": found["ucc"]["4"]})
    assert "UCC@1 0.833, UCC@2 1.267" in shown


def test_samples_are_read_and_graded_once(tmp_path, monkeypatch):
    texts = ["one \\boxed{1}", "two \\boxed{1}", "\\boxed{2}"]
    rows = [
        {"benchmark": "b", "id": "p", "sample_index": i, "completion": t, "answer": "1"} for i, t in enumerate(texts)
    ]
    file = tmp_path / "s.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    graded, read = [], []
    grade_rows, read_files = samples_graded.graders.grade_rows, samples_graded.read_files
    monkeypatch.setattr(
        "evals.samples.graders.grade_rows", lambda rows, **how: graded.append(len(rows)) or grade_rows(rows, **how)
    )
    monkeypatch.setattr(
        "evals.samples.graded.read_files", lambda files, **how: read.append(files) or read_files(files, **how)
    )
    quatro("eval", "ucc", file, "--preset", "paper", "--json")
    assert (graded, len(read)) == ([3], 1)
