"""A digest of a model, which tells two versions of one name apart."""

from __future__ import annotations

import hashlib
from pathlib import Path

from evals.errors import DataError
from quatro.policy.adapters import adapter_chain
from quatro.policy.model_files import require_model


def model_digest(name: str) -> str:
    """The digest of a folder or Hub id; that of an adapter covers all models below it.

    Raises:
        MissingError: the model that an adapter changes is not on this machine.
        DataError: an adapter's folder is unreadable.
    """
    digests = [_folder_digest(Path(part)) if Path(part).is_dir() else _hub_digest(part) for part in adapter_chain(name)]
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()[:16]


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


def _hub_digest(name: str) -> str:
    """``NAME@COMMIT``; NAME alone while nothing of it is in the cache."""
    from huggingface_hub import try_to_load_from_cache

    file = try_to_load_from_cache(name, "config.json")  # .../snapshots/COMMIT/config.json
    return f"{name}@{Path(file).parent.name}" if isinstance(file, str) else name


def _folder_digest(model_folder: Path) -> str:
    """The digest of the sizes of all files, of small files, and of both ends of large files."""
    digest = hashlib.sha256()
    end_bytes = 2**20
    for path in sorted(model_folder.glob("*")):
        if path.suffix not in (".json", ".safetensors", ".bin"):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(end_bytes))
            if size > end_bytes:
                file.seek(max(end_bytes, size - end_bytes))
                digest.update(file.read(end_bytes))
    return digest.hexdigest()[:16]
