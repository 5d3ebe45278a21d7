"""Paths in the files of runs and sweeps: how what they name is found again after a move.

The files name models and data as seen from the folder that holds the file, or absolutely where both have only the root
in common. As `sha256sum` does, their block `paths` has the digest of what was there, and the path as it was typed:

    model: ../../model
    paths: {model: 0f3a5c61d2b47e98 model}

What lies there, or at the typed path seen from the current folder, is taken if it has the digest; who reads the file
gets its absolute path. In any other file a relative path means the folder of the file, then the current folder. Names
of the Hub, of benchmarks, runs and embedded models are no paths.
"""

import copy
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from evals.benchmarks.problems import FILE_ENDINGS
from evals.benchmarks.prompts import TEMPLATES
from evals.files.belonging import file_sha256
from quatro.tasks.word_problems import MODELS

PATHS = "paths"  # a block of files alone, as `extends` is a key of files alone
TEMPLATE = "data.template"  # a file that is read with the configuration, and then no more
PASS_RATES = "data.pass_rate.from"
PROMPTS = "data.prompts"  # a list of them has paths in it
KEYS = ("model", "kl.reference", PROMPTS, "eval.benchmark", "rollout.replay_file", PASS_RATES, TEMPLATE)
_END_BYTES = 2**20

Place = tuple[str, Any, Any]  # a dotted key, the mapping or list that holds its value, and where in it


class Recorded(NamedTuple):
    """The ``digest`` of what a path named, and the path as it was ``typed``."""

    digest: str
    typed: str


class Found(NamedTuple):
    """The path of a key, and a ``note`` on where its file or folder was found."""

    text: str
    record: Recorded | None = None
    note: str = ""


def places_in(tree: Mapping[Any, Any]) -> Iterator[Place]:
    """The keys of a configuration's ``tree`` whose values may be paths, those in lists and of reward models too."""
    for key in KEYS:
        holder: Any = tree
        *blocks, last = key.split(".")
        for block in blocks:
            holder = holder.get(block) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and isinstance(holder.get(last), str):
            yield key, holder, last
        if key == PROMPTS and isinstance(holder, dict):
            yield from source_places(holder.get(last))
        if key == "eval.benchmark" and isinstance(holder, dict) and isinstance(holder.get(last), list | tuple):
            holder[last] = several = list(holder[last])
            places = ((f"{key}.{number}", several, number) for number in range(len(several)))
            yield from (place for place in places if isinstance(several[place[2]], str))
    yield from _reward_places(tree.get("reward"), "reward.options")


def source_places(prompts: Any) -> Iterator[Place]:
    """The same of a list of sources of prompts; none of a single one."""
    for number, one in enumerate(prompts if isinstance(prompts, list) else ()):
        key = f"{PROMPTS}.{number}"
        if isinstance(one, str):
            yield f"{key}.source", prompts, number
        elif isinstance(one, dict):
            yield from (
                (f"{key}.{name}", one, name) for name in ("source", "template") if isinstance(one.get(name), str)
            )
            yield from _reward_places(one.get("reward"), f"{key}.reward.options")


def _reward_places(reward: Any, key: str) -> Iterator[Place]:
    block = {"options": {"rewards": reward}} if isinstance(reward, list) else reward  # for which the list is short
    options = block.get("options") if isinstance(block, dict) else None
    if isinstance(options, dict):
        if block.get("name") == "model" and isinstance(options.get("path"), str):
            yield f"{key}.path", options, "path"
        for number, part in enumerate(parts if isinstance(parts := options.get("rewards"), list) else ()):
            yield from _reward_places(part, f"{key}.rewards.{number}.options")


def take_records(tree: dict[Any, Any]) -> dict[str, Recorded]:
    """The block `paths`, which is taken out of ``tree``; one of another form stays there, as an unknown key."""
    block = tree.get(PATHS)
    if not isinstance(block, dict) or not all(isinstance(text, str) and " " in text for text in block.values()):
        return {}
    return {key: Recorded(*text.split(" ", 1)) for key, text in tree.pop(PATHS).items()}


def locate(places: Iterable[Place], records: Mapping[str, Recorded], folder: Path) -> dict[str, Found]:
    """What was found of ``places`` in a file in ``folder``; its path takes the place of the value."""
    found = {}
    for key, holder, at in places:
        text, record = holder[at], records.get(key)
        one = _own(key, text, folder) if record is None else Found(_again(folder / text, record), record)
        if one is not None:
            found[key], holder[at] = one, one.text
    return found


def _again(path: Path, record: Recorded) -> str:
    first, *others = _places(path, record)
    there = [first, *filter(os.path.exists, others)]
    if len(there) == 1:  # without a choice nothing is read; `why_lost` compares for those who use what is there
        return first
    return next((place for place in there if digest_of(place) == record.digest), first)


def _places(path: str | Path, record: Recorded) -> list[str]:
    """Where something may be: at ``path``, and where it was typed."""
    return list(dict.fromkeys(os.path.realpath(one) for one in (path, os.path.expanduser(record.typed))))


def _own(key: str, text: str, folder: Path) -> Found | None:
    """None for a name, for an absolute path, and for what is nowhere."""
    for place in (folder / text, Path(text)):
        if may_be_path(key, text) and not os.path.isabs(text) and os.path.exists(place):
            is_here = place == Path(text)
            return Found(str(place), note=f"found in {'the current folder' if is_here else folder}")
    return None


def may_be_path(key: str, text: str) -> bool:
    """Whether ``text`` is not a name that quatro itself knows: problems are a file by the ending."""
    if key.endswith(".template"):
        return text not in TEMPLATES
    is_problems = key == PROMPTS or key.startswith(("eval.benchmark", "benchmarks.")) or key.endswith(".source")
    return text.endswith(FILE_ENDINGS) if is_problems else not (text.startswith("embedded:") or text in MODELS)


def by_digest(tree: Mapping[str, Any], digests: Mapping[str, str], *others: Mapping[str, str]) -> dict[str, Any]:
    """``tree`` with ``digests``, by key, in place of paths of which all ``others`` have one: spellings do not count."""
    changed = copy.deepcopy(dict(tree))
    for key, holder, at in places_in(changed):
        if key in digests and all(key in other for other in others):
            holder[at] = digests[key]
    return changed


def why_lost(path: str, record: Recorded) -> str:
    """What lies at ``path`` and where it was typed, if that is not what was recorded; else empty."""
    if digest_of(path) == record.digest:
        return ""
    found = {place: digest_of(place) for place in _places(path, record)}
    said = [f"{place} {f'has the digest {digest}' if digest else 'is not there'}" for place, digest in found.items()]
    return f"{' and '.join(said)}; expected the digest {record.digest}"


def relative(path: str, folder: Path) -> str:
    """The absolute ``path`` as seen from ``folder``; as it is where both have only the root in common."""
    here = os.path.realpath(folder)
    is_near = os.path.isabs(path) and os.path.dirname(common := os.path.commonpath([here, path])) != common
    return os.path.relpath(path, here) if is_near else path


def digest_of(place: str | Path) -> str | None:
    """16 digits of a file's SHA-256, or `folder_digest`; None where nothing is, or what cannot be read."""
    try:
        path = Path(os.path.abspath(place))
        if path.is_dir():
            return folder_digest(path)
        return file_sha256(path)[:16] if path.is_file() else None
    except (OSError, ValueError):  # a name that no file system takes, too
        return None


def folder_digest(folder: Path) -> str:
    """The digest of a model: of the sizes of all files, of small files, and of both ends of large files.

    A folder without weights, but with samples, has the digest of these.
    """
    files = [path for end in (".json", ".safetensors", ".bin") for path in folder.glob(f"*{end}") if path.is_file()]
    if not any(path.suffix != ".json" for path in files):
        place = folder / "samples" if (folder / "samples").is_dir() else folder
        files = [path for path in place.rglob("*.jsonl*") if path.is_file()] or files
    return _digest_of_ends(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(files)))


@lru_cache(maxsize=256)
def _digest_of_ends(files: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, size, _ in files:
        digest.update(f"{path.name}:{size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_END_BYTES))
            if size > _END_BYTES:
                file.seek(max(_END_BYTES, size - _END_BYTES))
                digest.update(file.read(_END_BYTES))
    return digest.hexdigest()[:16]
