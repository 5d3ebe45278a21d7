"""The block `reward` through the commands that read a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quatro.config import load_config
from quatro.sweep.plan import parse_axis, plan_sweep
from tests.kit import quatro, settings

CONFIG = "model: some/model\nmethod: {name: quatro}\nreward: "


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{CONFIG}'m:f'\n", encoding="utf-8")
    return path


def output_of(*arguments: object) -> str:
    return quatro(*arguments).stdout


def test_what_is_shown_says_who_set_it_and_is_a_config_again(config, tmp_path):
    chosen = ["-s", "reward.options.scale=2", "-s", "reward.timeout_s=5"]
    shown = output_of("config", "show", config, *chosen)
    rows = [row.split(maxsplit=1) for row in shown.partition("\nreward:")[2].partition("\nprompts")[0].splitlines()]
    assert [" ".join(" ".join(row).split()) for row in rows if row] == [
        "name: m:f # mine.yaml:3",
        "options:",
        "scale: 2 # -s reward.options.scale=2",
        "timeout_s: 5.0 # -s reward.timeout_s=5",
        "workers: null",
        "on_error: fail",
    ]
    again = tmp_path / "again.yaml"
    again.write_text(shown, encoding="utf-8")
    assert load_config(again) == load_config(config, overrides=chosen[1::2])
    assert "\nreward: m:f " in output_of("config", "show", config)
    document = json.loads(output_of("config", "show", config, "--json"))
    assert document["config"]["reward"]["name"] == "m:f"
    assert document["origins"]["reward.name"] == "mine.yaml:3"


def test_differences_are_those_of_the_meaning(config, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(f"{CONFIG}{{name: 'm:f', workers: 0}}\n", encoding="utf-8")
    assert output_of("config", "diff", config, other) == ""
    other.write_text(f"{CONFIG}{{name: 'm:g', options: {{scale: 2}}}}\n", encoding="utf-8")
    differences = json.loads(output_of("config", "diff", config, other, "--json"))["differences"]
    assert differences == [
        {"key": "reward.name", "a": "m:f", "b": "m:g"},
        {"key": "reward.options.scale", "a": None, "b": "2"},
    ]


def test_a_list_has_no_limits_of_its_own(config, tmp_path):
    other = tmp_path / "other.yaml"
    other.write_text(f"{CONFIG}[math, 'm:f']\n", encoding="utf-8")
    config.write_text(f"{CONFIG}{{name: 'm:f', on_error: drop}}\n", encoding="utf-8")
    differences = json.loads(output_of("config", "diff", config, other, "--json"))["differences"]
    assert {"key": "reward.on_error", "a": "drop", "b": None} in differences
    said = " ".join(quatro("config", "show", other, "-s", "reward.on_error=drop", code=2).stderr.split())
    assert "reward sum does not read on_error; put it into the block of a reward of the list" in said


@pytest.mark.parametrize("command", ["train", "sweep"])
def test_a_wrong_option_is_refused_before_anything_is_made(config, command, tmp_path):
    axis = ["-g", "seed=0,1"] if command == "sweep" else []
    out = ["-o", str(tmp_path / "out")]
    chosen = ["-s", "reward=math", "-s", "reward.options.scale=2", "-s", "reward.timeout_s=5"]
    for dry in (["--dry-run"], []):
        said = " ".join(quatro(command, config, *axis, *out, *chosen, *dry, code=2).stderr.split())
        assert "reward.options.scale: unknown key; known here: none" in said
        assert "-s reward.timeout_s=5: reward.timeout_s: found 5, expected null: reward math does not read" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("axes", "chosen", "expected"),
    [
        (["reward=m:g,math"], [], [("m:g", None, {}), ("math", None, {})]),
        (["reward.name=m:g,m:h"], ["reward.timeout_s=5"], [("m:g", 5.0, {}), ("m:h", 5.0, {})]),
        (["reward.options.scale=1,2"], ["reward=m:g"], [("m:g", None, {"scale": 1}), ("m:g", None, {"scale": 2})]),
        (
            ["reward.timeout_s=5,6"],
            ["reward.options.scale=1"],
            [("m:f", 5.0, {"scale": 1}), ("m:f", 6.0, {"scale": 1})],
        ),
    ],
)
def test_a_sweep_goes_over_rewards_and_their_options(config, tmp_path, axes, chosen, expected):
    words = [*(word for axis in axes for word in ("-g", axis)), *settings(*chosen)]
    shown = json.loads(output_of("sweep", config, *words, "-o", tmp_path / "sweep", "--dry-run", "--json"))["points"]
    plan = plan_sweep(config, [parse_axis(axis) for axis in axes], overrides=chosen)
    assert [point["name"] for point in shown] == [point.name for point in plan.points]
    rewards = [point.config.reward for point in plan.points]
    assert [(reward.name, reward.timeout_s, reward.options.model_dump()) for reward in rewards] == expected


def test_the_schema_shows_the_block():
    shown = output_of("config", "schema")
    for head in (
        "reward.name: text = math",
        "reward.options: block = {}",
        "reward.timeout_s: float > 0 <= 86400 | null = null",
        "reward.workers: int >= 0 | null = null",
        "reward.on_error: fail|zero|drop = fail",
    ):
        assert f"\n{head}\n" in shown
    document = json.loads(output_of("config", "schema", "--json"))
    text, block = document["properties"]["reward"]["anyOf"]
    assert text == {"type": "string"}
    found = document["$defs"][block["$ref"].rpartition("/")[2]]
    assert list(found["properties"]) == ["name", "options", "timeout_s", "workers", "on_error"]
    assert found["additionalProperties"] is False
