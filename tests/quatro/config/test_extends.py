"""A configuration that begins with another file: what is merged, what is replaced, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from evals.errors import UsageError
from quatro.config import load_config, resolve_config, schema_json, schema_text
from tests.kit import quatro

BASE = """model: some/model
method: {name: gspo, clip_low: 0.5}
reward: {name: model, options: {path: a/b, batch_rows: 9}}
optimizer: {lr: 0.5, betas: [0.1, 0.2]}
checkpoint: {every: 5, keep: 2}
"""
Files = Callable[..., Path]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """``files(a="...", b="...")`` writes a.yaml and b.yaml; returns the first."""

    def write(**texts: str) -> Path:
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
        return tmp_path / f"{next(iter(texts))}.yaml"

    return write


def refusal(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        load_config(path)
    return str(error.value).replace(f"{path.parent}/", "")


def test_the_files_own_keys_come_on_top_of_a_chain(files):
    middle = "extends: base.yaml\noptimizer: {betas: [0.3, 0.4]}\ncheckpoint: {keep: {best: reward/mean}}\n"
    path = files(top="seed: 3\nextends: middle.yaml\noptimizer:\n  lr: 0.25\n", middle=middle, base=BASE)
    resolved = resolve_config(path)
    config, origins = resolved.config, {key: Path(origin).name for key, origin in resolved.origins.items()}
    assert (config.seed, config.optimizer.lr, config.optimizer.betas) == (3, 0.25, (0.3, 0.4))
    assert (config.checkpoint.every, config.checkpoint.keep.model_dump()) == (5, {"last": 2, "best": "reward/mean"})
    expected = {"seed": "top.yaml:1", "optimizer.lr": "top.yaml:4", "optimizer.betas": "middle.yaml:2"}
    expected |= {"checkpoint.keep.best": "middle.yaml:3", "checkpoint.keep.last": "base.yaml:5", "model": "base.yaml:1"}
    assert {key: origins[key] for key in expected} == expected
    assert load_config(path, method="quatro", overrides=["optimizer.lr=1"]).optimizer.lr == 1.0
    assert resolved.stem == "top"


@pytest.mark.parametrize(
    ("own", "found"),
    [
        ("method: {clip_high: 0.75}", {"clip_low": 0.5, "clip_high": 0.75}),
        ("method: {name: gspo, clip_high: 0.75}", {"clip_low": 0.5, "clip_high": 0.75}),
        ("method: {name: grpo}", {"name": "grpo", "clip_low": 0.2}),
        ("method: {name: quatro, delta: 0.5}", {"name": "quatro", "delta": 0.5}),
        ("reward: {options: {batch_rows: 7}}", {"path": "a/b", "batch_rows": 7}),
        ("reward: model", {"path": "a/b", "batch_rows": 9}),
        ("reward: math", {"name": "math"}),
        ("reward: {on_error: fail, name: math}", {"name": "math"}),
        ("reward: [math, {name: model, weight: 0.5, options: {path: a/b}}]", {"name": "sum"}),
        ("checkpoint: {keep: 4}", {"last": 4, "every": 5}),
    ],
)
def test_a_block_of_another_name_is_replaced_and_one_of_the_same_name_keeps_its_keys(files, own, found):
    config = load_config(files(top=f"extends: base.yaml\n{own}\n", base=BASE))
    block = getattr(config, own.partition(":")[0]).model_dump()
    flat = {**block, **block.get("options", {}), **block.get("keep", {})}
    assert {key: flat[key] for key in found} == found


def test_a_list_of_rewards_is_kept_until_another_reward_is_named(files):
    base = BASE.replace("reward: {", "reward: [math, {weight: 0.5, ").replace("9}}", "9}}]")
    assert load_config(files(top="extends: base.yaml\n", base=base)).reward.names == ("math", "model")
    assert "reward sum does not read workers" in refusal(files(top="extends: base.yaml\nreward: {workers: 2}\n"))
    assert load_config(files(top="extends: base.yaml\nreward: math\n")).reward.names == ("math",)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"a": "extends: nope.yaml\n"}, "a.yaml:1: extends: config 'nope.yaml': no such file or run; shipped: "),
        ({"a": "extends: b\n", "b": BASE}, "did you mean b.yaml?"),
        ({"a": "seed: 1\nextends: b.yaml\n", "b": "extends: c.yaml\n"}, "b.yaml:1: extends: config 'c.yaml'"),
        ({"a": "extends: a.yaml\n"}, "a.yaml:1: extends: a circle: a.yaml extends a.yaml"),
        (
            {"a": "extends: b.yaml\n", "b": "extends: ./a.yaml\n"},
            "b.yaml:1: extends: a circle: a.yaml extends b.yaml extends a.yaml",
        ),
        (
            {"a": "extends: b.yaml\n", "b": "- 1\n"},
            "a.yaml:1: extends: b.yaml:1: found a list, expected a mapping of `key: value` lines",
        ),
        (
            {"a": "seed: 1\nextends: [b.yaml]\n"},
            "a.yaml:2: extends: found [b.yaml], expected a file or a configuration",
        ),
        ({"a": "extends:\n"}, "a.yaml:1: extends: found null, expected a file"),
        ({"a": "extend: b.yaml\n"}, "a.yaml:1: extend: unknown key; did you mean extends?"),
        (
            {"a": "extends: b.yaml\nprompts_per_step: 10\n", "b": f"{BASE}minibatch_prompts: 4\n"},
            "b.yaml:6: minibatch_prompts: found 4, expected a divisor of prompts_per_step (10)",
        ),
        (
            {"a": "extends: b.yaml\nseed: x\nlr: 1\n", "b": f"{BASE}stpes: 3\n"},
            "a.yaml:2: seed: found x, expected a whole number\n"
            "a.yaml:3: lr: unknown key; did you mean optimizer.lr?\n"
            "b.yaml:6: stpes: unknown key; did you mean steps?",
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_the_files_that_led_there(files, texts, said):
    assert said in refusal(files(**texts))


def test_an_option_does_not_extend_and_editors_know_the_key(files):
    with pytest.raises(UsageError, match="only a file extends another"):
        load_config("quickstart", overrides=["extends=quickstart"])
    document = schema_json()
    assert document["properties"]["extends"]["type"] == "string"
    assert document["anyOf"] == [{"required": ["model", "method"]}, {"required": ["extends"]}]
    assert "\nextends: text\n" in schema_text()


def test_a_run_of_an_extending_file_stands_alone(files, tiny_folder, tmp_path):
    own = (
        f"extends: quickstart\nmodel: {tiny_folder}\nsteps: 1\nprompts_per_step: 2\nminibatch_prompts: 2\n"
        "rollouts_per_prompt: 2\ninner_updates: 1\nthreads: 1\n"
    )
    path, run = files(top="extends: own.yaml\nmethod: {delta: 0.5}\n", own=own), tmp_path / "run"

    origins = json.loads(quatro("config", "show", path, "--json").stdout)["origins"]
    assert (origins["method.delta"], origins["steps"]) == ("top.yaml:2", "own.yaml:3")
    assert origins["rollout.max_new_tokens"].startswith("shipped quickstart.yaml:")
    points = files(points="base: top.yaml\ncells: {one: {axes: {method.name: [quatro, gspo]}}}\n")
    planned = quatro("sweep", points, "--dry-run").stdout
    assert "one-quatro" in planned
    assert "one-gspo" in planned
    quatro("train", path, "-o", run)
    expected = load_config(path)
    (tmp_path / "own.yaml").unlink()
    assert "extends" not in (run / "config.yaml").read_text(encoding="utf-8")
    assert load_config(run) == expected.with_sizes(expected.sizes)
    assert "from" in quatro("sample", run, "-b", "countdown", "-n", "1", "--dry-run").stdout


@pytest.mark.parametrize("block", ["data: mine.jsonl", "optimizer: 3", "policy: deepspeed"])
def test_an_option_does_not_put_a_block_in_the_place_of_a_wrong_value(tmp_path, block):
    key = {"data": "too_long=skip", "optimizer": "lr=1e-3", "policy": "gradient_checkpointing=true"}
    name = block.partition(":")[0]
    (tmp_path / "mine.yaml").write_text(f"extends: quickstart\n{block}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"{name} is .*, which has no keys below it"):
        load_config(tmp_path / "mine.yaml", overrides=[f"{name}.{key[name]}"])


def test_a_method_that_is_there_already_keeps_its_keys_and_says_so():
    (note,) = resolve_config("quickstart", method="quatro", overrides=["method.delta=0.5"]).notes
    assert "it keeps delta=0.01" in note
    assert resolve_config("quickstart", method="gspo").notes == []
