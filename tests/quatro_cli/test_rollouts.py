"""`quatro rollouts`: which responses are shown, and that their text cannot act on a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit import quatro, write_rows


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
    return quatro("rollouts", run, *words).stdout.splitlines()[1::2]


def test_responses_are_chosen_by_step_problem_and_reward(run):
    assert shown(run) == ["half", r"\x1b[31mnone", "all"]
    assert shown(run, "--best", "-n", "2") == ["all", "half"]
    assert shown(run, "--worst", "-n", "1") == [r"\x1b[31mnone"]
    assert shown(run, "--id", "a", "--best") == ["half", r"\x1b[31mnone"]
    assert shown(run, "--step", "1") == ["early"]
    document = json.loads(quatro("rollouts", run, "--json", "-n", "1").stdout)
    assert (document["step"], document["total"], document["rollouts"][0]["completion"]) == (12, 3, "half")


def test_failed_rollouts_are_shown_with_their_errors_and_their_number_in_the_group(run):
    gone = {"reward": None, "advantage": None, "is_dropped": True, "error": "KeyError: '\x1b[31m'"}
    rows = [row("a", 0, 0.5, "half"), row("a", 1, 0.0, "lost") | gone, row("a", 2, 0.0, "none")]
    rows.append(row("b", 0, 0.0, "late") | {"error": "KeyError: 'c'"})
    write_rows(run / "rollouts/step-000003.jsonl", rows)
    done = quatro("rollouts", run, "--step", "3")
    lines = done.stdout.splitlines()
    assert [*lines[2:4], *lines[6:8]] == [
        r"--- a #1  dropped  4 tokens, stop  failed: KeyError: '\x1b[31m'",
        "lost",
        "--- b #0  reward 0  advantage -1  4 tokens, stop  failed: KeyError: 'c'",
        "late",
    ]
    assert "the reward failed on 2 of 4 responses of iteration 3\n" in done.stderr
    assert "failed" not in quatro("rollouts", run, "--step", "12").stderr
    for order in ("--best", "--worst"):  # what was dropped has no reward
        assert shown(run, "--step", "3", order)[-1] == "lost"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--step", "3"], "--step 3: "),
        (["--id", "c"], "--id 'c': no rollout is of that problem; the first is of 'a'"),
        (["--best", "--worst"], "exclude each other"),
    ],
)
def test_what_is_not_there_is_named(run, words, says):
    assert says in quatro("rollouts", run, *words, code=2).stderr


def test_a_run_without_rollouts_says_why(run):
    for path in (run / "rollouts").iterdir():
        path.unlink()
    assert "save_rollouts is false" in quatro("rollouts", run, code=2).stderr
    quatro("rollouts", run / "rollouts", code=2)
