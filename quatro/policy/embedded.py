"""The embedded policies: a tiny Qwen2 that has learnt, from random correct answers, to answer an embedded benchmark.

`model: embedded:countdown` plays countdown, `embedded:code` writes the small functions of codegrammar, and
`embedded:palindrome`, `embedded:shortest-path` and `embedded:spell-backward` play tasks of reasoning-gym; their recipes
stand in `quatro/tasks`. A model is made once by supervised learning on this machine
(about a minute of one core), kept in the cache as a plain Hugging Face folder, and then loaded like any other model.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evals.benchmarks.catalogue import maker_of
from evals.errors import MissingError, UsageError
from evals.files.whole import lock_file, open_like_folder
from quatro.config.blocks import OptimizerConfig
from quatro.config.model import EMBEDDED_MODELS, embedded_benchmark
from quatro.tasks import countdown
from quatro.tasks.warm_start import EOS, EOS_ID, PAD, PAD_ID, UNKNOWN, Vocabulary, WarmStart

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

logger = logging.getLogger(__name__)

WarmStartProgress = Callable[[int, int, float], None]  # (step, steps, loss in nats per answer token)


def cache_root() -> Path:
    """``$QUATRO_CACHE``, else ``~/.cache/quatro``."""
    return Path(os.environ.get("QUATRO_CACHE") or Path.home() / ".cache" / "quatro")


def resolve_model(name: str, *, progress: WarmStartProgress | None = None) -> str:
    """The folder of an embedded model, made if it is not in the cache; any other name is returned as it is.

    Raises:
        UsageError: an `embedded:` name that does not exist.
        MissingError: the cache folder cannot be written.
    """
    if not name.startswith("embedded:"):
        return name
    return str(ensure(recipe_of(name), name=name.removeprefix("embedded:"), progress=progress))


def recipe_of(name: str) -> WarmStart:
    """How the embedded model ``name`` is made; `embedded:countdown@1` is made as `embedded:countdown`, with seed 1.

    Raises:
        UsageError: no embedded model has this name.
    """
    benchmark = embedded_benchmark(name)
    if benchmark is None:
        raise UsageError(
            f"unknown embedded model {name!r}; there are {', '.join(EMBEDDED_MODELS)}, and each with another seed of "
            "its warm start, such as embedded:countdown@1"
        )
    family, _, seed = name.partition("@")
    recipe: WarmStart = maker_of(benchmark).RECIPES[family]
    return replace(recipe, seed=int(seed or 0))


def is_cached(name: str) -> bool:
    """Whether ``name`` needs no warm start: an embedded model in the cache, or any other model."""
    return not name.startswith("embedded:") or _folder(recipe_of(name), name.removeprefix("embedded:")).exists()


def ensure(recipe: WarmStart, *, name: str, progress: WarmStartProgress | None = None) -> Path:
    """The cached folder of ``recipe``; trains it first if need be. Two processes asking at once train it once."""
    folder = _folder(recipe, name)
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock")
        with lock.open("w", encoding="utf-8") as file:
            lock_file(file.fileno(), lock, instead="QUATRO_CACHE=DIR", waits=True)
            if not folder.exists():
                partial = folder.with_suffix(f".partial-{os.getpid()}")
                shutil.rmtree(partial, ignore_errors=True)
                train(recipe, partial, progress=progress)
                partial.rename(folder)
    except PermissionError as error:
        raise MissingError(
            f"the cache folder {folder.parent} cannot be written ({error.strerror}); set QUATRO_CACHE to one that can"
        ) from error
    return folder


def train(recipe: WarmStart, folder: Path, *, progress: WarmStartProgress | None = None) -> None:
    """Supervised learning on random answers; writes the model and its tokenizer to ``folder``."""
    import torch
    from torch.nn.functional import cross_entropy

    logger.info("warm start: %d steps x %d rows of random answers", recipe.steps, recipe.rows)
    rows = recipe.draw(recipe.steps * recipe.rows)
    token_ids = torch.from_numpy(rows.token_ids).view(recipe.steps, recipe.rows, -1)
    mask = torch.from_numpy(rows.answer_mask).view(recipe.steps, recipe.rows, -1)
    tokenizer = make_tokenizer(recipe.max_positions, recipe.vocabulary)
    losses: list[float] = []

    # One thread: the result must not depend on how many cores this machine has.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = make_model(recipe)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.999), weight_decay=0.0)
        rates = OptimizerConfig(lr=recipe.lr, schedule="cosine", warmup_steps=recipe.warmup_steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates.lr_share(step, recipe.steps))
        for step in range(recipe.steps):
            is_answer = mask[step][:, 1:]
            hidden = model.model(token_ids[step][:, :-1], use_cache=False).last_hidden_state
            loss = cross_entropy(model.lm_head(hidden[is_answer]), token_ids[step][:, 1:][is_answer])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            if progress is not None:
                progress(step + 1, recipe.steps, losses[-1])
            if recipe.is_enough(losses):
                break
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():
        open_like_folder(path)


def make_model(recipe: WarmStart) -> Qwen2ForCausalLM:
    """The untrained architecture, initialised from torch's global generator."""
    from quatro.policy.loading import import_generation

    import_generation()
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(recipe.vocabulary.tokens),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        max_position_embeddings=recipe.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=EOS_ID,
        pad_token_id=PAD_ID,
        dtype="float32",
    )
    return Qwen2ForCausalLM(config)


def make_tokenizer(max_positions: int, vocabulary: Vocabulary = countdown.VOCABULARY) -> PreTrainedTokenizerFast:
    """One token for each word between spaces, or for each piece that the vocabulary's pattern finds.

    What is decoded of pieces has nothing between them.
    """
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split, WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel(vocabulary.ids, unk_token=UNKNOWN))
    if vocabulary.pattern:
        tokenizer.pre_tokenizer = Split(Regex(vocabulary.pattern), "isolated")
        tokenizer.decoder = Fuse()
    else:
        tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
    )


def _folder(recipe: WarmStart, name: str) -> Path:
    return cache_root() / "embedded" / f"{name}-{recipe.digest}"
