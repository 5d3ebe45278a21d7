"""Folders of adapters in peft's format, and which models they change. Imports no torch."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evals.errors import DataError, MissingError, UsageError
from evals.files.strict_json import read_document
from quatro.policy.whole_weights import refuse_strange

ADAPTER_CONFIG = "adapter_config.json"  # a folder with this file is an adapter of the model that the file names


def base_of(name: str) -> str:
    """The model below all adapters, as a folder or Hub id; ``name`` itself if it is no adapter.

    Raises:
        As `adapter_chain`.
    """
    return adapter_chain(name)[-1]


def adapter_chain(name: str) -> list[str]:
    """``name``, then what it changes if it is an adapter, and so on down to the model at the end.

    Raises:
        MissingError: that model is not on this machine.
        DataError: a folder is unreadable, or does not say which model it changes, or they change one another.
        UsageError: an adapter that is on the Hub, and not in a folder.
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
    try:
        is_adapter = file.is_file()
    except (OSError, ValueError):  # a name no file system takes
        return None
    refuse_strange(Path(name))
    if not is_adapter:
        _refuse_adapter_on_hub(name)
        return None
    try:
        changed = read_document(file, allow_non_finite=True).get("base_model_name_or_path")
    except DataError as error:
        raise DataError(f"{error}; copy the adapter again") from error
    if not isinstance(changed, str) or not changed:
        raise DataError(f'{file} does not say which model it changes; name it as "base_model_name_or_path"')
    from quatro.policy.embedded import resolve_model

    base = resolve_model(changed)
    own = Path(name).resolve()
    # An adapter that was copied together with its model names it from where both lie.
    for place in (Path(), own, own.parent):
        if os.path.exists(place / base):
            return str(place / base)
    if not may_be_hub_id(base):
        # A checkpoint's files are under a manifest: no line of them can be changed.
        is_free = not (Path(name).parent / "manifest.json").exists()
        advice = (
            f', or name it as "base_model_name_or_path" in {file}' if is_free else f" (`ln -s NEW {changed}` will do)"
        )
        raise MissingError(
            f"{name} is an adapter of the model {changed}, which is neither here nor beside the adapter; put that "
            f"folder back{advice}"
        )
    return base


def _refuse_adapter_on_hub(name: str) -> None:
    if os.path.exists(name) or not may_be_hub_id(name):
        return
    from huggingface_hub import try_to_load_from_cache

    if isinstance(try_to_load_from_cache(name, ADAPTER_CONFIG), str):
        raise UsageError(
            f"{name} on the Hub is an adapter; run hf download {name} --local-dir FOLDER, and give that folder"
        )


def may_be_hub_id(name: str) -> bool:
    """Whether ``name`` has the form of an id on the Hub."""
    return len(name) <= 96 and re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name, re.ASCII) is not None
