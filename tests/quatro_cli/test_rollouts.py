"""`quatro rollouts`: which responses are shown, and that their text cannot act on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro_cli.app import app


def row(id: str, index: int, reward: float, text: str) -> dict[str, object]:
    facts = {"benchmark": "b", "id": id, "sample_index": index, "completion": text, "answer": None}
    return {**facts, "finish_reason": "stop", "reward": reward, "advantage": reward - 1, "num_tokens": len(text)}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run/rollouts"
    folder.mkdir(parents=True)
    (tmp_path / "run/config.yaml").touch()
    rows = [row("a", 0, 0.5, "half"), row("a", 1, 0.0, "\x1b[31mnone"), row("b", 0, 1.0, "all")]
    text = "".join(json.dumps(one) + "\n" for one in rows)
    (folder / "step-000001.jsonl").write_text(json.dumps(row("a", 0, 0.25, "early")) + "\n", encoding="utf-8")
    (folder / "step-000012.jsonl").write_text(text, encoding="utf-8")
    return tmp_path / "run"


def shown(run: Path, *words: str) -> list[str]:
    done = CliRunner().invoke(app, ["rollouts", str(run), *words])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()[1::2]


def test_responses_are_chosen_by_step_problem_and_reward(run: Path) -> None:
    assert shown(run) == ["half", r"\x1b[31mnone", "all"]
    assert shown(run, "--best", "-n", "2") == ["all", "half"]
    assert shown(run, "--worst", "-n", "1") == [r"\x1b[31mnone"]
    assert shown(run, "--id", "a", "--best") == ["half", r"\x1b[31mnone"]
    assert shown(run, "--step", "1") == ["early"]
    done = CliRunner().invoke(app, ["rollouts", str(run), "--json", "-n", "1"])
    document = json.loads(done.stdout)
    assert (document["step"], document["total"], document["rollouts"][0]["completion"]) == (12, 3, "half")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--step", "3"], "--step 3: "),
        (["--id", "c"], "--id 'c': no rollout is of that problem; there are 'a', 'b'"),
        (["--best", "--worst"], "exclude each other"),
    ],
)
def test_what_is_not_there_is_named(run: Path, words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["rollouts", str(run), *words])
    assert done.exit_code == 2
    assert says in done.stderr


def test_a_run_without_rollouts_says_why(run: Path) -> None:
    for path in (run / "rollouts").iterdir():
        path.unlink()
    done = CliRunner().invoke(app, ["rollouts", str(run)])
    assert done.exit_code == 2
    assert "save_rollouts is false" in done.stderr
    assert CliRunner().invoke(app, ["rollouts", str(run / "rollouts")]).exit_code == 2
