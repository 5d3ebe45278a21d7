"""Load, write and compare configurations; their keys are in `model.py`, and `sources.py` finds and reads files.

A configuration is built in this order: what the file extends, the file, `-m METHOD` (which replaces the block of
another method), each `-s KEY=VALUE`, then the method's preset for keys that are not set yet, then defaults. At the end:
what of it lasts as long as its run (all but the keys that a resume may change), and whose each value is.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

from evals.errors import DataError, MissingError, UsageError
from evals.files.own_code import is_own
from evals.text import table_beside, unescaped
from quatro.config import paths
from quatro.config.blocks import OWN
from quatro.config.errors import EXTENDS, Places, Problem, problem_lines, problems_of
from quatro.config.model import Config, method_class
from quatro.config.sources import Settings, find_config, read_settings
from quatro.config.yaml_text import KeyPath, parse_value, scalar_text, to_yaml
from quatro.methods.base import AbsentMethod, Method
from quatro.registry import METHODS, REWARDS
from quatro.rewards.settings import DEFAULT_REWARD


@dataclass(frozen=True)
class ResolvedConfig:
    """A configuration, the file it came from, and for each dotted key where its value comes from.

    An origin is `file:line`, an option as typed, `preset NAME`, `derived` (from another key) or `default`. A comma and
    whose the value is may follow (`basis`); a default of the paper or of verl is named by that alone. ``notes`` say
    what somebody may not expect.
    """

    config: Config
    path: Path
    origins: Mapping[str, str]
    notes: Sequence[str] = ()

    @property
    def stem(self) -> str:
        """What a run of it is called after: the file, or the run that it is the configuration of."""
        is_of_run = self.path.name == "config.yaml" and (self.path.parent / "status.json").is_file()
        return self.path.resolve().parent.name if is_of_run else self.path.stem


def load_config(source: str | Path, *, overrides: Sequence[str] = (), method: str | None = None) -> Config:
    """The configuration in a file or a run directory, or a shipped one by its name (`quickstart`).

    ``overrides`` are `KEY=VALUE` with a dotted key and a YAML value. ``method`` replaces the block of another method
    before the overrides are applied; `method.name=NAME` among the overrides means the same.

    Raises:
        UsageError: there is no such configuration, or one line for each problem: `file:line: key: found VALUE,
            expected TYPE`.
    """
    return resolve_config(source, overrides=overrides, method=method).config


def resolve_config(source: str | Path, *, overrides: Sequence[str] = (), method: str | None = None) -> ResolvedConfig:
    """As `load_config`, raises included, with the file's stem and the origin of every key."""
    path = find_config(source)
    found = read_settings(path)
    settings = [_parse_override(text) for text in overrides]
    notes = _choose_method(found, method, settings)
    for setting in settings:
        if setting.key != _METHOD_NAME:
            found.replace(setting.key, setting.value, setting.text)
    method, owners, problems = _build_method(found, may_be_absent=(path.parent / "status.json").is_file())
    try:
        config = Config.model_validate({**found.tree, "method": method})
    except ValidationError as error:
        reward = found.tree.get("reward")
        name = reward.get("name", DEFAULT_REWARD) if isinstance(reward, dict) else None
        if isinstance(name, str) and REWARDS.takes(name):
            owners["reward", "options"] = REWARDS[name].Options
        problems += problems_of(error, owners)
    if problems:
        raise UsageError("\n".join(problem_lines(problems, found.places, str(path))))
    texts = path_texts(config)
    kept = {key: one for key, one in found.found.items() if texts.get(key) == one.text}  # no option has changed it
    config = config.with_paths({}, {key: one.record for key, one in kept.items() if one.record is not None})
    origins = _origins(config, found.places)
    origins |= {key: f"{origins[key]}, {one.note}" for key, one in kept.items() if one.note and key in origins}
    return ResolvedConfig(config, path, origins, notes)


def path_texts(config: Config) -> dict[str, str]:
    """The values of a configuration that may be paths, by dotted key."""
    places = paths.places_in(config.model_dump(mode="python"))
    return {key: holder[at] for key, holder, at in places if not key.endswith(".template")}


def pinned(config: Config, *, only: Collection[str] | None = None) -> Config:
    """The same configuration with absolute paths of what is there, and its digests, so that a run can be moved.

    ``only`` these keys, where given. A run or a checkpoint that is named as a model keeps its name, and what is known
    of a path already is kept.
    """
    texts, records = dict[str, str](), dict(config.paths)
    for key, text in path_texts(config).items():
        if key in records or (only is not None and key not in only) or not paths.may_be_path(key, text):
            continue
        place = os.path.realpath(os.path.expanduser(text))
        is_run = any(os.path.isfile(os.path.join(place, name)) for name in ("config.yaml", "manifest.json"))
        if (not is_run or key == paths.PASS_RATES) and (digest := paths.digest_of(place)) is not None:
            texts[key] = place
            records[key] = paths.Recorded(digest, text)
    return config.with_paths(texts, records)


def refuse_lost(config: Config, command: str | None = None) -> None:
    """Raises an error with what to type, ``command`` (if any) and options, if a path does not name what it named.

    Raises DataError if something else lies there, and MissingError if nothing is there.
    """
    texts = path_texts(config)
    lost = {key: why for key, one in config.paths.items() if (why := paths.why_lost(texts[key], one))}
    if lost:
        said = "; ".join(f"{key}: {why}" for key, why in lost.items())
        options = " ".join(f"-s {key}=PATH" for key in lost)
        kind = DataError if "has the digest" in said else MissingError
        how = f"say where it is: `{command} {options}`" if command else "make a symbolic link to it there"
        raise kind(f"{said}. Put it back, or {how}")


def seen_from(folder: Path, config: Config) -> Config:
    """The same configuration as a file in ``folder`` has it: with paths as seen from there."""
    texts = path_texts(config)
    return config.with_paths({key: paths.relative(texts[key], folder) for key in config.paths}, config.paths)


def config_to_yaml(config: Config, *, comments: Mapping[str, str] | None = None, folder: Path | None = None) -> str:
    """The whole resolved configuration; loading it gives an equal one. ``comments`` by dotted key, such as origins.

    A reward that is nothing but a name is written as that name, and any other without keys for which it has no use.
    With the ``folder`` that the file is in, paths are those from there, and what they name stands beside them.
    """
    if folder is not None:
        config = seen_from(folder, config)
    tree, comments = config.model_dump(mode="python"), dict(comments or {})
    if not config.reward.changed:
        tree["reward"] = config.reward.name
        comments["reward"] = comments.get("reward.name", "")
    else:
        tree["reward"] = {key: value for key, value in tree["reward"].items() if key not in config.reward.unheeded}
    if folder is not None and config.paths:
        tree[paths.PATHS] = {key: " ".join(record) for key, record in config.paths.items()}
    return to_yaml(tree, comments=comments)


def value_texts(config: Config) -> dict[str, str]:
    """Every dotted key with its value as the configuration's YAML shows it."""
    return {key: scalar_text(value) for key, value in leaves(config.model_dump(mode="python"))}


def differing_keys(configs: Sequence[Config]) -> dict[str, list[str | None]]:
    """The keys on which not all configurations agree, in the order of the schema, with the value of each as YAML.

    None where it has no such key, or a reward that has no use for it. Paths of which all configurations know the
    digest are compared by it, and it is shown where the paths are equal.
    """

    def texts(config: Config, tree: Mapping[str, Any]) -> dict[str, str]:
        unheeded = {f"reward.{key}" for key in config.reward.unheeded}
        return {key: scalar_text(value) for key, value in leaves(tree) if key not in unheeded}

    trees, digests = [config.model_dump(mode="python") for config in configs], [config.digests for config in configs]
    sides = list(map(texts, configs, trees))
    compared = list(map(texts, configs, (paths.by_digest(*one, *digests) for one in zip(trees, digests, strict=True))))
    found = {}
    for key in dict.fromkeys(key for side in sides for key in side):
        if len(set(values := [side.get(key) for side in compared])) > 1:
            shown = [side.get(key) for side in sides]
            found[key] = shown if len(set(shown)) > 1 else values
    return found


class _Setting(NamedTuple):
    key: tuple[str, ...]
    value: Any
    text: str


_METHOD_NAME = ("method", "name")
# Keys of `rollout` that count as keys of this method in the digests of its runs -> their default now, and then.
_OF_DAPO = {"dynamic_sampling": (False, True), "max_sampling_rounds": (10, 10)}
# Texts that YAML would often take for something else, such as `Question: {problem}`. Without quotes they are taken as
# typed, with the escapes of `unescaped`.
_AS_TYPED = (("data", "template"), ("data", "system"))


def _parse_override(text: str) -> _Setting:
    key, separator, value_text = text.partition("=")
    parts = tuple(part.strip() for part in key.split("."))
    if not separator or not all(parts):
        raise UsageError(f"-s {text}: expected KEY=VALUE, such as optimizer.lr=1e-5")
    if parts == (EXTENDS,):
        raise UsageError(f"-s {text}: only a file extends another; write the key there, or name the other one instead")
    if parts in _AS_TYPED and value_text not in ("", "~", "null") and value_text[0] not in "'\"":
        return _Setting(parts, unescaped(value_text), f"-s {text}")
    try:
        value, _ = parse_value(value_text, "value")
    except UsageError as error:
        raise UsageError(f"-s {text}: {str(error).removeprefix('value:1: ')}; quote it if it is text") from None
    return _Setting(parts, value, f"-s {text}")


def _choose_method(found: Settings, method: str | None, settings: Sequence[_Setting]) -> list[str]:
    """Replace a method of another name, as `-m` or `-s method.name=` asks; returns a note where it has that name."""
    choices = [setting for setting in settings if setting.key == _METHOD_NAME]
    if method is not None:
        choices.append(_Setting(_METHOD_NAME, method, f"-m {method}"))
    if any(choice.value != choices[0].value for choice in choices):
        raise UsageError(f"{' and '.join(choice.text for choice in choices)} name different methods; keep one")
    notes = []
    for choice in choices[:1]:
        block = found.tree.get("method")
        if isinstance(block, dict) and block.get("name") == choice.value and len(block) > 1:
            kept = ", ".join(f"{key}={scalar_text(value)}" for key, value in block.items() if key != "name")
            notes.append(f"{choice.text} names the method that is there already; it keeps {kept}")
        is_of_dapo = isinstance(block, dict) and block.get("name") == "dapo" != choice.value
        drawing = ("rollout", "dynamic_sampling")
        if is_of_dapo and found.at(drawing) is True and all(setting.key != drawing for setting in settings):
            notes.append(f"{choice.text} keeps rollout.dynamic_sampling=true, which dapo's presets set; -s changes it")
        found.extend({"method": {"name": choice.value}}, {}, choice.text)
    return notes


def _build_method(found: Settings, *, may_be_absent: bool) -> tuple[Any, dict[KeyPath, type[BaseModel]], list[Problem]]:
    """The method, after its preset has filled the keys that are not set, in any block; its class; and the problems.

    Of a run, whose module may not be here, the method ``may_be_absent``: it can be read then, and not trained. In the
    place of a wrong method comes a stand-in, so that the rest of the file is still checked.
    """
    block = found.tree.get("method")
    if isinstance(block, str):
        said = (
            f"found {block}, expected a block of keys: {{name: {block}}} in a file, -s method.name={block} as an option"
        )
        return _STAND_IN, {}, [(("method",), said)]
    if not isinstance(block, dict) or not isinstance(block.get("name"), str):
        return _STAND_IN, {}, [(_METHOD_NAME, f"missing, expected one of {', '.join(METHODS)}, or your own {OWN}")]
    try:
        chosen = method_class(block["name"])
    except UsageError as error:
        if may_be_absent and is_own(block["name"]):
            return AbsentMethod.of(block, str(error)), {}, []
        return _STAND_IN, {}, [(_METHOD_NAME, str(error))]
    preset_field = chosen.model_fields.get("preset")
    preset = block.get("preset", preset_field.default if preset_field else None)
    for dotted, value in chosen.PRESETS.get(preset, {}).items() if isinstance(preset, str) else ():
        path = tuple(dotted.split(".")) if "." in dotted else ("method", dotted)
        if path not in found.places and isinstance(found.tree.get(path[0], {}), dict):
            found.replace(path, value, f"preset {preset}")
    owners: dict[KeyPath, type[BaseModel]] = {("method",): chosen}
    try:
        return chosen.model_validate(found.tree["method"]), owners, []
    except ValidationError as error:
        return _STAND_IN, owners, problems_of(error, owners, ("method",))


OF_PAPER = "preset paper"
_STAND_IN = AbsentMethod.of({"name": "", "delta": 1.0}, "")


def _origins(config: Config, places: Places) -> dict[str, str]:
    defaults = dict(leaves(defaults_of(Config)))
    origins = {}
    for key, value in leaves(config.model_dump(mode="python")):
        block, _, field = key.rpartition(".")
        place = places.get(tuple(key.split(".")))
        whose = basis(key, value)
        if block == "method" and place in (None, OF_PAPER):
            whose = method_basis(type(config.method), field)
        if place == OF_PAPER:
            whose = whose or OURS
        if place is None and whose is None:
            place = "default" if block == "method" or defaults.get(key, value) == value else "derived"
        origins[key] = ", ".join(filter(None, (place, whose)))
    return origins


def defaults_of(model: type[BaseModel]) -> dict[str, Any]:
    """Field -> default, of the fields that have one."""
    return {
        key: field.get_default(call_default_factory=True, validated_data={})
        for key, field in model.model_fields.items()
        if not field.is_required()
    }


def leaves(data: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of a nested mapping, such as a dumped configuration."""
    for key, value in data.items():
        if isinstance(value, BaseModel):
            value = value.model_dump(mode="python")
        if isinstance(value, Mapping):
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


# --- what lasts as long as a run -------------------------------------------------------------------------------------

# None of them touches what an iteration computes.
MAY_CHANGE = ("steps", "checkpoint", "early_stop", "save_rollouts", "tracking")


def may_change(key: str) -> bool:
    """Whether a resume may change the dotted ``key``."""
    return key.split(".")[0] in MAY_CHANGE


def lasting_digest(config: Config) -> str:
    """A digest of what lasts. Defaults do not count, so that a key which a later version adds changes nothing."""
    chosen = paths.by_digest(config.model_dump(mode="json", exclude_defaults=True), config.digests)
    kept = {key: value for key, value in leaves(chosen) if not may_change(key)} | {"method.name": config.method.name}
    if config.method.name == "dapo":  # runs of which have recorded a digest of its own keys
        for key, (now, then) in _OF_DAPO.items():
            if (value := kept.pop(f"rollout.{key}", now)) != then:
                kept[f"method.{key}"] = value
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode("utf-8")).hexdigest()[:16]


def lasting_differences(then: Mapping[str, Any], digests: Mapping[str, str], config: Config) -> list[str]:
    """The lasting keys on which ``config`` differs from ``then``, a dumped configuration, with both values.

    ``digests`` are those of its paths; of a path that has one on both sides it is compared.
    """
    with suppress(ValueError):  # a key that is gone is a difference to be shown
        # Defaults stand for keys that it lacks because they are newer.
        then = Config.model_validate_json(json.dumps(then)).model_dump(mode="json")
    before = dict(leaves(paths.by_digest(then, digests, config.digests)))
    now = dict(leaves(paths.by_digest(config.model_dump(mode="json"), config.digests, digests)))
    return [
        f"{key} was {before.get(key)!r}, is {now.get(key)!r}"
        for key in sorted(before.keys() | now.keys())
        if not may_change(key) and before.get(key) != now.get(key)
    ]


# --- whose a value is: the paper's, verl's default (which the paper follows where it states nothing), or ours ---------

STATED = "stated by the paper"
VERL = "verl's default"
CHOSEN = "our choice"
OURS = "our reading"

_BASES = table_beside(__file__, "bases.toml")


def basis(key: str, value: Any) -> str | None:
    """`STATED`, `VERL` or `CHOSEN` for the ``value`` of a dotted ``key``; None for any other value.

    `method_basis` answers for the keys of a method.
    """
    plain = list(value) if isinstance(value, tuple) else value
    return next((whose for whose, table in _BASES.items() if plain in table.get(key, ())), None)


def method_basis(method: type[Method], field: str) -> str | None:
    """The same for the default of a method's own ``field``, which is also the value of its preset `paper`."""
    if field in method.STATED_BY_PAPER:
        return STATED
    return VERL if field in method.VERL_DEFAULTS else None
