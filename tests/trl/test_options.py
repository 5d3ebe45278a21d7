"""The options of QuatroConfig: each of TRL's own is honoured, or refused by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evals.errors import UsageError
from quatro.methods.budgeted import Budgeted
from quatro.methods.quatro import Quatro

pytestmark = pytest.mark.trl
pytest.importorskip("trl")

from trl import GRPOConfig  # noqa: E402

from quatro.integrations.trl import _REFUSED, QuatroConfig, QuatroTrainer  # noqa: E402

WRONG = {
    "delta": 1.5,
    "epsilon": 0.1,
    "epsilon_high": 0.28,
    "loss_type": "grpo",
    "importance_sampling_level": "sequence",
    **dict.fromkeys(("sapo_temperature_neg", "sapo_temperature_pos", "vespo_k_pos", "vespo_lambda_pos"), 5.0),
    **dict.fromkeys(("vespo_k_neg", "vespo_lambda_neg"), 5.0),
    "scale_rewards": False,
    "multi_objective_aggregation": "normalize_then_sum",
    "mask_truncated_completions": True,
    "top_entropy_quantile": 0.2,
    "off_policy_mask_threshold": 0.5,
    "top_p": 0.9,
    "top_k": 50,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "generation_kwargs": {"num_beams": 2},
    "vllm_structured_outputs_regex": "[0-9]+",
    "vllm_importance_sampling_correction": True,
    "vllm_importance_sampling_mode": "token_mask",
    "vllm_importance_sampling_clip_max": 2.0,
    "vllm_importance_sampling_clip_min": 0.1,
    "vllm_importance_sampling_cap": 2.0,
    "use_bias_correction_kl": True,
    "use_adaptive_entropy": True,
    "entropy_coef_min": 0.1,
    "entropy_coef_max": 0.5,
    "entropy_coef_delta": 0.1,
    "entropy_target": 0.5,
    "disable_dropout": False,
}
HONOURED = {
    *("learning_rate", "model_init_kwargs", "trust_remote_code", "router_aux_loss_coef", "cast_lm_head_to_fp32"),
    *("remove_unused_columns", "num_generations", "num_generations_eval", "max_completion_length"),
    *("ds3_gather_for_generation", "shuffle_dataset", "pad_to_multiple_of", "generation_batch_size"),
    *("steps_per_generation", "temperature", "chat_template_kwargs", "cache_implementation", "beta", "num_iterations"),
    *("use_vllm", "vllm_mode", "vllm_model_impl", "vllm_enable_sleep_mode", "vllm_server_base_url"),
    *("vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port"),
    *("vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size"),
    *("reward_weights", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps", "entropy_coef"),
    *("max_tool_calling_iterations", "log_completions", "log_multimodal", "num_completions_to_print"),
    *("log_unique_prompts", "log_completions_hub_repo", "use_transformers_continuous_batching"),
    *("transformers_continuous_batching_config", "use_transformers_paged"),
}


def config(folder: Path, **options: Any) -> QuatroConfig:
    return QuatroConfig(output_dir=str(folder), use_cpu=True, bf16=False, **options)


@pytest.mark.filterwarnings("ignore:.*vllm_importance_sampling_cap:FutureWarning")
@pytest.mark.parametrize("name", WRONG)
def test_an_option_that_cannot_be_honoured_is_refused_by_name(name, tmp_path):
    with pytest.raises(UsageError) as refused:
        config(tmp_path, **{name: WRONG[name]})
    (instead,) = [instead for instead, names in _REFUSED.items() if name in names]
    assert f"{name}=" in str(refused.value)
    assert f"({instead})" in str(refused.value)


def test_every_option_of_trl_is_honoured_or_refused():
    assert WRONG.keys() == {name for names in _REFUSED.values() for name in names}
    assert set(GRPOConfig.__annotations__) == HONOURED | WRONG.keys()
    assert HONOURED.isdisjoint(WRONG)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kl_radius": 0.0}, "kl_radius: found 0.0"),
        ({"log_ratio": "sometimes"}, "log_ratio: found 'sometimes'"),
        ({"kl_estimator": "k9"}, "kl_estimator: found 'k9'"),
        ({"spread": 0.5}, "spread: found 0.5"),
        ({"boundary_cap": None, "advantage_floor": None}, "boundary_cap and advantage_floor cannot both be null"),
    ],
)
def test_an_impossible_value_is_refused_by_the_name_that_it_has_here(options, named, tmp_path):
    with pytest.raises(UsageError, match=named):
        config(tmp_path, **options)


def test_the_options_are_those_of_the_method(tmp_path):
    assert config(tmp_path).method() == Quatro()
    given = {"log_ratio": "none", "max_log_ratio": 5.0, "boundary_cap": 0.5, "advantage_floor": -9.0}
    assert config(tmp_path, kl_radius=0.1, **given).method() == Quatro(delta=0.1, **given)
    given |= {"spread": 2.0, "centred": True}
    assert config(tmp_path, kl_radius=0.1, **given).method() == Budgeted(delta=0.1, **given)


def test_a_trainer_needs_a_configuration_of_its_own(tmp_path):
    with pytest.raises(UsageError, match="args is a GRPOConfig; QuatroTrainer needs a QuatroConfig"):
        QuatroTrainer("nowhere", args=GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False))
