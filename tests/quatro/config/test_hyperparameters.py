"""Hyper-parameters of a run in words, each with whose value it is."""

import pytest

from quatro.config import load_config, shipped_configs
from quatro.config.hyperparameters import GROUPS, SET, hyperparameters, sources_of
from quatro.config.load import CHOSEN, OURS, STATED, VERL
from quatro.registry import METHODS


def found(*arguments, **options):
    return {one.name: one for one in hyperparameters([load_config(*arguments, **options)])}


def test_each_value_has_its_source():
    settings = found("math-1.5b", overrides=["optimizer.lr=1e-5", "optimizer.warmup_steps=0"], method="gspo")
    expected = {
        "Weight decay": STATED,
        "clip_low": STATED,
        "Learning rate": SET,
        "top_p": STATED,
        "Warm-up steps": VERL,
        "Prompt template": CHOSEN,
        "aggregate": OURS,
        "Method": SET,
    }
    assert {name: settings[name].source for name in expected} == expected


@pytest.mark.parametrize(("delta", "source"), [("0.1", STATED), ("0.001", STATED), ("0.2", SET)])
def test_the_radii_of_the_paper_are_its_own(delta, source):
    assert found("math-1.5b", overrides=[f"method.delta={delta}"])["delta"].source == source


def test_what_a_preset_filled_in_names_it_and_a_change_of_it_does_not():
    official = load_config("quickstart", overrides=["method.preset=official", "method.clip_high=0.9"], method="gspo")
    sources = sources_of(official)
    assert sources["method.clip_low"] == "preset official"
    assert sources["method.clip_high"] == SET


def test_seeds_are_listed_and_folders_go_by_their_names(tmp_path):
    (tmp_path / "My-Model").mkdir()
    configs = [load_config("math-1.5b", overrides=[f"seed={seed}", f"model={tmp_path}/My-Model"]) for seed in (0, 2)]
    settings = {one.name: one.value for one in hyperparameters(configs)}
    assert (settings["Seed"], settings["Model"]) == ("0, 2", "My-Model")


@pytest.mark.parametrize("name", shipped_configs())
def test_every_key_that_is_not_bookkeeping_is_listed_once(name):
    config = load_config(name)
    listed = hyperparameters([config])
    names = [(one.group, one.name) for one in listed]
    assert len(names) == len(set(names))
    assert all(one.source for one in listed)
    sources = sources_of(config)
    assert {key for words in GROUPS.values() for key in words} - sources.keys() <= {"policy.lora.rank"}


@pytest.mark.parametrize("method", METHODS)
def test_nothing_of_a_methods_defaults_is_called_the_users(method):
    settings = hyperparameters([load_config("math-1.5b", method=method)])
    own = {one.name: one.source for one in settings if one.group == "RL algorithm"}
    assert {name for name, source in own.items() if source == SET} <= {"Method", "preset"}
