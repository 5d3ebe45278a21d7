"""Samples of reasoning-gym's tasks are graded from their own column, in any folder."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

from evals.benchmarks.catalogue import judged_as
from evals.benchmarks.loading import load_problems
from evals.errors import DataError, UsageError
from evals.samples.code import short_values, write_long_values
from evals.samples.graders import grade_rows
from evals.samples.reading import read_samples
from evals.samples.types import Sample


def sample(problem, text: str, index: int = 0, **extra: object) -> Sample:
    return Sample(
        problem.benchmark, problem.id, index, text, problem.answer, extra={**short_values(problem.extra), **extra}
    )


def test_a_file_of_samples_is_graded_from_its_rows(tmp_path):
    problem, other = load_problems("palindrome")[0], load_problems("reasoning-gym:gcd")[0]
    rows = [sample(problem, problem.answer), sample(problem, "abc", 1), sample(problem, "", 2)]
    rows += [sample(other, f"I say <answer>{other.answer}</answer>"), sample(other, "I say 0", 1)]
    path = tmp_path / "samples.jsonl"
    path.write_bytes(b"".join(row.to_json_line() for row in rows))
    grades = grade_rows(read_samples([path]).rows)
    assert [one.outcome for one in grades] == ["correct", "incorrect", "no_answer", "correct", "incorrect"]
    assert {one.stage for one in grades} == {"reasoning-gym"}
    assert grades[1].detail == "score 0.02"


@pytest.mark.parametrize(
    "changed",
    [
        {"settings": {"min_length": 500_000_000, "max_length": 500_000_000}},  # would take all memory
        {"task": "spell_backward", "settings": {"data_file": "/etc/passwd"}},
        {"task": "puzzle24"},
        {"task": "nope"},
        {"index": -1},
        {"index": 10**30},
        {"seed": -5},
    ],
)
def test_a_samples_file_alone_does_not_choose_what_the_library_does(changed):
    problem = load_problems("reasoning-gym:palindrome_generation")[0]
    column = {**problem.extra["reasoning_gym"], **changed}
    with pytest.raises((DataError, UsageError), match=r"says that it answers the task|a task has the items 0 to"):
        grade_rows([sample(problem, problem.answer, reasoning_gym=column)])


def test_samples_of_ones_own_entry_are_graded_where_the_entry_is(tmp_path, monkeypatch):
    """Its settings are too long for a row, and lie beside the file."""
    operators = json.dumps(["+", "-", "*"] * 60)
    settings = f"{{ operators = {operators}, min_terms = 2, max_terms = 3 }}"
    text = f'[mine]\nreasoning_gym = "basic_arithmetic"\ncount = 3\nsettings = {settings}\n'
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "a" / "quatro-benchmarks.toml").write_text(text, encoding="utf-8")
    monkeypatch.delenv("QUATRO_BENCHMARKS", raising=False)
    monkeypatch.chdir(tmp_path / "a")
    problems = load_problems("mine")
    path = tmp_path / "b" / "mine.jsonl"
    rows = [sample(problem, problem.answer, **judged_as("mine")) for problem in problems]
    assert "reasoning_gym" not in rows[0].extra
    path.write_bytes(b"".join(row.to_json_line() for row in rows))
    write_long_values(path, [(problem.id, problem.problem, problem.extra) for problem in problems])
    monkeypatch.chdir(tmp_path / "b")
    read = read_samples([path]).rows
    with pytest.raises(DataError, match=r"add an entry \[mine\] with this task and these settings"):
        grade_rows(read, files=[path])
    (tmp_path / "b" / "quatro-benchmarks.toml").write_text(text, encoding="utf-8")
    assert [one.outcome for one in grade_rows(read, files=[path])] == ["correct"] * 3
    with pytest.raises(DataError, match=r"sample 0 of 'mine/test/0000' \(mine\) has reasoning_gym = None"):
        grade_rows(read)
