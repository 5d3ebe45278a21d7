"""What is asked for and cannot be shown is refused, or told with the reason."""

import json

import pytest

from tests.kit import quatro


@pytest.fixture
def toy(tmp_path):
    """Three problems with 1, 1 and 2 of 8 samples right."""
    rows = [
        {"benchmark": "toy", "id": str(id), "sample_index": i, "completion": str(i), "answer": "1", "correct": i < num}
        for id, num in enumerate((1, 1, 2))
        for i in range(8)
    ]
    path = tmp_path / "toy.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("ks", "said"),
    [
        ("8", "toy: no problem has 8 correct samples, so there is no distinct@k: at most 2"),
        ("1,4,8", "toy: distinct@k stops at 1, since only 0 of 3 solved problems have 4 correct samples\n"),
        ("1,2", "toy: distinct@k stops at 1, since only 1 of 3 solved problems have 2 correct samples"),
    ],
)
def test_the_reason_for_a_missing_distinct_k_is_told(toy, ks, said):
    shown = quatro("eval", "ucc", toy, "--also", "distinct", "--similarity", "exact", "--k", ks)
    assert said in shown.stderr
    assert ("Clusters among" in shown.stdout) is (ks != "8")


@pytest.mark.parametrize("command", ["passk", "ucc", "flips"])
def test_counts_of_every_problem_need_a_place(toy, tmp_path, command):
    arguments = ["eval", command, *[toy] * (1 + (command == "flips")), "--per-problem"]
    for out in ([], ["-o", str(tmp_path / "rows.csv")]):
        assert "add --json, or -o FILE.json" in quatro(*arguments, *out, code=2).stderr
    quatro(*arguments, "-o", tmp_path / "all.json")
