"""Training on prompts of several sources: shares, rewards and metrics of each, and what is said of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.benchmarks.loading import load_problems
from quatro.tasks.countdown import solves
from tests.kit import quatro, read_rows, write_rows
from tests.kit import settings as words

NAME = "Größe α: 'hart', 100%"


@pytest.fixture
def several(settings: list[str], tmp_path: Path) -> list[str]:
    """A benchmark, and a file as Windows writes it: with a byte-order mark and its line ends."""
    rows = [{"problem": one.problem, "answer": one.problem} for one in load_problems("countdown", split="train")[:9]]
    text = "".join(json.dumps(row) + "\r\n" for row in rows)
    (tmp_path / f"{NAME}.jsonl").write_bytes(text.encode("utf-8-sig"))
    file = f'{{source: "{NAME}.jsonl", weight: 0.5, template: plain, reward: countdown}}'
    return [*settings, "steps=3", f"data.prompts=[{{source: countdown, weight: 1.5}}, {file}]"]


def test_a_run_counts_and_grades_each_source_apart(tmp_path, several, run_training):
    rows = run_training(tmp_path / "run", several)
    for step, row in enumerate(rows, start=1):
        drawn = read_rows(tmp_path / f"run/rollouts/step-{step:06d}.jsonl")
        assert {one["source"] for one in drawn} == {"countdown", NAME}
        for name, share in (("countdown", 0.75), (NAME, 0.25)):
            own = [one for one in drawn if one["source"] == name]
            assert row[f"prompts/share/{name}"] == len(own) / len(drawn) == share
            assert row[f"reward/mean/{name}"] == pytest.approx(sum(one["reward"] for one in own) / len(own), abs=1e-12)
        for one in drawn:
            is_right = solves(one["answer"], one["completion"], one["finish_reason"])
            assert one["benchmark"] == one["source"]
            if one["source"] == NAME:
                assert one["reward"] == is_right == one["correct"]
    text = quatro("runs", "show", tmp_path / "run").stdout
    assert f"countdown (0.75), {NAME} (0.25)" in text
    assert f"reward/mean/{NAME}" in text


def test_a_source_without_a_signal_is_drawn_and_not_learnt_from(tmp_path, several, run_training):
    """No response of this policy is a right answer of the file, whose prompts dynamic sampling leaves out."""
    (row,) = run_training(tmp_path / "run", [*several, "steps=1", "rollout.dynamic_sampling=true"])
    assert (row["prompts/share/countdown"], row[f"prompts/share/{NAME}"]) == (1.0, 0.0)
    assert (row[f"reward/mean/{NAME}"], row["sampling/rounds"] > 1) == (0.0, True)


def test_a_source_of_weight_0_is_never_drawn_and_a_list_of_one_is_as_the_name_alone(
    tmp_path, settings, several, run_training, essence
):
    off = run_training(tmp_path / "off", [*several, "data.prompts.1.weight=0"])
    names = (f"reward/mean/{NAME}", f"prompts/share/{NAME}")
    assert [[row[name] for name in names] for row in off] == [[None, 0.0]] * 3
    alone = run_training(tmp_path / "alone", [*settings, "steps=3"])
    own = [{name: row[name] for name in alone[0]} for row in off]
    assert essence(own) == essence(alone)


def test_the_dry_run_shows_the_first_prompt_of_each_source(several, tmp_path):
    options = words(*several, "data.too_long=skip", "data.max_prompt_tokens=8")
    with (tmp_path / f"{NAME}.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"problem": "1 2 3 4 5 6 7 8 9 -> 10", "answer": "1"}\r\n')
    text = quatro("train", "quickstart", *options, "--dry-run").stdout
    assert "# first of 3000 prompts of countdown, which are 0.75 of a batch:" in text
    assert f"# first of 9 prompts of {NAME}, which are 0.25 of a batch (1 left out as too long)" in text
    assert f"passes over 9 prompts of {NAME}" in text
    document = json.loads(quatro("train", "quickstart", *options, "--dry-run", "--json").stdout)
    assert [(one["name"], one["share"], one["count"]) for one in document["sources"]] == [
        ("countdown", 0.75, 3000),
        (NAME, 0.25, 9),
    ]
    assert document["sources"][0]["first_prompt"] == document["first_prompt"]


def test_what_the_pass_rates_leave_out_is_said_and_what_is_wrong_is_refused_without_torch(
    tmp_path, several, monkeypatch
):
    options = words(*several)
    (tmp_path / "empty.jsonl").write_text("", encoding="utf-8")
    write_rows(
        tmp_path / "rates.jsonl", [{"benchmark": NAME, "id": "1", "sample_index": 0, "completion": "", "answer": "7"}]
    )
    monkeypatch.setattr("quatro.launch.begin._with_torch", None)
    for setting, word in (
        ("data.prompts.0.source=empty.jsonl", "empty.jsonl"),
        ("data.prompts.0.source=nowhere.jsonl", "nowhere.jsonl"),
        ("data.prompts.0.weight=-1", "data.prompts.0.weight"),
        ("data.pass_rate.from=rates.jsonl", "no grade"),
        ("data.pass_rate.from=nowhere", "nowhere"),
    ):
        code = 2 if "weight" in setting else 4
        assert word in quatro("train", "quickstart", *options, "-s", setting, "--dry-run", code=code).stderr
