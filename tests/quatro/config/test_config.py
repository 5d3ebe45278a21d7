import json
import subprocess
import sys
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from evals.errors import UsageError
from quatro.config import (
    Config,
    config_to_yaml,
    differing_keys,
    find_config,
    leaves,
    load_config,
    resolve_config,
    schema_json,
    schema_text,
    shipped_configs,
)
from quatro.config.yaml_text import parse_yaml
from quatro.methods.base import Method
from quatro.tasks.codegrammar import MAX_ANSWER_TOKENS

SMALLEST = "model: some/model\nmethod: {name: quatro}\n"


class Peculiar(Method):
    """A method of one's own, with presets."""

    STATED_BY_PAPER: ClassVar[frozenset[str]] = frozenset({"width"})
    PRESETS: ClassVar[dict[str, dict[str, Any]]] = {
        "paper": {"width": 0.5, "kl.beta": 0.25, "kl.aggregate": "seq-mean-token-sum"},
        "official": {"width": 0.125, "kl.beta": 0.0},
    }
    name: str
    preset: Literal["paper", "official"] = "paper"
    width: float = 1.0

    def advantages(self, reward_B: Any, group_B: Any) -> Any:
        raise NotImplementedError

    def loss(self, logp_BT: Any, batch: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def peculiar(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(sys.modules, "peculiar_module", sys.modules[__name__])
    return "peculiar_module:Peculiar"


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        load_config(*args, **kwargs)
    assert error.value.exit_code == 2
    return str(error.value)


# ---- the tree


def test_defaults_are_the_contracts(write):
    found = load_config(write(SMALLEST)).model_dump(mode="json")
    method = found.pop("method")
    assert method["name"] == "quatro"
    assert method["delta"] == 0.01
    assert found == {
        "model": "some/model",
        "dtype": "bfloat16",
        "device": "auto",
        "deterministic": False,
        "threads": None,
        "processes": None,
        "seed": 0,
        "steps": 100,
        "data": {
            "prompts": "math_train",
            "template": "qwen-boxed",
            "system": None,
            "chat_template_kwargs": {},
            "pass_rate": None,
            "max_prompt_tokens": 1024,
            "too_long": "refuse",
        },
        "reward": {"name": "math", "options": {}, "timeout_s": None, "workers": None, "on_error": "fail"},
        "prompts_per_step": 256,
        "rollouts_per_prompt": 8,
        "minibatch_prompts": 64,
        "inner_updates": 1,
        "max_inner_updates": 20,
        "microbatch_tokens": "auto",
        "old_policy": "trainer",
        "rollout": {
            "engine": "transformers",
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "max_new_tokens": 1024,
            "stop": None,
            "thinking": None,
            "dynamic_sampling": False,
            "max_sampling_rounds": 10,
            "mask_truncated": False,
            "correction": None,
            "rows_at_once": "auto",
            "cache_tokens": "auto",
            "gpu_memory_utilization": 0.8,
            "replay_file": None,
        },
        "optimizer": {
            "name": "adamw",
            "lr": 1e-6,
            "betas": [0.9, 0.999],
            "weight_decay": 0.0,
            "max_grad_norm": 1.0,
            "warmup_steps": 0,
            "schedule": "constant",
            "min_lr": 0.0,
        },
        "kl": {"beta": 0.001, "reference": None, "estimator": "k3", "aggregate": "token-mean"},
        "entropy_coefficient": 0.0,
        "policy": {
            "kind": "local",
            "zero_stage": 1,
            "offload_optimizer": False,
            "gradient_checkpointing": False,
            "lora": None,
        },
        "eval": {"every": 0, "at_start": True, "benchmark": None, "n": 16, "temperature": 1.0, "top_p": 1.0},
        "audit": {"prompts": 32},
        "checkpoint": {"every": 20, "keep": {"last": 3, "best": None}},
        "early_stop": {"metric": "eval/pass@1", "patience": 0, "min_delta": 0.0},
        "tracking": {"trackers": [], "tensorboard": False, "wandb": None, "project": "quatro", "name": None},
        "save_rollouts": True,
        "on_nonfinite": "stop",
    }


def _fields(model: type[BaseModel], above: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, field in model.model_fields.items():
        fields[f"{above}{key}"] = field
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            fields |= _fields(field.annotation, f"{above}{key}.")
    return fields


def test_every_key_says_what_it_means_and_the_schema_shows_it():
    text, document = schema_text(), schema_json()
    for key, field in _fields(Config).items():
        assert field.description, key
        if not isinstance(field.annotation, type) or not issubclass(field.annotation, BaseModel):
            assert f"\n{key}: " in f"\n{text}"
            assert field.description in text
    assert "optimizer.lr: float > 0 = 1.0e-06" in text
    assert "method.delta: float > 0" in text
    assert set(document["methods"]) >= {"quatro", "gspo"}
    json.dumps(document, allow_nan=False)


def test_a_config_is_frozen(write):
    config = load_config(write(SMALLEST))
    with pytest.raises(ValidationError, match="frozen"):
        config.steps = 3
    with pytest.raises(ValidationError, match="frozen"):
        config.method.delta = 3.0


def test_configuration_works_without_torch():
    code = (
        "import sys; from quatro.config import *; c = load_config('quickstart', method='gspo'); config_to_yaml(c); "
        "schema_text(); schema_json(); "
        "print([m for m in ('torch', 'transformers', 'typer', 'rich', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


# ---- shipped files


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_config_loads_and_says_what_it_is(name):
    text = shipped_configs()[name].read_text(encoding="utf-8")
    assert text.startswith("# ")
    config = load_config(name)
    written = parse_yaml(config_to_yaml(config), "f").data
    block = config.reward.model_dump(mode="json", exclude=set(config.reward.unheeded))
    reward = block if config.reward.changed else config.reward.name
    assert written == json.loads(config.model_dump_json()) | {"reward": reward}


def test_the_quickstart_is_a_countdown_run_on_the_cpu():
    config = load_config("quickstart")
    assert (config.model, config.data.prompts, config.reward.name) == ("embedded:countdown", "countdown", "countdown")
    assert (config.prompts_per_step, config.rollouts_per_prompt, config.inner_updates) == (32, 8, 5)
    assert load_config("quickstart-hard").model == "embedded:countdown-hard"
    assert list(differing_keys([config, load_config("quickstart-hard")])) == ["model"]


def test_the_quickstart_of_code_runs_programs_on_the_cpu():
    config = load_config("quickstart-code")
    assert (config.model, config.data.prompts, config.reward.name) == ("embedded:code", "codegrammar", "code")
    # A prompt and a body fit the model, the end token included.
    assert config.rollout.max_new_tokens == MAX_ANSWER_TOKENS
    assert config.data.max_prompt_tokens + MAX_ANSWER_TOKENS <= 64


def test_sources_are_a_file_a_run_directory_or_a_shipped_name(tmp_path, write):
    assert find_config("quickstart").name == "quickstart.yaml"
    assert find_config("quickstart.yaml") == find_config("quickstart")
    path = write(SMALLEST)
    (tmp_path / "run").mkdir()
    path.rename(tmp_path / "run" / "config.yaml")
    assert load_config(tmp_path / "run") == load_config(tmp_path / "run" / "config.yaml")
    assert "did you mean quickstart?" in refusal("quickstrat")
    assert f"shipped: {', '.join(shipped_configs())}" in refusal("nothing/like/this.yaml")
    assert "directory without config.yaml" in refusal(tmp_path)


# ---- writing


OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "steps": st.integers(1, 10**6),
        "optimizer.lr": st.floats(1e-300, 1e300) | st.integers(1, 5),
        "optimizer.betas": st.tuples(st.floats(0, 0.999), st.floats(0, 0.999)).map(list),
        "method.delta": st.floats(1e-12, 10),
        "kl.beta": st.floats(0, 10),
        "rollout.top_p": st.floats(1e-9, 1),
        "audit": st.booleans(),
        "audit.prompts": st.just("all") | st.integers(0, 10**6),
        "threads": st.none() | st.integers(1, 64),
        "model": st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
            lambda text: text == text.strip()
        ),
    },
)


@settings(deadline=None)
@given(OVERRIDES)
def test_a_written_config_loads_as_the_same_config(tmp_path_factory: Any, overrides: dict[str, Any]) -> None:
    texts = [f"{key}={json.dumps(value)}" for key, value in overrides.items() if key != "model"]
    config = load_config("quickstart", overrides=texts)
    if "model" in overrides and not overrides["model"].startswith("embedded:"):
        config = Config.model_validate({**config.model_dump(), "model": overrides["model"]})
    path = tmp_path_factory.getbasetemp() / "written.yaml"
    path.write_text(config_to_yaml(config), encoding="utf-8")
    assert load_config(path) == config
    assert differing_keys([load_config(path), config]) == {}


def test_stop_strings_are_a_list_of_texts_and_are_written_as_they_are_read(write):
    stop = ("\ndef", "\t", "日本 😀\N{NO-BREAK SPACE}", '"', "no", "#")
    given = ", ".join(json.dumps(text, ensure_ascii=False) for text in stop)
    config = load_config("quickstart", overrides=[f"rollout.stop=[{given}]"])
    assert config.rollout.stop == stop
    assert load_config(write(config_to_yaml(config))) == config
    assert Config.model_validate_json(config.model_dump_json()) == config


def test_true_and_false_are_short_for_an_audit_of_all_prompts_or_none(write):
    """As in the config.yaml of an earlier version: a run goes on measuring what it measured."""
    assert load_config(write(SMALLEST)).audit.prompts == 32
    for text, prompts in (("true", "all"), ("false", 0)):
        path = write(f"{SMALLEST}audit: {text}\n")
        resolved = resolve_config(path)
        assert load_config(path, overrides=["audit.prompts=5"]).audit.prompts == 5
        assert resolved.config.audit.prompts == prompts
        assert resolved.origins["audit.prompts"].endswith(":3")
        stored = json.loads(resolved.config.model_dump_json()) | {"audit": text == "true"}
        assert Config.model_validate_json(json.dumps(stored)) == resolved.config  # that of a checkpoint
        assert load_config(write(config_to_yaml(resolved.config))) == resolved.config


def test_differences_name_keys_and_both_values():
    quatro = load_config("quickstart")
    assert differing_keys([quatro, quatro]) == {}
    other = load_config("quickstart", overrides=["optimizer.betas=[0.5, 0.75]", "eval.benchmark=countdown"])
    assert differing_keys([quatro, other]) == {
        "optimizer.betas": ["[0.9, 0.999]", "[0.5, 0.75]"],
        "eval.benchmark": ["null", "countdown"],
    }
    methods = differing_keys([quatro, load_config("quickstart", method="gspo")])
    assert methods["method.name"] == ["quatro", "gspo"]
    assert methods["method.delta"] == ["0.01", None]
    assert methods["method.clip_low"] == [None, "0.2"]


# ---- options


def test_overrides_are_yaml_values_and_the_last_one_counts():
    config = load_config(
        "quickstart",
        overrides=["optimizer.lr=1e-5", "optimizer.betas=[0.8, 0.9]", "eval.benchmark=math500", "seed=1", "seed=010"],
    )
    assert config.optimizer.lr == 1e-5
    assert config.optimizer.betas == (0.8, 0.9)
    assert config.eval.benchmark == "math500"
    assert config.seed == 10
    assert load_config("quickstart", overrides=["threads="]).threads is None
    assert load_config("quickstart", overrides=["optimizer.lr=1"]).optimizer.lr == 1.0


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("seed", "-s seed: expected KEY=VALUE"),
        ("=3", "-s =3: expected KEY=VALUE"),
        ("optimizer..lr=3", "expected KEY=VALUE"),
        ("model.name=3", "-s model.name=3: model is embedded:countdown, which has no keys below it"),
        ("seed=1:²", '-s seed=1:²: seed: found "1:²"'),
        ("seed=@3", "-s seed=@3: not YAML"),
        ("seed=*a", "alias"),
        ("optimizer.lrr=3", "-s optimizer.lrr=3: optimizer.lrr: unknown key; did you mean optimizer.lr?"),
        ("batch.size=3", "unknown key"),
        ("method.name=gpso", "-s method.name=gpso: method.name: unknown method 'gpso'"),
        ("method.name=[a]", "method.name: missing, expected one of"),
    ],
)
def test_a_wrong_override_is_shown_as_typed(override, says):
    assert says in refusal("quickstart", overrides=[override])


def test_choosing_a_method_replaces_the_block_before_any_override():
    by_option = load_config("quickstart", method="gspo", overrides=["method.clip_low=0.5"])
    assert by_option.method.model_dump()["clip_low"] == 0.5
    assert "delta" not in by_option.method.model_dump()
    assert load_config("quickstart", overrides=["method.clip_low=0.5", "method.name=gspo"]) == by_option
    # The file's own method, named again, starts from that method's defaults too.
    assert load_config("math-1.5b", method="quatro", overrides=["method.delta=0.5"]).method.model_dump()["delta"] == 0.5
    assert "name different methods" in refusal("quickstart", method="gspo", overrides=["method.name=quatro"])


# ---- presets


def test_a_preset_fills_only_what_nobody_set(write, peculiar):
    bare = f"model: a\nmethod: {{name: '{peculiar}'}}\n"
    paper = resolve_config(write(bare))
    assert paper.config.method.model_dump()["width"] == 0.5
    assert (paper.config.kl.beta, paper.config.kl.aggregate) == (0.25, "seq-mean-token-sum")
    assert paper.origins["method.width"] == "preset paper, stated by the paper"
    assert paper.origins["kl.beta"] == "preset paper, our reading"
    assert paper.origins["kl.estimator"] == "stated by the paper"

    official = resolve_config(write(bare), overrides=["method.preset=official", "method.width=2"])
    assert official.config.method.model_dump()["width"] == 2.0
    assert official.config.kl.beta == 0.0
    assert official.config.kl.aggregate == "token-mean"
    assert official.origins["method.width"] == "-s method.width=2"
    assert official.origins["kl.beta"] == "preset official"

    path = write(bare + "kl: {beta: 0.125}\n")
    kept = resolve_config(path)
    assert kept.config.kl.beta == 0.125
    assert kept.origins["kl.beta"] == f"{path}:3"
    assert "method.preset: found offical, expected one of paper, official; did you mean official?" in refusal(
        path, overrides=["method.preset=offical"]
    )


def test_a_resolved_preset_stays_as_it_was_resolved(write, peculiar):
    path = write(f"model: a\nmethod: {{name: '{peculiar}', preset: official}}\n")
    config = load_config(path)
    assert load_config(write(config_to_yaml(config))) == config


def test_origins_tell_where_each_key_came_from():
    resolved = resolve_config("quickstart", overrides=["optimizer.lr=1e-3"], method="gspo")
    assert resolved.stem == "quickstart"
    assert resolved.origins["optimizer.lr"] == "-s optimizer.lr=1e-3"
    assert resolved.origins["method.name"] == "-m gspo"
    assert resolved.origins["model"].endswith("quickstart.yaml:4")
    assert resolved.origins["optimizer.weight_decay"] == "stated by the paper"
    assert resolved.origins["data.too_long"] == "default"
    tree = resolved.config.model_dump()
    del tree["reward"]["options"]  # a block without keys
    assert set(resolved.origins) == {key for key, _ in leaves(tree)}


def test_python_builds_the_same_config(write):
    built = Config(model="some/model", method={"name": "quatro"})
    assert built == load_config(write(SMALLEST))
    assert Config(model="some/model", method=built.method) == built
    with pytest.raises(ValidationError, match=r"method\.name"):
        Config(model="some/model", method={"delta": 1.0})


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b"])
def test_a_name_no_file_system_takes_is_refused(source):
    with pytest.raises(UsageError, match="config"):
        load_config(source)
