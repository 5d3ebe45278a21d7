"""Configurations: what they hold, and how they are read, written, compared and explained."""

from quatro.config.load import (
    ResolvedConfig,
    config_to_yaml,
    differing_keys,
    leaves,
    load_config,
    pinned,
    resolve_config,
    value_texts,
)
from quatro.config.model import Config
from quatro.config.schema import schema_json, schema_text
from quatro.config.sources import find_config, shipped_configs

__all__ = [
    "Config",
    "ResolvedConfig",
    "config_to_yaml",
    "differing_keys",
    "find_config",
    "leaves",
    "load_config",
    "pinned",
    "resolve_config",
    "schema_json",
    "schema_text",
    "shipped_configs",
    "value_texts",
]
