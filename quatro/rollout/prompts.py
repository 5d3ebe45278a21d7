"""Prompts to train on: read, rendered, tokenised once, and dealt out in a seeded order that can be resumed."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from evals.benchmarks.loading import Split, has_splits, load_problems
from evals.benchmarks.problems import Problem, benchmark_name
from evals.benchmarks.prompts import CHAT, Template, find_template, render
from evals.errors import DataError
from evals.files.frames import grouped
from evals.files.strict_json import shown
from quatro.config.blocks import DataConfig, SourceConfig
from quatro.policy.facts import chat_renderer, refuse_unknown_ids
from quatro.rollout.pass_rates import PassRates
from quatro.types import Prompt, Tensor

_AT_ONCE = 512  # texts that the tokenizer is given together: one by one takes it three times as long


@dataclass(frozen=True)
class PromptSet:
    """The prompts that fit; ``skipped`` counts those of a source that are too long (``too_long: skip``)."""

    prompts: list[Prompt]
    skipped: Counter[str]
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()

    @property
    def by_source(self) -> dict[str, list[Prompt]]:
        """The prompts of each source by its name, which is empty where there is only one."""
        return grouped(self.prompts, lambda prompt: prompt.source)


class Loaded(NamedTuple):
    """A source of prompts with its problems; ``note`` says what the pass-rate filter has left out."""

    source: SourceConfig
    problems: list[Problem]
    note: str = ""


def load_sources(config: DataConfig, names: Mapping[str, str] | None = None) -> list[Loaded]:
    """The problems of each source of `data.prompts`, without those that `data.pass_rate` leaves out.

    The problems of a file are called after their source, if it has a name, and not after the stem of the file; a single
    one is called ``names["data.prompts"]``. So a file that is renamed keeps its first name.

    Raises as `evals.benchmarks.loading.load_problems` and `PassRates`.
    """
    rates = None if config.pass_rate is None else PassRates(config.pass_rate)
    found = []
    for number, one in enumerate(config.sources):
        first = (names or {}).get(f"data.prompts.{number}.source" if one.name else "data.prompts")
        split: Split | None = "train" if has_splits(one.source) else None
        problems = load_problems(one.source, split=split, name=one.name or first)
        kept = (problems,) if rates is None else rates.kept(problems, one.source, first or benchmark_name(one.source))
        found.append(Loaded(one, *kept))
    return found


def tokenize_problems(
    sources: Sequence[Loaded],
    config: DataConfig,
    tokenizer: Any,
    *,
    context_limit: int | None = None,
    vocabulary_size: int | None = None,
) -> PromptSet:
    """The prompts of all ``sources`` that fit, one source after the other.

    ``context_limit`` is the number of tokens that the model can read; a prompt must leave room for at least one more.
    ``vocabulary_size`` is the number of ids that it has.

    Raises DataError if a source has no prompts, a prompt is empty or has a token that the model lacks, or is too long
    and ``too_long`` is `refuse`.
    """
    limit = config.max_prompt_tokens
    if context_limit is not None:
        limit = min(limit, context_limit - 1)
    prompts, notes, skipped = list[Prompt](), dict[str, None](), Counter[str]()
    for source, problems, said in sources:
        template, num_before = config.template_of(source), len(prompts)
        for prompt in to_prompts(problems, template, tokenizer):
            if len(prompt.token_ids) <= limit:
                prompts.append(replace(prompt, source=source.name))
            elif config.too_long == "skip":
                skipped[source.name] += 1
            else:
                raise DataError(
                    f"prompt {prompt.id!r} of {prompt.benchmark} has {len(prompt.token_ids)} tokens, and {limit} fit "
                    f"(data.max_prompt_tokens {config.max_prompt_tokens}; the model's context is {context_limit}); "
                    "raise data.max_prompt_tokens, shorten the prompt, or leave such prompts out with "
                    "-s data.too_long=skip"
                )
        if len(prompts) == num_before:
            raise DataError(f"{source.source} holds no prompt of at most {limit} tokens (all are longer)")
        notes |= dict.fromkeys(filter(None, (said, unused_chat_template(template, tokenizer))))
    refuse_unknown_ids(prompts, tokenizer, vocabulary_size)
    total = (num_skipped := skipped.total()) + len(prompts)
    said = f"{num_skipped} of {total} prompts are longer than {limit} tokens and were left out"
    return PromptSet(prompts, skipped, [said] if num_skipped else [], list(notes))


def unused_chat_template(template: Template, tokenizer: Any) -> str | None:
    """What to say if the tokenizer has a chat template and ``template`` does not use it; else None."""
    if template.is_chat or getattr(tokenizer, "chat_template", None) is None:
        return None
    return (
        f"the model's tokenizer has a chat template, which the prompt template {shown(template.name)} does not use; "
        f"the template chat does, and so does a text of your own after `{CHAT}`"
    )


def to_prompts(problems: Sequence[Problem], template: str | Template, tokenizer: Any) -> Iterator[Prompt]:
    """The problems as the model reads them; a chat template brings its own special tokens, as a text may.

    Raises:
        DataError: the chat template makes no prompt, or a prompt without tokens; the tokenizer fails.
        MissingError: ``template`` needs a chat template and the tokenizer has none.
    """
    chat, found = chat_renderer(tokenizer), find_template(template)
    model = getattr(tokenizer, "name_or_path", "") or "this model"
    # A text of one's own may begin with the token that the tokenizer would put before it.
    first = getattr(tokenizer, "bos_token", None)
    has_first = found.name != "plain" and bool(first) and found.user.startswith(str(first))
    for begin in range(0, len(problems), _AT_ONCE):
        some = problems[begin : begin + _AT_ONCE]
        texts = [render(found, problem.problem, chat, model=model) for problem in some]
        try:
            ids = tokenizer(texts, add_special_tokens=found.adds_special_tokens and not has_first)["input_ids"]
        except Exception as error:  # tokenizers raise nothing more special
            raise DataError(f"the tokenizer of {model} cannot read the prompts: {error}") from error
        for problem, text, token_ids in zip(some, texts, ids, strict=True):
            if not token_ids:
                raise DataError(
                    f"prompt {problem.id!r} of {problem.benchmark} is empty after tokenisation: {shown(text)}"
                )
            yield make_prompt(problem, text, tuple(token_ids))


def make_prompt(problem: Problem, text: str, token_ids: tuple[int, ...]) -> Prompt:
    """The prompt of ``problem`` that reads ``text``."""
    answer = None if problem.answer is None else str(problem.answer)
    return Prompt(problem.benchmark, problem.id, problem.problem, answer, text, token_ids, problem.extra)


def digest_prompts(prompts: Sequence[Prompt]) -> str:
    """SHA-256 of token ids, reference answers and tests in their order: of data, template and tokenizer."""
    digest = hashlib.sha256()
    for prompt in prompts:
        digest.update(repr((prompt.benchmark, prompt.id, prompt.answer, prompt.token_ids)).encode("utf-8", "replace"))
        if prompt.extra:
            digest.update(json.dumps(prompt.extra, sort_keys=True).encode("utf-8"))
    return digest.hexdigest()


class PromptStream:
    """Endless batches of prompts. Its state is ``position``: how many prompts it has taken of each source.

    Each epoch of a source has its own permutation, fixed by the seed. The source that is farthest behind its share of
    all prompts (``shares``, by the names of sources) is next; so batches have these shares, and nearly so minibatches.
    """

    def __init__(self, prompts: Sequence[Prompt], seed: int, shares: Mapping[str, float] | None = None) -> None:
        self.prompts = prompts
        self.seed = seed
        self._shares = [1.0] if shares is None else list(shares.values())
        self._pools = [prompts] if shares is None else [[p for p in prompts if p.source == name] for name in shares]
        self.position = (0,) * len(self._pools)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"position": self.position[0] if len(self.position) == 1 else list(self.position)}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        position = plain["position"]
        self.position = tuple(position) if isinstance(position, list) else (position,)

    def next(self, count: int) -> list[Prompt]:
        return [self._take() for _ in range(count)]

    def _take(self) -> Prompt:
        num_taken = sum(self.position) + 1
        behind = [share * num_taken - own for share, own in zip(self._shares, self.position, strict=True)]
        number = behind.index(max(behind))
        pool = self._pools[number]
        epoch, place = divmod(self.position[number], len(pool))
        self.position = tuple(own + (at == number) for at, own in enumerate(self.position))
        seeds = (self.seed, epoch, number) if number else (self.seed, epoch)
        return pool[int(_order(seeds, len(pool))[place])]


@lru_cache(maxsize=32)
def _order(seeds: tuple[int, ...], size: int) -> Any:
    return np.random.default_rng(seeds).permutation(size)
