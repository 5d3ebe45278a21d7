"""How each `policy.kind` is checked and made. What needs torch is imported when a policy is made."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from quatro.config import packages
from quatro.config.model import Config
from quatro.policy.footprint import FLOAT32_BYTES, number_bytes

if TYPE_CHECKING:
    import torch

    from quatro.policy.base import Policy
    from quatro.processes.world import World


@dataclass(frozen=True)
class ModelSize:
    """Numbers of parameters: of the whole model, of those that are trained, and of its embedding; and of ranks.

    ``is_sampled``: an engine draws from the policy's own weights.
    """

    num_parameters: int
    num_trained: int
    num_ranks: int
    is_sampled: bool
    num_embedded: int = 0


class PolicyKind(Protocol):
    """An entry of `POLICIES`. Its module imports no torch at the top.

    ``is_sharded``: the ranks hold parts of weights or optimiser, and no second set of weights beside them.
    """

    is_sharded: ClassVar[bool] = False
    masters: ClassVar[str] = "{weights} kept in float32"  # for a dry run

    @staticmethod
    def check() -> None:
        """Raises MissingError where a package is not installed; imports no torch."""

    @staticmethod
    def check_device(device: torch.device) -> None:
        """Raises MissingError where the policy cannot compute on ``device``."""

    @staticmethod
    def open(model: Any, config: Config, world: World, *, load: Callable[[], None], is_sampled: bool) -> Policy:
        """The policy of ``model``. ``load`` brings in a checkpoint's weights, once the reference is made.

        ``is_sampled``: an engine draws from the policy's `sampling_model`.
        """

    @staticmethod
    def memory(config: Config, size: ModelSize) -> dict[str, int]:
        """Bytes on each rank of everything as large as the model."""


class Local(PolicyKind):
    """`policy.kind: local`: the whole model on each device."""

    @staticmethod
    def open(model: Any, config: Config, world: World, *, load: Callable[[], None], is_sampled: bool) -> Policy:
        from quatro.policy.local import LocalPolicy

        policy = LocalPolicy(model, config, world=world)
        load()
        return policy

    @staticmethod
    def memory(config: Config, size: ModelSize) -> dict[str, int]:
        number, trained = number_bytes(config), FLOAT32_BYTES * size.num_trained
        # Its embedding, which no matrix product reads, stays in float32.
        copied = number * (size.num_trained - size.num_embedded) + FLOAT32_BYTES * size.num_embedded
        return {
            "weights": trained + number * (size.num_parameters - size.num_trained),
            "gradients": trained,
            "optimizer": 2 * trained,
            "reference": copied if _has_copy(config) else 0,
            "casts": 0 if number == FLOAT32_BYTES else number * size.num_trained,
            "snapshots": trained * (config.inner_updates == "auto"),
        }


class DeepSpeed(PolicyKind):
    """`policy.kind: deepspeed`: optimiser, gradients or weights in shards on several ranks (ZeRO)."""

    is_sharded = True
    masters = "float32 masters in the optimiser's shards"

    @staticmethod
    def check() -> None:
        packages.require("deepspeed", "policy.kind deepspeed")

    @staticmethod
    def check_device(device: torch.device) -> None:
        from quatro.policy.deepspeed import require

        require(device)

    @staticmethod
    def open(model: Any, config: Config, world: World, *, load: Callable[[], None], is_sampled: bool) -> Policy:
        from quatro.policy.deepspeed import DeepSpeedPolicy, require

        require(model.device)
        reference = copy.deepcopy(model) if _has_copy(config) else None
        load()
        return DeepSpeedPolicy(model, config, world=world, reference=reference, is_sampled=is_sampled)

    @staticmethod
    def memory(config: Config, size: ModelSize) -> dict[str, int]:
        stage, num_ranks = config.policy.zero_stage, size.num_ranks
        trained, computed = FLOAT32_BYTES * size.num_trained, number_bytes(config) * size.num_parameters
        copy_bytes = computed if stage == 3 and size.is_sampled else 0
        return {
            "weights": (computed // num_ranks if stage == 3 else computed) + copy_bytes,
            "gradients": trained // num_ranks if stage >= 2 else trained,
            "optimizer": 0 if config.policy.offload_optimizer else 3 * trained // num_ranks,
            "reference": computed if _has_copy(config) else 0,
            "casts": 0,
            # All weights at once, while they are saved; engines are sent one after the other.
            "snapshots": computed - computed // num_ranks if stage == 3 else 0,
        }


def _has_copy(config: Config) -> bool:
    """Whether the reference is a second model: with an adapter it is the first one without it."""
    return config.kl.beta > 0 and config.policy.lora is None
