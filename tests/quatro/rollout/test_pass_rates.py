"""Which prompts a pass-rate filter keeps."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from evals.errors import DataError
from quatro.config.blocks import DataConfig
from quatro.rollout.prompts import load_sources
from tests.kit import says, write_rows

ANSWERS = {f"q{number}": str(number) for number in range(30)}
NUM_CORRECT = {id: random.Random(4).randrange(9) if number else 4 for number, id in enumerate(ANSWERS)}
NUM_CORRECT |= {f"q{number}": number for number in range(9)}


def row(id: str, index: int, **changed: Any) -> dict[str, Any]:
    """Sample ``index`` of 8 of a problem."""
    known = {"benchmark": "own", "id": id, "sample_index": index, "completion": "x", "answer": ANSWERS[id]}
    return {**known, "prompt": f"Q: What is {id}?\nA:", "correct": index < NUM_CORRECT[id], **changed}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    problems = [{"id": id, "problem": f"What is {id}? ", "answer": answer} for id, answer in ANSWERS.items()]
    write_rows(tmp_path / "own.jsonl", problems)
    write_rows(tmp_path / "rates.jsonl", [row(id, index) for id in list(ANSWERS)[:25] for index in range(8)])
    return tmp_path


def loaded(folder: Path, rates: str = "rates.jsonl", source: dict[str, Any] | None = None, **bounds: float) -> Any:
    prompts = str(folder / "own.jsonl") if source is None else [{"source": str(folder / "own.jsonl"), **source}]
    (found,) = load_sources(
        DataConfig.model_validate({"prompts": prompts, "pass_rate": {"from": str(folder / rates), **bounds}})
    )
    return found


@pytest.mark.parametrize(("least", "most"), [(0.05, 0.95), (0.25, 0.5), (0.0, 1.0), (0.5, 0.5), (0.0, 0.0)])
def test_prompts_are_kept_by_their_share_of_correct_responses(own, least, most):
    _, problems, said = loaded(own, min=least, max=most)
    rates = {id: NUM_CORRECT[id] / 8 for id in list(ANSWERS)[:25]}
    assert [one.id for one in problems] == [id for id, rate in rates.items() if least <= rate <= most]
    few, many = sum(rate < least for rate in rates.values()), sum(rate > most for rate in rates.values())
    assert f"keeps {25 - few - many} of the 30 prompts" in said
    assert "5 without a sample" in said
    assert (f"{few} solved in less than {least:.3g}" in said) == (few > 0)
    assert (f"{many} solved in more than {most:.3g}" in said) == (many > 0)


@pytest.mark.parametrize("bounds", [{"max": 0.29}, {"min": 0.29}])
def test_a_share_at_a_bound_is_kept(own, bounds):
    """0.29 * 100 is less than 29, which 29 / 100 is not."""
    write_rows(own / "many.jsonl", [row("q9", index, correct=index < 29) for index in range(100)])
    assert [one.id for one in loaded(own, "many.jsonl", **{"min": 0.0, "max": 1.0, **bounds}).problems] == ["q9"]


def test_a_source_of_another_name_is_known_by_its_file(own):
    _, problems, _ = loaded(own, source={"name": "mine"})
    assert {one.benchmark for one in problems} == {"mine"}
    assert [one.id for one in problems] == [one.id for one in loaded(own).problems]


def test_a_chat_that_a_server_got_is_the_same_prompt(own):
    chat = json.dumps([{"role": "user", "content": 'What is q4? Say "ä".'}], ensure_ascii=False)
    write_rows(own / "chat.jsonl", [row("q4", index, prompt=chat) for index in range(8)])
    assert [one.id for one in loaded(own, "chat.jsonl").problems] == ["q4"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"answer": "5"}, ("q4", "'5'", "'4'", "other prompts")),
        ({"prompt": "What is q5?"}, ("q4", "'What is q5?'", "other prompts")),
        ({"benchmark": "theirs"}, ("keeps 0 of the 30", "30 without a sample", "['theirs']", "quatro sample")),
        ({"correct": None}, ("q4", "no grade", "quatro eval grade")),
        ({"outcome": "infra_error"}, ("q4", "infra_error")),
        ({"correct": False}, ("keeps 0 of the 30", "1 solved in less than 0.05", "data.pass_rate.min")),
    ],
)
def test_rates_of_other_prompts_or_without_grades_are_refused(own, changed, words):
    write_rows(own / "other.jsonl", [{k: v for k, v in row("q4", 0, **changed).items() if v is not None}])
    with pytest.raises(DataError) as error:
        loaded(own, "other.jsonl")
    says(error, *words, *([] if "data.pass_rate.min" in words else [own / "other.jsonl"]))
