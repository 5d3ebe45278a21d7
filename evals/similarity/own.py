"""Similarities of the user's own, `module:function`: from a list of texts to a matrix, which is checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evals.errors import UsageError
from evals.files.own_code import file_of, own_function
from evals.files.strict_json import shown

# How far from symmetric, from 1 on the diagonal, and out of [0, 1] counts as rounding: cosines in float32 keep to it.
ROUNDING = 1e-4


def own_similarity(spec: str) -> Callable[..., Any]:
    """The function that ``spec`` names; raises UsageError as `own_function`."""
    return own_function(spec, "similarity", "from a list of texts to a matrix")


def own_matrix(spec: str, texts: Sequence[str]) -> NDArray[np.float64]:
    """What the function returns for the N texts, shape (N, N): without rounding symmetric and 1 on the diagonal.

    Raises:
        UsageError: it cannot be imported, raises, or returns something else; names the file to look at.
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
        (np.diag(np.abs(matrix.diagonal() - 1) > ROUNDING), "1, for similarities are no distances or products"),
        ((matrix < -ROUNDING) | (matrix > 1 + ROUNDING), "a similarity in [0, 1] (clip cosines at 0)"),
        (np.abs(matrix - matrix.T) > ROUNDING, "the same both ways: {:g} is what it gave the other way round"),
    )
    for is_wrong, expected in checks:
        if is_wrong.any():
            i, j = np.argwhere(is_wrong)[0].tolist()
            one, other = (f"text {place} ({shown(texts[place][:40])})" for place in (i, j))
            pair = f"{one} and {'itself' if i == j else other}"
            return f"gave {matrix[i, j]:g} for {pair}; expected {expected.format(matrix[j, i])}"
    return ""
