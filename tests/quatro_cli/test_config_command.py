import json
import re
from typing import Any

import pytest

from quatro.config import load_config, shipped_configs
from tests.kit import quatro, says


def shown(*words: object) -> str:
    return quatro("config", *words).stdout


def document(*words: object) -> Any:
    return json.loads(shown(*words, "--json"))


@pytest.mark.parametrize("name", shipped_configs())
def test_what_is_shown_is_a_config_again(tmp_path, name):
    path = tmp_path / "mine.yaml"
    path.write_text(shown("show", name, "-s", "optimizer.lr=1e-5", "-m", "gspo"), encoding="utf-8")
    assert load_config(path) == load_config(name, overrides=["optimizer.lr=1e-5"], method="gspo")


def test_each_line_says_what_set_it():
    text = shown("show", "quickstart", "-m", "gspo", "-s", "method.preset=official", "-s", "seed=3")
    lines = {line.split(":")[0]: line for line in text.splitlines()}
    assert lines["seed"].endswith("# -s seed=3")
    assert lines["model"].endswith("# quickstart.yaml:4")
    assert lines["  name"] != lines["  beta"]
    assert lines["  beta"].endswith("# preset official")
    assert lines["  clip_low"].endswith("# preset official")
    assert "#" not in lines["device"]

    found = document("show", "quickstart")
    assert found["config"]["method"]["delta"] == 0.01
    assert found["origins"]["method.delta"] == "quickstart.yaml:12"


def test_an_option_cannot_break_out_of_its_comment(tmp_path):
    override = "eval.benchmark=one\n\n  two"
    path = tmp_path / "mine.yaml"
    path.write_text(shown("show", "quickstart", "-s", override), encoding="utf-8")
    assert load_config(path) == load_config("quickstart", overrides=[override])


@pytest.mark.parametrize("command", [("config", "show"), ("train", "--dry-run"), ("sweep", "--dry-run")])
def test_a_reward_that_does_not_exist_is_refused_where_it_is_read(tmp_path, command):
    path = tmp_path / "mine.yaml"
    path.write_text("model: some/model\nmethod: {name: quatro}\nreward: prose\n", encoding="utf-8")
    axis = ["-g", "seed=0,1"] if command[0] == "sweep" else []
    says(quatro(*command, path, *axis, code=2), f"{path}:3", "countdown-distance, code", key="reward", value="prose")


PAPER, VERL, OURS = "stated by the paper", "verl's default", "our reading"


@pytest.mark.parametrize(
    ("arguments", "whose"),
    [
        (["quickstart", "-m", "grpo"], {"clip_low": VERL, "clip_high": VERL, "dual_clip": VERL, "aggregate": VERL}),
        (["quickstart", "-m", "gspo"], {"clip_low": PAPER, "clip_high": PAPER, "aggregate": OURS}),
        (["quickstart", "-m", "gmpo"], {"clip_low": VERL, "clip_high": VERL}),
        (["quickstart", "-m", "gpg"], {"aggregate": VERL}),
        (["quickstart", "-m", "cispo"], {"clip_low": VERL, "clip_high": VERL, "aggregate": VERL}),
        (
            ["quickstart", "-m", "dapo"],
            {"clip_low": VERL, "clip_high": OURS, "dual_clip": VERL, "aggregate": VERL},
        ),
    ],
)
def test_a_preset_says_whose_its_values_are(arguments, whose):
    origins = document("show", *arguments)["origins"]
    assert {key: origins[f"method.{key}"] for key in whose} == {key: f"preset paper, {of}" for key, of in whose.items()}
    assert origins["kl.beta"] == f"preset paper, {PAPER}"
    assert origins["rollout.dynamic_sampling"] == (f"preset paper, {OURS}" if "dapo" in arguments else "default")
    assert origins["method.preset"] == "default"


@pytest.mark.parametrize("name", ["math-1.5b", "math-1.5b-2gpu", "math-7b", "math-7b-4gpu"])
def test_a_maths_config_says_which_values_are_the_papers_verls_and_ours(name):
    found = document("show", name)
    whose = {
        PAPER: ["prompts_per_step", "rollouts_per_prompt", "minibatch_prompts", "inner_updates", "optimizer.lr"]
        + ["optimizer.weight_decay", "rollout.max_new_tokens", "rollout.temperature", "kl.beta", "kl.estimator"],
        VERL: [f"optimizer.{key}" for key in ("betas", "max_grad_norm", "warmup_steps", "schedule")]
        + ["data.max_prompt_tokens", "kl.aggregate"],
        "our choice": ["steps"],
    }
    for owner, keys in whose.items():
        assert [key for key in keys if not found["origins"][key].endswith(owner)] == [], owner
    assert found["config"]["data"]["max_prompt_tokens"] == 512
    text = shipped_configs()[name].read_text(encoding="utf-8")
    assert re.search(r"^steps: 100 +# ours: verl's default, total_epochs 30, .* about 870$", text, re.MULTILINE)
    text = shown("show", name, "-s", "optimizer.max_grad_norm=2")
    assert re.search(r"max_grad_norm: 2.0 +# -s optimizer.max_grad_norm=2$", text, re.MULTILINE)


def test_the_schema_calls_no_default_the_papers_that_is_not():
    lines = shown("schema").splitlines()
    heads = {line.partition(":")[0]: line for line in lines if not line.startswith((" ", "#"))}
    assert heads["optimizer.lr"].endswith(f"= 1.0e-06, {PAPER}")
    assert heads["optimizer.betas"].endswith(f"= [0.9, 0.999], {VERL}")
    for key in ("steps", "data.max_prompt_tokens", "method.delta", "checkpoint.every"):
        assert PAPER not in heads[key], key
        assert VERL not in heads[key], key


def test_dapo_as_verl_runs_it_is_grpo():
    def settings(method: str, preset: str) -> dict:
        return document("show", "quickstart", "-m", method, "-s", f"method.preset={preset}")["config"]

    dapo, grpo = settings("dapo", "verl-default"), settings("grpo", "paper")
    assert dapo["method"].pop("overlong_buffer") == 0
    assert grpo["method"].pop("leave_one_out") is False
    grpo["method"] |= {"name": "dapo", "preset": "verl-default"}
    assert dapo["method"].pop("overlong_factor") == 1
    assert dapo["method"] == grpo["method"]
    assert {**dapo, "method": None} == {**grpo, "method": None}


def test_differences_are_a_table():
    assert [line.split() for line in shown("diff", "math-1.5b", "math-7b").splitlines()] == [
        ["key", "math-1.5b", "math-7b"],
        ["model", "Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-7B"],
        ["rollout.max_new_tokens", "1024", "3072"],
        ["rollout.gpu_memory_utilization", "0.5", "0.4"],
        ["policy.kind", "local", "deepspeed"],
        ["policy.zero_stage", "1", "2"],
        ["policy.offload_optimizer", "false", "true"],
        ["policy.gradient_checkpointing", "false", "true"],
    ]
    differences = document("diff", "math-1.5b", "math-7b")["differences"]
    assert differences[1] == {"key": "rollout.max_new_tokens", "a": "1024", "b": "3072"}
    same = quatro("config", "diff", "quickstart", "quickstart")
    assert same.stdout == ""
    says(same, "agree on every key")


def test_the_schema_is_printed():
    assert "optimizer.lr: float > 0 = 1.0e-06" in shown("schema")
