"""`quatro demo --model smollm2` on runs and samples that are there: what it types, and what it shows of them."""

from pathlib import Path

import pytest

from quatro.config import load_config
from quatro.runs.directory import RunDir
from tests.kit import quatro, says, write_rows

ARMS = {"quatro-0.1": "method.delta=0.1", "quatro-0.01": "method.delta=0.01", "gspo": "method.name=gspo"}
QUESTION = "Question: There were 3 cards in a drawer. Leo puts 15 cards in. How many cards are in the drawer?\nAnswer:"
ANSWERS = [
    (" 3 + 15 = 18. \\boxed{18}", True),
    (" 15 plus 3 is 18. \\boxed{18}", True),
    (" 3 * 5 = 14, and 3 + 15 = 18. \\boxed{18}", True),
    (" [red]3 - 15 = 12[/red]. \\boxed{12}", False),
]


def test_it_names_the_commands_and_what_they_take(tmp_path):
    result = quatro("demo", "--model", "smollm2", "--dry-run", "-o", tmp_path)
    lines = [line for line in result.stderr.splitlines() if line.startswith("$ quatro")]
    assert len([line for line in lines if " train smollm2 " in line and "steps=18" in line]) == 3
    assert len([line for line in lines if " sample " in line and "-n 32" in line and "--limit 60" in line]) == 4
    assert any("sample smollm2-started -b word-problems" in line for line in lines)
    says(result, "93 MB", "45 to 90 minutes")


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, setting in ARMS.items():
        with RunDir.create(tmp_path / name, load_config("smollm2", overrides=["steps=2", setting])) as run:
            for step in (1, 2):
                run.append_metrics({"step": step, "kl/new_old": 0.02})
            run.set_status("done", step=2)

    def drawn(command: list[str], *, dry_run: bool) -> None:
        assert command[0] == "sample"
        out = Path(command[-1])
        out.mkdir(parents=True)
        row = {"benchmark": "word-problems", "id": "test-0", "answer": "18", "prompt": QUESTION}
        rows = [
            {**row, "sample_index": i, "completion": text, "correct": is_right}
            for i, (text, is_right) in enumerate(ANSWERS)
        ]
        write_rows(out / "word-problems.jsonl", rows)

    monkeypatch.setattr("quatro_cli.commands.demo._run", drawn)
    return tmp_path


def test_it_shows_ways_false_derivations_and_a_picture(finished):
    pytest.importorskip("matplotlib")
    result = quatro("demo", "--model", "smollm2", "-o", finished, "--steps", "2", "-n", "4")
    table = [line.split() for line in result.stdout.splitlines() if line.startswith(("base", "QUATRO", "GSPO"))][:4]
    assert [line[-1] for line in table] == ["-", "0.020", "0.020", "0.020"]
    assert table[0][1:5] == ["75.0", "100.0", "33.3", "1.00"]
    assert "2 x valid  3 + 15 = 18" in result.stdout
    assert "1 x false  3 * 5 = 14, and 3 + 15 = 18" in result.stdout
    assert (finished / "figures" / "trade-off.png").is_file()
