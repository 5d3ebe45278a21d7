"""`quatro eval` on files of others: those that were made to hurt, and texts with known clusters."""

import json
import os
from pathlib import Path

import pytest

from tests.kit import quatro, says, write_rows


def bad_inputs() -> list:
    folder = os.environ.get("QUATRO_BAD_INPUTS")
    if not folder or not (Path(folder) / "manifest.jsonl").is_file():
        return [pytest.param(None, marks=pytest.mark.skip(reason="QUATRO_BAD_INPUTS names no folder with a manifest"))]
    lines = (Path(folder) / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
    return [pytest.param(case, id=case["file"]) for case in map(json.loads, filter(None, lines))]


EXIT_CODES = {"ok": 0, "warn_skip": 0, "error_file_line": 4, "error_file": 4, "refuse": 2}


@pytest.mark.parametrize("case", bad_inputs())
@pytest.mark.parametrize("command", ["passk", "ucc"])
def test_hostile_files_end_as_they_should(case, command, tmp_path):
    path = Path(os.environ["QUATRO_BAD_INPUTS"]) / case["file"]
    options = []
    if case["expect"] == "refuse":
        named = case["command"].split()
        options = named[named.index("passk") + 1 :]
    result = quatro("eval", command, path, *options, "-o", tmp_path / "r.json", code=EXIT_CODES[case["expect"]])
    everything = result.stdout + result.stderr
    assert "\x1b" not in everything
    for text in case["must_not"]:
        assert text not in everything
    for text in case["must_mention"]:
        assert text in result.stderr
    if case["line"] is not None:
        assert f"{path.name}:{case['line']}" in result.stderr
    assert {file.name for file in tmp_path.iterdir()} <= {"r.json"}


def ucc_vectors() -> list:
    folder = os.environ.get("QUATRO_UCC_VECTORS")
    files = sorted(Path(folder).glob("*.json")) if folder else []
    named = [file for file in files if "metrics" in json.loads(file.read_text(encoding="utf-8"))]
    if not named:
        return [pytest.param(None, marks=pytest.mark.skip(reason="QUATRO_UCC_VECTORS names no folder with vectors"))]
    slow = ("mixed_26_n256", "edge_very_long")  # two CPU seconds each
    return [pytest.param(file, id=file.stem, marks=[pytest.mark.slow] if file.stem in slow else []) for file in named]


@pytest.mark.parametrize("file", ucc_vectors())
def test_ucc_of_a_samples_file_made_of_the_texts_is_that_of_the_vectors(file, tmp_path, vector_metrics):
    vector = json.loads(file.read_text(encoding="utf-8"))
    wrong = [""] * (vector["n"] - len(vector["texts"]))
    path = tmp_path / "v.jsonl"
    with path.open("w", encoding="utf-8") as stream:
        for index, text in enumerate([*vector["texts"], *wrong]):
            row = {"benchmark": "toy", "id": "p", "sample_index": index, "completion": text, "answer": "1"}
            stream.write(json.dumps({**row, "correct": index < len(vector["texts"])}) + "\n")
    num_compared = 0
    for metric, (similarity, tokens) in vector_metrics.items():
        of_threshold = vector["metrics"].get(metric, {}).get("clusters", {})
        for linkage in ("components", "complete"):
            expected = {float(t): found[linkage] for t, found in of_threshold.items() if linkage in found}
            if not expected:
                continue
            ks = sorted({int(k) for one in expected.values() for k in one["ucc"]})
            options = ["--similarity", similarity, "--tokens", tokens, "--linkage", linkage, "--per-problem"]
            options += ["--threshold", ",".join(map(str, expected)), "--k", ",".join(map(str, ks))]
            found = json.loads(quatro("eval", "ucc", path, *options, "--json").stdout)
            for problem in found["problems"]:
                assert problem["clusters"] == sorted(expected[problem["threshold"]]["sizes"], reverse=True)
            for row in (row for row in found["rows"] if row["benchmark"] == "toy"):
                one = expected[row["threshold"]]
                if row["metric"] == "ucc@k" and str(row["k"]) in one["ucc"]:
                    assert row["value"] == pytest.approx(one["ucc"][str(row["k"])], abs=1e-9)
                    num_compared += 1
                elif row["metric"] == "ucr":
                    assert row["value"] == pytest.approx(one["ucr"], abs=1e-9)
    assert num_compared


def test_a_result_in_place_of_samples_is_said_to_be_one_with_what_shows_it(tmp_path):
    row = {"benchmark": "toy", "id": "a", "sample_index": 0, "completion": "1", "answer": "1", "correct": True}
    samples, result = write_rows(tmp_path / "toy.jsonl", [row]), tmp_path / "a b.json"
    quatro("eval", "passk", samples, "-o", result)
    for command in (["passk", result], ["ucc", result], ["compare", samples, result]):
        said = quatro("eval", *command, code=4)
        says(said, key=result, value="pass@k", advice=f"quatro table '{result}'")
        assert "import" not in said.stderr
    result.write_text(json.dumps(json.loads(result.read_text(encoding="utf-8"))), encoding="utf-8")  # on one line
    says(quatro("eval", "passk", result, code=4), advice=f"quatro table '{result}'")
