"""A configuration as the command that runs it on verl 0.9.1, with its prompts."""

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.benchmarks.prompts import messages
from evals.errors import UsageError
from evals.files.own_code import is_own
from evals.files.whole import write_whole
from quatro.config import Config
from quatro.integrations.verl.methods import refuse_inexpressible, verl_name_of
from quatro.policy.embedded import is_made
from quatro.registry import ENGINES
from quatro.rollout.prompts import load_sources

_ACTOR, _ROLLOUT, _REF = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref"
_PACKAGE = __package__
# verl's names of our KL estimators; sequence-exact is ours alone.
_KL = {"k1": "k1", "k2": "k2", "k3": "low_var_kl", "k3+": "low_var_kl+"}


@dataclass(frozen=True)
class VerlCommand:
    """verl's keys with their values, a + before keys that its files do not have."""

    settings: Mapping[str, Any]

    @property
    def overrides(self) -> list[str]:
        """The settings as Hydra reads them."""
        return [f"{key}={_hydra(value)}" for key, value in self.settings.items()]

    @property
    def script(self) -> str:
        """A shell script with the command."""
        method = shlex.quote(self.settings["algorithm.adv_estimator"])
        check = f"python -m {_PACKAGE}.check {method} &&"
        lines = [check, "python -m verl.trainer.main_ppo", *map(shlex.quote, self.overrides)]
        return "# docs/clusters.md says what differs from our own trainer\n" + " \\\n  ".join(lines)


def verl_command(config: Config, *, name: str, prompts: str, nodes: int = 1, gpus_per_node: int = 1) -> VerlCommand:
    """The command that runs ``config`` on verl; ``prompts`` is what `write_prompts` makes of its data.

    Raises UsageError for a key that cannot be expressed in verl, or a batch that cannot be divided among GPUs.
    """
    _refuse(config)
    rows = _rows_per_gpu(config, nodes * gpus_per_node)
    settings = {
        **_method(config),
        **_data(config, prompts),
        **_model(config),
        **_updates(config, rows),
        **_responses(config, rows),
        **_trainer(config, name, nodes, gpus_per_node),
    }
    return VerlCommand(settings)


def write_prompts(config: Config, path: Path) -> int:
    """The number of prompts of ``config.data`` that were written as the parquet file that verl reads.

    A row has the chat turns, the reference answer, and what rewards read. verl turns them into the same tokens as our
    trainer: both ask the model's own chat template. Raises as `load_sources`.
    """
    import pandas

    rows = [
        {
            "data_source": problem.benchmark,
            "prompt": messages(config.data.template_of(source), problem.problem),
            "reward_model": {"style": "rule", "ground_truth": "" if problem.answer is None else str(problem.answer)},
            "extra_info": {"id": problem.id, "problem": problem.problem, "extra": json.dumps(dict(problem.extra))},
        }
        for source, problems, _ in load_sources(config.data)
        for problem in problems
    ]
    write_whole(path, [pandas.DataFrame(rows).to_parquet()])
    return len(rows)


def _refuse(config: Config) -> None:
    refuse_inexpressible(config.method)
    refused = {
        "inner_updates": (config.inner_updates == "auto", "verl's ppo_epochs is a whole number"),
        "kl.estimator": (config.kl.estimator == "sequence-exact", "verl has no such KL; k3 is the paper's"),
        "kl.reference": (config.kl.reference is not None, "verl's reference is the model that the run begins with"),
        "data.prompts": (len(config.data.sources) > 1, "verl knows no shares of several sources"),
        "rollout.stop": (bool(config.stop), "verl's responses end at the end-of-sequence token only"),
        "rollout.thinking": (config.rollout.thinking is not None, "its reward gets the whole response"),
        "rollout.mask_truncated": (config.rollout.mask_truncated, "verl learns from responses that were cut, too"),
        "rollout.correction": (config.rollout.correction is not None, "the plug-in's losses take no weights"),
        "old_policy": (config.old_policy == "sampler", "the plug-in's losses need the trainer's log pi_old"),
        "rollout.engine": (ENGINES[config.rollout.engine].is_recorded, "verl draws its responses itself"),
        "reward": (
            any("rarity" in one.names for one in config.rewards.values()),
            "verl grades each response alone, rarity all of a prompt",
        ),
        "optimizer.schedule": (
            config.optimizer.schedule != "constant",
            "verl's schedules count iterations, ours optimiser steps",
        ),
        "checkpoint.keep.best": (config.checkpoint.keep.best is not None, "verl keeps the newest checkpoints only"),
        "early_stop.patience": (config.early_stop.patience > 0, "verl ends after its last iteration"),
        "tracking.trackers": (any(map(is_own, config.tracking.enabled)), "verl takes none of your own"),
        "model": (is_made(config.model), "verl loads a folder or a Hub id"),
        "policy.lora": (config.policy.lora is not None, "verl's adapters are not covered; use our own trainer"),
        "entropy_coefficient": (
            config.entropy_coefficient > 0 and config.kl.aggregate != "token-mean",
            "verl averages entropy as kl.aggregate says, we over tokens",
        ),
    }
    for key, (is_refused, reason) in refused.items():
        if is_refused:
            raise UsageError(f"{key} cannot be expressed in verl: {reason}; change it with -s, or train with quatro")


def _rows_per_gpu(config: Config, num_gpus: int) -> int:
    """Responses per forward pass: the most that fit into ``microbatch_tokens`` at full length and divide evenly."""
    num_rows = config.minibatch_prompts * config.rollouts_per_prompt
    if num_rows % num_gpus:
        raise UsageError(f"{num_rows} responses of a minibatch cannot be divided among {num_gpus} GPUs evenly")
    most = max(1, config.sizes.microbatch_tokens // (config.data.max_prompt_tokens + config.rollout.max_new_tokens))
    share = num_rows // num_gpus
    return max(rows for rows in range(1, min(most, share) + 1) if share % rows == 0)


def _method(config: Config) -> dict[str, Any]:
    method, verl_name = config.method, verl_name_of(config.method)
    settings: dict[str, Any] = {"algorithm.adv_estimator": verl_name, "algorithm.use_kl_in_reward": False}
    block = method.model_dump(mode="json")
    settings |= {f"+algorithm.quatro.{key}": value for key, value in block.items()}
    if config.rollout.dynamic_sampling:
        settings |= {
            "algorithm.filter_groups.enable": True,
            "algorithm.filter_groups.metric": "reward",
            "algorithm.filter_groups.max_num_gen_batches": config.rollout.max_sampling_rounds,
        }
    return settings | {
        f"{_ACTOR}.policy_loss._target_": f"{_PACKAGE}.plugin.PolicyLoss",
        f"{_ACTOR}.policy_loss.loss_mode": verl_name,
        f"+{_ACTOR}.policy_loss.quatro": "${algorithm.quatro}",
    }


def _data(config: Config, prompts: str) -> dict[str, Any]:
    (reward,) = config.rewards.values()
    settings = {
        "data.train_files": prompts,
        "data.val_files": prompts,  # verl wants a file, and never reads it: test_freq is -1
        "data.max_prompt_length": config.data.max_prompt_tokens,
        "data.max_response_length": config.rollout.max_new_tokens,
        "data.filter_overlong_prompts": config.data.too_long == "skip",
        "data.truncation": "error",
        "data.train_batch_size": config.prompts_per_step,
        "data.shuffle": True,
        "data.seed": config.seed,
        "reward.custom_reward_function.path": f"pkg://{_PACKAGE}.reward",
        "reward.custom_reward_function.name": "compute_score",
        "+reward.custom_reward_function.reward_kwargs.reward": {"name": reward.name, **reward.changed},
    }
    told = config.data.chat_template_kwargs
    settings |= {f"+data.apply_chat_template_kwargs.{name}": value for name, value in told.items()}
    if not config.data.template_of(config.data.sources[0]).is_chat:
        settings["actor_rollout_ref.model.custom_chat_template"] = "{{ messages[0].content }}"
    return settings


def _model(config: Config) -> dict[str, Any]:
    # Without mixed_precision verl computes in bfloat16 whatever dtype says; weights and sums stay in float32 here too.
    computed = {"bfloat16": "bf16", "float32": "fp32"}[config.dtype]
    precision = {"param_dtype": computed, "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    return {
        "actor_rollout_ref.model.path": config.model,
        "actor_rollout_ref.model.enable_gradient_checkpointing": config.policy.gradient_checkpointing,
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.fsdp_config.model_dtype": "fp32",
        f"+{_ACTOR}.fsdp_config.mixed_precision": precision,
        f"{_ACTOR}.fsdp_config.optimizer_offload": config.policy.offload_optimizer,
        f"+{_REF}.fsdp_config.mixed_precision": precision,
    }


def _updates(config: Config, rows: int) -> dict[str, Any]:
    optimizer, kl = config.optimizer, config.kl
    steps_per_iteration = config.most_inner_updates * (config.prompts_per_step // config.minibatch_prompts)
    settings = {
        f"{_ACTOR}.ppo_mini_batch_size": config.minibatch_prompts,
        f"{_ACTOR}.ppo_epochs": config.inner_updates,
        f"{_ACTOR}.shuffle": False,
        f"{_ACTOR}.data_loader_seed": config.seed,
        f"{_ACTOR}.use_dynamic_bsz": False,
        f"{_ACTOR}.ppo_micro_batch_size_per_gpu": rows,
        f"{_ACTOR}.optim.lr": optimizer.lr,
        f"{_ACTOR}.optim.betas": list(optimizer.betas),
        f"{_ACTOR}.optim.weight_decay": optimizer.weight_decay,
        f"{_ACTOR}.optim.clip_grad": optimizer.max_grad_norm,
        f"{_ACTOR}.optim.lr_warmup_steps": math.ceil(optimizer.warmup_steps / steps_per_iteration) or -1,
        f"{_ACTOR}.entropy_coeff": config.entropy_coefficient,
        f"{_ACTOR}.use_kl_loss": kl.beta > 0,
        f"{_ACTOR}.kl_loss_coef": kl.beta,
        f"{_ACTOR}.kl_loss_type": _KL[kl.estimator],
        f"{_ACTOR}.loss_agg_mode": kl.aggregate,
    }
    if "seq-mean-token-sum-norm" in (kl.aggregate, getattr(config.method, "aggregate", None)):
        settings[f"{_ACTOR}.loss_scale_factor"] = config.rollout.max_new_tokens
    return settings


def _responses(config: Config, rows: int) -> dict[str, Any]:
    rollout = config.rollout
    return {
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": config.rollouts_per_prompt,
        f"{_ROLLOUT}.temperature": rollout.temperature,
        f"{_ROLLOUT}.top_p": rollout.top_p,
        f"{_ROLLOUT}.top_k": rollout.top_k or -1,
        f"{_ROLLOUT}.seed": config.seed,
        f"{_ROLLOUT}.dtype": config.dtype,
        f"{_ROLLOUT}.gpu_memory_utilization": rollout.gpu_memory_utilization,
        f"{_ROLLOUT}.tensor_model_parallel_size": 1,
        f"{_ROLLOUT}.calculate_log_probs": True,
        # As many rows at a time as the update: other shapes round otherwise, and the first log-ratios were not 0.
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": rows,
        f"{_REF}.log_prob_micro_batch_size_per_gpu": rows,
    }


def _trainer(config: Config, name: str, nodes: int, gpus_per_node: int) -> dict[str, Any]:
    tracking = config.tracking
    return {
        "trainer.nnodes": nodes,
        "trainer.n_gpus_per_node": gpus_per_node,
        "trainer.project_name": tracking.project,
        "trainer.experiment_name": tracking.name or name,
        "trainer.logger": ["console", "file", *tracking.enabled],
        "trainer.total_training_steps": config.steps,
        "trainer.total_epochs": config.steps,  # the steps end the run
        "trainer.save_freq": config.checkpoint.every or config.steps,
        "trainer.max_actor_ckpt_to_keep": config.checkpoint.keep.last,
        "trainer.default_local_dir": f"runs/verl/{name}",
        "trainer.rollout_data_dir": f"runs/verl/{name}/rollouts" if config.save_rollouts else None,
        "trainer.resume_mode": "auto",
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
    }


def _hydra(value: Any) -> str:
    """``value`` as Hydra's command line writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            return "{" + ",".join(f"{key}:{_hydra(item)}" for key, item in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(_hydra, value)) + "]"
    text = str(value)
    is_plain = re.fullmatch(r"\$\{[\w.]+\}|[A-Za-z_/~][\w./:@~-]*", text) and text.lower() not in _WORDS
    return text if is_plain else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


_WORDS = ("null", "none", "true", "false", "nan", "inf")  # no texts in Hydra
