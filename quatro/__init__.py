"""QUATRO: query-adaptive trust-region policy optimisation for language models.

What a researcher uses stands here and is described in docs/api.md. A name is loaded when it is first used.
"""

from typing import TYPE_CHECKING

__version__ = "0.2.0"

__all__ = [
    "METHODS",
    "Config",
    "Result",
    "clusters",
    "compare",
    "draw_samples",
    "fine_tune",
    "load_run",
    "measure",
    "pass_at_k",
    "read_metrics",
    "read_result",
    "read_samples",
    "report",
    "show",
    "ucc_at_k",
]

if TYPE_CHECKING:
    from quatro.api import *
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module 'quatro' has no attribute {name!r}")
        from quatro import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
