"""How each `policy.kind` is checked and made. What needs torch is imported when a policy is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from evals.errors import UsageError, require
from quatro.config.model import Config
from quatro.policy import embedded
from quatro.policy.device import FLOAT32_BYTES, number_bytes
from quatro.policy.facts import copied, first_difference, hollow
from quatro.policy.loading import load_model
from quatro.registry import POLICIES, located

if TYPE_CHECKING:
    import torch

    from quatro.policy.base import Policy
    from quatro.policy.torch_policy import TorchPolicy
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
    """An entry of `POLICIES`, or a user's own: how a policy is checked and made. Ours import no torch at the top.

    ``is_sharded``: the ranks hold parts of weights or optimiser, and no second set of weights beside them.
    ``loads_model``: this process reads the weights of `model`; otherwise tokenizer and config.json are enough there.
    """

    is_sharded: ClassVar[bool] = False
    loads_model: ClassVar[bool] = False

    @staticmethod
    def check() -> None:
        """Raises MissingError where a package is not installed; imports no torch."""

    @classmethod
    def open(cls, config: Config, world: World, *, device: torch.device, weights: Path | None) -> Policy:
        """The policy of ``config``, whose loop computes on ``device``.

        ``weights`` is the model folder of a checkpoint, written by `Policy.save_model`: they replace those of `model`,
        but not those of the reference.
        """

    @staticmethod
    def memory(config: Config, size: ModelSize) -> dict[str, int]:
        """Bytes on each rank of everything as large as the model."""
        return dict.fromkeys(("weights", "gradients", "optimizer", "reference", "casts", "snapshots"), 0)


class TorchKind(PolicyKind):
    """A policy whose model is in this process."""

    loads_model = True
    location: ClassVar[str]  # of the class that holds a model, whose module imports torch

    @classmethod
    def open(cls, config: Config, world: World, *, device: torch.device, weights: Path | None) -> TorchPolicy:
        import torch

        # Trained weights stay in float32: an update of 1e-6 is lost in bfloat16's 8 bits. `dtype` is the format of the
        # computation; what is not trained is cast to it on the CPU, and only then comes to the device.
        # Under ZeRO-3 the first rank alone reads it, and the others have their shards from there.
        is_shared = cls.is_sharded and config.policy.zero_stage == 3

        def read(name: str) -> Any:
            model: Any = None if is_shared and not world.is_first else load_model(name, torch.float32, "cpu")
            shape = world.from_first(lambda: copied(model, hollow), "the model") if is_shared else model
            return shape.requires_grad_(True) if model is None else model

        def reference() -> Any:
            found = read(name := embedded.resolve_model(config.kl.reference or ""))
            if difference := first_difference(found.state_dict(), model.state_dict()):
                raise UsageError(f"kl.reference: {name} is of another architecture than the model: {difference}")
            return found

        model = read(embedded.resolve_model(config.model))
        if is_shared and not world.is_first and config.policy.lora is None:
            weights = None
        options = {"device": device, "reference": None if config.kl.reference is None else reference}
        return make_policy(config, model, world, weights, **options)


class Local(TorchKind):
    """`policy.kind: local`: the whole model on each device."""

    location = "quatro.policy.torch_policy:LocalPolicy"

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


class DeepSpeed(TorchKind):
    """`policy.kind: deepspeed`: optimiser, gradients or weights in shards on several ranks (ZeRO)."""

    is_sharded = True
    location = "quatro.policy.deepspeed:DeepSpeedPolicy"

    @staticmethod
    def check() -> None:
        require("deepspeed", "policy.kind deepspeed")

    @staticmethod
    def memory(config: Config, size: ModelSize) -> dict[str, int]:
        stage, num_ranks = config.policy.zero_stage, size.num_ranks
        trained, computed = FLOAT32_BYTES * size.num_trained, number_bytes(config) * size.num_parameters
        shard = computed // num_ranks if stage == 3 else computed
        gradients = trained // num_ranks if stage >= 2 else trained
        is_offloaded, is_half = config.policy.offload_optimizer, config.dtype == "bfloat16"
        # Stage 3, and stage 1 in bfloat16, add them up in a buffer that is never given back.
        is_kept = not is_offloaded and (stage == 3 or (stage == 1 and is_half))
        # In CPU memory masters, moments and gradients (16 bytes a parameter), and buffers for what comes and goes.
        offloaded = 20 if stage == 3 else 18 if is_half else 24
        return {
            "weights": shard,
            "whole_copy": computed if stage == 3 and size.is_sampled else 0,
            "gradients": 0 if is_kept else gradients,
            "kept_gradients": gradients if is_kept else 0,
            "optimizer": 0 if is_offloaded else 3 * trained // num_ranks,
            "offloaded": offloaded * size.num_trained // num_ranks if is_offloaded else 0,
            "reference": shard if _has_copy(config) else 0,
            "casts": 0,
            # All weights at once, while they are saved; engines are sent one after the other.
            "snapshots": computed - computed // num_ranks if stage == 3 else 0,
        }


def _has_copy(config: Config) -> bool:
    """Whether the reference is a second model: with an adapter it is the first one without it."""
    return config.kl.beta > 0 and config.policy.lora is None


def make_policy(config: Config, model: Any, world: World, weights: Path | None, **options: Any) -> TorchPolicy:
    """The policy of ``config.policy.kind`` that holds ``model``; the rest as in `TorchPolicy`."""
    import torch

    from quatro.policy import lora

    kind: type[TorchKind] = POLICIES[config.policy.kind]
    adapter = config.policy.lora
    if adapter is not None:
        # A policy in shards brings all weights to the format of the computation by itself.
        is_cast = not kind.is_sharded and config.dtype == "bfloat16"
        lora.attach(model, adapter, seed=config.seed, frozen_dtype=torch.bfloat16 if is_cast else None)
    policy: TorchPolicy = located(kind.location)(model, config, world=world, weights=weights, **options)
    return policy
