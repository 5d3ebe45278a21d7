"""`quatro plot heatmap | passk` from the outside."""

import json

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app
from tests.kit import quatro

runner = CliRunner()


@pytest.fixture
def samples(tmp_path):
    rows = [("a b c", True), ("x", False), ("a b d", True), ("y z", False)]
    path = tmp_path / "gspo.jsonl"
    lines = [
        {"benchmark": "math500", "id": "p", "sample_index": at, "completion": text, "answer": "7", "correct": correct}
        for at, (text, correct) in enumerate(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("options", [[], ["--all"], ["--labels", "GSPO"]])
def test_a_heatmap_of_correct_or_all_answers_is_written(samples, tmp_path, options):
    pytest.importorskip("matplotlib")
    out = tmp_path / "x.svg"
    assert quatro("plot", "heatmap", samples, "--id", "p", "-o", out, *options).stdout == f"{out}\n"
    assert out.read_bytes().startswith(b"<?xml")


def test_as_many_names_as_labels_are_asked_for(samples, tmp_path):
    pytest.importorskip("matplotlib")
    document = tmp_path / "gspo.json"
    runner.invoke(app, ["eval", "passk", str(samples), "--k", "1,2", "--label", "GSPO", "-o", str(document)])
    figure = quatro("plot", "passk", document, "-o", tmp_path / "x.png", "--labels", "a,b", code=2)
    assert "--labels has 2 names" in figure.stderr


def test_results_without_a_label_are_called_by_the_method_of_their_samples_or_by_their_paths(samples, tmp_path):
    from evals.results.reading import named_by_samples, read_sources

    paths = []
    for folder, method in (("a", "gspo"), ("b", "quatro"), ("c", None), ("d", None)):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / "passk.json"
        runner.invoke(app, ["eval", "passk", str(samples), "--k", "1", "-o", str(path)])
        document = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**document, "method": method}), encoding="utf-8")
        paths.append(path)
    named = named_by_samples(read_sources(paths))
    assert [one.label for one in named.results] == ["gspo", "quatro", "c", "d"]
    quatro("plot", "passk", *paths, "-o", tmp_path / "x.png")
