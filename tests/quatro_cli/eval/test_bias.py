"""`quatro eval bias`: the second row is a mean over random draws and says how sure it is."""

import json
import math

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app

# Neighbours share 4 of 5 words, ends only 3: of two of them, one pair of three is two clusters.
CHAIN = ["a b c d e", "b c d e f", "c d e f g"]
DRAWS = 1000


def test_the_row_of_random_draws_has_their_standard_error(tmp_path):
    row = {"id": "p", "answer": "7", "correct": True}
    rows = [
        {**row, "benchmark": benchmark, "sample_index": index, "completion": text}
        for benchmark in ("one", "two")
        for index, text in enumerate(CHAIN)
    ]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def bias(*options):
        arguments = ["--similarity", "rouge-l", "--k", "2,3", *options]
        found = CliRunner().invoke(app, ["eval", "bias", str(path), *arguments])
        assert found.exit_code == 0, found.output
        return found.stdout

    document = json.loads(bias("--draws", str(DRAWS), "--json"))
    errors = {(one["metric"], one["benchmark"], one["k"]): one.get("draws_se") for one in document["rows"]}
    exact = math.sqrt(1 / 3 * 2 / 3 / DRAWS)
    assert errors["ucc@k reclustered", "one", 2] == pytest.approx(exact, rel=0.1)
    assert errors["ucc@k reclustered", "average", 2] == pytest.approx(exact / math.sqrt(2), rel=0.1)
    assert errors["ucc@k reclustered", "one", 3] == 0
    assert errors["ucc@k", "one", 2] is None
    assert f" ± {exact:.2f}" in bias("--draws", str(DRAWS))
    assert "±" not in bias("--draws", "1")
