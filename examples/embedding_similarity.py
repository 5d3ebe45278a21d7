"""How alike answers are to a language model: cosines of its last hidden states, averaged over the tokens of an answer.

The model is any folder or Hub id that transformers loads. Most of them give unrelated texts a cosine far above 0, so
look at the numbers before you choose a threshold:

    export EMBEDDING_MODEL=sentence-transformers/all-MiniLM-L6-v2
    quatro eval similarity samples.jsonl --similarity examples.embedding_similarity:cosine
    quatro eval ucc samples.jsonl --similarity examples.embedding_similarity:cosine --threshold 0.9 --k 16,256
"""

import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from transformers import AutoModel, AutoTokenizer

MODEL = os.environ.get("EMBEDDING_MODEL", "sentence-transformers/all-MiniLM-L6-v2")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BATCH_TEXTS = 32
MAX_TOKENS = 512  # of an answer; the rest of it is not looked at


@cache
def loaded() -> tuple[Any, Any]:
    """The tokenizer and the model in float32, whose rounding a matrix of similarities may have."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer, AutoModel.from_pretrained(MODEL).float().eval().to(DEVICE)


@torch.inference_mode()
def embed(texts: Sequence[str]) -> torch.Tensor:
    """A vector of length 1 for each text, shape (N, H)."""
    tokenizer, model = loaded()
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))  # texts of like length need little padding
    means = []
    for start in range(0, len(order), BATCH_TEXTS):
        batch = [texts[place] for place in order[start : start + BATCH_TEXTS]]
        tokens = tokenizer(batch, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt").to(DEVICE)
        mask_BT = tokens["attention_mask"]
        hidden_BTH = model(input_ids=tokens["input_ids"], attention_mask=mask_BT).last_hidden_state
        means.append((hidden_BTH * mask_BT[..., None]).sum(dim=1) / mask_BT.sum(dim=1, keepdim=True))
    back = torch.tensor(order).argsort()
    return torch.nn.functional.normalize(torch.cat(means).cpu()[back], dim=1)


def cosine(texts: Sequence[str]) -> torch.Tensor:
    """The cosine of every two texts, negative ones as 0, shape (N, N)."""
    unit_NH = embed(texts)
    return (unit_NH @ unit_NH.T).clamp(min=0.0)
