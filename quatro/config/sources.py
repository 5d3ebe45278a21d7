"""Where configurations lie, and what files and options set together.

`extends: OTHER` begins with another configuration and puts the file's own keys on top. Blocks are merged key by key,
lists and plain values replaced. What is short for a block, such as `reward: NAME`, is written out when it is read.
A block of the method or of the reward that has another name replaces the block below it, since its keys mean nothing
there. `policy.kind` and `rollout.engine` replace nothing: the keys beside them are the same for all of them, and what
does not fit is refused.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from evals.errors import UsageError
from quatro.config.blocks import audit_block, keep_block, source_blocks, tracking_block
from quatro.config.errors import EXTENDS, Places, closest
from quatro.config.paths import Found, locate, places_in, take_records
from quatro.config.yaml_text import Document, KeyPath, load_yaml, scalar_text
from quatro.rewards.settings import DEFAULT_REWARD, reward_block

EXTENDS_MEANS = (
    "the configuration that this file extends: a file beside it, a run, or one that comes with quatro. Blocks are "
    "merged key by key; lists, and a method or reward of another name, are replaced"
)
# Blocks whose keys depend on their name, and the name of one without.
_NAMED: dict[KeyPath, str | None] = {("method",): None, ("reward",): DEFAULT_REWARD}
# What may stand for a block: `reward: NAME` or a list of rewards, `audit: true`, `checkpoint: {keep: 3}`, the name of a
# source in a list of prompts.
_SHORT_FOR: dict[KeyPath, Callable[[Any], Any]] = {
    ("reward",): reward_block,
    ("audit",): audit_block,
    ("data", "prompts"): source_blocks,
    ("checkpoint", "keep"): keep_block,
    ("tracking",): tracking_block,
}


class Settings:
    """What files and options have set so far: the ``tree`` of values, and the ``places`` where each key was set.

    ``found`` is what the paths in files name, by dotted key.
    """

    def __init__(self) -> None:
        self.found: dict[str, Found] = {}
        self.tree: dict[str | int, Any] = {}
        self.places: Places = {}

    def extend(self, values: Mapping[str, Any], places: Places, place: str = "") -> None:
        """Merge ``values`` into the tree; a method or reward of another name takes the place of the whole block."""
        names = {path[:1]: value for path, value, _ in _entries(values, places, place) if path[1:] == ("name",)}
        for block, unnamed in _NAMED.items():
            old = self.tree.get(block[0])
            if isinstance(old, dict) and names.get(block, name := old.get("name", unnamed)) != name:
                self.drop(block)
        self._put(values, places, place)

    def replace(self, path: tuple[str, ...], value: Any, place: str) -> None:
        """Put ``value`` in the place of whatever is at ``path``; raises UsageError where a part of it is no block."""
        for depth in range(1, len(path)):
            block = self.at(path[:depth])  # None: not there, or a block that is off
            number = int(path[depth]) if isinstance(block, list) and path[depth].isdecimal() else None
            rest = path[depth + 1 :]
            if number is not None and number < len(block) and (not rest or isinstance(block[number], dict)):
                inside = Settings()
                if rest:
                    inside.tree = block[number]
                    inside.replace(rest, value, place)
                entry = inside.tree if rest else value
                return self.replace(path[:depth], [*block[:number], entry, *block[number + 1 :]], place)
            if block is not None and not isinstance(block, dict):
                name = ".".join(path[:depth])
                raise UsageError(f"{place}: {name} is {scalar_text(block)}, which has no keys below it")
        self.drop(path)
        for part in reversed(path):
            value = {part: value}
        self._put(value, {}, place)

    def _put(self, values: Mapping[str, Any], places: Places, place: str) -> None:
        for path, value, here in _entries(values, places, place):
            parent, key = self.at(path[:-1]), path[-1]
            if value == {} and isinstance(parent.get(key), dict):
                continue  # a block that goes on
            self.drop(path)
            parent[key] = value
            self.places[path] = here

    def drop(self, path: KeyPath) -> None:
        """Forget the value at ``path`` and where it was set."""
        parent = self.at(path[:-1])
        if isinstance(parent, dict) and path[-1] in parent:
            del parent[path[-1]]
            self.places = {one: place for one, place in self.places.items() if one[: len(path)] != path}

    def at(self, path: KeyPath) -> Any:
        """The value at ``path``; None where there is none."""
        found: Any = self.tree
        for part in path:
            found = found.get(part) if isinstance(found, dict) else None
        return found


def _entries(
    values: Mapping[Any, Any], places: Places, place: str, above: KeyPath = ()
) -> Iterator[tuple[KeyPath, Any, str]]:
    """The path, value and place of each key: that in ``places``, or its block's. A block comes empty, before its keys.

    What is short for a block is written out.
    """
    for key, value in values.items():
        path = (*above, key)
        here = places.get(path, place)
        if path in _SHORT_FOR:
            with contextlib.suppress(ValueError):  # reported when the whole configuration is read
                value = _SHORT_FOR[path](value)
        yield path, {} if isinstance(value, dict) else value, here
        if isinstance(value, dict):
            yield from _entries(value, places, here, path)


def shipped_configs() -> dict[str, Path]:
    """Name -> file of every configuration that comes with the package; `quatro.sweep.file` knows the sweeps."""
    package = Path(str(resources.files("quatro")))
    installed = package / "_configs"  # from a wheel; a checkout has them in `configs/`
    folder = installed if installed.is_dir() else package.parent / "configs"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def find_config(source: str | Path, *, folder: Path = Path()) -> Path:
    """The file that ``source`` means: a file (seen from ``folder``), a run's config.yaml, or a shipped configuration.

    Raises UsageError, which lists the shipped ones, if there is none.
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


def read_settings(path: Path) -> Settings:
    """The file ``path`` on top of what it extends, and what that extends.

    Raises UsageError, with file and line, for one that is missing, no mapping or not strict YAML, or extends itself.
    """
    documents = [load_yaml(path)]
    while EXTENDS in documents[-1].data:
        documents.append(_below(documents))
    found = Settings()
    for document in reversed(documents):
        records = take_records(document.data)
        found.found |= locate(places_in(document.data), records, Path(document.name).parent)
        found.extend(document.data, {key: f"{document.name}:{line}" for key, line in document.lines.items()})
    return found


def _below(documents: list[Document]) -> Document:
    """What the last of ``documents`` extends; takes the key out of it."""
    last, names = documents[-1], [document.name for document in documents]
    value = last.data.pop(EXTENDS)
    try:
        if not isinstance(value, str):
            raise UsageError(f"found {scalar_text(value):.80}, expected a file or a configuration such as quickstart")
        found = find_config(value, folder=Path(last.name).parent)
        if found.resolve() in [Path(name).resolve() for name in names]:
            raise UsageError(f"a circle: {' extends '.join([*names, str(found)])}")
        return load_yaml(found)
    except UsageError as error:
        raise UsageError(f"{last.name}:{last.lines[(EXTENDS,)]}: {EXTENDS}: {error}") from None
