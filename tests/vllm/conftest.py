"""Small random models that vLLM's CPU attention takes (heads of 32 dimensions), and engines made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class NumberTokenizer:
    """Writes ids as numbers: random weights have no language. Ids 0 to 2 are special."""

    all_special_ids = (0, 1, 2)

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(VOCABULARY)}

    def decode(self, token_ids: Any, skip_special_tokens: bool = True) -> str:
        assert skip_special_tokens
        return " ".join(str(i) for i in token_ids if i not in self.all_special_ids)


VOCABULARY = 64
CONTEXT = 512


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``make_folder(tied=True)``: a Qwen2 of 2 layers whose distributions are far from uniform."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    def make(*, tied: bool, head_dim: int = 32) -> Path:
        config = Qwen2Config(
            vocab_size=VOCABULARY,
            hidden_size=2 * head_dim,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=tied,
            bos_token_id=None,
            eos_token_id=0,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = Qwen2ForCausalLM(config)
            for parameter in model.parameters():
                parameter.data.mul_(4.0)
        folder = tmp_path_factory.mktemp("model")
        model.save_pretrained(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def open_engine() -> Iterator[Callable[..., Any]]:
    """``open_engine(folder, eos_ids=(0,), ...)``; the engine of the call before is closed: there is one a process."""
    from quatro.policy.loading import load_model_config
    from quatro.rollout.engine import Recipe
    from quatro.rollout.vllm import Following, VllmEngine

    opened: list[VllmEngine] = []

    def make(folder: Path, **settings: Any) -> VllmEngine:
        while opened:
            opened.pop().close()
        follows = Following(**{name: settings.pop(name) for name in vars(Following()) if name in settings})
        dtype, longest = settings.pop("dtype", "float32"), settings.pop("max_model_len", CONTEXT)
        recipe = Recipe("vllm", str(folder), dtype, "cpu", longest)
        settings = {"eos_ids": (0, 1, 2), **settings}
        shape = load_model_config(str(folder))
        engine = VllmEngine(recipe, NumberTokenizer(), shape=shape, follows=follows, **settings)
        opened.append(engine)
        return engine

    yield make
    while opened:
        opened.pop().close()
