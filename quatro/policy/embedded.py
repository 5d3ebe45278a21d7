"""Models that are made on this machine, once, and kept in the cache as plain Hugging Face folders.

`model: embedded:countdown` is a tiny Qwen2 that has learnt, from random correct answers, to play countdown;
`embedded:code` writes the small functions of codegrammar, and `embedded:palindrome`, `embedded:shortest-path` and
`embedded:spell-backward` play tasks of reasoning-gym (about a minute of one core each; the recipes stand in
`quatro/tasks`). `model: smollm2` and any GGUF file are unpacked by `gguf.py`, and `model: smollm2-started` is SmolLM2
after a supervised start on word problems (some minutes of two cores).
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.benchmarks.catalogue import maker_of
from evals.errors import MissingError
from evals.files.whole import cache_root, lock_file, open_like_folder
from quatro.config.blocks import OptimizerConfig
from quatro.config.model import EMBEDDED_MODELS, known_model
from quatro.policy import gguf
from quatro.tasks import countdown
from quatro.tasks.warm_start import EOS, EOS_ID, PAD, PAD_ID, UNKNOWN, Vocabulary, WarmStart, WarmstartRows
from quatro.tasks.word_problems import SMOLLM2, STARTED, StartRecipe

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

logger = logging.getLogger(__name__)

Progress = gguf.Progress


def is_made(name: str) -> bool:
    """Whether ``name`` is a model that is made on this machine: an embedded one, SmolLM2, or a GGUF file."""
    return name.startswith("embedded:") or gguf.is_gguf(name) or name == STARTED


def resolve_model(name: str, *, progress: Progress = gguf.quiet) -> str:
    """The folder of a model that is made here, once, if it is not in the cache; any other name is returned as it is.

    Raises:
        UsageError: an `embedded:` name that does not exist.
        MissingError: the cache folder cannot be written; or as `gguf.make`.
        DataError: as `gguf.make`.
    """
    if not is_made(name):
        return name

    def make(folder: Path) -> None:
        if gguf.is_gguf(name):
            gguf.make(name, folder, progress)
        elif name == STARTED:
            start(StartRecipe(), resolve_model(SMOLLM2, progress=progress), folder, progress)
        else:
            train(recipe_of(name), folder, progress=progress)

    return str(_once(_folder(name), make))


def recipe_of(name: str) -> WarmStart:
    """How the embedded model ``name`` is made; `embedded:countdown@1` is made as `embedded:countdown`, with seed 1.

    Raises UsageError if no embedded model has this name.
    """
    family, _, seed = known_model(name).partition("@")
    recipe: WarmStart = maker_of(EMBEDDED_MODELS[family]).RECIPES[family]
    return replace(recipe, seed=int(seed or 0))


def is_cached(name: str) -> bool:
    """Whether nothing has to be made: ``name`` is in the cache, or a model that is not made here."""
    return not is_made(name) or _folder(name).exists()


def making_of(name: str) -> str:
    """What making ``name`` takes, for a person."""
    if name.startswith("embedded:"):
        return "teaching it its task (once, about a minute)"
    if name == STARTED:
        return "a supervised start of SmolLM2 on word problems (once, some minutes of two cores)"
    return "making a folder of the GGUF file" + (" (once, a download of 93 MB)" if name == SMOLLM2 else " (once)")


def require(name: str) -> None:
    """Raises what making ``name`` would raise, as far as that shows without a download."""
    if name.startswith("embedded:"):
        recipe_of(name)
    elif not is_cached(name):
        gguf.require_reader(name)


def shape_name(name: str) -> str | None:
    """Which model has the tokenizer and the shape of ``name``, which is still to be made; None for embedded ones."""
    return None if name.startswith("embedded:") else SMOLLM2 if name == STARTED else name


def _folder(name: str) -> Path:
    if gguf.is_gguf(name):
        return gguf.folder_for(name, cache_root())
    if name == STARTED:
        return cache_root() / "started" / f"smollm2-{StartRecipe().digest}"
    return cache_root() / "embedded" / f"{name.removeprefix('embedded:')}-{recipe_of(name).digest}"


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    """``folder``, which ``make`` writes if it is not there. Two processes asking at once make it once."""
    if folder.exists():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = folder.with_suffix(".lock")
        with lock.open("w", encoding="utf-8") as file:
            lock_file(file.fileno(), lock, instead="QUATRO_CACHE=DIR", waits=True)
            if not folder.exists():
                for left in folder.parent.glob(f"{folder.name}.partial-*"):  # of a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                partial = folder.with_name(f"{folder.name}.partial-{os.getpid()}")
                partial.mkdir()
                try:
                    make(partial)
                    for path in partial.iterdir():
                        open_like_folder(path)
                    partial.rename(folder)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    except PermissionError as error:
        raise MissingError(
            f"the cache folder {folder.parent} cannot be written ({error.strerror}); set QUATRO_CACHE to one that can"
        ) from error
    return folder


def train(recipe: WarmStart, folder: Path, *, progress: Progress = gguf.quiet) -> None:
    """Supervised learning on random answers; writes the model and its tokenizer to ``folder``."""
    import torch

    logger.info("warm start: %d steps x %d rows of random answers", recipe.steps, recipe.rows)
    rows = recipe.draw(recipe.steps * recipe.rows)
    token_ids = torch.from_numpy(rows.token_ids).view(recipe.steps, recipe.rows, -1)
    mask = torch.from_numpy(rows.answer_mask).view(recipe.steps, recipe.rows, -1)
    # One thread: the result must not depend on how many cores this machine has.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = make_model(recipe)
        _learn(model, zip(token_ids, mask, strict=True), recipe, progress)
    finally:
        torch.set_num_threads(threads)
    model.save_pretrained(folder)
    make_tokenizer(recipe.max_positions, recipe.vocabulary).save_pretrained(folder)


def start(recipe: StartRecipe, before: str, folder: Path, progress: Progress = gguf.quiet) -> None:
    """Teaches the model in the folder ``before`` to solve word problems, and to end with its own end token."""
    import torch

    from quatro.policy.device import find_device
    from quatro.policy.loading import load_model, load_tokenizer

    tokenizer = load_tokenizer(before)
    model = load_model(before, torch.float32, device := find_device("auto")).train()

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        pairs = recipe.pairs()
        for first in range(0, recipe.steps * recipe.rows, recipe.rows):
            batch = pairs[first : first + recipe.rows]
            ids = [(tokenizer(prompt).input_ids, tokenizer(answer).input_ids) for prompt, answer in batch]
            rows = WarmstartRows.of(ids, eos_id=tokenizer.eos_token_id, pad_id=tokenizer.eos_token_id)
            yield torch.from_numpy(rows.token_ids).to(device), torch.from_numpy(rows.answer_mask).to(device)

    _learn(model, batches(), recipe, progress)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _learn(
    model: Any, batches: Iterable[tuple[Tensor, Tensor]], recipe: WarmStart | StartRecipe, progress: Progress
) -> None:
    """A step of AdamW on each of ``batches``: token ids, and which of them are answers to be learnt."""
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.999), weight_decay=0.0)
    rates = OptimizerConfig(lr=recipe.lr, schedule="cosine", warmup_steps=recipe.warmup_steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rates.lr_share(step, recipe.steps))
    losses: list[float] = []
    for token_ids, mask in batches:
        is_answer = mask[:, 1:]
        hidden = model.model(token_ids[:, :-1], use_cache=False).last_hidden_state
        loss = cross_entropy(model.lm_head(hidden[is_answer]), token_ids[:, 1:][is_answer])
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.max_grad_norm)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        progress(len(losses), recipe.steps, f"loss {losses[-1]:.2f}")
        if recipe.is_enough(losses):
            break


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
