from typing import Any

import pytest

from evals.errors import UsageError
from quatro.config import load_config, resolve_config
from quatro.config.errors import REMOVED
from quatro.config.load import config_to_yaml, lasting_digest
from quatro.rewards.settings import REMOVED as REMOVED_REWARDS
from tests.kit import says

SMALLEST = "model: some/model\nmethod: {name: quatro}\n"


def refusal(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(UsageError) as error:
        load_config(*args, **kwargs)
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.parametrize(("key", "instead"), REMOVED.items())
def test_a_removed_key_is_refused_with_what_to_do_instead(key, instead):
    said = refusal("quickstart", overrides=[f"{key}=1"])
    assert f"-s {key}=1: {key}: " in said
    assert instead in said


@pytest.mark.parametrize("name", REMOVED_REWARDS)
@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("reward={}", "reward"),
        ("reward={{name: {}}}", "reward.name"),
        ("reward=[math, {}]", "reward.options.rewards.1"),
    ],
)
def test_a_removed_reward_is_refused_with_what_to_name_instead(name, given, key):
    says(refusal("quickstart", overrides=[given.format(name)]), key=key, value=name, advice="docs/rewards.md")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("lr: 1", "lr: unknown key; did you mean optimizer.lr?"),
        ("optimizer: {learning_rate: 1}", "optimizer.learning_rate: unknown key"),
        ("rollout: {topp: 1}", "rollout.topp: unknown key; did you mean rollout.top_p?"),
        ("stpes: 3", "stpes: unknown key; did you mean steps?"),
        ("eval: {every:5}", "eval.every:5: unknown key; write a space after the colon: every: 5"),
        ("seed: 1.5", "seed: found 1.5, expected a whole number"),
        ("seed: true", "seed: found true, expected a whole number"),
        ("seed: '3'", 'seed: found "3", expected a whole number'),
        ("seed: -1", "seed: found -1, expected at least 0"),
        ("steps: 0", "steps: found 0, expected at least 1"),
        ("optimizer: {lr: true}", "optimizer.lr: found true, expected a number"),
        ("optimizer: {lr: .nan}", "optimizer.lr: found .nan, expected a finite number"),
        ("optimizer: {lr: 1e999}", "optimizer.lr: found .inf, expected a finite number"),
        ("optimizer: {lr: 0}", "optimizer.lr: found 0, expected more than 0"),
        ("optimizer: {betas: 0.9}", "optimizer.betas: found 0.9, expected a list"),
        ("optimizer: {betas: [0.9, 1]}", "optimizer.betas.1: found 1, expected less than 1"),
        ("optimizer: {betas: [0.9]}", "optimizer.betas"),
        ("rollout: {top_p: 0}", "rollout.top_p: found 0, expected more than 0"),
        ("rollout: {top_p: 1.5}", "rollout.top_p: found 1.5, expected at most 1"),
        ("rollout: {temperature: 0}", "rollout.temperature: found 0, expected more than 0"),
        ("rollout: {engine: vlm}", "replay, module:Class; did you mean vllm?"),
        ("rollout: 3", "rollout: found 3, expected a block of keys"),
        ("rollout:", "rollout: found null, expected a block of keys"),
        ("save_rollouts: yes", 'save_rollouts: found "yes", expected true or false'),
        ("audit: 16", "audit: found 16, expected true, false or a block such as {prompts: 32}"),
        ("audit: {prompts: -1}", "audit.prompts: found -1, expected a whole number of at least 0, or all"),
        ("audit: {prompts: true}", "audit.prompts: found true, expected a whole number of at least 0, or all"),
        ("rollouts_per_prompt: 1", "rollouts_per_prompt: found 1, expected at least 2"),
        ("reward: maths", "reward: found maths, expected math, countdown, countdown-distance, code,"),
        ("policy: {zero_stage: 4}", "policy.zero_stage: found 4, expected at most 3"),
        ("policy: {lora: 16}", "policy.lora: found 16, expected a block of keys"),
        ("policy: {lora: {rank: 0}}", "policy.lora.rank: found 0, expected at least 1"),
        ("policy: {lora: {ranks: 8}}", "policy.lora.ranks: unknown key; did you mean policy.lora.rank?"),
        ("policy: {lora: {target_modules: q_proj}}", "policy.lora.target_modules: found q_proj, expected all-linear"),
        (
            "minibatch_prompts: 96",
            "minibatch_prompts: found 96, expected a divisor of prompts_per_step (256)",
        ),
        ("minibatch_prompts: 512", "minibatch_prompts: found 512, expected at most prompts_per_step (256)"),
        ("rollout: {engine: replay}", "rollout.replay_file: missing"),
        ("rollout: {engine: replay, replay_file: a.jsonl, stop: [x]}", "rollout.stop: found ['x'], expected []"),
        ('rollout: {stop: ["a", ""]}', 'rollout.stop: found [a, ""], stop strings are texts that are not empty'),
        ("rollout: {engine: vllm}\ndeterministic: true", "deterministic: found true, expected false: the engine vllm"),
        ("policy: {kind: deepspeed}\ndeterministic: true", "deterministic: found true, expected false: policy.kind"),
        ("rollout: {stop: [a, b, a]}", "rollout.stop: found [a, b, a], stop strings are texts that are not empty"),
        ("rollout: {stop: def}", "rollout.stop: found def, expected a list"),
        ("rollout: {stop: [1]}", "rollout.stop.0: found 1, expected text"),
        ("rollout: {replay_file: a.jsonl}", "rollout.replay_file: found a.jsonl, expected null"),
        ("eval: {every: 5}", "eval.benchmark: missing"),
        ("eval: {n: 0}", "eval.n: found 0, expected a whole number of at least 1, or a list of them"),
        ("eval: {benchmark: [aime24, 7]}", "eval.benchmark: found [aime24, 7], expected a benchmark, or a list of"),
        ("eval: {benchmark: [aime24, amc23], n: [1, 2, 3]}", "eval.n: found [1, 2, 3], expected one number, or one"),
        ("eval: {benchmark: aime24, n: [1, 2]}", "eval.n: found [1, 2], expected one number, or one for each"),
        ("eval: {benchmark: [a/p.jsonl, b/p.jsonl]}", "expected benchmarks of different names"),
        ("data: {prompts: countdown}", "reward: found math, expected countdown"),
        ("reward: countdown", "reward: found countdown, expected math"),
        (
            "data: {template: plan}",
            "data.template: found plan, unknown prompt template 'plan'; expected one of qwen-boxed, ",
        ),
        ("data: {prompts: ''}", "data.prompts: found"),
        ("optimizer: {min_lr: 1e-7}", "optimizer.min_lr: found 1e-07, expected 0: lr is constant"),
        (
            "optimizer: {schedule: cosine, min_lr: 1}",
            "optimizer.min_lr: found 1, expected at most optimizer.lr",
        ),
        ("optimizer: {schedule: step}", "optimizer.schedule: found step, expected one of constant, linear, cosine"),
    ],
)
def test_a_wrong_line_is_named_with_what_was_expected(write, line, says):
    path = write(SMALLEST + line + "\n")
    message = refusal(path)
    assert f"{says}" in message
    if not says.startswith("reward: found math"):  # that key is not in the file
        assert message.startswith(f"{path}:{3 + line.count(chr(10))}: ")


@pytest.mark.parametrize(
    ("method", "says"),
    [
        ("{name: qatro}", "did you mean 'quatro'?"),
        ("{name: 3}", "method.name: missing, expected one of quatro"),
        ("{delta: 1}", "method.name: missing, expected one of quatro"),
        ("quatro", "method: found quatro, expected a block of keys: {name: quatro}"),
        ("{name: quatro, delta: 0}", "method.delta: found 0, expected more than 0"),
        ("{name: quatro, delta: -0.1}", "method.delta: found -0.1, expected more than 0"),
        ("{name: quatro, delta: .nan}", "method.delta: found .nan, expected"),
        ("{name: quatro, delta: .inf}", "method.delta: found .inf, expected a finite number"),
        ("{name: quatro, delta: '0.1'}", 'method.delta: found "0.1", expected a number'),
        ("{name: quatro, detla: 1}", "method.detla: unknown key; did you mean method.delta?"),
        ("{name: quatro, boundary_cap: null, advantage_floor: null}", "method: "),
        ("{name: gspo, delta: 0.1}", "method.delta: unknown key"),
        ("{name: 'os.path:join'}", "is not a method"),
        ("{name: 'no_such_module:Method'}", "cannot be imported"),
    ],
)
def test_a_wrong_method_is_named_too(write, method, says):
    message = refusal(write(f"model: a\nsteps: 0\nmethod: {method}\n"))
    method_line = message.splitlines()[1]
    assert ":3: method" in method_line
    assert says.lower() in method_line.lower()
    assert ":2: steps: found 0" in message, "the rest of the file is checked as well"


@pytest.mark.parametrize(
    ("typed", "advice"),
    [
        (["delta=0.1"], "method.delta"),
        (["lr=1e-4"], "optimizer.lr"),
        (["keep=1"], "checkpoint.keep"),
        (["method=grpo"], "-s method.name=grpo"),
        (["temperature=2"], "rollout.temperature"),
        (["method.name=grpo", "delta=0.1"], "method.delta is a key of quatro"),
        (["method.clip_low=0.1"], "grpo, gspo"),
    ],
)
def test_a_key_that_stands_elsewhere_is_named_with_its_block(typed, advice):
    message = refusal("quickstart", overrides=typed)
    says(message, key=f"-s {typed[-1]}", advice=advice)
    assert "data" not in message, "the exact name of a key elsewhere counts more than a similar one here"


def test_model_and_method_are_required(write):
    message = refusal(write("steps: 3\n"))
    assert "model: missing, expected what to fine-tune" in message
    assert "method.name: missing" in message


def test_problems_come_in_the_order_of_the_file_one_line_each(write):
    path = write("model: a\nseed: x\nmethod:\n  name: quatro\n  delta: 0\noptimizer:\n  lr: x\n  lrr: 1\nstepz: 1\n")
    lines = refusal(path, overrides=["audit=1"]).splitlines()
    assert [line.split(": ")[0].removeprefix(str(path)) for line in lines] == [
        *[":2", ":5", ":7", ":8", ":9"],
        "-s audit=1",
    ]


def test_embedded_models_are_known_and_read_their_own_benchmark_only(write):
    assert "expected one of embedded:countdown, embedded:countdown-hard, embedded:code" in refusal(
        write("model: embedded:chess\nmethod: {name: quatro}\n")
    )
    for model, own, foreign in (
        ("countdown", "countdown", "math_train"),
        ("code", "codegrammar", "math_train"),
        ("code", "codegrammar", "countdown"),
        ("countdown-hard", "countdown", "codegrammar"),
    ):
        path = write(f"model: embedded:{model}\nmethod: {{name: quatro}}\ndata: {{prompts: {foreign}}}\n")
        assert f"data.prompts: found {foreign}, expected {own}" in refusal(path)


@pytest.mark.parametrize("prompts", ["countdown", "codegrammar"])
def test_embedded_prompts_are_plain(prompts, write):
    path = write(SMALLEST + f"reward: my_module:reward\ndata: {{prompts: {prompts}}}\n")
    resolved = resolve_config(path)
    assert (resolved.config.data.template, resolved.origins["data.template"]) == ("plain", "derived")
    refused = refusal(path, overrides=["data.template=qwen-boxed"])
    assert f"data.template: found qwen-boxed, expected plain: {prompts} prompts take no template" in refused


def test_small_functions_are_graded_by_their_tests(write):
    path = write("model: embedded:code\nmethod: {name: quatro}\ndata: {prompts: codegrammar}\n")
    for reward in ("math", "countdown"):
        refused = refusal(path, overrides=[f"reward={reward}"])
        assert f"reward: found {reward}, expected code: the prompts are codegrammar's" in refused


@pytest.mark.parametrize(
    ("overrides", "key", "why"),
    [
        (
            ["rollout.engine=replay", "rollout.replay_file=x.jsonl", "rollout.correction.cap=3"],
            "rollout.correction",
            "engine replay knows no",
        ),
        (
            ["rollout.engine=replay", "rollout.replay_file=x.jsonl", "old_policy=sampler"],
            "old_policy",
            "engine replay knows no",
        ),
        (["rollout.top_p=0.9", "rollout.correction.level=token"], "rollout.correction", "top_p or top_k"),
        (
            ["rollout.top_k=9", "old_policy=sampler"],
            "old_policy",
            "found sampler, expected trainer: with top_p or top_k",
        ),
        (
            ["rollout.correction.level=token", "old_policy=sampler"],
            "rollout.correction",
            "the ratios are those to the sampler already",
        ),
        (["inner_updates=auto", "old_policy=sampler"], "inner_updates", "the KL is not 0 before the first pass"),
        (["rollout.correction.cap=0.5"], "rollout.correction.cap", "at least 1"),
        (["rollout.correction.kind=clip"], "rollout.correction.kind", "truncate, mask"),
        (["rollout.max_sampling_rounds=0"], "rollout.max_sampling_rounds", "at least 1"),
        (
            ["method.name=dapo", "method.dynamic_sampling=false"],
            "method.dynamic_sampling",
            "it is rollout.dynamic_sampling now",
        ),
    ],
)
def test_what_makes_up_for_a_sampler_is_refused_where_it_cannot(overrides, key, why):
    said = refusal("quickstart", overrides=overrides)
    assert f" {key}: " in said
    assert why in said


@pytest.mark.parametrize(
    ("block", "cap"), [("{}", 2), ("{kind: truncate}", 2), ("{kind: mask}", 3), ("{kind: mask, cap: 9}", 9)]
)
def test_the_cap_of_a_correction_is_verls_or_trls_where_it_is_not_set(block, cap):
    correction = load_config("quickstart", overrides=[f"rollout.correction={block}"]).rollout.correction
    assert correction is not None
    assert (correction.level, correction.cap) == ("sequence", cap)


# The digests that runs have recorded: in them the keys of dynamic sampling are still DAPO's own.
@pytest.mark.parametrize(
    ("settings", "digest", "is_on"),
    [
        ([], "6c764c6209a7f4b8", True),
        (["method.preset=verl-default"], "2400a0bc4b1445f4", False),
        (["method.preset=official"], "63171d1f14263313", True),
        (["rollout.max_sampling_rounds=3"], "e709491a27f04040", True),
        (["rollout.max_sampling_rounds=1"], "a55420e287553418", True),
        (["rollout.dynamic_sampling=false"], "f14f9e8bbfaf28d9", False),
    ],
)
def test_a_run_of_dapo_has_the_digest_that_it_has_recorded(settings, digest, is_on):
    overrides = ["steps=3", "model=embedded:countdown", *settings]
    config = load_config("quickstart", method="dapo", overrides=overrides)
    assert config.rollout.dynamic_sampling == is_on
    assert lasting_digest(config) == digest


@pytest.mark.parametrize(
    ("preset", "method", "overrides", "is_kept"),
    [
        ("paper", "quatro", [], True),
        ("official", "gspo", ["seed=1"], True),
        ("verl-default", "quatro", [], False),
        ("paper", "quatro", ["rollout.dynamic_sampling=false"], False),
        ("paper", None, [], False),
    ],
)
def test_another_method_says_that_the_preset_of_dapo_has_left_dynamic_sampling_in_the_file(
    tmp_path, preset, method, overrides, is_kept
):
    path = tmp_path / "dapo.yaml"
    config = load_config("quickstart", method="dapo", overrides=[f"method.preset={preset}"])
    path.write_text(config_to_yaml(config), encoding="utf-8")
    said = f"-m {method} keeps rollout.dynamic_sampling=true, which dapo's presets set; -s changes it"
    assert resolve_config(path, method=method, overrides=overrides).notes == ([said] if is_kept else [])
