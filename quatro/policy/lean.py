"""Keeps transformers from importing scikit-learn and pandas, which only a kind of decoding needs that is not used."""

from __future__ import annotations

import sys
from importlib.util import find_spec

_WANTS_SKLEARN = "transformers.generation.candidate_generator"


def import_generation() -> None:
    """Imports transformers' generation code as if scikit-learn were not installed: a second less of every start.

    Only the adaptive threshold of assisted decoding would use it. Call this before a model class or `AutoTokenizer` is
    imported.
    """
    if _WANTS_SKLEARN in sys.modules or find_spec("torch") is None:  # without torch there are tokenizers only
        return
    import transformers.utils

    known = transformers.utils.is_sklearn_available
    transformers.utils.is_sklearn_available = lambda: False
    try:
        import transformers.generation.candidate_generator
    finally:
        transformers.utils.is_sklearn_available = known
