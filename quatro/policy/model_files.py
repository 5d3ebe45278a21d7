"""The files of a model: in a folder, in that of an adapter's base, or on the Hub. It loads nothing, not even torch.

First what a model or tokenizer needs (`require_model`, `check_model`), then adapters in peft's format and the models
that they change, digests, and what is told from a file's kind, size and header alone.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from evals.errors import DataError, MissingError, UsageError, require
from evals.files.belonging import run_of
from evals.files.strict_json import read_document, shown
from quatro.config import load_config
from quatro.config.errors import closest
from quatro.config.paths import folder_digest
from quatro.policy import embedded

ADAPTER_CONFIG = "adapter_config.json"  # a folder with this file is an adapter of the model that the file names
# Each part of a model is in one of these files.
_PARTS = {
    "tokenizer": ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model"),
    "model": ("config.json",),
    "weights": ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.bin.index.json"),
}
_INDEX, _SINGLE = "model.safetensors.index.json", "model.safetensors"
_MOST_HEADER_BYTES = 10 * 10**6  # models of thousands of tensors have less than one
_MOST_TEXT_BYTES = 256 * 2**20  # the largest tokenizers have a tenth
_TEXTS = (".json", ".jinja", ".txt", ".model")
_FOLDERS = ("", "additional_chat_templates")


def require_model(name: str, *, weights: bool = True) -> None:
    """Check that what `load_tokenizer`, `load_model_config` and `load_model` need is here or can be fetched.

    Without ``weights``, what `load_model` needs besides may be absent. It loads nothing, not even torch. An embedded
    model is made when it is first loaded.

    Raises what those functions raise, as far as names, folders and the Hub's cache tell.
    """
    require_tokenizer(name)
    if embedded.is_made(name):
        return
    place_of(name, "model")
    if os.path.isfile(Path(name, ADAPTER_CONFIG)):
        require("peft", f"{name} is an adapter, and reading it")
    if weights and os.path.isdir(place := place_of(name, "weights")):
        refuse_incomplete(Path(place))


def require_tokenizer(name: str) -> None:
    """As `require_model`, for `load_tokenizer` alone; of an embedded model both are made together."""
    if embedded.is_made(name):
        embedded.require(name)
        return
    place_of(name, "tokenizer")


def unread_kwargs(name: str, kwargs: Collection[str]) -> list[str]:
    """A line for each of ``kwargs`` that the chat template of the model ``name`` does not read, as far as it is here.

    Looks at the names in the template's expressions, without rendering it.
    """
    if not kwargs or find_spec("jinja2") is None:
        return []
    from jinja2 import Environment, TemplateSyntaxError

    tokens = [("", "")]
    with suppress(MissingError, TemplateSyntaxError):  # said by who loads it, or renders it
        lexed = Environment().lex(_chat_template(name))
        tokens += [(kind, value) for _, kind, value in lexed if not value.isspace()]
    read = {value for (_, before), (kind, value) in pairwise(tokens) if kind == "name" and before != "."}
    said = f"chat_template_kwargs: the chat template of {name} reads no"
    return [f"{said} {key}, which changes no prompt{closest(key, read)}" for key in kwargs if read and key not in read]


def _chat_template(name: str) -> str:
    """The text of the chat templates of a model whose tokenizer is in a folder here or in the Hub's cache."""
    place = place_of(embedded.resolve_model(name), "tokenizer") if embedded.is_cached(name) else ""
    if place and not os.path.isdir(place):
        from huggingface_hub import try_to_load_from_cache

        place = os.path.dirname(str(try_to_load_from_cache(place, "tokenizer_config.json") or ""))
    folders = [Path(place, below) for below in _FOLDERS if place]
    found = [path.read_text("utf-8", "replace") for folder in folders for path in folder.glob("*.jinja")]
    if place and not found and (file := Path(place, "tokenizer_config.json")).is_file():
        found = [str(read_document(file, allow_non_finite=True).get("chat_template", ""))]
    return "\n".join(found)


def place_of(name: str, part: str) -> str:
    """Where a ``part`` of the model ``name``, a key of `_PARTS`, is or, on the Hub, may be: there, or in its base.

    Raises:
        MissingError: it is in neither; names the adapter that asks for a base.
        DataError: what lies there cannot be read.
    """
    # An adapter may bring a tokenizer of its own.
    is_own = part == "tokenizer" and any(os.path.isfile(Path(name, file)) for file in _PARTS[part])
    place = name if is_own else base_of(name)
    try:
        require_part(place, part)
    except MissingError as error:
        if place == name:
            raise
        file = Path(name, ADAPTER_CONFIG)
        raise MissingError(f"{error}; {place} is the model of the adapter {name}: {file}") from error
    return place


def require_part(name: str, part: str) -> None:
    """Raises MissingError if a folder is not there or holds no such part, or the Hub's copy is out of reach.

    Raises UsageError for an adapter on the Hub, which must be a folder here.
    """
    folder = Path(name)
    if os.path.isdir(name):
        refuse_strange(folder)
        if not any(path.is_file() for pattern in _PARTS[part] for path in folder.glob(pattern)):
            raise MissingError(
                f"the folder {name} holds no {part}: none of {', '.join(_PARTS[part])} is there; "
                "point at a folder written by save_pretrained"
            )
    elif os.path.exists(name):
        raise MissingError(f"{name} is a file; a {part} is a folder written by save_pretrained, or a Hub id")
    elif not may_be_hub_id(name):
        raise MissingError(f"no folder {name:.300} here; give the folder of a model, a Hub id, or embedded:countdown")
    else:
        _refuse_unreachable(name)


def _refuse_unreachable(name: str) -> None:
    """Refuse an adapter of the Hub, and what its library would refuse after a minute: no network and no copy."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants, try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, ADAPTER_CONFIG), str):
        raise UsageError(
            f"{name} on the Hub is an adapter; run hf download {name} --local-dir FOLDER, and give that folder"
        )
    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return
    if constants.is_offline_mode():
        reason = "the Hub is not asked (HF_HUB_OFFLINE is set)"
    elif getproxies():  # a proxy finds the host by itself
        return
    else:
        host = urlsplit(constants.ENDPOINT).hostname
        try:
            socket.getaddrinfo(host, 443)
            return
        except OSError as error:
            reason = f"{host} cannot be reached ({error.strerror or error})"
    raise MissingError(
        f"the model {name!r} is neither a folder here nor in the Hub's cache, and {reason}; on a machine with network "
        f"run `hf download {name}`, or give a local folder (to train: -s model=FOLDER)"
    )


def check_model(name: str, *, trained_on: str | None = None) -> None:
    """Whether a model can be loaded, as far as that shows without torch.

    ``trained_on`` is the digest of the model that an adapter was trained on.

    Raises:
        MissingError, DataError, UsageError: what `require_model` raises.
        DataError: the model below the adapter is another one now.
    """
    require_model(name)
    below = adapter_chain(name)[1:]
    if below and trained_on is not None and trained_on != (now := model_digest(below[0])):
        raise DataError(
            f"the model {below[0]} changed since the run began (digest {trained_on}, now {now}), and the adapter in "
            f"{name} fits the old one only; put it back"
        )


def base_of(name: str) -> str:
    """The model below all adapters, as a folder or Hub id; ``name`` itself if it is no adapter.

    Raises as `adapter_chain`.
    """
    return adapter_chain(name)[-1]


def adapter_chain(name: str) -> list[str]:
    """``name``, then what it changes if it is an adapter, and so on down to the model at the end.

    Raises:
        MissingError: that model is not on this machine.
        DataError: a folder is unreadable, or does not say which model it changes, or they change one another.
    """
    chain = [name]
    while (changed := changed_by(chain[-1])) is not None:
        is_circle = os.path.realpath(changed) in map(os.path.realpath, chain)
        chain.append(changed)
        if is_circle:
            raise DataError(
                f"adapters that change one another in a circle: {' -> '.join(chain)}; name the model they were made "
                f'for as "base_model_name_or_path" in the {ADAPTER_CONFIG} of one of them'
            )
    return chain


def changed_by(name: str) -> str | None:
    """The model that the adapter in the folder ``name`` changes, which may be an adapter too; None if it is none."""
    file = Path(name) / ADAPTER_CONFIG
    if os.path.isdir(name):
        refuse_strange(Path(name))
    if not os.path.isfile(file):
        return None
    try:
        changed = read_document(file, allow_non_finite=True).get("base_model_name_or_path")
    except DataError as error:
        raise DataError(f"{error}; copy the adapter again") from error
    if not isinstance(changed, str) or not changed:
        raise DataError(f'{file} does not say which model it changes; name it as "base_model_name_or_path"')
    own = Path(name).resolve()
    if (run := run_of(own)) is not None and own.parents[1] == run / "checkpoints":
        changed = load_config(run).model  # which finds a model that was moved together with the run
    base = embedded.resolve_model(changed)
    # An adapter that was copied together with its model names it from where both lie.
    for place in (Path(), own, own.parent):
        if os.path.exists(place / base):
            return str(place / base)
    if not may_be_hub_id(base):
        raise MissingError(
            f"{name} is an adapter of the model {changed}, which is neither here nor beside the adapter; put that "
            f"folder back, or a link to it (`ln -s NEW {changed}`); {file} names it"
        )
    return base


def may_be_hub_id(name: str) -> bool:
    """Whether ``name`` has the form of an id on the Hub."""
    return len(name) <= 96 and re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name, re.ASCII) is not None


def model_digest(name: str) -> str:
    """The digest of a folder or Hub id; that of an adapter covers all models below it.

    Raises:
        MissingError: the model that an adapter changes is not on this machine.
        DataError: an adapter's folder is unreadable.
    """
    digests = [folder_digest(Path(part)) if Path(part).is_dir() else _hub_digest(part) for part in adapter_chain(name)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


def _hub_digest(name: str) -> str:
    """``NAME@COMMIT``; NAME alone while nothing of it is in the cache."""
    if not may_be_hub_id(name) or find_spec("huggingface_hub") is None:
        return name
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(name, "config.json")  # .../snapshots/COMMIT/config.json
    return f"{name}@{Path(file).parent.name}" if isinstance(file, str) else name


def refuse_strange(folder: Path) -> None:
    """Refuse a folder with a pipe, a device or a socket in it, which may keep a reader for ever, or an endless text.

    Links may lead anywhere, as those of the Hub's cache do.

    Raises DataError, which names the file.
    """
    for path in (path for below in _FOLDERS for path in (folder / below).glob("*")):
        try:
            found = path.stat()
        except OSError:  # a link to nowhere is a file that is missing
            continue
        if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
            raise DataError(f"{path} is a pipe, a device or a socket, expected a file; copy the model again without it")
        if path.suffix in _TEXTS and found.st_size > _MOST_TEXT_BYTES:
            raise DataError(
                f"{path} has {found.st_size:,} bytes, expected {_MOST_TEXT_BYTES:,} at most; copy the model again"
            )


def refuse_incomplete(folder: Path) -> None:
    """Refuse safetensors weights of ``folder`` of which a file is missing, elsewhere or cut off, in milliseconds.

    Raises DataError, which names the file.
    """
    from safetensors import SafetensorError, safe_open

    index = folder / _INDEX
    if index.is_file():
        named = read_document(index).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise DataError(f"{index}: weight_map is no list of tensors and their files; copy the file again")
        names = sorted(set(named.values()))
        for name in names:
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise DataError(f"{index} names {shown(name)}, which is not in its folder; copy the model again")
        files = [folder / name for name in names]
    else:
        files = [folder / _SINGLE] if (folder / _SINGLE).is_file() else []
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is missing, and {_INDEX} names it; copy or download the complete model")
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
        if length > _MOST_HEADER_BYTES:
            raise DataError(
                f"{file} is no safetensors file: its first 8 bytes say that its header has {length:,} bytes, expected "
                f"{_MOST_HEADER_BYTES:,} at most; copy it again"
            )
        try:
            with safe_open(file, framework="numpy"):
                pass
        except SafetensorError as error:
            raise DataError(
                f"{file} is no safetensors file, was cut off or is still being copied ({file.stat().st_size:,} bytes): "
                f"{error}; copy it again, or update safetensors"
            ) from error
