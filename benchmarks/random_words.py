"""Models of random weights have no language: ids as numbers, or as words t0, t1, ..., and draws and a run of such."""

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from quatro.rollout.engine import Sampler, rollout_seed
from quatro.types import Prompt, Sampling


class NumberTokenizer:
    """Writes ids as numbers: random weights have no language."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, token_ids))


class Draws(NamedTuple):
    """``n`` responses of at most ``limit`` tokens to each of ``prompts``, in texts too; ``stops`` end one."""

    model: Any
    tokenizer: Any
    prompts: Sequence[Prompt]
    n: int
    limit: int
    stops: Sequence[int]
    pad: int

    def by_generate(self) -> list[int]:
        """The lengths of those by transformers.generate, from prompts padded on the left."""
        import torch

        width = max(len(prompt.token_ids) for prompt in self.prompts)
        gaps = [width - len(prompt.token_ids) for prompt in self.prompts]
        rows = [[self.pad] * gap + list(prompt.token_ids) for gap, prompt in zip(gaps, self.prompts, strict=True)]
        mask = [[0] * gap + [1] * (width - gap) for gap in gaps]
        with torch.inference_mode():
            drawn = self.model.generate(
                input_ids=torch.tensor(rows, device=self.model.device).repeat_interleave(self.n, 0),
                attention_mask=torch.tensor(mask, device=self.model.device).repeat_interleave(self.n, 0),
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=self.limit,
                eos_token_id=list(self.stops),
                pad_token_id=self.pad,
            )[:, width:]
        is_stop = torch.isin(drawn, torch.tensor(self.stops, device=drawn.device))
        lengths = torch.where(is_stop.any(1), is_stop.int().argmax(1) + 1, drawn.shape[1]).tolist()
        for ids, length in zip(drawn.tolist(), lengths, strict=True):
            self.tokenizer.decode(ids[:length], skip_special_tokens=True)
        return list(lengths)

    def by_engine(self, engine: Sampler, repeat: int) -> list[int]:
        """The lengths of those by an engine of ours."""
        seeds = [[rollout_seed(0, repeat, prompt.id, j) for j in range(self.n)] for prompt in self.prompts]
        groups = engine.generate(self.prompts, seeds, Sampling(max_new_tokens=self.limit))
        return [len(rollout.token_ids) for group in groups for rollout in group]


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
