"""`quatro sample --limit`: a first look at a few problems, whose samples the whole benchmark then keeps."""

import json

from typer.testing import CliRunner

from evals.samples.places import problems_file
from quatro_cli.app import app


def test_what_a_limited_call_drew_is_the_beginning_of_the_whole(model, tmp_path):
    rows = [{"id": f"p{i}", "problem": f"{i} 2 7 -> 67", "answer": "67", "story": 300 * str(i)} for i in range(1, 5)]
    toy = tmp_path / "toy.jsonl"
    toy.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")

    def draw(folder, *options):
        words = ["sample", str(model), "-b", str(toy), "-n", "2", "--max-tokens", "4", "-o", str(tmp_path / folder)]
        found = CliRunner().invoke(app, [*words, *options])
        assert found.exit_code == 0, found.output
        return tmp_path / folder / "toy.jsonl", found

    file, _ = draw("parts", "--limit", "2")
    drawn = [json.loads(line)["id"] for line in file.read_text(encoding="utf-8").splitlines()]
    assert drawn == ["p1", "p1", "p2", "p2"]
    assert "4 samples drawn, 4 were there" in draw("parts")[1].stderr
    whole, _ = draw("whole")
    assert file.read_bytes() == whole.read_bytes()
    draw("parts", "--limit", "1")
    assert problems_file(file).read_bytes() == problems_file(whole).read_bytes()
    assert "1 problems x 2 samples" in draw("parts", "--limit", "1", "--dry-run")[1].stdout


def test_a_limit_below_one_is_refused(model):
    assert CliRunner().invoke(app, ["sample", str(model), "-b", "countdown", "--limit", "0"]).exit_code == 2
