"""Keeps transformers from importing scikit-learn, pandas and scipy, which only what is not used here needs."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_WANTS_SKLEARN = "transformers.generation.candidate_generator"


def import_generation() -> None:
    """Imports transformers' generation and loss code as if scikit-learn and scipy were not installed.

    Every start is more than a second shorter. Only the adaptive threshold of assisted decoding and the losses of object
    detection would use them. Call this before a model class or `AutoTokenizer` is imported.
    """
    if _WANTS_SKLEARN in sys.modules or find_spec("torch") is None:  # without torch there are tokenizers only
        return
    import transformers.utils

    known = transformers.utils.is_sklearn_available, transformers.utils.is_scipy_available
    transformers.utils.is_sklearn_available = transformers.utils.is_scipy_available = lambda: False
    try:
        import transformers.generation.candidate_generator
        import transformers.loss.loss_utils
    finally:
        transformers.utils.is_sklearn_available, transformers.utils.is_scipy_available = known
