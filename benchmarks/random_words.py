"""Models of random weights have no language: ids as numbers, or as words t0, t1, ..., and a timed run on such words."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch


class NumberTokenizer:
    """Writes ids as numbers: random weights have no language."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, token_ids))


def with_generate(
    model: Any, prompts: Iterable[Sequence[int]], n: int, stops: Sequence[int], limit: int, pad: int
) -> list[list[int]]:
    """``n`` responses to each of ``prompts``, padded on the left, by transformers.generate."""
    import torch

    prompts = list(prompts)
    width = max(map(len, prompts))
    rows = [[pad] * (width - len(ids)) + list(ids) for ids in prompts]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in prompts]
    with torch.inference_mode():
        drawn = model.generate(
            input_ids=torch.tensor(rows, device=model.device).repeat_interleave(n, 0),
            attention_mask=torch.tensor(mask, device=model.device).repeat_interleave(n, 0),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=limit,
            eos_token_id=list(stops),
            pad_token_id=pad,
        )[:, width:]
    is_stop = torch.isin(drawn, torch.tensor(stops, device=drawn.device))
    lengths = torch.where(is_stop.any(1), is_stop.int().argmax(1) + 1, drawn.shape[1]).tolist()
    return [ids[:length] for ids, length in zip(drawn.tolist(), lengths, strict=True)]


def write_words(folder: Path, model: Any, prompts: Iterable[Sequence[int]]) -> None:
    """``model`` with a tokenizer of words t0, t1, ..., the last of them the padding, and ``prompts`` of such words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    pad = model.config.vocab_size - 1
    model.generation_config.eos_token_id = model.config.eos_token_id
    model.save_pretrained(folder / "model")
    words = Tokenizer(models.WordLevel({f"t{i}": i for i in range(pad + 1)}, unk_token=f"t{pad}"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="t0", pad_token=f"t{pad}")
    tokenizer.save_pretrained(folder / "model")
    write_prompts(folder, [" ".join(f"t{i}" for i in ids) for ids in prompts])


def write_prompts(folder: Path, texts: Iterable[str]) -> None:
    rows = [{"id": str(number), "problem": text, "answer": "1"} for number, text in enumerate(texts)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def timed_run(
    folder: Path,
    method: str,
    overrides: Sequence[str],
    *,
    clock: Callable[[], float],
    is_correct: Callable[[Any, Any], bool],
    observer: Callable[[Mapping[str, float]], None],
) -> None:
    """Train on what `write_words` put into ``folder``; ``clock`` times the phases, and the reward takes no process."""
    from quatro.config import load_config
    from quatro.rewards.base import VerifiedReward
    from quatro.runs.directory import RunDir
    from quatro.train import train

    (folder / "run.yaml").write_text(f"method: {{name: {method}}}\n", encoding="utf-8")
    inputs = [f"model={folder / 'model'}", f"data.prompts={folder / 'prompts.jsonl'}", "data.template=plain"]
    config = load_config(folder / "run.yaml", overrides=[*inputs, "checkpoint.every=0", *overrides])
    with (
        patch("quatro.loop.position.time", SimpleNamespace(monotonic=clock)),
        patch("quatro.launch.begin.make_reward", lambda _: VerifiedReward(is_correct)),
        tempfile.TemporaryDirectory(dir=folder) as parent,
        RunDir.create(Path(parent) / "run", config) as run,
    ):
        train(config, run, observer=observer)
