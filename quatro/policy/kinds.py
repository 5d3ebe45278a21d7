"""How each `policy.kind` is checked and made. What needs torch is imported when a policy is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from evals.errors import UsageError
from evals.files.own_code import own_kind
from quatro.config import packages
from quatro.config.model import Config
from quatro.policy import embedded
from quatro.policy.device import FLOAT32_BYTES, number_bytes
from quatro.policy.facts import first_difference
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
    masters: ClassVar[str] = "weights kept by the policy itself"  # for a dry run

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
    masters = "{weights} kept in float32"
    location: ClassVar[str]  # of the class that holds a model, whose module imports torch

    @classmethod
    def open(cls, config: Config, world: World, *, device: torch.device, weights: Path | None) -> TorchPolicy:
        import torch

        # Trained weights stay in float32: an update of 1e-6 is lost in bfloat16's 8 bits. `dtype` is the format of the
        # computation; frozen weights under an adapter are cast to it before they come to the device.
        place = "cpu" if config.policy.lora is not None else device
        model = load_model(embedded.resolve_model(config.model), torch.float32, place)
        policy = make_policy(config, model, world, weights, device=device)
        if config.kl.reference is not None:
            name = embedded.resolve_model(config.kl.reference)
            found = load_model(name, torch.float32, "cpu").state_dict()
            if difference := first_difference(found, policy.reference.state_dict()):
                raise UsageError(f"kl.reference: {name} is of another architecture than the model: {difference}")
            policy.reference.load_state_dict(found)
        return policy


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
    masters = "float32 masters in the optimiser's shards"

    @staticmethod
    def check() -> None:
        packages.require("deepspeed", "policy.kind deepspeed")

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


def own_policy(spec: str) -> type[PolicyKind]:
    """The class that ``spec`` names, `module:Class`; raises as `own_kind`."""
    kind: type[PolicyKind] = own_kind(spec, "policy.kind", PolicyKind)
    return kind


def make_policy(
    config: Config, model: Any, world: World, weights: Path | None, *, device: torch.device | None = None
) -> TorchPolicy:
    """The policy of ``config.policy.kind`` that holds ``model``, on ``device`` (default: where ``model`` is).

    ``weights`` as in `TorchPolicy`.
    """
    import torch

    from quatro.policy import lora

    kind: type[TorchKind] = POLICIES[config.policy.kind]
    adapter = config.policy.lora
    if adapter is not None:
        # A policy in shards brings all weights to the format of the computation by itself.
        is_cast = not kind.is_sharded and config.dtype == "bfloat16"
        lora.attach(model, adapter, seed=config.seed, frozen_dtype=torch.bfloat16 if is_cast else None)
    model = model if device is None else model.to(device)
    policy: TorchPolicy = located(kind.location)(model, config, world=world, weights=weights)
    return policy
