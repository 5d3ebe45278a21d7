"""Similarity of texts by a language model: the cosine of its last hidden states, averaged over the tokens of each text.

The model is any folder or Hub id that transformers loads. Most models give even unrelated texts a cosine far above 0,
so look at the numbers before you choose a threshold:

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
MAX_TOKENS = 512  # of a text; the rest is ignored


@cache
def loaded() -> tuple[Any, Any]:
    """The tokenizer and the model, in float32: its rounding errors are small enough for a matrix of similarities."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    return tokenizer, AutoModel.from_pretrained(MODEL).float().eval().to(DEVICE)


@torch.inference_mode()
def embed(texts: Sequence[str]) -> torch.Tensor:
    """A vector of length 1 for each text, shape (N, H)."""
    tokenizer, model = loaded()
    # Texts of similar length need little padding.
    order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
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
    """The cosine of every pair of texts, shape (N, N); negative ones become 0."""
    unit_NH = embed(texts)
    return (unit_NH @ unit_NH.T).clamp(min=0.0)
