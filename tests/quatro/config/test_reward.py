"""`reward` as a name and as a block: one configuration, whatever asks for it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from evals.errors import DataError, UsageError
from quatro.config import Config, config_to_yaml, differing_keys, load_config, resolve_config
from quatro.runs.identity import refuse_other_config

SMALLEST = "model: some/model\nmethod: {name: quatro}\n"
BLOCK = "{name: 'm:f', options: {scale: 2, names: [a, null]}, timeout_s: 5, workers: 3, on_error: zero}"


@pytest.mark.parametrize("name", ["math", "m:f"])
@pytest.mark.parametrize("block", ["{{name: '{}'}}", "{{name: '{}', options: {{}}, timeout_s: null, workers: 0}}"])
def test_a_name_is_short_for_a_block(write, name, block):
    short = load_config(write(f"{SMALLEST}reward: '{name}'\n"))
    long = load_config(write(f"{SMALLEST}reward: {block.format(name)}\n"))
    assert short == long == Config(model="some/model", method={"name": "quatro"}, reward={"name": name})
    assert short.model_dump_json() == long.model_dump_json()
    assert differing_keys([short, long]) == {}
    assert f"\nreward: {name}\n" in config_to_yaml(long)
    assert config_to_yaml(short) == config_to_yaml(long)


def test_without_a_reward_it_is_math(write):
    assert load_config(write(SMALLEST)) == load_config(write(f"{SMALLEST}reward: {{}}\n"))
    assert load_config(write(SMALLEST)).reward.name == "math"


def test_a_block_is_written_as_a_block(write):
    config = load_config(write(f"{SMALLEST}reward: {BLOCK}\n"))
    assert config.reward.options.model_dump() == {"scale": 2, "names": ["a", None]}
    text = config_to_yaml(config)
    assert "\nreward:\n  name: m:f\n  options:\n    scale: 2\n    names: [a, null]\n  timeout_s: 5.0\n" in text
    assert load_config(write(text)) == config
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_settings_reach_into_a_name(write):
    path = write(f"{SMALLEST}reward: 'm:f'\n")
    settings = ["reward.options.scale=2", "reward.options.names=[a, null]", "reward.timeout_s=5", "reward.workers=3"]
    resolved = resolve_config(path, overrides=[*settings, "reward.on_error=zero"])
    assert resolved.config == load_config(write(f"{SMALLEST}reward: {BLOCK}\n"))
    assert resolved.origins["reward.name"] == f"{path}:3"
    assert resolved.origins["reward.options.scale"] == "-s reward.options.scale=2"
    other = resolve_config(path, overrides=["reward.timeout_s=5", "reward.name=m:g"])
    assert (other.config.reward.name, other.config.reward.timeout_s) == ("m:g", 5.0)
    # A name takes the place of the whole block.
    assert load_config(path, overrides=["reward.timeout_s=5", "reward=m:g"]) == load_config(
        path, overrides=["reward=m:g"]
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{name: maths}", "reward.name: found maths, expected math, countdown, countdown-distance, code,"),
        ("{nam: math}", "reward.nam: unknown key; did you mean reward.name?"),
        ("3", "reward: found 3, expected math, countdown, countdown-distance, code,"),
        ("[]", "reward.options.rewards: found [], expected at least one reward"),
        ("[maths]", "reward.options.rewards"),
        ("{name: [math]}", "reward.name: found [math], expected text"),
        ("{name: math, options: {scale: 2}}", "reward.options.scale: unknown key; known here: none"),
        ("{options: {scale: 2}}", "reward.options.scale: unknown key; known here: none"),
        ("{name: math, options: 2}", "reward.options: found 2, expected a block of keys"),
        ("{name: math, timeout_s: 2}", "reward.timeout_s: found 2, expected null: reward math does not read"),
        ("{name: math, on_error: zero}", "reward.on_error: found zero, expected fail: reward math does not read"),
        ("{name: 'm:f', timeout_s: 0}", "reward.timeout_s: found 0, expected more than 0"),
        ("{name: 'm:f', timeout_s: 1e9}", "reward.timeout_s: found 1000000000.0, expected at most 86400"),
        ("{name: 'm:f', workers: 1.5}", "reward.workers: found 1.5, expected a whole number"),
        ("{name: 'm:f', on_error: skip}", "reward.on_error: found skip, expected one of fail, zero, drop"),
        ("{name: 'm:f', options: {scale: .nan}}", "reward.options.scale: found .nan, expected text, finite numbers"),
        ("{name: 'm:f', option: {}}", "reward.option: unknown key; did you mean reward.options?"),
    ],
)
def test_a_wrong_block_is_named_with_what_was_expected(write, line, says):
    path = write(f"{SMALLEST}reward: {line}\n")
    with pytest.raises(UsageError) as error:
        load_config(path)
    assert str(error.value).startswith(f"{path}:3: {says}")


def test_a_block_is_held_against_the_prompts_as_a_name_is(write):
    with pytest.raises(UsageError, match=r":3: reward: found countdown, expected math: the prompts are math_train's"):
        load_config(write(f"{SMALLEST}reward: {{name: countdown}}\n"))


def test_a_checkpoint_that_holds_a_name_is_that_of_the_block(write):
    config = load_config(write(f"{SMALLEST}reward: {{name: 'm:f'}}\n"))
    state = {"config": {**config.model_dump(mode="json"), "reward": "m:f"}, "step": 1}
    refuse_other_config(Path("run"), config, state, "step-000001")
    other = load_config(write(SMALLEST + "reward: {name: 'm:f', timeout_s: 5}\n"))
    with pytest.raises(DataError, match=r"reward.timeout_s was None, is 5.0;"):
        refuse_other_config(Path("run"), other, state, "step-000001")


def test_a_function_is_not_imported_to_read_a_configuration(write):
    path = write(f"{SMALLEST}reward: {{name: 'this:s', options: {{a: 1}}, timeout_s: 5}}\n")
    code = (
        f"import sys, json; from quatro.config import load_config; c = load_config({str(path)!r}); "
        "print(json.dumps([name for name in ('torch', 'this') if name in sys.modules]))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout) == []
