"""The baselines and DAPO's extras as verl's own functions compute them, in float64 on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import verl
from verl.protocol import DataProto
from verl.trainer.ppo import core_algos, rollout_corr_helper
from verl.trainer.ppo.v1 import replay_buffer
from verl.workers.config import ActorConfig
from verl.workers.reward_manager.dapo import DAPORewardManager

VERSION = verl.__version__
Record = dict[str, Any]


def baseline(batch: Record, hyper: Record) -> Record:
    """Advantages, loss, its gradient by log pi_theta, and verl's metrics.

    With ``correction`` also its weights and verl's metrics of them; the sampler has the reference's log-probabilities.
    """
    mask = torch.tensor(batch["response_mask"])
    logp = torch.tensor(batch["log_probs"], dtype=torch.float64, requires_grad=True)
    old, ref = (torch.tensor(batch[f"{name}_log_probs"], dtype=torch.float64) for name in ("old", "ref"))

    # verl sums a response's token rewards, padding included: so a response without a token keeps its reward.
    rewards = torch.zeros_like(old)
    rewards[:, 0] = torch.tensor(batch["rewards"], dtype=torch.float64)
    options = {} if hyper["adv_estimator"] == "gpg" else {"norm_adv_by_std_in_grpo": hyper["norm_adv_by_std"]}
    if hyper["adv_estimator"] == "grpo_passk":
        options = {"config": {"norm_adv_by_std_in_grpo": False}}
    estimate = core_algos.get_adv_estimator_fn(hyper["adv_estimator"])
    advantage, _ = estimate(rewards, mask, index=np.array(batch["group_ids"]), **options)
    # verl's advantage of the best of N is its distance to the second; the gradient of Pass@N is N times that.
    advantage = advantage * hyper.get("k", 1)

    names = ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "loss_agg_mode")
    chosen = {name: hyper[name] for name in names}
    config = ActorConfig(strategy="fsdp2", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **chosen)
    policy = core_algos.get_policy_loss_fn(hyper["loss_mode"])
    more: Record = {}
    weights = None
    if correction := hyper.get("correction"):
        # verl zeroes weights only outside of two bounds; the lower one of these is below any weight.
        bounds = correction["cap"] if correction["kind"] == "truncate" else f"1e-12_{correction['cap']}"
        weights, found = rollout_corr_helper.compute_rollout_correction_weights(
            old - ref, mask.double(), correction["level"], bounds
        )
        names = {"mean": "weight_mean", "ratio_fraction_high": "cut_share", "eff_sample_size": "ess_share"}
        more = {"weights": weights.tolist(), **{ours: found[f"rollout_is_{verls}"] for verls, ours in names.items()}}
    how = {"loss_agg_mode": hyper["loss_agg_mode"], "rollout_is_weights": weights}
    policy_loss, metrics = policy(old, logp, advantage, mask, config=config, **how)
    kl = core_algos.kl_penalty(logp, ref, hyper["kl_loss_type"])
    kl_loss = core_algos.agg_loss(kl, mask, hyper["loss_agg_mode"])
    total = policy_loss + hyper["kl_loss_coef"] * kl_loss
    total.backward()

    one_a_row = [row[real > 0][0].item() if real.any() else None for row, real in zip(advantage, mask, strict=True)]
    return {
        "advantages": one_a_row,
        "policy_loss": policy_loss.item(),
        "kl_loss": kl_loss.item(),
        "loss": total.item(),
        "grad_log_probs": logp.grad.tolist(),
        "clip_fraction": metrics.get("actor/pg_clipfrac"),
        "clip_fraction_lower": metrics.get("actor/pg_clipfrac_lower"),
        "approx_kl": metrics.get("actor/ppo_kl"),
        **more,
    }


def kept_groups(batch: Record) -> list[int]:
    """Ids of the groups that verl's replay buffer does not drop for equal rewards."""
    ids = sorted(set(batch["group_ids"]))
    reward_of = {
        f"{id}_{row}": torch.tensor([reward], dtype=torch.float64)
        for row, (id, reward) in enumerate(zip(batch["group_ids"], batch["rewards"], strict=True))
    }
    buffer = replay_buffer.ReplayBuffer("sync", None, None, "drop", None, refill_fn=len, filter_groups_metric="reward")
    buffer.finished_keys["train"] = {str(id) for id in ids}
    buffer.partitions["train"] = {key: {} for key in reward_of}
    transport = replay_buffer.tq
    replay_buffer.tq = SimpleNamespace(  # rewards come from here instead of from verl's transport between processes
        kv_batch_get=lambda keys, **_: {"rm_scores": [reward_of[key] for key in keys]}
    )
    try:
        dropped, _ = buffer._dapo_filtered_keys("train")
    finally:
        replay_buffer.tq = transport
    return [id for id in ids if str(id) not in dropped]


def overlong_reward(case: Record) -> float:
    """The reward of a response of ``length`` tokens that earned ``score``, less what verl takes off for its length."""
    buffer = SimpleNamespace(enable=True, len=case["buffer_len"], penalty_factor=case["penalty_factor"], log=False)
    tokenizer = SimpleNamespace(decode=lambda ids, **_: "text", eos_token="<eos>")
    manager = DAPORewardManager(
        tokenizer,
        num_examine=0,
        compute_score=lambda **_: case["score"],
        max_resp_len=case["max_resp_len"],
        overlong_buffer_cfg=buffer,
    )
    width = case["max_resp_len"]
    real = (torch.arange(width) < case["length"]).long()[None]
    prompt = torch.ones(1, 1, dtype=torch.long)
    data = DataProto.from_dict(
        tensors={"prompts": prompt, "responses": real, "attention_mask": torch.cat([prompt, real], dim=1)},
        non_tensors={
            "reward_model": np.array([{"ground_truth": ""}], dtype=object),
            "data_source": np.array([""], dtype=object),
            "extra_info": np.array([{}], dtype=object),
        },
    )
    return manager(data).sum().item()
