"""Prompts to train on: read, rendered, tokenised once, and dealt out in a seeded order that can be resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evals.benchmarks.loading import has_splits, load_problems
from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import CHAT, Template, find_template, render
from evals.errors import DataError
from evals.files.strict_json import shown
from quatro.config.blocks import DataConfig
from quatro.policy.facts import chat_renderer, refuse_unknown_ids
from quatro.types import Prompt, Tensor

_AT_ONCE = 512  # texts that the tokenizer is given together: one by one takes it three times as long


@dataclass(frozen=True)
class PromptSet:
    """The prompts that fit; ``num_skipped`` have more than ``limit`` tokens and were left out (``too_long: skip``)."""

    prompts: list[Prompt]
    num_skipped: int
    limit: int
    notes: Sequence[str] = ()

    @property
    def warnings(self) -> list[str]:
        total = self.num_skipped + len(self.prompts)
        text = f"{self.num_skipped} of {total} prompts are longer than {self.limit} tokens and were left out"
        return [text] if self.num_skipped else []


def training_problems(config: DataConfig, name: str | None = None) -> list[Problem]:
    """The problems of `data.prompts`; of a file, ``name`` is what they are called, in place of its stem.

    Raises:
        As `evals.benchmarks.loading.load_problems`.
    """
    return load_problems(config.prompts, split="train" if has_splits(config.prompts) else None, name=name)


def tokenize_problems(
    problems: Sequence[Problem],
    config: DataConfig,
    tokenizer: Any,
    *,
    context_limit: int | None = None,
    vocabulary_size: int | None = None,
) -> PromptSet:
    """The prompts of ``problems`` that fit.

    ``context_limit`` is the number of tokens that the model can read; a prompt must leave room for at least one more.
    ``vocabulary_size`` is the number of ids that it has.

    Raises DataError if there are no prompts, a prompt is empty or has a token that the model lacks, or is too long and
    ``too_long`` is `refuse`.
    """
    limit = config.max_prompt_tokens
    if context_limit is not None:
        limit = min(limit, context_limit - 1)
    prompts: list[Prompt] = []
    num_skipped = 0
    template = config.prompt_template
    for prompt in to_prompts(problems, template, tokenizer):
        if len(prompt.token_ids) <= limit:
            prompts.append(prompt)
        elif config.too_long == "skip":
            num_skipped += 1
        else:
            raise DataError(
                f"prompt {prompt.id!r} of {prompt.benchmark} has {len(prompt.token_ids)} tokens, and {limit} fit "
                f"(data.max_prompt_tokens {config.max_prompt_tokens}; the model's context is {context_limit}); raise "
                "data.max_prompt_tokens, shorten the prompt, or leave such prompts out with -s data.too_long=skip"
            )
    if not prompts:
        raise DataError(f"{config.prompts} holds no prompt of at most {limit} tokens ({num_skipped} were too long)")
    refuse_unknown_ids(prompts, tokenizer, vocabulary_size)
    notes = [note] if (note := unused_chat_template(template, tokenizer)) else []
    return PromptSet(prompts, num_skipped, limit, notes)


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
    """Endless batches of prompts; each epoch has its own permutation, fixed by the seed. Its state is ``position``."""

    def __init__(self, prompts: Sequence[Prompt], seed: int, *, position: int = 0) -> None:
        self.prompts = prompts
        self.seed = seed
        self.position = position

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        return {}, {"position": self.position}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        self.position = plain["position"]

    def next(self, count: int) -> list[Prompt]:
        batch: list[Prompt] = []
        while len(batch) < count:
            epoch, offset = divmod(self.position, len(self.prompts))
            order = np.random.default_rng([self.seed, epoch]).permutation(len(self.prompts))
            taken = order[offset : offset + count - len(batch)]
            batch.extend(self.prompts[i] for i in taken)
            self.position += len(taken)
        return batch
