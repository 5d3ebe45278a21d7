"""Files that are the old one or the new one, never half, under names that are safe."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from evals.errors import UsageError


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace ``path`` by the concatenation of ``chunks``: temporary name, fsync, rename. Makes missing folders.

    Of a symbolic link the file it points to is replaced, not the link.

    Raises:
        UsageError: ``path`` is a folder, a device or a pipe: a rename would take its place.
        OSError: names the file; what stood there before still does.
    """
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{path} is {kind} and cannot be replaced; name a file, or let --json write to stdout")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:60]}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            for chunk in chunks:
                stream.write(chunk)
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp makes it private
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def file_stem(name: str) -> str:
    """``name`` where it is a safe file name, else a slug of it with a short hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:60]
    if slug and slug == name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest
