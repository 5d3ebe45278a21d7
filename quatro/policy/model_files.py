"""Where the files of a model are: in a folder, in that of an adapter's base, or on the Hub. It loads nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evals.errors import MissingError
from quatro.config import packages
from quatro.policy.adapters import ADAPTER_CONFIG, base_of, changed_by, may_be_hub_id
from quatro.policy.whole_weights import refuse_incomplete, refuse_strange

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model")
WEIGHT_FILES = ("*.safetensors", "*.safetensors.index.json", "pytorch_model*.bin", "pytorch_model*.bin.index.json")


def require_model(name: str) -> None:
    """Check that what `load_tokenizer`, `load_model_config` and `load_model` need is here or can be fetched.

    It loads nothing, not even torch. An embedded model is made when it is first loaded.

    Raises:
        What those functions raise, as far as names, folders and the Hub's cache tell.
    """
    require_tokenizer(name)
    if name.startswith("embedded:"):
        return
    place_of(name, ("config.json",), what="model")
    if changed_by(name) is not None:
        require_peft(name)
    place = Path(place_of(name, WEIGHT_FILES, what="weights"))
    if place.is_dir():
        refuse_incomplete(place)


def require_tokenizer(name: str) -> None:
    """As `require_model`, for `load_tokenizer` alone; of an embedded model both are made together."""
    if name.startswith("embedded:"):
        from quatro.policy.embedded import recipe_of

        recipe_of(name)
        return
    place_of(name, TOKENIZER_FILES, what="tokenizer")


def place_of(name: str, patterns: tuple[str, ...], *, what: str) -> str:
    """Where one of the files ``patterns`` of the model ``name`` is or, on the Hub, may be: there, or in its base.

    Raises:
        MissingError: they are in neither; it names the adapter that asks for a base.
        DataError: what lies there cannot be read.
    """
    # An adapter may bring a tokenizer of its own.
    is_own = what == "tokenizer" and any(Path(name, file).is_file() for file in patterns)
    place = name if is_own else base_of(name)
    with wanted_by(name, place):
        require_files(place, patterns, what=what)
    return place


def require_peft(adapter: str) -> None:
    """Raises MissingError with the command that installs it unless the library that reads adapters is here."""
    packages.require("peft", f"{adapter} is an adapter, and reading it")


def require_files(name: str, patterns: tuple[str, ...], *, what: str) -> None:
    """Raises MissingError if a folder is not there or holds none of the files, or the Hub's copy is out of reach."""
    folder = Path(name)
    try:
        is_folder, exists = folder.is_dir(), folder.exists()
    except (OSError, ValueError) as error:  # a name no file system takes
        raise MissingError(
            f"no model or tokenizer can be called {name[:80]!r}...: {error.__class__.__name__}"
        ) from error
    if is_folder:
        refuse_strange(folder)
        if not any(path.is_file() for pattern in patterns for path in folder.glob(pattern)):
            raise MissingError(
                f"the folder {name} holds no {what}: none of {', '.join(patterns)} is there; "
                "point at a folder written by save_pretrained"
            )
    elif exists:
        raise MissingError(f"{name} is a file; a {what} is a folder written by save_pretrained, or a Hub id")
    elif not may_be_hub_id(name):
        raise MissingError(f"no folder {name} here; give the folder of a model, a Hub id, or embedded:countdown")
    else:
        _refuse_unreachable(name)


def _refuse_unreachable(name: str) -> None:
    """Refuse at once what the Hub's library would refuse after a minute: no network, and nothing in the cache."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    from huggingface_hub import constants, try_to_load_from_cache

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


@contextmanager
def wanted_by(name: str, base: str) -> Iterator[None]:
    """Inside, the error about a missing model also names the adapter that asks for it, if one does."""
    try:
        yield
    except MissingError as error:
        if base == name:
            raise
        raise MissingError(
            f"{error}; {base} is the model of the adapter {name}: {Path(name, ADAPTER_CONFIG)}"
        ) from error
