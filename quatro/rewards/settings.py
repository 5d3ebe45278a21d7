"""What a configuration says about the reward: its name, its options and its limits."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from quatro.registry import REWARDS
from quatro.types import Block

DEFAULT_REWARD = "math"
REMOVED = ("length", "format")  # docs/rewards.md has each as a function of one's own
OnError = Literal["fail", "zero", "drop"]
_LIMITS = ("timeout_s", "workers", "on_error")


def known_reward(name: Any) -> str:
    """``name``, if a reward of `REWARDS` or a function `module:function` can be called so; else raises ValueError."""
    if isinstance(name, str) and REWARDS.takes(name):
        return name
    if name in REMOVED:
        raise ValueError("which was removed: name a function of your own; docs/rewards.md has one that does the same")
    raise ValueError(f"expected {', '.join(REWARDS)} or module:function")


def reward_block(value: Any) -> Any:
    """The block that a reward's name, or a list of rewards, is short for; a block passes. Raises as `known_reward`."""
    if isinstance(value, list):
        return {"name": "sum", "options": {"rewards": value}}
    return value if isinstance(value, Mapping | RewardConfig) else {"name": known_reward(value)}


class RewardConfig(Block):
    """How responses are graded."""

    name: Annotated[str, AfterValidator(known_reward)] = Field(
        DEFAULT_REWARD,
        description=f"how responses are graded: {', '.join(REWARDS)}, or your own module:function; `reward: NAME` is "
        "short for a block with the name alone, and a list of rewards for a block `sum` of them",
    )
    options: Annotated[Any, WithJsonSchema({"type": "object"})] = Field(
        {},
        validate_default=True,
        description="the reward's own keys; a function of your own gets them as keyword arguments",
    )
    timeout_s: float | None = Field(
        None,
        gt=0,
        le=86_400,
        description="time limit for grading a response, in seconds (of code: CPU time); a response beyond it earns 0. "
        "null: 10 for a function and code. math and countdown refuse it",
    )
    workers: Annotated[int | None, AfterValidator(lambda found: found or None)] = Field(
        None,
        ge=0,
        description="processes that grade; null or 0: one a core for code, at most 4 for a function. math and "
        "countdown refuse it",
    )
    on_error: OnError = Field(
        "fail",
        description="if a reward function raises an exception: fail stops the run; with zero the response earns 0; "
        "drop takes it out of its group, also after the time limit. The run stops if half of an iteration's fail",
    )

    @field_validator("options")
    @classmethod
    def _of_this_reward(cls, value: Any, info: ValidationInfo) -> Any:
        name = info.data.get("name")  # not there if it is wrong
        return value if name is None else REWARDS[name].Options.model_validate(value)

    @field_validator(*_LIMITS)
    @classmethod
    def _heeded(cls, value: Any, info: ValidationInfo) -> Any:
        name, key = info.data.get("name"), str(info.field_name)
        default = cls.model_fields[key].default
        if name is not None and value != default and key not in REWARDS[name].LIMITS:
            instead = "put it into the block of a reward of the list" if name in ("sum", "rarity") else "leave it out"
            raise ValueError(f"expected {default or 'null'}: reward {name} does not read {key}; {instead}")
        return value

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all rewards: its own, unless it is a sum, and those that it is made of."""
        parts = self.options.rewards if "rewards" in REWARDS[self.name].Options.model_fields else ()
        return (*(() if self.name == "sum" else (self.name,)), *(name for part in parts for name in part.names))

    @property
    def unheeded(self) -> frozenset[str]:
        """The keys for which it has no use."""
        limits: frozenset[str] = REWARDS[self.name].LIMITS
        return frozenset(_LIMITS) - limits

    @property
    def changed(self) -> dict[str, Any]:
        """The keys beside the name that have not their default."""
        found = self.model_dump(exclude_defaults=True, exclude={"name"})
        return {key: value for key, value in found.items() if value != {}}
