"""Methods, one file each: `METHODS` maps a name to the method's class, which is imported on first use.

``METHODS["quatro"](delta=0.01)`` builds a method from the keys of its YAML block. A name with a colon, such as
``my_methods:MyMethod``, means your own class, in a module of the current folder or an installed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from evals.files.own_code import import_own
from quatro.registry import LazyTable

if TYPE_CHECKING:
    from quatro.methods.base import Method


class _Methods(LazyTable):
    """The methods: name -> class, whose fields are the hyper-parameters; docs/methods.md compares them.

    >>> list(quatro.METHODS)
    ['quatro', 'grpo', 'gspo', 'gmpo', 'gpg', 'dapo', 'cispo', 'dppo', 'pmd', 'maxrl', 'pkpo']
    >>> quatro.METHODS["quatro"](delta=0.01).kl_radius
    0.01
    """


def own_method(spec: str) -> Any:
    """What ``spec``, a user's own `module:Class`, names; raises UsageError if it cannot be imported."""
    return import_own(spec, "method")


METHODS: Mapping[str, type[Method]] = _Methods(
    "method",
    {
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
    },
    own="quatro.methods:own_method",
)
