"""The loss of a minibatch: the method's terms, the reference KL and the entropy bonus. Each method has its own file."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

from torch import Tensor

from quatro import ops
from quatro.config import Config
from quatro.methods.base import Method
from quatro.policy.base import Objective
from quatro.types import Batch, Loss


def make_objective(config: Config, method: Method | None = None) -> Objective:
    """``objective(logp_BT, batch, entropy_BT)`` of one iteration (paper, Eq. exact_tr_update_kl).

    ``method`` is the method in force; the default is the configured one. `quatro/methods/` holds each method's loss,
    and `tests/quatro/methods/` holds the tests of the losses.
    """
    method, kl = method or config.method, config.kl

    def objective(logp_BT: Tensor, batch: Batch, entropy_BT: Tensor | None) -> Loss:
        loss = method.loss(logp_BT, batch)
        if kl.beta > 0:
            term = ops.kl_term(logp_BT, batch, beta=kl.beta, estimator=kl.estimator, how=kl.aggregate)
            loss = ops.with_terms(loss, term)
        if config.entropy_coefficient > 0 and entropy_BT is not None:
            loss = ops.with_terms(loss, ops.entropy_term(entropy_BT, batch, coefficient=config.entropy_coefficient))
        return loss

    return objective
