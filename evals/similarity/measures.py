"""Five measures of how alike two responses are: functions from texts to a symmetric matrix with values in [0, 1].

Equal strings are 1.0 by every measure, and a text without tokens is 0.0 to any other. Under the tokens ``code`` texts
are expected in the normal form of `evals.code.programs`, which callers put them in. Every value is ONE division of
exact integers where the measure allows (2l / (a+b), |A & B| / |A | B|, (max - distance) / max), so that a pair that
ties with a threshold, such as 8/10 with 0.8, ties in floating point as well.

Each measure is computed over the distinct strings, sorted: a collapsed group of 256 samples often holds ten. Sorting
also makes a value independent of the order of the samples, to the last bit.

No token but those of code holds white space, so a text's tokens are its words' tokens. The responses to one problem
share most of their words: splitting at white space and looking words up runs in C, and the regular expressions then see
each different word once instead of each occurrence.
"""

# Axes: N texts, U distinct texts (sorted by code point), W different words, V different tokens; a ragged flat array
# holds one row after another.

import importlib
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq, Levenshtein
from rapidfuzz.process import cdist
from scipy import sparse

from evals.errors import UsageError
from evals.files.own_code import file_of, is_own, own_function
from evals.files.strict_json import shown
from evals.similarity import BY_MODEL, SIMILARITIES

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Up to here a dense product of token sets is faster than a sparse one; beyond, its memory counts (4 bytes an entry).
_LARGEST_DENSE = 8_000_000
# How far from symmetric, from 1 on the diagonal, and out of [0, 1] counts as rounding: cosines in float32 keep to it.
_ROUNDING = 1e-4

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


@dataclass(frozen=True)
class Distinct:
    """The distinct ``texts`` in code point order, which of them each input is, and how often each occurs.

    What several measures share (words, token counts) is computed when first asked for. ``num_threads`` may compare
    characters, which takes longest by far.
    """

    texts: list[str]
    which_N: Integers
    count_U: Integers
    num_threads: int = 1
    _token_counts: dict[str, sparse.csr_matrix] = field(default_factory=dict, init=False, repr=False, compare=False)

    @cached_property
    def words(self) -> Numbered:
        return split_words(self.texts)

    @cached_property
    def rouge_strings(self) -> list[str]:
        return rouge_strings(self.words)

    def token_counts(self, tokens: str) -> sparse.csr_matrix:
        """How often each token stands in each text, shape (U, V)."""
        if tokens not in self._token_counts:
            words = self.words
            if tokens == "code":  # every text is a single word, its case kept
                words = Numbered(self.texts, np.arange(len(self.texts)), np.arange(len(self.texts) + 1))
            self._token_counts[tokens] = token_counts(words, tokens)
        return self._token_counts[tokens]


def distinct(texts: Sequence[str]) -> Distinct:
    """The distinct texts among ``texts``."""
    position = {text: place for place, text in enumerate(sorted(set(texts)))}
    which_N = np.array([position[text] for text in texts], dtype=np.int64)
    return Distinct(list(position), which_N, np.bincount(which_N, minlength=len(position)))


def similarity_of_distinct(name: str, unique: Distinct, *, tokens: str = "math") -> Floats:
    """The (U, U) matrix of the measure ``name``; raises UsageError for an unknown one, or as `own_matrix`."""
    check_tokens(tokens)
    if name not in SIMILARITIES:
        check_similarity(name)
        return own_matrix(name, unique.texts)
    if not unique.texts:
        return np.zeros((0, 0))
    module_name, _, function = SIMILARITIES[name].function.partition(":")
    similarity_UU: Floats = getattr(importlib.import_module(module_name), function)(unique, tokens)
    np.fill_diagonal(similarity_UU, 1.0)
    return similarity_UU


def check_similarity(name: str) -> None:
    """Raises UsageError for an unknown measure ``name``, or a function of the user's own that cannot be imported."""
    if name in SIMILARITIES:
        return
    if not is_own(name) and not name.startswith(BY_MODEL):
        raise UsageError(
            f"unknown similarity {name!r}; choose from {', '.join(SIMILARITIES)} and embed:MODEL, or name your own "
            "function as module:function"
        )
    own_similarity(name)


def exact(unique: Distinct, tokens: str) -> Floats:
    """1.0 for equal strings, 0.0 otherwise."""
    return np.eye(len(unique.texts))


def tfidf(unique: Distinct, tokens: str) -> Floats:
    """Cosine of TF-IDF vectors fitted on the texts: smooth idf, l2 norm, no sublinear tf (sklearn's defaults)."""
    tf_UV, count_U = unique.token_counts(tokens), unique.count_U
    # Documents are all texts, repeated ones included: a phrase that every sample repeats should weigh little.
    df_V = (tf_UV > 0).T @ count_U
    idf_V = np.log((1 + count_U.sum()) / (1 + df_V)) + 1
    weight_UV = tf_UV.multiply(idf_V).tocsr()
    norm_U = np.sqrt(np.asarray(weight_UV.multiply(weight_UV).sum(axis=1))).ravel()
    norm_U[norm_U == 0] = 1.0
    unit_UV = weight_UV.multiply(1 / norm_U[:, None]).tocsr()
    # A sparse product adds up in one order on every machine; a BLAS does not, and a last bit can decide a tie.
    return np.minimum((unit_UV @ unit_UV.T).toarray(), 1.0)


def jaccard(unique: Distinct, tokens: str) -> Floats:
    """Shared tokens over all tokens of a pair, each token counted once."""
    has_UV = (unique.token_counts(tokens) > 0).astype(np.float32)
    size_U = np.asarray(has_UV.sum(axis=1), dtype=np.float64).ravel()
    if has_UV.shape[0] * has_UV.shape[1] <= _LARGEST_DENSE:
        dense_UV = has_UV.toarray()
        shared_UU = (dense_UV @ dense_UV.T).astype(np.float64)  # counts below 2^24 are exact in float32
    else:
        shared_UU = (has_UV @ has_UV.T).toarray().astype(np.float64)
    union_UU = size_U[:, None] + size_U - shared_UU
    return shared_UU / np.maximum(union_UU, 1.0)


def rouge_l(unique: Distinct, tokens: str) -> Floats:
    """ROUGE-L F1 = 2l / (a + b): l the longest common subsequence of a and b tokens, rouge_score's without stemmer.

    ROUGE has tokens of its own, runs of a-z and 0-9, whatever ``tokens`` says.
    """
    coded_U = unique.rouge_strings
    common_UU = cdist(coded_U, coded_U, scorer=LCSseq.similarity, dtype=np.int32).astype(np.float64)
    length_U = np.array([len(coded) for coded in coded_U], dtype=np.float64)
    return 2 * common_UU / np.maximum(length_U[:, None] + length_U, 1.0)


def edit(unique: Distinct, tokens: str) -> Floats:
    """(max length - Levenshtein distance) / max length, on characters."""
    texts, threads = unique.texts, unique.num_threads
    distance_UU = cdist(texts, texts, scorer=Levenshtein.distance, dtype=np.int32, workers=threads).astype(np.float64)
    length_U = np.array([len(text) for text in unique.texts], dtype=np.float64)
    longer_UU = np.maximum(length_U[:, None], length_U)
    return (longer_UU - distance_UU) / np.maximum(longer_UU, 1.0)


def own_similarity(spec: str) -> Callable[..., Any]:
    """The function that ``spec`` names, or that of a model; raises UsageError as `own_function`, or as `by_model`."""
    if spec.startswith(BY_MODEL):
        model = by_model(spec)
        return lambda where, texts: model.matrix(texts)
    return own_function(spec, "similarity", "from a list of texts to a matrix")


def by_model(spec: str) -> Any:
    """The model that decides the similarity ``spec``; raises as `evals.similarity.meaning.opened`."""
    from evals.similarity.meaning import opened  # which few need, and which needs servers

    return opened(spec)


def own_matrix(spec: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """What the function returns for the N texts, shape (N, N): without rounding symmetric and 1 on the diagonal.

    Raises UsageError if it cannot be imported, raises, or returns something else; names the file to look at.
    """
    function = own_similarity(spec)
    if len(texts) < 2:
        return np.eye(len(texts))
    found = function(f"{len(texts)} texts", [*texts])
    fault = _fault(found, texts)
    if fault:
        raise UsageError(f"similarity {spec!r} {fault}. Look at {file_of(spec)}")
    matrix = np.asarray(found, dtype=np.float64)
    matrix = np.clip((matrix + matrix.T) / 2, 0.0, 1.0)
    np.fill_diagonal(matrix, 1.0)
    return matrix


def _fault(found: Any, texts: Sequence[str]) -> str:
    """What is wrong with ``found``, and what was expected; empty if nothing is."""
    try:
        matrix = np.asarray(found)
    except Exception as error:  # such as a tensor on a GPU, or one with a gradient
        return f"gave a {type(found).__name__} that numpy cannot read ({error!s:.300}); expected an array of numbers"
    expected = f"shape ({len(texts)}, {len(texts)}), a row and a column for each text"
    if matrix.dtype.kind not in "biuf":
        return f"gave a {type(found).__name__}, {found!r:.80}; expected an array of numbers of {expected}"
    if matrix.shape != (len(texts), len(texts)):
        return f"gave an array of shape {matrix.shape}; expected {expected}"
    matrix = matrix.astype(np.float64)
    checks = (
        (~np.isfinite(matrix), "a finite number"),
        (np.diag(np.abs(matrix.diagonal() - 1) > _ROUNDING), "1, for similarities are no distances or products"),
        ((matrix < -_ROUNDING) | (matrix > 1 + _ROUNDING), "a similarity in [0, 1] (clip cosines at 0)"),
        (np.abs(matrix - matrix.T) > _ROUNDING, "the same both ways: {:g} is what it gave the other way round"),
    )
    for is_wrong, expected in checks:
        if is_wrong.any():
            i, j = np.argwhere(is_wrong)[0].tolist()
            one, other = (f"text {place} ({shown(texts[place][:40])})" for place in (i, j))
            pair = f"{one} and {'itself' if i == j else other}"
            return f"gave {matrix[i, j]:g} for {pair}; expected {expected.format(matrix[j, i])}"
    return ""
