"""Texts as tokens, fast: no token but those of code holds white space, so a text's tokens are its words' tokens.

The responses to one problem share most of their words. Splitting at white space and looking words up runs in C; the
regular expressions then see each different word once instead of each occurrence.
"""

# Axes: U texts, W different words, V different tokens; a ragged flat array holds one row after another.
from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from evals.errors import UsageError

Integers = NDArray[np.int64]

# `math` keeps what sklearn's pattern drops: one-character tokens (x, 2, +, =) and LaTeX commands.
_MATH_TOKEN = re.compile(r"\\[A-Za-z]+|[^\W\d_]+|\d+(?:\.\d+)?|[^\w\s]|_")
_SKLEARN_TOKEN = re.compile(r"(?u)\b\w\w+\b")
_ROUGE_TOKEN = re.compile(r"[a-z0-9]+")
# Strings, identifiers, numbers, escapes outside strings, operators, and any other character.
_CODE_TOKEN = re.compile(
    r"""
    (?:[BbFfRrUu]{1,2})?(?:'(?:[^'\\\n]|\\.)*' | "(?:[^"\\\n]|\\.)*")
    | [^\W\d]\w* | \d[\w.]*(?:(?<=\d[Ee])[-+]\d+)? | \\.
    | \.\.\. | -> | := | (?:\*\*|//|<<|>>)=? | [-+*/%&|^@=!<>]= | [^\w\s]
    """,
    re.VERBOSE,
)

TOKENISERS: Mapping[str, Callable[[str], list[str]]] = {
    "math": lambda text: _MATH_TOKEN.findall(text.lower()),
    "sklearn": lambda text: _SKLEARN_TOKEN.findall(text.lower()),
    "whitespace": lambda text: text.lower().split(),
    "code": _CODE_TOKEN.findall,
}


def rouge_tokens(text: str) -> list[str]:
    """The tokens of rouge_score without its stemmer."""
    return _ROUGE_TOKEN.findall(text.lower())


def check_tokens(tokens: str) -> None:
    """Raises UsageError for an unknown tokeniser."""
    if tokens not in TOKENISERS:
        raise UsageError(f"unknown tokens {tokens!r}; choose from {', '.join(TOKENISERS)}")


class Numbered(NamedTuple):
    """Rows of strings as numbers: ``strings`` by first appearance, row r is ``flat[starts[r] : starts[r + 1]]``."""

    strings: list[str]
    flat: Integers
    starts: Integers


def split_words(texts: Sequence[str]) -> Numbered:
    """The lower-cased words of every text."""
    return _numbered([text.lower().split() for text in texts])


def as_words(texts: Sequence[str]) -> Numbered:
    """Every text as a single word, its case kept."""
    return Numbered([*texts], np.arange(len(texts)), np.arange(len(texts) + 1))


def token_counts(words: Numbered, tokens: str) -> sparse.csr_matrix:
    """How often each token (column, by first appearance) stands in each text (row), shape (U, V) float64."""
    found = _numbered([TOKENISERS[tokens](word) for word in words.strings])
    num_words, num_tokens = len(words.strings), max(len(found.strings), 1)
    # Repeated entries of a row add up in the product.
    words_UW = sparse.csr_matrix(
        (np.ones(len(words.flat)), words.flat, words.starts), shape=(len(words.starts) - 1, num_words)
    )
    tokens_WV = sparse.csr_matrix((np.ones(len(found.flat)), found.flat, found.starts), shape=(num_words, num_tokens))
    count_UV = words_UW @ tokens_WV
    count_UV.sort_indices()
    return count_UV


def rouge_strings(words: Numbered) -> list[str]:
    """Each text with one character for each of its ROUGE tokens: equal tokens of two texts, equal characters.

    Characters let rapidfuzz compare 64 tokens at a time, and frequent tokens get the characters it looks up fastest.
    """
    found = _numbered([rouge_tokens(word) for word in words.strings])
    length_W = np.diff(found.starts)
    length_flat = length_W[words.flat]
    ends = np.cumsum(length_flat)
    num_tokens = int(ends[-1]) if len(ends) else 0
    # The i-th token of a word that begins at position p of all texts is the word's token i = position - p.
    begins = np.repeat(ends - length_flat, length_flat)
    token = found.flat[np.repeat(found.starts[words.flat], length_flat) + np.arange(num_tokens) - begins]
    starts_U = np.concatenate([[0], ends])[words.starts]
    character = _characters(token, np.repeat(np.arange(len(starts_U) - 1), np.diff(starts_U)), len(found.strings))[
        token
    ]
    return [
        character[start:stop].astype("<u4").tobytes().decode("utf-32-le", "surrogatepass")
        for start, stop in pairwise(starts_U)
    ]


def _characters(token: Integers, text: Integers, num: int) -> Integers:
    """A character for each of ``num`` tokens; ``token`` lists all occurrences, ``text`` the texts they stand in."""
    first_V, last_V = np.zeros(num, dtype=np.int64), np.zeros(num, dtype=np.int64)
    last_V[token] = text
    first_V[token[::-1]] = text[::-1]
    is_shared_V = first_V < last_V
    by_frequency = np.argsort(-np.bincount(token, minlength=num) * is_shared_V, kind="stable")
    character_V = np.empty(num, dtype=np.int64)
    character_V[by_frequency] = np.arange(num)
    # Tokens may outnumber Unicode. Those of one text only equal nothing elsewhere: they share a character of that text.
    return np.where(is_shared_V, character_V, is_shared_V.sum() + first_V)


def _numbered(rows: Sequence[Sequence[str]]) -> Numbered:
    number: defaultdict[str, int] = defaultdict(count().__next__)
    starts = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=starts[1:])
    flat = np.fromiter(map(number.__getitem__, chain.from_iterable(rows)), dtype=np.int64, count=int(starts[-1]))
    return Numbered(list(number), flat, starts)
