"""The manifest of a checkpoint: size and SHA-256 of every file in it, and a hash of its own. It is written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from evals.errors import DataError
from evals.files.strict_json import read_document
from evals.files.whole import file_digest, write_text
from quatro.runs.directory import step_number

MANIFEST = "manifest.json"


def is_whole(path: Path) -> bool:
    """Whether ``path`` is a checkpoint to the end: its manifest is written last."""
    return (path / MANIFEST).is_file()


def write_manifest(path: Path, step: int) -> None:
    """Write the manifest of what is in ``path``, the checkpoint of ``step``."""
    write_text(path / MANIFEST, _text(step, {name: _entry(file) for name, file in _files(path)}))


def verify(path: Path) -> int:
    """The step of the checkpoint in ``path``, after every file was compared with the manifest.

    Raises:
        DataError: names the file that is missing, extra or changed, with both hashes.
    """
    if not is_whole(path):
        raise DataError(f"{path} is not a complete checkpoint: it has no {MANIFEST}")
    manifest = read_document(path / MANIFEST)
    advice = f"restore it, or remove {path} to use the checkpoint before it"
    try:
        step, files = int(manifest["step"]), {str(name): entry for name, entry in manifest["files"].items()}
        is_own = _text(step, files) == (path / MANIFEST).read_text(encoding="utf-8")
    except (KeyError, TypeError, ValueError, AttributeError):
        is_own = False
    if not is_own:
        raise DataError(f"{path / MANIFEST} was changed: it does not match its own hash; {advice}")
    if step_number(path.name) not in (None, step):
        raise DataError(f"{path} holds the checkpoint of step {step}: the directory was renamed")
    present = dict(_files(path))
    for name in sorted(files.keys() | present.keys()):
        if name not in present:
            raise DataError(f"{path / name} is missing (expected SHA-256 {files[name]['sha256']}); {advice}")
        if name not in files:
            raise DataError(f"{path / name} is extra: the manifest does not have it; remove it")
        found = _entry(present[name])
        if found != files[name]:
            raise DataError(
                f"{path / name} was changed: {found['bytes']} bytes with SHA-256 {found['sha256']}, "
                f"expected {files[name]['bytes']} bytes with {files[name]['sha256']}; {advice}"
            )
    return step


def _text(step: int, files: Mapping[str, Any]) -> str:
    body = {"schema": 1, "step": step, "files": dict(sorted(files.items()))}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode("utf-8")).hexdigest()
    return json.dumps({**body, "sha256": digest}, indent=2) + "\n"


def _entry(file: Path) -> dict[str, Any]:
    if not file.is_file() or file.is_symlink():
        return {"bytes": None, "sha256": "none: not a plain file"}
    return {"bytes": file.stat().st_size, "sha256": file_digest(file).hexdigest()}


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if name != MANIFEST and (file.is_symlink() or not file.is_dir()):
            yield name, file
