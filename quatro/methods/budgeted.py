"""Budgeted QUATRO: one KL budget for an iteration, and a cap for each prompt. Not in the paper."""

# Axes: Q prompts, N rollouts of one prompt.
import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from quatro.dual import DualSolution, solve_budget
from quatro.methods.quatro import Quatro
from quatro.types import Tensor


def _number(value: Any) -> Any:
    return float("inf") if value in ("inf", ".inf") else value


class Budgeted(Quatro):
    """QUATRO whose KL goes to the prompts where it buys reward.

    To first order a radius k gains a prompt sigma sqrt(2 k), sigma being the standard deviation of its rewards. QUATRO
    spends delta on each prompt and gains mean(sigma) sqrt(2 delta); the best use of the same mean KL gains
    rms(sigma) sqrt(2 delta), which is sqrt(1 + CV^2) times as much, CV the coefficient of variation of sigma over
    prompts. With rewards 0 and 1 that is 1 % more, with partial credit it can be a quarter. So

        maximise sum_q E[R]   subject to   mean_q KL_q <= delta   and   KL_q <= spread x delta,

    over the prompts whose rewards differ (`solve_budget`). The cap keeps a few prompts that pay out of scale from
    taking all. The loss is QUATRO's.
    """

    name: Literal["budgeted"] = "budgeted"  # type: ignore[assignment]
    delta: float = Field(
        default=0.01, gt=0, le=1e6, description="mean KL over the prompts of an iteration whose rewards differ, in nats"
    )
    # JSON, which checkpoints are in, has no infinity.
    spread: Annotated[
        float,
        BeforeValidator(_number),
        PlainSerializer(lambda one: "inf" if math.isinf(one) else one, when_used="json"),
    ] = Field(
        default=3.0,
        ge=1,
        allow_inf_nan=True,
        description="the most that one prompt may spend, in deltas: 1 is quatro, inf has one lam for all prompts",
    )

    def solve(self, reward_QN: Tensor, mask_QN: Tensor) -> tuple[DualSolution, dict[str, float]]:
        dual, lam_0 = solve_budget(reward_QN, self.delta, self.spread, mask_QN=mask_QN, **self.limits)
        solved_Q = dual.lam > 0
        at_cap_Q = solved_Q & (dual.lam > lam_0 * (1 + 1e-12))
        return dual, {
            "budget/lam_0": lam_0,
            "budget/at_cap_share": at_cap_Q.double().sum().item() / max(1, int(solved_Q.sum())),
            "budget/kl_max": dual.kl.max().item(),
        }
