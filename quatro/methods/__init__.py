"""Methods, one file each: `METHODS` maps a name to the method's class, which is imported on first use.

``METHODS["quatro"](delta=0.01)`` builds a method from the keys of its YAML block. A name with a colon, such as
``my_package.my_module:MyMethod``, means your own class.
"""

from __future__ import annotations

import difflib
import importlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from evals.errors import UsageError

if TYPE_CHECKING:
    from quatro.methods.base import Method

_LOCATIONS = {
    "quatro": "quatro.methods.delta_schedule:ScheduledQuatro",  # methods/quatro.py, and experiments with its radius
    "grpo": "quatro.methods.grpo:Grpo",
    "gspo": "quatro.methods.gspo:Gspo",
    "gmpo": "quatro.methods.gmpo:Gmpo",
    "gpg": "quatro.methods.gpg:Gpg",
    "dapo": "quatro.methods.dapo:Dapo",
    "cispo": "quatro.methods.cispo:Cispo",
}


_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


class _Methods(Mapping[str, "type[Method]"]):
    """Name -> class of a method, whose fields are its hyper-parameters; docs/methods.md puts them side by side.

    >>> list(quatro.METHODS)
    ['quatro', 'grpo', 'gspo', 'gmpo', 'gpg', 'dapo', 'cispo']
    >>> quatro.METHODS["quatro"](delta=0.01).kl_radius
    0.01
    """

    def __getitem__(self, name: str) -> type[Method]:
        location = _LOCATIONS.get(name, name)
        if not _DOTTED.fullmatch(location):
            guess = difflib.get_close_matches(name, _LOCATIONS, n=1)
            hint = f" Did you mean {guess[0]!r}?" if guess else ""
            raise UsageError(
                f"unknown method {name!r}; known: {', '.join(_LOCATIONS)}, or your own as 'package.module:Class'.{hint}"
            )
        module_name, _, class_name = location.partition(":")
        try:
            found: type[Method] = getattr(importlib.import_module(module_name), class_name)
            return found
        except Exception as error:  # whatever a module of the user's own does when it is imported
            raise UsageError(f"method {name!r} cannot be imported: {type(error).__name__}: {error}") from error

    def __iter__(self) -> Iterator[str]:
        return iter(_LOCATIONS)

    def __len__(self) -> int:
        return len(_LOCATIONS)

    def __contains__(self, name: object) -> bool:
        return name in _LOCATIONS


METHODS: Mapping[str, type[Method]] = _Methods()
