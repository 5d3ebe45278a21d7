"""The audit after an iteration: how far the policy has really moved."""

# Axes: B rows (rollouts), T response tokens, Q prompts.

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from quatro.config import Config
from quatro.loop.position import Iteration, Parts
from quatro.loop.trust_region import MAX_LOG_RATIO, kl_new_old, sequence_log_ratio, summarise
from quatro.methods.base import Method
from quatro.ops import pack_groups
from quatro.policy.rows import Rows
from quatro.processes.world import World
from quatro.rollout.engine import rollout_seed
from quatro.types import Batch


def audit(
    new_logp_BT: Tensor,
    batch: Batch,
    kl_radius: float | None,
    world: World | None = None,
    *,
    prompts: Sequence[int] | None = None,
) -> dict[str, float]:
    """Metrics of the realised KL between pi_new and pi_old, from the sequence log-ratios l of all ranks' rollouts.

    Only those of ``prompts`` count, by their numbers in the batch (None: all).

    ``kl/new_old``, the mean of s l - s + 1, estimates KL(pi_new || pi_old), which is the constraint's direction.
    ``kl/old_new``, the mean of s - 1 - l, estimates KL(pi_old || pi_new). Neither is ever negative, and both are
    unbiased over rollouts of pi_old. Standard errors are over prompts. Single prompts are given as quantiles and as
    the share above three times the radius only: at N = 8 a radius that is kept exactly looks exceeded on four prompts
    in ten. With a radius, there is also the ratio of the realised KL to it, and the distance of the rows from pi*,
    where l = A.
    """
    world = world or World()
    l_B = world.gather(sequence_log_ratio(new_logp_BT, batch.old_logp_BT, batch.mask_BT))
    group_B, advantage_B = world.gather(batch.group_B), world.gather(batch.advantage_B)
    if prompts is not None:
        counts_B = torch.isin(group_B, torch.tensor(prompts, device=group_B.device))
        l_B, group_B, advantage_B = l_B[counts_B], group_B[counts_B], advantage_B[counts_B]
    capped_B = l_B.clamp(max=MAX_LOG_RATIO)
    s_B = capped_B.exp()
    new_old_B = kl_new_old(l_B)
    old_new_B = s_B - 1.0 - capped_B
    metrics = summarise(l_B, "log_ratio/after")
    metrics["kl/capped_share"] = (l_B > MAX_LOG_RATIO).double().mean().item()
    for name, value_B in (("kl/new_old", new_old_B), ("kl/old_new", old_new_B)):
        value_QN, mask_QN, _, _ = pack_groups(value_B, group_B)
        value_Q = value_QN.sum(dim=1) / mask_QN.sum(dim=1)
        metrics[name] = value_B.mean().item()
        metrics[f"{name}_se"] = value_Q.std().item() / math.sqrt(len(value_Q)) if len(value_Q) > 1 else float("nan")
        if name == "kl/new_old":
            for quantile, place in (("p10", 0.1), ("median", 0.5), ("p90", 0.9)):
                metrics[f"kl/prompt_{quantile}"] = torch.quantile(value_Q, place).item()
            if kl_radius is not None:
                metrics["kl/prompt_above_3delta_share"] = (value_Q > 3.0 * kl_radius).double().mean().item()
    if kl_radius is not None:
        gap_B = advantage_B.double() - l_B
        metrics |= {
            "kl/ratio_to_delta": metrics["kl/new_old"] / kl_radius,
            "target/gap_mean": gap_B.abs().mean().item(),
            "target/above_share": (gap_B < 0).double().mean().item(),
        }
    return metrics


def audits(it: Iteration, rows: Rows, method: Method, parts: Parts) -> dict[str, float]:
    """Metrics of the audit that the configuration asks for, after the last update of the iteration."""
    config, policy = parts.config, parts.policy
    if not config.audit.prompts:
        return {}
    assert it.progress is not None
    prompts = audited_prompts(config, it.step, len(it.learnt))
    rows = _of_prompts(rows.with_batch(old_logp_BT=it.progress.old_logp_BT), prompts)
    return audit(policy.score(rows).logp_BT, rows.batch, method.kl_radius, policy.world, prompts=prompts)


def audited_prompts(config: Config, step: int, num_prompts: int) -> list[int]:
    """The numbers of the prompts that iteration ``step`` audits of its ``num_prompts``, ascending.

    Seed and iteration decide, so that a resume and any number of ranks audit the same.
    """
    size = config.audit.prompts
    if size == "all" or size >= num_prompts:
        return list(range(num_prompts))
    return sorted(sorted(range(num_prompts), key=lambda i: rollout_seed(config.seed, step, f"audited/{i}", 0))[:size])


def _of_prompts(rows: Rows, prompts: Sequence[int]) -> Rows:
    """The ``rows`` of ``prompts``; the shortest row where this rank has none, for all ranks must score something."""
    is_of_B = torch.isin(rows.batch.group_B, torch.tensor(prompts, device=rows.batch.group_B.device))
    if bool(is_of_B.all()):
        return rows
    index = torch.nonzero(is_of_B).squeeze(-1)
    return rows.select(index if len(index) else rows.total_length_B.argmin()[None])
