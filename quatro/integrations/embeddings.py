"""Embeddings of texts as sentence-transformers computes them, by transformers alone: `--similarity embed:MODEL`."""

# Axes: N texts, B of them in a batch, T tokens, H numbers of an embedding.

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch

from evals.errors import DataError
from quatro.config.paths import folder_digest
from quatro.policy.device import find_device
from quatro.policy.loading import load_headed, settings_in, tried
from quatro.policy.model_files import require_part

logger = logging.getLogger(__name__)

BATCH_TEXTS = 32
MEAN, FIRST = "pooling_mode_mean_tokens", "pooling_mode_cls_token"
_FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "pytorch_model*.bin"]


def embedder(name: str) -> tuple[str, Callable[[Sequence[str]], list[torch.Tensor]]]:
    """`NAME@REVISION` of a folder (the digest of its files) or Hub id (its commit), and what makes vectors of texts.

    Raises MissingError if there is no such model within reach, and DataError if it makes a vector of those of a
    text's tokens in another way than by their mean or the first one.
    """
    require_part(name, "model")
    place, label = name, f"{Path(name).resolve().name}@{folder_digest(Path(name))[:12]}"
    if not Path(name).is_dir():
        from huggingface_hub import snapshot_download

        place = tried(name, "model", lambda: snapshot_download(name, allow_patterns=_FILES))
        label = f"{name}@{Path(place).name[:12]}"
    stated = settings_in(place, "1_Pooling/config.json").items()
    steps = [key for key, value in stated if value is True and key.startswith("pooling_mode")] or [MEAN]
    steps += [path.name for path in Path(place).glob("[2-9]_*") if not path.name.endswith("_Normalize")]
    if len(steps) > 1 or steps[0] not in (MEAN, FIRST):
        raise DataError(f"{place}: its embeddings need {', '.join(steps)}; expected {MEAN} or {FIRST} alone")
    loaded = cache(lambda: load_headed(place, torch.float32, find_device("auto"), head=""))

    @torch.inference_mode()
    def embed(texts: Sequence[str]) -> list[torch.Tensor]:
        model, tokenizer = loaded()
        known = settings_in(place, "sentence_bert_config.json").get("max_seq_length") or tokenizer.model_max_length
        longest = min(int(known), getattr(model.config, "max_position_embeddings", None) or 512)
        tokenizer.pad_token, tokenizer.padding_side = tokenizer.pad_token or tokenizer.eos_token, "right"
        rows: list[torch.Tensor] = []
        for start in range(0, len(texts), BATCH_TEXTS):
            batch = [text.encode("utf-8", "replace").decode() for text in texts[start : start + BATCH_TEXTS]]
            tokens = tokenizer(batch, padding=True, truncation=True, max_length=longest, return_tensors="pt")
            ids_BT, mask_BT = (tokens[key].to(model.device) for key in ("input_ids", "attention_mask"))
            hidden_BTH = model(input_ids=ids_BT, attention_mask=mask_BT).last_hidden_state
            mean_BH = (hidden_BTH * mask_BT[..., None]).sum(dim=1) / mask_BT.sum(dim=1, keepdim=True).clamp(min=1)
            rows.extend((hidden_BTH[:, 0] if steps == [FIRST] else mean_BH).cpu())
            if mask_BT.shape[1] == longest:
                logger.warning("%s reads %d tokens of a text; longer ones of a problem were cut", name, longest)
        return rows

    return label if steps == [MEAN] else f"{label}-first", embed
