"""A method of your own: REINFORCE with a leave-one-out baseline that learns less from failures than from successes.

    quatro train quickstart -s method.name=examples.own_method:Lenient --dry-run
    quatro train quickstart -s method.name=examples.own_method:Lenient -s method.failure_weight=0.25 -o runs/lenient

The advantage of a response is its reward minus the mean reward of the other responses to the same prompt. A negative
advantage is multiplied by `failure_weight`. The loss is -ratio x advantage, averaged over tokens, without a clip.
"""

# Axes: B rows (rollouts), T response tokens.
import torch
from pydantic import Field
from torch import Tensor

from quatro import ops
from quatro.methods.base import Method
from quatro.types import Advantages, Batch, Loss, LossTerm, Metric


class Lenient(Method):
    """The fields are the keys `method.*`; a wrong value is refused with the name of its key."""

    failure_weight: float = Field(0.5, ge=0, le=1, description="what a negative advantage is multiplied by")

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        """Rows come in any order, and a group may have any size; a single response gets 0."""
        _, index_B, size_Q = torch.unique(group_B, return_inverse=True, return_counts=True)
        sum_Q = torch.zeros(len(size_Q), dtype=torch.float64).index_add(0, index_B, reward_B.double())
        others_B = size_Q[index_B] - 1
        baseline_B = (sum_Q[index_B] - reward_B) / others_B.clamp(min=1)
        value_B = torch.where(others_B > 0, reward_B - baseline_B, 0.0)
        lenient_B = torch.where(value_B < 0, self.failure_weight * value_B, value_B)
        return Advantages(lenient_B, {"advantage/baseline_mean": float(baseline_B.mean())})

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        """A term is sum(value x weight) / sum(weight); both sums run over all micro-batches and processes."""
        ratio_BT = ops.log_ratio(logp_BT, batch).exp()
        value_BT = -ratio_BT * batch.advantage_B.to(logp_BT.dtype)[:, None]
        weight_BT = batch.mask_BT.to(logp_BT.dtype)
        largest = Metric("max", float(ratio_BT.detach().max()))
        return Loss([LossTerm("policy", value_BT, weight_BT)], {"ratio/largest": largest})
