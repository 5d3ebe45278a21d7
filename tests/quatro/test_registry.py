"""A new engine, reward or policy is one line in a table; configuration, training and sampling then know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from evals.errors import DataError, UsageError
from quatro.config import config_to_yaml, differing_keys, load_config, schema_json, schema_text
from quatro.launch.begin import prepare
from quatro.policy.kinds import Local
from quatro.registry import ENGINES, POLICIES, REWARDS
from quatro.rewards import RewardConfig, make_reward
from quatro.rewards.base import VerifiedReward
from quatro.rollout.engine import EngineKind
from quatro.rollout.replay import ReplayEngine
from quatro.runs.directory import RunDir
from quatro.sample.drawing import draw_samples
from quatro.train import train
from quatro.types import Block, Prompt, Rollout
from tests.kit import read_rows, says, write_rows

ANSWER = "1 + 2"


class Parrot(ReplayEngine):
    """Says the same thing whatever it is asked."""

    def __init__(self, tokenizer: Any) -> None:
        self.said = Rollout((*tokenizer(ANSWER)["input_ids"], tokenizer.eos_token_id), ANSWER, "stop")
        self._num_dealt = {}

    def generate(self, prompts: Any, seeds: Sequence[Sequence[int]], *_: Any, **__: Any) -> list[list[Rollout]]:
        return [[self.said for _ in group] for group in seeds]


class ParrotKind(EngineKind):
    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        if any(temperature != 1.0 for temperature in temperatures.values()):
            raise UsageError(f"a parrot has one temperature, found {temperatures}")

    @staticmethod
    def open(recipe: Any, tokenizer: Any, policy: Any = None) -> Parrot:
        return Parrot(tokenizer)


class Flattery(VerifiedReward):
    """Everything is right, but nothing may be asked without an answer."""

    class Options(Block):
        praise: str = ANSWER
        unanswered: Literal["refuse", "take"] = "refuse"

    LIMITS: ClassVar[frozenset[str]] = frozenset({"timeout_s"})
    opened: ClassVar[list[RewardConfig]] = []

    @staticmethod
    def check(prompts: Sequence[Prompt], options: Any) -> None:
        if options.unanswered == "refuse" and any(prompt.answer == "none" for prompt in prompts):
            raise DataError("no answer")

    def __init__(self, config: RewardConfig) -> None:
        self.opened.append(config)
        super().__init__(lambda prompt, rollout: rollout.text == config.options.praise)


class Watched(Local):
    opened: list[Any] = []  # noqa: RUF012

    @staticmethod
    def open(*arguments: Any, **options: Any) -> Any:
        Watched.opened.append(Local.open(*arguments, **options))
        return Watched.opened[-1]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Settings that name one entry more of each table."""
    monkeypatch.setitem(ENGINES.locations, "parrot", f"{__name__}:ParrotKind")
    monkeypatch.setitem(REWARDS.locations, "flattery", f"{__name__}:Flattery")
    monkeypatch.setitem(POLICIES.locations, "watched", f"{__name__}:Watched")
    return ["rollout.engine=parrot", "reward=flattery", "policy.kind=watched", "data.template=plain"]


def problems(path: Path, answer: str) -> Path:
    rows = [{"id": str(number), "problem": f"1 2 {number} = 6", "answer": answer} for number in range(4)]
    return write_rows(path, rows)


def test_a_run_takes_what_the_tables_name(names, tiny_config, tmp_path):
    config = tiny_config(*names, f"data.prompts={problems(tmp_path / 'p.jsonl', '6')}", "steps=1")
    Watched.opened.clear()
    with RunDir.create(tmp_path / "run", config) as run:
        assert train(config, run)["reward/mean"] == 1.0
    assert len(Watched.opened) == 1
    assert {row["completion"] for row in read_rows(tmp_path / "run/rollouts/step-000001.jsonl")} == {ANSWER}


def test_a_run_is_refused_by_what_the_tables_name(names, tiny_config, tmp_path):
    with pytest.raises(UsageError, match=r"parrot has one temperature.*rollout.temperature"):
        prepare(tiny_config(*names, "rollout.temperature=0.5"))
    unanswered = tiny_config(*names, f"data.prompts={problems(tmp_path / 'p.jsonl', 'none')}")
    with pytest.raises(DataError, match="no answer"):
        prepare(unanswered)


def test_a_reward_of_the_table_gets_its_options_and_limits(names, tiny_config, tmp_path):
    Flattery.opened.clear()
    file = problems(tmp_path / "p.jsonl", "none")
    own = ["reward.options.unanswered=take", "reward.options.praise=hm", "reward.timeout_s=3"]
    config = tiny_config(*names, *own, f"data.prompts={file}", "steps=1")
    with RunDir.create(tmp_path / "run", config) as run:
        assert train(config, run)["reward/mean"] == 0.0
    assert [(opened.options.praise, opened.timeout_s) for opened in Flattery.opened] == [("hm", 3.0)]
    assert load_config(tmp_path / "run") == config


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ("reward.options.prais=hm", ["reward.options.praise"]),
        ("reward.options.praise=3", ["3", "text"]),
        ("reward.options.unanswered=tak", ["refuse", "take"]),
        ("reward.workers=3", ["3", "null", "flattery"]),
    ],
)
def test_what_a_reward_of_the_table_does_not_take_is_refused(names, tiny_config, setting, named):
    with pytest.raises(UsageError) as refused:
        tiny_config(*names, setting)
    says(refused, *named, key=setting.partition("=")[0])


def test_the_defaults_of_options_are_no_settings(names, tiny_config):
    short = tiny_config(*names)
    assert tiny_config(*names, "reward.options.praise='1 + 2'", "reward.workers=0") == short
    assert "\nreward: flattery\n" in config_to_yaml(short)
    other = tiny_config(*names, "reward.options.unanswered=take")
    assert differing_keys([short, other]) == {"reward.options.unanswered": ["refuse", "take"]}


def test_the_schema_shows_the_options_of_a_reward(names):
    assert '# reward.name: flattery\nreward.options.praise: text = "1 + 2"\n' in schema_text()
    assert schema_json()["rewards"]["flattery"]["properties"]["praise"]["default"] == ANSWER


def test_samples_are_drawn_by_what_the_table_names(names, tiny_folder, tmp_path):
    file = problems(tmp_path / "p.jsonl", "6")
    (drawn,) = draw_samples(tiny_folder, str(file), n=2, engine="parrot", template="plain", out=tmp_path / "out")
    assert [row["completion"] for row in read_rows(drawn.path)] == [ANSWER] * 8
    with pytest.raises(UsageError, match="one temperature"):
        draw_samples(tiny_folder, str(file), n=2, engine="parrot", temperature=0.5, out=tmp_path / "cold")


def test_without_the_line_the_names_are_unknown(tiny_config):
    for key, name, expected in (("rollout.engine", "parrot", "transformers"), ("policy.kind", "watched", "deepspeed")):
        with pytest.raises(UsageError) as refused:
            tiny_config(f"{key}={name}")
        says(refused, expected, key=key, value=name)
    with pytest.raises(UsageError) as refused:
        make_reward("flattery")
    says(refused, "math", "countdown", "module:function", value="flattery")
