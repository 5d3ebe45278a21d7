"""Methods, one file each: `METHODS` maps a name to the method's class, which is imported on first use.

``METHODS["quatro"](delta=0.01)`` builds a method from the keys of its YAML block. A name with a colon, such as
``my_methods:MyMethod``, means your own class, in a module of the current folder or an installed one.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from evals.errors import UsageError
from evals.files.own_code import classes_near, import_own, is_own

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
    "dppo": "quatro.methods.dppo:Dppo",
    "pmd": "quatro.methods.pmd:Pmd",
    "maxrl": "quatro.methods.maxrl:Maxrl",
    "pkpo": "quatro.methods.pkpo:Pkpo",
}


class _Methods(Mapping[str, "type[Method]"]):
    """The methods: name -> class, whose fields are the hyper-parameters; docs/methods.md compares them.

    >>> list(quatro.METHODS)
    ['quatro', 'grpo', 'gspo', 'gmpo', 'gpg', 'dapo', 'cispo', 'dppo', 'pmd', 'maxrl', 'pkpo']
    >>> quatro.METHODS["quatro"](delta=0.01).kl_radius
    0.01
    """

    def __getitem__(self, name: str) -> type[Method]:
        if name in _LOCATIONS:
            module_name, _, class_name = _LOCATIONS[name].partition(":")
            found: type[Method] = getattr(importlib.import_module(module_name), class_name)
        elif is_own(name):
            found = import_own(name, "method")
        else:
            guess = difflib.get_close_matches(name, _LOCATIONS, n=1)
            hint = f" Did you mean {guess[0]!r}?" if guess else ""
            if near := classes_near(name):
                hint = f" Here is {near[0].partition(':')[0]}.py: {', '.join(near)}"
            raise UsageError(
                f"unknown method {name!r}; known: {', '.join(_LOCATIONS)}, or your own as 'package.module:Class'.{hint}"
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_LOCATIONS)

    def __len__(self) -> int:
        return len(_LOCATIONS)

    def __contains__(self, name: object) -> bool:
        return name in _LOCATIONS


METHODS: Mapping[str, type[Method]] = _Methods()
