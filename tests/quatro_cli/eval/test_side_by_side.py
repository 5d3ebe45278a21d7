"""`quatro eval side-by-side`: what all sides share stands in the title, and --k adds Pass@k and UCC@k."""

import json

import pytest

from evals.estimators import pass_at_k
from tests.kit import quatro


def invoke(*arguments):
    return quatro("eval", "side-by-side", *arguments)


@pytest.fixture
def sides(tmp_path):
    """Three files: `a` and `b` with 3 and 1 of 8 right, in two ways and one; `c` is of another benchmark."""
    for name, benchmark, right, num_problems in (("a", "toy", 3, 1), ("b", "toy", 1, 1), ("c", "other", 2, 2)):
        rows = [
            {"benchmark": benchmark, "id": str(id), "sample_index": i, "completion": f"way {i % 2}", "answer": "1"}
            | {"correct": i < right}
            for id in range(num_problems)
            for i in range(8)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return [tmp_path / f"{name}.jsonl" for name in "abc"]


def test_what_all_sides_share_is_in_the_title(sides):
    title, head, *lines = invoke(*sides[:2], "--similarity", "exact").stdout.splitlines()
    assert title == "Side by side, problems 1, n 8, exact"
    assert head.split() == ["samples", "benchmark", "pass@1", "%", "UCR", "clusters", "effective"]
    assert [line.split()[:3] for line in lines] == [["a", "toy", "37.5"], ["b", "toy", "12.5"]]
    mixed = invoke(*sides, "--similarity", "exact").stdout.splitlines()
    assert mixed[0] == "Side by side, n 8, exact"
    assert [line.split()[0] for line in mixed[2:]] == ["a", "b", "c"]  # and no average of one benchmark


def test_k_adds_pass_and_ucc(sides):
    found = json.loads(invoke(*sides[:2], "--similarity", "exact", "--k", "4", "--ci", "--json").stdout)["rows"]
    value = {(row["label"], row["metric"], row["k"]): row["value"] for row in found if row["benchmark"] == "toy"}
    for label, correct, ways in (("a", 3, (2, 1)), ("b", 1, (1,))):
        assert value[label, "pass@k", 1] == pytest.approx(correct / 8)
        assert value[label, "pass@k", 4] == pytest.approx(pass_at_k(8, correct, 4))
        assert value[label, "ucc@k", 4] == pytest.approx(sum(pass_at_k(8, size, 4) for size in ways))
        assert (label, "ucc@k", 1) not in value  # which is pass@1
    assert all(row["ci_low"] <= row["value"] <= row["ci_high"] for row in found)
    head = invoke(*sides[:2], "--k", "4").stdout.splitlines()[1]
    assert head.split()[2:7] == ["pass@1", "%", "pass@4", "%", "UCC@4"]
    quatro("eval", "side-by-side", sides[0], "--k", "9", code=2)


def test_the_bar_of_each_side_ends_at_its_own_number_of_problems(sides):
    told = [line for line in invoke(sides[0], sides[2]).stderr.splitlines() if line.startswith("clustering")]
    assert told == ["clustering problems: 1/1", "clustering problems: 2/2"]


def test_rows_of_pass_say_nothing_that_only_clusters_have(tmp_path):
    from quatro.tasks.countdown import problems

    problem = problems("test")[0]
    chain = "2 *9 =18 +8 =26 *3 =78"
    rows = [
        {"benchmark": "countdown", "id": problem.id, "sample_index": i, "completion": text, "answer": problem.prompt}
        for i, text in enumerate([chain, "no"])
    ]
    file = tmp_path / "c.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = json.loads(invoke(file, "--k", "2", "--json").stdout)["rows"]
    with_share = {row["metric"] for row in found if "share_of_all_solutions" in row}
    assert "ucc@k" in with_share
    assert "pass@k" not in with_share
