"""Says what was not finite where an optimiser step was not: the advantages, the policy or a term of the loss."""

# Axes: B rows (rollouts), T response tokens.
from __future__ import annotations

import torch
from torch import Tensor

from evals.files.own_code import place_of
from quatro.loop.iteration import Iteration
from quatro.methods.base import Method
from quatro.policy.rows import Rows


def why_not_finite(it: Iteration, method: Method, index: Tensor, minibatch: Rows, logp_BT: Tensor) -> str:
    """What was not finite of the rows ``index``, for a message; for a method of the user's own where to look.

    The loss is computed once more. "" if all of it is finite, as where only a gradient is not, or another rank's rows.
    """
    assert it.progress is not None
    batch = minibatch.with_batch(old_logp_BT=it.progress.old_logp_BT[index, : logp_BT.shape[1]]).batch
    if not bool((is_known_B := batch.advantage_B.isfinite()).all()):
        row = int((~is_known_B).nonzero()[0])
        prompt, value = it.learnt.prompts[int(batch.group_B[row])], float(batch.advantage_B[row])
        said = f"gave the advantage {value:g} to a response to {prompt.benchmark} {prompt.id!r}"
        return f": `advantages` of {type(method).__name__} {said}{_look_at(method, 'advantages')}"
    if not bool(logp_BT[batch.mask_BT].isfinite().all()):
        return ": the policy's own log-probabilities are not finite"
    with torch.no_grad():
        terms = method.loss(logp_BT.detach(), batch).terms
    for term in terms:
        found = (term.value * term.weight)[term.weight != 0]
        wrong = found[~found.isfinite()]
        if len(wrong):
            said = (
                f"gave {float(wrong[0]):g} in {len(wrong)} of {len(found)} values of the term {term.name!r}, though "
                "log-probabilities and advantages are finite"
            )
            return f": `loss` of {type(method).__name__} {said}{_look_at(method, 'loss')}"
    return ""


def _look_at(method: Method, name: str) -> str:
    is_ours = type(method).__module__.startswith("quatro.")
    return "" if is_ours else f". Look at {place_of(getattr(type(method), name))}"
