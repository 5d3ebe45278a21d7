"""What of a configuration lasts as long as its run: all but the keys that a resume may change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from quatro.config.blocks import SIZE_KEYS
from quatro.config.load import leaves
from quatro.config.model import Config

# None of them touches what an iteration computes.
MAY_CHANGE = ("steps", "checkpoint", "early_stop", "save_rollouts", "tracking")


def may_change(key: str) -> bool:
    """Whether a resume may change the dotted ``key``."""
    return key.split(".")[0] in MAY_CHANGE


def lasting_digest(config: Config) -> str:
    """A digest of what lasts. Defaults do not count, so that a key which a later version adds changes nothing."""
    chosen = config.model_dump(mode="json", exclude_defaults=True)
    kept = {key: value for key, value in leaves(chosen) if not may_change(key)} | {"method.name": config.method.name}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def lasting_differences(then: Mapping[str, Any], config: Config) -> list[str]:
    """The lasting keys on which ``config`` differs from ``then``, a dumped configuration, with both values."""
    return _differences(_with_defaults(then), config, lambda key, before, now: bool(before == now))


def planned_differences(planned: Config, config: Config) -> list[str]:
    """As `lasting_differences`, of a run's ``config`` from that which it was begun with.

    A run has numbers for sizes of `auto`, and absolute paths, of the checkpoint in a run that is named as a model.
    """

    def is_same(key: str, before: Any, now: Any) -> bool:
        return (key in SIZE_KEYS and before == "auto") or _is_same(before, now)

    return _differences(planned.model_dump(mode="json"), config, is_same)


def _differences(then: Mapping[str, Any], config: Config, is_same: Callable[[str, Any, Any], bool]) -> list[str]:
    before, now = dict(leaves(then)), dict(leaves(config.model_dump(mode="json")))
    return [
        f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if not may_change(key) and not is_same(key, before.get(key), now.get(key))
    ]


def _is_same(planned: Any, value: Any) -> bool:
    if isinstance(planned, dict) and isinstance(value, dict):
        return planned.keys() == value.keys() and all(_is_same(planned[key], value[key]) for key in planned)
    if isinstance(planned, list) and isinstance(value, list):
        return len(planned) == len(value) and all(map(_is_same, planned, value))
    if isinstance(planned, str) and isinstance(value, str) and value.startswith("/"):
        return planned == value or planned.rpartition("/")[2].partition("@")[0] in value.split("/")
    return bool(planned == value)


def _with_defaults(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """A configuration, with defaults for keys that it lacks because they are newer."""
    try:
        return Config.model_validate_json(json.dumps(stored)).model_dump(mode="json")
    except ValueError:  # a key that is gone is a difference to be shown
        return stored
