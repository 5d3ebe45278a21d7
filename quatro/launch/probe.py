"""Whether bfloat16 or gradient checkpointing would pay on this device, from a few optimiser steps of a short model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from quatro.config import Config
from quatro.loop.objective import make_objective
from quatro.policy.footprint import with_checkpointing
from quatro.policy.local import LocalPolicy
from quatro.policy.rows import Rows, collate
from quatro.types import Prompt, Rollout

LAYERS = 2
VOCABULARY = 1024  # few entries: neither choice changes what the head does
ROWS, PROMPT_TOKENS = 4, 16
REPEATS = 3
# Floating-point operations of a step, from which its tokens follow: about a second of one core, or a moment of a GPU.
STEP_FLOPS = {"cpu": 1e10, "cuda": 1e13}
MOST_TOKENS = 2048  # of a row


@dataclass(frozen=True)
class Probe:
    """Speeds of an optimiser step relative to another choice: above 1 is faster.

    ``bfloat16`` relative to float32, ``checkpointing`` relative to none (None: the model cannot), both otherwise as
    configured; of ``layers`` layers with the widths of the model, on ``tokens`` tokens.
    """

    bfloat16: float
    checkpointing: float | None
    layers: int
    tokens: int
    device: str

    @property
    def lines(self) -> list[str]:
        """For a person. Nothing is switched: both choices are the user's."""
        pays = "pays" if self.bfloat16 > 1.0 else "does not pay"
        checkpointing = (
            "the model type does not support gradient checkpointing"
            if self.checkpointing is None
            else f"{self.checkpointing:.2f} x the speed of false; it pays where the memory that it saves is needed"
        )
        return [
            f"an optimiser step of {self.layers} layers on {self.tokens} tokens, on {self.device}; nothing is switched",
            f"dtype=bfloat16: {self.bfloat16:.2f} x the speed of float32; it {pays} in time here",
            f"policy.gradient_checkpointing=true: {checkpointing}",
        ]


def probe(config: Config, shape: Any, device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Probe:
    """Measured steps of a model of random weights with the widths of ``shape``, in turns; the fastest of each count."""
    model = short_model(shape, device)
    rows = _rows(model, device)
    plain = with_checkpointing(config, False)
    choices = {
        "float32": plain.model_copy(update={"dtype": "float32"}),
        "bfloat16": plain.model_copy(update={"dtype": "bfloat16"}),
    }
    if model.supports_gradient_checkpointing:
        choices["checkpointed"] = with_checkpointing(config, True)
    seconds: dict[str, list[float]] = {name: [] for name in choices}
    for number in range(1 + REPEATS):
        for name, choice in choices.items():
            took = _step_seconds(choice, model, rows, device, clock)
            if number:  # the first one allocates and compiles
                seconds[name].append(took)
    fastest = {name: min(values) for name, values in seconds.items()}
    return Probe(
        bfloat16=fastest["float32"] / fastest["bfloat16"],
        checkpointing=fastest[config.dtype] / fastest["checkpointed"] if "checkpointed" in fastest else None,
        layers=model.config.num_hidden_layers,
        tokens=rows.ids_BL.numel(),
        device=device.type,
    )


def short_model(shape: Any, device: torch.device) -> Any:
    """A model of the type and widths of ``shape`` with `LAYERS` layers and random weights."""
    from transformers import AutoModelForCausalLM

    short = type(shape).from_dict(shape.to_dict())
    short.num_hidden_layers = min(LAYERS, shape.num_hidden_layers)
    if getattr(short, "layer_types", None):
        short.layer_types = short.layer_types[: short.num_hidden_layers]
    short.vocab_size = min(VOCABULARY, shape.vocab_size)
    short.pad_token_id = short.bos_token_id = short.eos_token_id = None  # they may lie beyond the vocabulary
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), torch.device(device):
        return AutoModelForCausalLM.from_config(short, trust_remote_code=False)


def _rows(model: Any, device: torch.device) -> Rows:
    flops = 6.0 * sum(parameter.numel() for parameter in model.parameters())
    tokens = int(STEP_FLOPS[device.type] / flops / ROWS)
    limit = min(MOST_TOKENS, getattr(model.config, "max_position_embeddings", MOST_TOKENS))
    length = max(1, min(tokens, limit) - PROMPT_TOKENS)
    ids = tuple(number % model.config.vocab_size for number in range(PROMPT_TOKENS + length))
    prompt = Prompt("probe", "0", "", None, "", ids[:PROMPT_TOKENS])
    return collate(
        [prompt],
        [[Rollout(ids[PROMPT_TOKENS:], "", "length")] * ROWS],
        torch.tensor([1.0, -1.0] * (ROWS // 2), dtype=torch.float64),
        max_new_tokens=length,
        device=device,
    )


def _step_seconds(config: Config, model: Any, rows: Rows, device: torch.device, clock: Callable[[], float]) -> float:
    no_reference = {"kl": config.kl.model_copy(update={"beta": 0.0}), "microbatch_tokens": rows.ids_BL.numel()}
    config = config.model_copy(update=no_reference)
    policy = LocalPolicy(model, config)
    objective = make_objective(config)
    begin = clock()
    policy.update(rows, objective, use_own_logp=True, need_entropy=False)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - begin
