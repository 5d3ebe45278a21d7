"""`quatro verl-command`: a configuration as verl's command line. tests/verl has verl itself read it."""

from __future__ import annotations

import json
import shlex
import warnings
from pathlib import Path

import pytest

from evals.errors import UsageError
from quatro.config import load_config, shipped_configs
from quatro.integrations.verl.command import verl_command
from quatro.integrations.verl.methods import METHOD_OF, method_of, warn_unfiltered
from quatro.integrations.verl.reward import compute_score
from quatro.registry import METHODS
from tests.kit import quatro

SCRIPTS = Path(__file__).parents[3] / "configs" / "verl"
SHIPPED = {"math-1.5b-2gpu": 2, "math-7b-4gpu": 4}


def run(*arguments: str, code: int = 0) -> str:
    done = quatro("verl-command", *arguments, code=code)
    return done.stdout if code == 0 else done.stderr


def settings_of(name: str, *overrides: str, **cluster: int) -> dict[str, object]:
    return dict(
        verl_command(load_config(name, overrides=overrides), name=name, prompts="p.parquet", **cluster).settings
    )


@pytest.mark.parametrize(("name", "gpus"), SHIPPED.items())
def test_the_shipped_scripts_are_what_the_command_prints(name, gpus):
    assert {path.stem for path in SCRIPTS.glob("*.sh")} == set(SHIPPED)
    wanted = run(name, "--gpus-per-node", str(gpus))
    assert (SCRIPTS / f"{name}.sh").read_text(encoding="utf-8") == wanted, (
        f"write it anew: quatro verl-command {name} --gpus-per-node {gpus} > configs/verl/{name}.sh"
    )


def test_the_script_is_one_command_of_the_shell():
    text = run("math-1.5b-2gpu", "--gpus-per-node", "2").replace("\\\n", "")
    words = shlex.split(text, comments=True)
    checked = ["python", "-m", "quatro.integrations.verl.check", "quatro", "&&"]
    assert words[:8] == [*checked, "python", "-m", "verl.trainer.main_ppo"]
    assert words[8:] == json.loads(run("math-1.5b-2gpu", "--gpus-per-node", "2", "--json"))["overrides"]
    assert "+actor_rollout_ref.actor.policy_loss.quatro=${algorithm.quatro}" in words
    assert (
        "+actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype:bf16,reduce_dtype:fp32,buffer_dtype:fp32}"
        in words
    )


def test_the_papers_table_arrives():
    found = settings_of("math-7b-4gpu", gpus_per_node=4)
    wanted = {
        "data.train_batch_size": 256,
        "data.max_response_length": 3072,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 64,
        "actor_rollout_ref.actor.ppo_epochs": 1,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.actor.optim.lr": 1e-6,
        "actor_rollout_ref.actor.optim.weight_decay": 0.0,
        "actor_rollout_ref.actor.kl_loss_coef": 0.001,
        "+algorithm.quatro.delta": 0.01,
        "trainer.n_gpus_per_node": 4,
        "trainer.total_training_steps": 100,
    }
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize(("tokens", "gpus", "rows"), [(16384, 2, 8), (16384, 1, 8), (100, 2, 1), (10**6, 2, 256)])
def test_log_probabilities_and_updates_see_as_many_rows_at_a_time(tokens, gpus, rows):
    found = settings_of("math-1.5b-2gpu", f"microbatch_tokens={tokens}", gpus_per_node=gpus)
    keys = [key for key in found if key.endswith("micro_batch_size_per_gpu")]
    assert len(keys) == 3
    assert {found[key] for key in keys} == {rows}


def test_precision_is_written_out_for_policy_and_reference():
    for dtype, name in (("float32", "fp32"), ("bfloat16", "bf16")):
        found = settings_of("math-1.5b", f"dtype={dtype}")
        for role in ("actor", "ref"):
            assert found[f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision"]["param_dtype"] == name


def test_every_method_has_its_whole_block_and_its_name():
    for name, verl_name in (("quatro", "quatro"), ("gspo", "quatro_gspo"), ("dapo", "quatro_dapo")):
        config = load_config("math-1.5b", method=name)
        found = verl_command(config, name="x", prompts="p.parquet").settings
        block = {key: found[f"+algorithm.quatro.{key}"] for key in type(config.method).model_fields}
        assert block == config.method.model_dump(mode="json")
        assert found["algorithm.adv_estimator"] == found["actor_rollout_ref.actor.policy_loss.loss_mode"] == verl_name
    assert "algorithm.filter_groups.enable" in settings_of("math-1.5b", "rollout.dynamic_sampling=true")
    assert found["algorithm.filter_groups.enable"] is True
    assert found["algorithm.filter_groups.max_num_gen_batches"] == 10


def test_the_reward_is_that_of_the_one_source():
    found = settings_of("math-1.5b", "data.prompts=[{source: countdown, reward: countdown}]")
    assert found["+reward.custom_reward_function.reward_kwargs.reward"] == {"name": "countdown"}


def test_every_method_that_the_plug_in_offers_can_be_expressed():
    offered = {type(method_of(verl_name, {"delta": 0.1} if verl_name == "quatro" else {})) for verl_name in METHOD_OF}
    assert {cls.__name__ for cls in {METHODS[name] for name in METHODS} - offered} == {"Ucpo", "ClusterWeighted"}
    with pytest.raises(UsageError, match="found quatro_ucpo, expected one of quatro, "):
        method_of("quatro_ucpo", {})


def test_a_command_that_was_printed_before_is_told_what_to_do():
    with pytest.raises(UsageError) as error:
        method_of("quatro_dapo", {"dynamic_sampling": True, "typo": 1})
    assert str(error.value) == (
        "algorithm.quatro.dynamic_sampling: it is rollout.dynamic_sampling now, for every method; "
        "algorithm.quatro.typo: Extra inputs are not permitted (method quatro_dapo); print the command anew"
    )


def test_a_preset_with_dynamic_sampling_and_verls_filter_off_is_warned_of():
    dapo = method_of("quatro_dapo", {})
    for filters in (None, {}, {"enable": False}):
        with pytest.warns(UserWarning, match="dynamic sampling of method Dapo is off"):
            warn_unfiltered(dapo, filters)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unfiltered(dapo, {"enable": True})
        warn_unfiltered(method_of("quatro_dapo", {"preset": "verl-default"}), None)
        warn_unfiltered(method_of("quatro_grpo", {}), None)


def test_warm_up_counts_iterations_there():
    found = settings_of("math-1.5b", "optimizer.warmup_steps=10", "inner_updates=2")
    assert found["actor_rollout_ref.actor.optim.lr_warmup_steps"] == 2  # 2 passes x 4 minibatches an iteration


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["inner_updates=auto"], "inner_updates cannot be expressed"),
        (["rollout.thinking=</think>"], "rollout.thinking cannot be expressed"),
        (["rollout.mask_truncated=true"], "rollout.mask_truncated cannot be expressed"),
        (["rollout.correction.level=token"], "rollout.correction cannot be expressed"),
        (["old_policy=sampler"], "old_policy cannot be expressed"),
        (["kl.estimator=sequence-exact"], "kl.estimator cannot be expressed"),
        (["tracking=[wandb, mine:Tracker]"], "tracking.trackers cannot be expressed"),
        (["rollout.stop=[END]"], "rollout.stop cannot be expressed"),
        (["policy.lora.rank=4"], "policy.lora cannot be expressed"),
        (["rollout.engine=replay", "rollout.replay_file=x.jsonl"], "rollout.engine cannot be expressed"),
        (["method.name=dapo", "method.overlong_buffer=64"], "overlong_buffer: expected 0"),
        (["method.name=ucpo"], "method Ucpo: verl tells it neither texts nor log pi_old"),
        (["method.name=cluster-weighted"], "method ClusterWeighted: verl tells it neither"),
        (["reward={name: rarity, options: {rewards: [math]}}"], "reward cannot be expressed in verl"),
        (["data.prompts=[{source: a.jsonl, reward: {name: rarity, options: {rewards: [math]}}}]"], "reward cannot"),
        (["data.prompts=[a.jsonl, b.jsonl]"], "data.prompts cannot be expressed in verl"),
        (["entropy_coefficient=0.1", "kl.aggregate=seq-mean-token-mean"], "entropy_coefficient cannot be expressed"),
    ],
)
def test_what_verl_cannot_express_is_refused_by_name(overrides, message):
    with pytest.raises(UsageError, match=message):
        settings_of("math-1.5b", *overrides)


def test_trackers_and_what_the_chat_template_is_told_arrive():
    found = settings_of("math-1.5b", "tracking=[trackio]", "data.chat_template_kwargs={enable_thinking: false}")
    assert found["trainer.logger"] == ["console", "file", "trackio"]
    assert found["+data.apply_chat_template_kwargs.enable_thinking"] is False


def test_an_embedded_model_and_an_uneven_cluster_are_refused():
    assert "model cannot be expressed" in run("quickstart", code=2)
    assert "512 responses of a minibatch cannot be divided among 3 GPUs" in run(
        "math-1.5b", "--gpus-per-node", "3", code=2
    )


@pytest.mark.parametrize("name", shipped_configs())
def test_every_shipped_configuration_is_written_or_refused_by_name(name):
    if name.startswith(("math", "code")):
        assert run(name).startswith("# docs/clusters.md")
    else:  # an embedded model
        assert "cannot be expressed in verl" in run(name, code=2)


def test_values_are_quoted_for_hydra():
    found = verl_command(
        load_config("math-1.5b", overrides=["model=my models/a 'b'", "tracking.name='null'"]),
        name="x",
        prompts="p.parquet",
    ).overrides
    assert "actor_rollout_ref.model.path=\"my models/a 'b'\"" in found
    assert 'trainer.experiment_name="null"' in found
    assert "trainer.rollout_data_dir=runs/verl/x/rollouts" in found


def test_the_reward_is_the_trainers():
    call = {"data_source": "mine", "ground_truth": "1/2", "extra_info": {"id": "1", "problem": "p", "extra": "{}"}}
    assert compute_score(solution_str="so \\boxed{0.5}", reward={"name": "math"}, **call) == 1.0
    assert compute_score(solution_str="so \\boxed{0.6}", reward={"name": "math"}, **call) == 0.0
    with pytest.raises(UsageError, match="reward rarity"):
        compute_score(solution_str="", reward={"name": "rarity", "options": {"rewards": ["math"]}}, **call)
