"""A list in `data.prompts`: how it is read, written, compared and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evals.errors import UsageError
from quatro.config import config_to_yaml, differing_keys, load_config, pinned
from quatro.config.blocks import DataConfig
from quatro.config.load import lasting_differences, lasting_digest, refuse_lost
from tests.kit import says

FILE = "Größe α: 'hart', 100%.jsonl"
TEXT = f"""
extends: quickstart
data:
  prompts:
    - countdown
    - {{source: "{FILE}", weight: 3, template: plain.txt, reward: countdown-distance}}
    - name: third one
      source: b.jsonl
      template: plain
      reward: [countdown, {{name: model, weight: 0.5, options: {{path: judge}}}}]
  pass_rate: {{from: rates, min: 0.25}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("judge/config.json", FILE, "b.jsonl", "rates/T1-p1/b.jsonl", "rates/T1-p1/sampling.json"):
        (tmp_path / "cfg" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cfg" / name).write_text(f"{json.dumps(name)}\n", encoding="utf-8")
    (tmp_path / "cfg/plain.txt").write_text("{problem}\n", encoding="utf-8")
    (tmp_path / "cfg/mine.yaml").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_source_has_a_name_a_share_and_its_own_template_or_the_runs(folder):
    config = load_config("cfg/mine.yaml")
    first, second, third = config.data.sources
    assert [one.name for one in config.data.sources] == ["countdown", FILE.removesuffix(".jsonl"), "third one"]
    assert list(config.data.shares.values()) == [0.2, 0.6, 0.2]
    assert [one.template for one in (first, second, third)] == ["plain", "{problem}", "plain"]
    assert [one.names for one in config.rewards.values()] == [
        ("countdown",),
        ("countdown-distance",),
        ("countdown", "model"),
    ]
    assert config.data.asked_as(FILE).template == "{problem}"
    assert config.data.asked_as("math500").template == config.data.template


@pytest.mark.parametrize(
    ("one", "template", "system"),
    [
        ({}, "chat", "Be brief."),
        ({"system": "Be long."}, "chat", "Be long."),
        ({"system": ""}, "chat", None),
        ({"template": "qwen-boxed"}, "qwen-boxed", "You are a helpful assistant."),
        ({"template": "question"}, "question", None),
        ({"source": "reasoning-gym:gcd"}, "reasoning-gym", None),
        ({"source": "word-problems"}, "question", None),
    ],
)
def test_what_a_source_says_wins_over_the_run(one, template, system):
    data = {"prompts": [{"source": "own.jsonl", **one}], "template": "chat", "system": "Be brief."}
    config = DataConfig.model_validate(data)
    (found,) = map(config.template_of, config.sources)
    assert (found.name, found.system) == (template, system)


def test_a_written_list_loads_as_the_same_list_and_after_a_move(folder, tmp_path_factory, monkeypatch):
    config = pinned(load_config("cfg/mine.yaml"))
    sources = [f"data.prompts.{number}.source" for number in (1, 2)]
    judge = "data.prompts.2.reward.options.rewards.1.options.path"
    assert set(config.paths) == {*sources, judge, "data.pass_rate.from"}
    run = folder / "runs/t1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(config_to_yaml(config, folder=run), encoding="utf-8")
    assert load_config(run) == config
    there = tmp_path_factory.mktemp("there") / "b"
    folder.rename(there)
    monkeypatch.chdir(there)
    moved = load_config("runs/t1")
    assert moved.data.sources[1].source == str(there / "cfg" / FILE)
    assert lasting_digest(moved) == lasting_digest(config)
    digests = {key: one.digest for key, one in config.paths.items()}
    assert lasting_differences(config.model_dump(mode="json"), digests, moved) == []
    (there / "cfg/rates/T1-p1/passk.json").write_text("{}", encoding="utf-8")  # what is made of samples is none
    refuse_lost(moved)
    (there / "cfg/rates/T1-p1/b.jsonl").write_text("{}", encoding="utf-8")
    (there / "cfg/b.jsonl").rename(there / "c.jsonl")
    with pytest.raises(Exception, match=r"data\.pass_rate\.from") as error:
        refuse_lost(moved, "quatro train runs/t1 --resume")
    says(error, key="data.prompts.2.source", advice="-s data.prompts.2.source=PATH")
    found = load_config("runs/t1", overrides=["data.prompts.2.source=c.jsonl"])
    assert [one.name for one in found.data.sources] == [one.name for one in moved.data.sources]
    assert found.data.sources[2].source == "c.jsonl"


def test_an_option_changes_one_key_of_one_source(folder):
    options = ["data.prompts.0.weight=6", "data.prompts.2.reward.1.weight=2"]
    config = load_config("cfg/mine.yaml", overrides=options)
    assert [one.weight for one in config.data.sources] == [6.0, 3.0, 1.0]
    assert config.rewards["third one"].options.rewards[1].weight == 2.0
    assert config.rewards["third one"].options.rewards[1].options.path == "cfg/judge"
    assert list(differing_keys([config, load_config("cfg/mine.yaml")])) == ["data.prompts"]


@pytest.mark.parametrize(
    ("prompts", "key", "words"),
    [
        ("[]", "data.prompts", ("weight above 0",)),
        ("[{source: countdown, weight: 0}, {source: b.jsonl, weight: 0.0}]", "data.prompts", ("weight above 0",)),
        ("[{source: countdown, weight: -1}]", "data.prompts.0.weight", ("-1", "at least 0")),
        ("[countdown, {source: b.jsonl, weight: .inf}]", "data.prompts.1.weight", ("finite",)),
        ("[a/x.jsonl, countdown, b/x.jsonl]", "data.prompts", ("x", "twice", "`name`")),
        ("[{name: countdown, source: b.jsonl}, countdown]", "data.prompts", ("countdown", "twice")),
        ("[{name: x}]", "data.prompts.0.source", ("missing",)),
        ("[{source: countdown, wieght: 2}]", "data.prompts.0.wieght", ("data.prompts.0.weight?",)),
        ("[3]", "data.prompts.0", ("3",)),
        ("{source: countdown}", "data.prompts", ()),
        ("[{source: countdown, template: chat}]", "data.prompts.0.template", ("chat", "plain")),
        ("[{source: countdown, system: Hi}]", "data.prompts.0.system", ("'Hi'", "no chat")),
        ("[countdown, {source: math_train}]", "data.prompts.1.source", ("math_train", "embedded:countdown")),
        ("[{source: countdown, reward: math}]", "data.prompts.0.reward", ("math", "countdown")),
        ("[{source: countdown, reward: nope}]", "data.prompts.0.reward", ("nope",)),
        ("[countdown, {source: b.jsonl, template: code-program}]", "rollout.stop", ("missing",)),
    ],
)
def test_what_is_wrong_with_a_list_is_named(prompts, key, words):
    with pytest.raises(UsageError) as error:
        load_config("quickstart", overrides=[f"data.prompts={prompts}"])
    says(error, *words, key=key)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("data.prompts.3.weight=1", ("data.prompts", "no keys below it")),
        ("data.prompts.0.weight.x=1", ("data.prompts.0.weight", "expected a number")),
        ("data.prompts.first.weight=1", ("data.prompts",)),
        ("data.pass_rate={min: 0.1}", ("data.pass_rate.from", "missing")),
        ("data.pass_rate={from: b.jsonl, min: 0.9, max: 0.1}", ("data.pass_rate.min", "0.9", "0.1")),
        ("data.pass_rate={from: b.jsonl, max: 95}", ("data.pass_rate.max", "95", "at most 1")),
    ],
)
def test_what_is_wrong_with_an_option_is_named(folder, option, words):
    with pytest.raises(UsageError) as error:
        load_config("cfg/mine.yaml", overrides=[option])
    says(error, *words)
