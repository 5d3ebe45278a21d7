"""Five measures of how alike two responses are: functions from texts to a symmetric matrix with values in [0, 1].

Equal strings are 1.0 by every measure, and a text without tokens is 0.0 to any other. Under the tokens ``code`` texts
are expected in the normal form of `evals.code.programs`, which callers put them in. Every value is ONE division of
exact integers where the measure allows (2l / (a+b), |A & B| / |A | B|, (max - distance) / max), so that a pair that
ties with a threshold, such as 8/10 with 0.8, ties in floating point as well.

Each measure is computed over the distinct strings, sorted: a collapsed group of 256 samples often holds ten. Sorting
also makes a value independent of the order of the samples, to the last bit.
"""

# Axes: N texts, U distinct texts (sorted by code point), V vocabulary.
from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.distance import LCSseq, Levenshtein
from rapidfuzz.process import cdist
from scipy import sparse

from evals.errors import UsageError
from evals.files.own_code import is_own
from evals.similarity.catalogue import SIMILARITIES
from evals.similarity.own import own_matrix, own_similarity
from evals.similarity.tokens import (
    Integers,
    Numbered,
    as_words,
    check_tokens,
    rouge_strings,
    split_words,
    token_counts,
)

Floats = NDArray[np.float64]

# Up to here a dense product of token sets is faster than a sparse one; beyond, its memory counts (4 bytes an entry).
_LARGEST_DENSE = 8_000_000


@dataclass(frozen=True)
class Distinct:
    """The distinct ``texts`` in code point order, which of them each input is, and how often each occurs.

    What several measures share (words, token counts) is computed when first asked for.
    """

    texts: list[str]
    which_N: Integers
    count_U: Integers

    @cached_property
    def words(self) -> Numbered:
        return split_words(self.texts)

    @cached_property
    def rouge_strings(self) -> list[str]:
        return rouge_strings(self.words)

    def token_counts(self, tokens: str) -> sparse.csr_matrix:
        """How often each token stands in each text, shape (U, V)."""
        if tokens not in self._token_counts:
            words = as_words(self.texts) if tokens == "code" else self.words
            self._token_counts[tokens] = token_counts(words, tokens)
        return self._token_counts[tokens]

    @cached_property
    def _token_counts(self) -> dict[str, sparse.csr_matrix]:
        return {}


def distinct(texts: Sequence[str]) -> Distinct:
    """The distinct texts among ``texts``."""
    position = {text: place for place, text in enumerate(sorted(set(texts)))}
    which_N = np.array([position[text] for text in texts], dtype=np.int64)
    return Distinct(list(position), which_N, np.bincount(which_N, minlength=len(position)))


def similarity_of_distinct(name: str, unique: Distinct, *, tokens: str = "math") -> Floats:
    """The (U, U) matrix of the measure ``name`` over the distinct texts.

    Raises:
        UsageError: an unknown name, or as `own_matrix` for one of the user's own.
    """
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
    if is_own(name):
        own_similarity(name)
    elif name not in SIMILARITIES:
        raise UsageError(
            f"unknown similarity {name!r}; choose from {', '.join(SIMILARITIES)}, or name your own function as "
            "module:function"
        )


def exact(unique: Distinct, tokens: str) -> Floats:
    """1.0 for equal strings, 0.0 otherwise."""
    return np.eye(len(unique.texts))


def tfidf(unique: Distinct, tokens: str) -> Floats:
    """Cosine of TF-IDF vectors fitted on the texts: smooth idf, l2 norm, no sublinear tf (sklearn's defaults)."""
    return tfidf_of_counts(unique.token_counts(tokens), unique.count_U)


def tfidf_of_counts(tf_UV: sparse.csr_matrix, count_U: Integers) -> Floats:
    """Cosines of TF-IDF vectors fitted on texts with token counts ``tf_UV`` that occur ``count_U`` times each."""
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
    distance_UU = cdist(unique.texts, unique.texts, scorer=Levenshtein.distance, dtype=np.int32).astype(np.float64)
    length_U = np.array([len(text) for text in unique.texts], dtype=np.float64)
    longer_UU = np.maximum(length_U[:, None], length_U)
    return (longer_UU - distance_UU) / np.maximum(longer_UU, 1.0)
