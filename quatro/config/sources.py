"""Where configurations lie, and what a file holds together with the one that it extends.

`extends: OTHER` begins with another configuration and puts the file's own keys on top. Blocks are merged key by key,
lists and plain values replaced. What is short for a block, such as `reward: NAME`, is written out when it is read.
A block of the method or of the reward that has another name replaces the block below it, since its keys mean nothing
there. `policy.kind` and `rollout.engine` replace nothing: the keys beside them are the same for all of them, and what
does not fit is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from evals.errors import UsageError
from quatro.config.blocks import audit_block, keep_block
from quatro.config.errors import EXTENDS, Locations, closest
from quatro.config.yaml_reader import Document, KeyPath, load_yaml
from quatro.config.yaml_writer import scalar_text
from quatro.rewards.settings import DEFAULT_REWARD, reward_block

EXTENDS_MEANS = (
    "the configuration that this file extends: a file beside it, a run, or one that comes with quatro. "
    "Blocks are merged key by key; lists are replaced; a method or reward of another name replaces the "
    "whole block"
)
# Blocks whose keys depend on their name, and the name of one without.
_NAMED: dict[KeyPath, str | None] = {("method",): None, ("reward",): DEFAULT_REWARD}
# What may stand for a block: `reward: NAME` or a list of rewards, `audit: true`, `checkpoint: {keep: 3}`.
_SHORT_FOR: dict[KeyPath, Callable[[Any], Any]] = {
    ("reward",): reward_block,
    ("audit",): audit_block,
    ("checkpoint", "keep"): keep_block,
}


class Layers(NamedTuple):
    """What a file and those below it hold together, where each key stands, and the files, its own first."""

    data: dict[str, Any]
    locations: Locations
    files: tuple[str, ...]


def shipped_folder() -> Path:
    """`quatro/_configs` where the package was installed from a wheel, `configs/` in a checkout."""
    package = Path(str(resources.files("quatro")))
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"


def shipped_configs() -> dict[str, Path]:
    """Name -> file of every configuration that comes with the package; `quatro.sweep.file` knows the sweeps."""
    return {path.stem: path for path in sorted(shipped_folder().glob("*.yaml"))}


def find_config(source: str | Path, *, folder: Path = Path()) -> Path:
    """The file that ``source`` means: a file (seen from ``folder``), a run's config.yaml, or a shipped configuration.

    Raises:
        UsageError: there is none; the message lists the shipped ones.
    """
    path = folder / source
    shipped = shipped_configs()
    try:
        if path.is_file():
            return path
        if (path / "config.yaml").is_file():
            return path / "config.yaml"
        is_near = Path(f"{path}.yaml").is_file()
    except (OSError, ValueError) as error:  # a name no file system takes
        reason = f"{type(error).__name__}; shipped: {', '.join(shipped)}"
        raise UsageError(f"no config can be called {str(source)[:80]!r}...: {reason}") from error
    name = str(source).removesuffix(".yaml")
    if name in shipped:
        return shipped[name]
    found = "a directory without config.yaml" if path.is_dir() else "no such file or run"
    hint = f"; did you mean {source}.yaml?" if is_near else closest(name, shipped)
    raise UsageError(f"config {str(source)!r}: {found}; shipped: {', '.join(shipped)}{hint}")


def read_layers(path: Path) -> Layers:
    """The file ``path`` on top of what it extends, and what that extends.

    Raises:
        UsageError: a file is missing, no mapping or not strict YAML, or extends itself; all but the first are named
            with the files that led to them.
    """
    documents = [load_yaml(path)]
    while EXTENDS in documents[-1].data:
        documents.append(_below(documents))
    data: dict[str, Any] = {}
    locations: Locations = {}
    for document in reversed(documents):
        places = {key: f"{document.name}:{line}" for key, line in document.lines.items() if key}
        write_out(document.data, places)
        _put_on_top(document.data, data, locations)
        locations |= places
    return Layers(data, locations, tuple(document.name for document in documents))


def _below(documents: list[Document]) -> Document:
    """What the last of ``documents`` extends; takes the key out of it."""
    last = documents[-1]
    place = f"{last.name}:{last.lines[(EXTENDS,)]}: {EXTENDS}"
    value = last.data.pop(EXTENDS)
    if not isinstance(value, str) or not value:
        shown = scalar_text(value)[:80]
        raise UsageError(f"{place}: found {shown}, expected a file or the name of a configuration such as quickstart")
    names = [document.name for document in documents]
    led_here = f" ({' extends '.join(names)})" if len(names) > 1 else ""
    try:
        found = find_config(value, folder=Path(last.name).parent)
    except UsageError as error:
        raise UsageError(f"{place}: {error}{led_here}") from None
    if found.resolve() in [Path(name).resolve() for name in names]:
        raise UsageError(f"{place}: a circle: {' extends '.join([*names, str(found)])}")
    try:
        return load_yaml(found)
    except UsageError as error:
        raise UsageError(f"{error} ({' extends '.join([*names, str(found)])})") from None


def write_out(data: dict[str, Any], locations: Locations) -> None:
    """Put a block in the place of what is short for one; its keys stand where the short form does."""
    for path, block_for in _SHORT_FOR.items():
        *above, key = path
        parent: Any = data
        for part in above:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if isinstance(parent, dict) and path in locations:
            with contextlib.suppress(ValueError):  # reported when the whole configuration is read
                parent[key] = block_for(parent[key])
            for inner in inner_keys(parent[key], path):
                locations.setdefault(inner, locations[path])


def inner_keys(value: Any, above: KeyPath) -> Iterator[KeyPath]:
    """The paths of all keys in ``value``, which lies at ``above``; none for a plain value."""
    for key, inner in value.items() if isinstance(value, Mapping) else ():
        yield (*above, key)
        yield from inner_keys(inner, (*above, key))


def _put_on_top(above: dict[str, Any], below: dict[str, Any], locations: Locations, path: KeyPath = ()) -> None:
    """Put the keys of ``above`` into ``below``; the ``locations`` of what they replace are forgotten."""
    for key, new in above.items():
        here, old = (*path, key), below.get(key)
        if isinstance(old, dict) and isinstance(new, dict) and _is_same(old, new, here):
            _put_on_top(new, old, locations, here)
        else:
            forget(locations, here)
            below[key] = new


def forget(locations: Locations, path: KeyPath) -> None:
    """Forget where ``path`` and all below it were set."""
    for place in [place for place in locations if place[: len(path)] == path]:
        del locations[place]


def _is_same(old: dict[str, Any], new: dict[str, Any], path: KeyPath) -> bool:
    """Whether the keys of both blocks mean the same."""
    if path not in _NAMED:
        return True
    name = old.get("name", _NAMED[path])
    return bool(new.get("name", name) == name)
