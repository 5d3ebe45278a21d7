"""Every method of ours as an advantage estimator and a policy loss of verl 0.9.1.

`import verl` loads this module through the entry point group ``verl.plugins``, in the driver and in every worker. Here
verl's words meet ours; advantages and losses are those of `quatro/methods`. In verl the method `quatro` is called
``quatro``, any other ``quatro_NAME``, because verl has methods of its own called grpo, gspo, gpg and cispo.
"""

# Axes: B rows (responses), T response tokens.
from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import ray
import torch
from omegaconf import OmegaConf
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss, register_adv_est, register_policy_loss
from verl.utils.tracking import Tracking
from verl.workers.config.actor import PolicyLossConfig

from evals.errors import UsageError
from quatro.integrations.verl.methods import METHOD_OF, method_of, warn_unfiltered
from quatro.loop.trust_region import kl_new_old, sequence_log_ratio
from quatro.types import Batch, LossTerm

logger = logging.getLogger(__name__)


@dataclass
class PolicyLoss(PolicyLossConfig):  # type: ignore[misc]
    """verl's ``actor.policy_loss`` with the method's block; verl makes it in the driver before anything is started.

    Raises UsageError if there is no block, or it cannot be expressed in verl.
    """

    quatro: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.quatro is None:
            raise UsageError(f"actor_rollout_ref.actor.policy_loss.quatro: missing; add {_OUR_BLOCK}")
        method_of(self.loss_mode, _block(self.quatro))


_OUR_BLOCK = "'+actor_rollout_ref.actor.policy_loss.quatro=${algorithm.quatro}'"


def _block(config: Any) -> dict[str, Any]:
    """``algorithm.quatro`` as plain values."""
    block = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    return {str(key): value for key, value in dict(block or {}).items()}


def estimate(
    verl_name: str, token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **_: Any
) -> tuple[Tensor, Tensor]:
    """Advantages of the whole batch, (B, T), twice, as verl wants them; ``index`` has one id for each prompt.

    Raises UsageError for what ``config``, verl's ``algorithm``, asks and cannot be expressed.
    """
    config = config or {}
    method = method_of(verl_name, _block(config.get("quatro")))
    _refuse_correction(config.get("rollout_correction"))
    warn_unfiltered(method, config.get("filter_groups"))
    mask_BT, reward_B = response_mask.bool().cpu(), token_level_rewards.double().sum(dim=-1).cpu()
    group_B = torch.from_numpy(np.unique(np.asarray(index), return_inverse=True)[1].reshape(-1))
    # verl fills a batch up with rows of a prompt of their own that have no token: they are no prompt of the user's.
    is_real_B = torch.isin(group_B, group_B[mask_BT.any(dim=-1)])
    advantages = method.advantages(reward_B[is_real_B], group_B[is_real_B])
    _estimated.clear()
    _estimated.update(advantages.metrics)
    advantage_B = torch.zeros_like(reward_B).masked_scatter(is_real_B, advantages.value_B)
    advantage_BT = advantage_B.to(token_level_rewards)[:, None] * response_mask
    return advantage_BT, advantage_BT


def loss(
    verl_name: str,
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """A micro-batch's share of the loss of the mini-batch of all ranks, and metrics.

    The method says what is averaged over; ``loss_agg_mode`` governs what verl adds, KL and entropy. Raises UsageError
    for what ``config``, verl's ``actor``, asks and cannot be expressed.
    """
    if rollout_is_weights is not None:
        _refuse_correction({"rollout_is": "weights"})
    if not isinstance(config.policy_loss, PolicyLoss):
        target = f"actor_rollout_ref.actor.policy_loss._target_={PolicyLoss.__module__}.PolicyLoss"
        raise UsageError(f"policy loss {verl_name} has no block of the method: add {target} and {_OUR_BLOCK}")
    method = method_of(verl_name, _block(config.policy_loss.quatro))
    if getattr(method, "aggregate", None) == "seq-mean-token-sum-norm" and config.loss_scale_factor is None:
        raise UsageError(
            "algorithm.quatro.aggregate seq-mean-token-sum-norm divides by the length limit: set "
            "actor_rollout_ref.actor.loss_scale_factor to data.max_response_length"
        )
    mask_BT = response_mask.bool()
    first_B1 = response_mask.long().argmax(dim=-1, keepdim=True)
    length_B = mask_BT.sum(dim=-1)
    batch = Batch(
        old_logp_BT=old_log_prob,
        mask_BT=mask_BT,
        advantage_B=advantages.gather(1, first_B1).squeeze(1),
        group_B=torch.zeros_like(length_B),  # a loss reads no group: the advantages carry it
        group_size_B=torch.full_like(length_B, config.rollout_n),
        max_new_tokens=config.loss_scale_factor or mask_BT.shape[1],
    )
    ours = method.loss(log_prob, batch)
    shares = [_averaged(term, mask_BT, first_B1, config.global_batch_info) for term in ours.terms]
    with torch.no_grad():
        log_ratio_B = sequence_log_ratio(log_prob, old_log_prob, mask_BT)
    seen_B = log_ratio_B[length_B > 0] if bool(mask_BT.any()) else log_ratio_B
    # verl's logger shows the mean over micro-batches of whatever stands here, the extremes included.
    metrics = {name: float(metric.value) / max(float(metric.count), 1.0) for name, metric in ours.metrics.items()}
    metrics |= {
        "log_ratio/max": seen_B.max().item(),
        "log_ratio/min": seen_B.min().item(),
        "kl/new_old": kl_new_old(seen_B).mean().item(),
    }
    return torch.stack(shares).sum(), metrics


def _averaged(term: LossTerm, mask_BT: Tensor, first_B1: Tensor, batch_info: Mapping[str, Any]) -> Tensor:
    """``term`` as verl averages it, over the tokens or the rows of the mini-batch of all ranks."""
    counted = term.weight[mask_BT if term.weight.ndim == 2 else mask_BT.any(dim=-1)]
    if bool((counted != counted[:1]).any()):
        raise UsageError(
            f"loss term {term.name!r} is not a plain mean over tokens or rows, which is all that verl can express"
        )
    value_BT, how = term.value, "token-mean"
    if value_BT.ndim == 1:  # the first token carries the row's value, which verl takes for the sum over its tokens
        value_BT = torch.zeros_like(mask_BT, dtype=value_BT.dtype).scatter(1, first_B1, value_BT[:, None])
        how = "seq-mean-token-sum"
    mean: Tensor = agg_loss(value_BT, mask_BT, how, **batch_info)
    return term.coefficient * mean


def _refuse_correction(block: Any) -> None:
    """Refuse weights and rejections that make up for an engine whose probabilities differ from the trainer's."""
    for key in ("rollout_is", "rollout_rs"):
        if block and block.get(key):
            raise UsageError(
                f"algorithm.rollout_correction.{key}: found {block.get(key)}, expected null; a method's loss has no "
                "place for it"
            )


_estimated: dict[str, float] = {}  # what the last estimate has shown, until verl logs metrics


def _register() -> None:
    for verl_name in METHOD_OF:
        register_adv_est(verl_name)(partial(estimate, verl_name))
        register_policy_loss(verl_name)(partial(loss, verl_name))

    log = Tracking.log

    # An estimator returns tensors only: verl's logger has no other way to its metrics.
    def log_with_estimate(self: Any, data: Mapping[str, Any], step: Any, backend: Any = None) -> None:
        data = {**data, **_estimated}
        _estimated.clear()
        log(self, data, step, backend)

    Tracking.log = log_with_estimate
    if not ray.is_initialized():  # the driver, not each of its workers; verl tells failures at level DEBUG only
        logger.setLevel(logging.INFO)
        logger.info("quatro %s: advantage estimators and policy losses %s", version("quatro"), ", ".join(METHOD_OF))


_register()
