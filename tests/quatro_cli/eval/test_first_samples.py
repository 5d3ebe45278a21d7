"""`--n`: every command of pass@k and UCC@k can use the first samples of each problem alone."""

import json

import pytest

from tests.kit import quatro


def write(path, n, *, num_problems=2):
    """n samples of each problem, of which every second is right, in falling order of their indices."""
    rows = [
        {"benchmark": "toy", "id": str(id), "sample_index": i, "completion": f"way {i}", "answer": "1"}
        | {"correct": i % 2 == 0}
        for id in range(num_problems)
        for i in reversed(range(n + id))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path):
    """Samples of the same problems: the first four of each in one file, and more in the other."""
    few, many = tmp_path / "few.jsonl", write(tmp_path / "many.jsonl", 6)
    rows = [line for line in many.read_text(encoding="utf-8").splitlines() if json.loads(line)["sample_index"] < 4]
    few.write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "sampling.json").write_text('{"sampling": {"n": 6}}', encoding="utf-8")
    return few, many


def invoke(*arguments, code=0):
    return quatro("eval", *arguments, code=code)


@pytest.mark.parametrize("command", ["passk", "ucc"])
def test_the_first_samples_give_what_they_give_alone(files, command):
    few, many = files
    alone = json.loads(invoke(command, few, "--json").stdout)
    first = invoke(command, many, "--n", "4", "--json")
    assert json.loads(first.stdout)["rows"] == alone["rows"]
    assert json.loads(first.stdout)["sampling"]["n"] == 4
    assert "unequal" not in first.stderr
    assert "has n = 6 samples; choose a smaller --n" in invoke(command, many, "--n", "7", code=2).stderr


@pytest.mark.parametrize("command", ["compare", "flips"])
def test_files_of_different_n_go_together_by_their_first_samples(files, command):
    few, many = files
    assert "--n 4`" in invoke(command, few, many, code=4).stderr
    rows = json.loads(invoke(command, few, many, "--n", "4", "--json").stdout)["rows"]
    assert {row["n"] for row in rows} == {4}
    assert command != "compare" or {row["difference"] for row in rows} == {0}
