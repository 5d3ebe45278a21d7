"""Methods, one file each. `METHODS` maps a name to its class, which is built with the keys of the YAML block."""

from quatro.registry import METHODS

__all__ = ["METHODS"]
