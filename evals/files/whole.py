"""Writing files so that readers see the old or the new one, never half: temporary name, fsync, rename, fsync.

And the kernel's lock on an open file (flock), which ends with the process that holds it, however that ends; and the
cache, which keeps what models answered by what was asked, so that nothing is asked for twice.
"""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from evals.errors import MissingError, UsageError

_CHUNK_BYTES = 1 << 20
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


@contextlib.contextmanager
def naming(path: Path, *, temporary: Path | None = None) -> Iterator[None]:
    """Names the file in I/O errors that name none or ``temporary``, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        is_named = error.filename is not None and error.filename != str(temporary)
        if is_named or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def refuse_unwritable(folder: Path) -> None:
    """Raises OSError, which names the folder, if nothing can be written to ``folder`` or where it would be made."""
    above = next(one for one in (folder, *folder.absolute().parents) if one.is_dir())
    temporary = above / f".writable.{os.getpid()}.tmp"
    with naming(above, temporary=temporary):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        temporary.unlink()


def write_bytes(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace ``path`` by the ``chunks``, or leave what stood there and raise OSError, which names the file."""
    temporary = path.with_name(f".{path.name[:60]}.{secrets.token_hex(4)}.tmp")
    with naming(path, temporary=temporary):
        try:
            with temporary.open("xb") as stream:
                for chunk in chunks:
                    stream.write(chunk)
                flush_to_disk(stream)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)


def write_whole(path: Path, chunks: Iterable[bytes]) -> None:
    """`write_bytes` to a file that a user has named. Missing folders are made, and links are followed.

    Raises:
        UsageError: ``path`` is a folder, a device or a pipe: a rename would take its place.
        OSError: names the file; what stood there before still does.
    """
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "no regular file"
        raise UsageError(f"{path} is {kind} and cannot be replaced; name a file, or let --json write to stdout")
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, chunks)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text`` in UTF-8; raises as `write_bytes`."""
    write_bytes(path, [text.encode("utf-8")])


def write_json(path: Path, value: Any) -> None:
    """One indented JSON document; NaN and infinities become null."""
    write_text(path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def json_line(row: Mapping[str, Any]) -> bytes:
    """`strict_json_line` in which NaN and infinities become null."""
    return strict_json_line(finite(row))


def strict_json_line(row: Mapping[str, Any]) -> bytes:
    """One JSON object in UTF-8 and a newline; raises ValueError for a number that is not finite."""
    try:
        return json.dumps(row, ensure_ascii=False, allow_nan=False).encode("utf-8") + b"\n"
    except UnicodeEncodeError:  # half a surrogate pair has no UTF-8 form, but it has a JSON escape
        return json.dumps(row, allow_nan=False).encode("ascii") + b"\n"


def finite(value: Any) -> Any:
    """``value`` with non-finite floats as None and numpy or torch scalars as plain numbers."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if not isinstance(value, (str, int, type(None))) and hasattr(value, "item"):
        return finite(value.item())
    return value


def file_digest(path: Path, num_bytes: int | None = None) -> "hashlib._Hash":
    """SHA-256 of a file or of its first ``num_bytes``, as an object that takes more bytes."""
    digest = hashlib.sha256()
    left = path.stat().st_size if num_bytes is None else num_bytes
    with path.open("rb") as stream:
        while chunk := stream.read(min(left, _CHUNK_BYTES)):
            digest.update(chunk)
            left -= len(chunk)
    return digest


def flush_to_disk(stream: BinaryIO) -> None:
    """Returns once what was written to ``stream`` survives a power cut."""
    stream.flush()
    os.fsync(stream.fileno())


def open_like_folder(path: Path) -> None:
    """Let those read ``path`` who may read its folder, as the umask wants it: safetensors makes its files private."""
    path.chmod(path.stat().st_mode | path.parent.stat().st_mode & 0o666)


def fsync_directory(path: Path) -> None:
    """Make renames inside ``path`` survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        with naming(path):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def file_stem(name: str) -> str:
    """``name`` if it is a safe file name, else a slug of it with a short hash."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._-")[:60]
    if slug and slug == name:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


def lock_file(descriptor: int, path: Path, *, instead: str, is_shared: bool = False, waits: bool = False) -> None:
    """Lock ``path``, open as ``descriptor``. ``instead`` is what to type to have the file elsewhere.

    Raises:
        BlockingIOError: another process holds the lock, and this one is not to wait for it.
        MissingError: the file system has no locks; names the file.
        OSError: names the file.
    """
    import fcntl  # Windows, where `quatro` ends at once, has none

    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if waits else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise MissingError(
            f"{path} cannot be locked ({error.strerror}): its file system has no locks, so two processes could write "
            f"there at once; choose a folder on a local disk with {instead}, or mount this one with locks"
        ) from error


def cache_root() -> Path:
    """``$QUATRO_CACHE``, else ``~/.cache/quatro``."""
    return Path(os.environ.get("QUATRO_CACHE") or Path.home() / ".cache" / "quatro")


def key_of(*parts: object) -> str:
    """The key of what was asked with ``parts``, JSON values."""
    return hashlib.sha256(json.dumps(parts).encode("ascii")).hexdigest()


def kept(folder: str, keys: Iterable[str]) -> dict[str, Any]:
    """The JSON values, by key, that `keep` put into this ``folder`` of the cache; a damaged one is none."""
    found = {}
    for key in keys:
        with contextlib.suppress(OSError, ValueError):
            check, _, text = (cache_root() / folder / key[:2] / key).read_text(encoding="ascii").partition("\n")
            if check == key_of(key, text):
                found[key] = json.loads(text)
    return found


def keep(folder: str, key: str, value: object) -> None:
    """Keeps ``value``. It is not flushed to the disk: what a power cut leaves of it is found to be damaged."""
    text, path = json.dumps(value), cache_root() / folder / key[:2] / key
    path.parent.mkdir(parents=True, exist_ok=True)
    (temporary := path.with_suffix(f".{os.getpid()}")).write_text(f"{key_of(key, text)}\n{text}", encoding="ascii")
    os.replace(temporary, path)
