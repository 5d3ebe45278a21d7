"""GRPO: clipped surrogate on token ratios with group z-scores (paper, Eq. grpo_loss; semantics of verl 0.9.1)."""

# Axes: B rows (rollouts).
from typing import ClassVar, Literal

from pydantic import Field

from quatro.methods.base import VERL_SURROGATE, GroupZScore, Presets, TokenSurrogate
from quatro.types import Advantages, Tensor


class Grpo(TokenSurrogate, GroupZScore):
    """The group z-score as advantage of PPO's clipped surrogate on token ratios.

    ``seq-mean-token-mean`` is how DeepSeekMath averages, ``token-mean`` how verl does. The preset `dr-grpo` (Liu et
    al., arXiv 2503.20783) divides neither by the standard deviation nor by the length of a response, and `rloo`
    (Ahmadian et al., arXiv 2402.14740) takes the mean of a prompt's other rollouts as the baseline of whole responses.
    """

    PRESETS: ClassVar[Presets] = {
        **dict.fromkeys(("paper", "official"), VERL_SURROGATE),
        "dr-grpo": {"standardise": False, "dual_clip": None, "aggregate": "seq-mean-token-sum-norm", "kl.beta": 0.0},
        "rloo": {"standardise": False, "leave_one_out": True, "dual_clip": None, "aggregate": "seq-mean-token-sum"},
    }

    name: Literal["grpo"] = "grpo"
    preset: Literal["paper", "official", "dr-grpo", "rloo"] = Field(
        default="paper",
        description="fills the keys that are not set here with the settings of the paper (official: the same), of "
        "Dr. GRPO or of RLOO",
    )
    leave_one_out: bool = Field(
        default=False, description="subtract the mean reward of the prompt's other rollouts, as RLOO does"
    )

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        from quatro.ops import group_zscore

        return Advantages(
            group_zscore(reward_B, group_B, standardise=self.standardise, leave_one_out=self.leave_one_out)
        )
