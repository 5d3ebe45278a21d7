"""LoRA: a frozen model with a low-rank adapter, W + (alpha / rank) B A, in each of its linear layers (Hu et al. 2021).

The layers are peft's, put into the model in place, so the model keeps its class and its names. With the adapter
switched off it is the model that the run began with: the reference of the KL term needs no copy. Engines are sent the
merged weights under the names they know; checkpoints hold the adapter alone, in peft's own format.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evals.errors import DataError, UsageError
from quatro.config.blocks import LoraConfig
from quatro.policy.facts import cast_weights, first_difference
from quatro.policy.model_files import ADAPTER_CONFIG

WEIGHTS = "adapter_model.safetensors"
NAME = "default"  # peft's name of a model's first adapter
PREFIX = "base_model.model."  # peft's names begin with the wrapper that it puts around a model

Whole = Callable[[list[Tensor]], AbstractContextManager[None]]  # inside, the weights it was given are whole


def attach(model: Any, settings: LoraConfig, *, seed: int, frozen_dtype: torch.dtype | None = None) -> None:
    """Freezes ``model`` and gives it an adapter that changes nothing yet: A is drawn with ``seed``, B is 0.

    A and B are float32; the frozen weights get ``frozen_dtype``, which saves memory where they are computed in it
    anyway.

    Raises UsageError if one of ``target_modules`` is the name of no layer, or of one that is not linear or is tied to
    the input embedding.
    """
    from peft import LoraConfig as PeftConfig
    from peft import inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    wanted = settings.target_modules
    peft_config = PeftConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=wanted if isinstance(wanted, str) else list(wanted),
        lora_dropout=0.0,  # the same weights must give the same log-probabilities
        task_type="CAUSAL_LM",
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),  # GPT-2 keeps weights transposed
    )
    if wanted != "all-linear":
        _check_targets(model, wanted, (torch.nn.Linear, Conv1D))
    try:
        inject_adapter_in_model(peft_config, model, adapter_name=NAME)
    except ValueError as error:  # a model without linear layers beside its head
        reason = " ".join(str(error).split())[:200]
        raise UsageError(f"policy.lora cannot adapt model type {model.config.model_type!r}: {reason}") from error
    if wanted == "all-linear":
        # peft noted the whole path of every layer, in the order of a set: another one in every process.
        peft_config.target_modules = sorted({name.rpartition(".")[2] for name in adapted_layers(model)})
    generator = torch.Generator().manual_seed(seed)
    for layer in adapted_layers(model).values():
        weight = layer.lora_A[NAME].weight
        drawn = torch.empty(weight.shape)
        # peft's distribution, from a generator of our own.
        torch.nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
        weight.data.copy_(drawn)
        # In the computation's autocast A takes what the layer takes; a float32 copy of it would only cost memory.
        layer.cast_input_dtype_enabled = frozen_dtype is None
    if frozen_dtype is not None:
        cast_weights(model, frozen_dtype, only_frozen=True)


def _check_targets(model: Any, wanted: Sequence[str], linear: Any) -> None:
    embedding, layers = model.get_input_embeddings().weight, dict[str, Any](model.named_modules())
    # Of a head that is tied, the adapter would change the head alone, and merged weights the embedding with it.
    fitting = {name for name, one in layers.items() if isinstance(one, linear) and one.weight is not embedding}
    for target in wanted:
        named = {name for name in layers if f".{name}".endswith(f".{target}")}
        if not named or named - fitting:
            raise UsageError(
                f"policy.lora.target_modules: found {target}; expected names of linear layers whose weight is not the "
                f"input embedding's too: {', '.join(sorted({name.rpartition('.')[2] for name in fitting}))}"
            )


def adapted_layers(model: Any) -> dict[str, Any]:
    """The layers that hold an adapter by their names, in the model's order."""
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


@contextmanager
def switched_off(model: Any) -> Iterator[None]:
    """Inside, the model is the one that the adapter was attached to."""
    layers = adapted_layers(model).values()
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


@torch.no_grad()
def merged_weights(model: Any, whole: Whole = lambda weights: nullcontext()) -> Iterator[tuple[str, Tensor]]:
    """Every weight of the model under its Hugging Face name; an adapter, if it has one, is added in.

    Merged in float32, one layer at a time: nothing but that layer is held twice, or ``whole``.
    """
    adapted = adapted_layers(model) if hasattr(model, "peft_config") else {}
    for name, parameter in model.named_parameters():
        owner, _, last = name.rpartition(".")
        outer, _, inner = owner.rpartition(".")
        if inner == "base_layer" and outer in adapted:
            layer = adapted[outer]
            change = [layer.lora_A[NAME].weight, layer.lora_B[NAME].weight] if last == "weight" else []
            with whole([parameter, *change]):
                weight = parameter.detach()
                if change:
                    weight = weight.float() + layer.get_delta_weight(NAME).float()
            yield f"{outer}.{last}", weight
        elif not owner.endswith((f".lora_A.{NAME}", f".lora_B.{NAME}")):
            with whole([parameter]):
                weight = parameter.detach()
            yield name, weight


def detach(model: Any) -> Any:
    """``model`` as it was before `attach`."""
    for name, layer in adapted_layers(model).items() if hasattr(model, "peft_config") else ():
        model.set_submodule(name, layer.get_base_layer())
    return model


# ---- on disk


def save(model: Any, folder: Path, *, base_model: str) -> None:
    """Writes the adapter as peft does: its configuration, which names ``base_model``, and A and B.

    `save_folder` looks at the weights before, and names what cannot be written.
    """
    from safetensors.torch import save_file

    tensors = {name: value.detach().cpu().contiguous() for name, value in _adapter(model)}
    document = model.peft_config[NAME].to_dict() | {"base_model_name_or_path": base_model, "inference_mode": True}
    document["target_modules"] = sorted(document["target_modules"])
    text = json.dumps(document, indent=2, sort_keys=True, default=str) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_CONFIG).write_text(text, encoding="utf-8")
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


@torch.no_grad()
def load(model: Any, folder: Path) -> None:
    """Puts what `save` wrote into the adapter of ``model``; DataError for another model's, or an unreadable one."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors: Mapping[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise DataError(f"the adapter in {folder} cannot be read: {error}") from error
    own = dict(_adapter(model))
    if difference := first_difference(tensors, own):
        raise DataError(
            f"the adapter in {folder} does not fit the model: {difference}; use the policy.lora.rank, "
            "policy.lora.target_modules and model that it was trained with"
        )
    for name, value in own.items():
        value.copy_(tensors[name])


def _adapter(model: Any) -> Iterator[tuple[str, Tensor]]:
    """A and B under peft's names."""
    for name, parameter in model.named_parameters():
        owner, _, last = name.rpartition(f".{NAME}.")
        if owner.endswith((".lora_A", ".lora_B")):
            yield f"{PREFIX}{owner}.{last}", parameter
