"""A tiny model, and the same one with an adapter that changes something."""

from __future__ import annotations

import pytest
import torch

from quatro.config.blocks import LoraConfig
from quatro.policy import lora
from quatro.policy.loading import load_model

IDS = torch.arange(2, 12)[None]


@pytest.fixture
def base(tiny_folder):
    return load_model(str(tiny_folder), torch.float32, "cpu")


@pytest.fixture
def adapted(tiny_folder, stir):
    """A policy whose adapter changes something."""
    model = load_model(str(tiny_folder), torch.float32, "cpu")
    lora.attach(model, LoraConfig(rank=4), seed=1)
    stir(model)
    return model


@pytest.fixture
def stir():
    """``stir(model)``: its adapter changes something from then on."""

    def change(model) -> None:
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for layer in lora.adapted_layers(model).values():
                weight = layer.lora_B["default"].weight
                weight.copy_(0.1 * torch.randn(weight.shape, generator=generator))

    return change


@pytest.fixture
def logits():
    """``logits(model)``: those of one fixed row."""

    @torch.no_grad()
    def of(model):
        return model(input_ids=IDS, use_cache=False).logits

    return of
