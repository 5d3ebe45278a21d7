"""The embedded policies: a tiny Qwen2 that has learnt, from random correct answers, to answer an embedded benchmark.

`model: embedded:countdown` plays countdown, `embedded:code` writes the small functions of codegrammar, and
`embedded:palindrome`, `embedded:shortest-path` and `embedded:spell-backward` play the tasks of reasoning-gym that
`evals.benchmarks.gym.compact` writes in a few characters. A model is made once by supervised learning on this machine
(about a minute of one core), kept in the cache as a plain Hugging Face folder, and then loaded like any other model.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from evals.benchmarks import characters, codegrammar, countdown
from evals.benchmarks.countdown import WarmstartRows
from evals.errors import MissingError, UsageError
from evals.files.lock import lock_file
from quatro.policy.lean import import_generation

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

logger = logging.getLogger(__name__)

WarmStartProgress = Callable[[int, int, float], None]  # (step, steps, loss in nats per answer token)


class Vocabulary(Protocol):
    """What an embedded model needs of its benchmark's module."""

    TOKENS: tuple[str, ...]
    TOKEN_IDS: dict[str, int]
    PAD_ID: int
    EOS_ID: int


class JoinedVocabulary(Vocabulary, Protocol):
    """A vocabulary whose tokens follow each other without a space; ``TOKEN_PATTERN`` finds them in a text."""

    TOKEN_PATTERN: str


@dataclass(frozen=True)
class WarmStart:
    """Architecture and training of an embedded policy; its hash names the cached folder."""

    vocabulary: ClassVar[Vocabulary] = countdown

    hidden_size: int = 64
    num_heads: int = 2  # head_dim 32, the smallest that vLLM's CPU attention takes
    num_layers: int = 2
    mlp_size: int = 192
    max_positions: int = 64
    steps: int = 1200
    rows: int = 128
    lr: float = 4e-3
    warmup_steps: int = 100
    max_grad_norm: float = 1.0
    random_target_share: float = 0.0
    seed: int = 0
    recipe: int = 1  # raise when the code below changes what comes out

    @property
    def digest(self) -> str:
        vocabulary = " ".join(self.vocabulary.TOKENS)
        text = json.dumps([asdict(self), vocabulary], sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()[:16]

    def draw(self, num_rows: int) -> WarmstartRows:
        """The rows to learn from, the same in every call."""
        rng = np.random.default_rng(self.seed)
        # The model of seed 0 is older than the benchmark countdown-600 and has seen a part of its problems.
        held_out: tuple[countdown.Split, ...] = ("test", "more") if self.seed else ("test",)
        return countdown.warmstart_rows(rng, num_rows, random_target_share=self.random_target_share, held_out=held_out)

    def make_tokenizer(self) -> PreTrainedTokenizerFast:
        """The tokenizer of the benchmark's vocabulary."""
        return make_tokenizer(self.max_positions)

    def is_enough(self, losses: Sequence[float]) -> bool:
        """Whether training ends before its last step, from the loss of each step so far."""
        return False


@dataclass(frozen=True)
class CodeWarmStart(WarmStart):
    """As WarmStart, for codegrammar. It ends once the mean loss of 20 steps is at ``enough_loss``.

    Pass@1 rises from 0.05 to 0.5 within two hundred steps, sooner or later by chance; the loss says where it stands.
    """

    vocabulary: ClassVar[Vocabulary] = codegrammar
    rows: int = 96
    enough_loss: float = 0.35

    def draw(self, num_rows: int) -> WarmstartRows:
        """Right bodies of random training problems."""
        return codegrammar.warmstart_rows(np.random.default_rng(self.seed), num_rows)

    def make_tokenizer(self) -> PreTrainedTokenizerFast:
        """Tokens are pieces of text that follow each other without a space, so what is decoded is Python's own."""
        return _joined_tokenizer(codegrammar, self.max_positions)

    def is_enough(self, losses: Sequence[float]) -> bool:
        """Whether the mean loss of the last 20 steps is low enough."""
        return len(losses) >= 20 and float(np.mean(losses[-20:])) <= self.enough_loss


@dataclass(frozen=True)
class CharacterWarmStart(WarmStart):
    """As WarmStart, for ``benchmark``, a task of reasoning-gym; many of its rows have a wrong answer (``wrong_share``).

    So the policy begins with a Pass@1 that leaves room.
    """

    vocabulary: ClassVar[Vocabulary] = characters
    benchmark: str = "palindrome"
    wrong_share: float = 0.35
    hidden_size: int = 96
    num_heads: int = 3
    steps: int = 800
    rows: int = 96

    def draw(self, num_rows: int) -> WarmstartRows:
        """Answers to problems of a third split, which are neither training nor test problems."""
        rng = np.random.default_rng(self.seed)
        return characters.warmstart_rows(self.benchmark, rng, num_rows, wrong_share=self.wrong_share)

    def make_tokenizer(self) -> PreTrainedTokenizerFast:
        """Each character is a token."""
        return _joined_tokenizer(characters, self.max_positions)


EMBEDDED = {
    "embedded:countdown": WarmStart(),
    # 40 % of the rows carry a random target: a base that leaves many problems unsolved, for flip rates.
    "embedded:countdown-hard": WarmStart(random_target_share=0.4),
    "embedded:code": CodeWarmStart(),
    "embedded:palindrome": CharacterWarmStart(steps=310),
    "embedded:shortest-path": CharacterWarmStart(benchmark="shortest-path", wrong_share=0.25, steps=400),
    "embedded:spell-backward": CharacterWarmStart(benchmark="spell-backward", wrong_share=0.6, steps=600),
}


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
    family, at, seed = name.partition("@")
    if family not in EMBEDDED or (at and not re.fullmatch("0|[1-9][0-9]{0,8}", seed)):
        raise UsageError(
            f"unknown embedded model {name!r}; there are {', '.join(EMBEDDED)}, and each with another seed of its "
            "warm start, such as embedded:countdown@1"
        )
    return replace(EMBEDDED[family], seed=int(seed or 0))


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
        with _lock(folder.with_suffix(".lock")):
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
    tokenizer = recipe.make_tokenizer()
    losses: list[float] = []

    # One thread: the result must not depend on how many cores this machine has.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(recipe.seed)
            model = make_model(recipe)
        optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.lr, betas=(0.9, 0.999), weight_decay=0.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _warmup_cosine(step, recipe))
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


def make_model(recipe: WarmStart) -> Qwen2ForCausalLM:
    """The untrained architecture, initialised from torch's global generator."""
    import_generation()
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=len(recipe.vocabulary.TOKENS),
        hidden_size=recipe.hidden_size,
        intermediate_size=recipe.mlp_size,
        num_hidden_layers=recipe.num_layers,
        num_attention_heads=recipe.num_heads,
        num_key_value_heads=recipe.num_heads,
        max_position_embeddings=recipe.max_positions,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=recipe.vocabulary.EOS_ID,
        pad_token_id=recipe.vocabulary.PAD_ID,
        dtype="float32",
    )
    return Qwen2ForCausalLM(config)


def make_tokenizer(max_positions: int) -> PreTrainedTokenizerFast:
    """One token per white-space separated word of the countdown vocabulary."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    words = Tokenizer(WordLevel(countdown.TOKEN_IDS, unk_token="_"))
    words.pre_tokenizer = WhitespaceSplit()
    return _fast_tokenizer(words, max_positions)


def _joined_tokenizer(vocabulary: JoinedVocabulary, max_positions: int) -> PreTrainedTokenizerFast:
    """One token for each piece of the vocabulary; a text is its tokens with nothing between them."""
    from tokenizers import Regex, Tokenizer
    from tokenizers.decoders import Fuse
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split

    pieces = Tokenizer(WordLevel(vocabulary.TOKEN_IDS, unk_token="_"))
    pieces.pre_tokenizer = Split(Regex(vocabulary.TOKEN_PATTERN), "isolated")
    pieces.decoder = Fuse()
    return _fast_tokenizer(pieces, max_positions)


def _fast_tokenizer(tokenizer: Tokenizer, max_positions: int) -> PreTrainedTokenizerFast:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="_",
        model_max_length=max_positions,
        clean_up_tokenization_spaces=False,
    )


def _warmup_cosine(step: int, recipe: WarmStart) -> float:
    if step < recipe.warmup_steps:
        return (step + 1) / recipe.warmup_steps
    share = (step - recipe.warmup_steps) / max(1, recipe.steps - recipe.warmup_steps)
    return 0.5 * (1.0 + math.cos(math.pi * share))


def _folder(recipe: WarmStart, name: str) -> Path:
    return cache_root() / "embedded" / f"{name}-{recipe.digest}"


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    with path.open("w", encoding="utf-8") as file:
        lock_file(file.fileno(), path, instead="QUATRO_CACHE=DIR", waits=True)
        yield
