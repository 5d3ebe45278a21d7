"""The kernel's lock on an open file (flock): it ends with the process that holds it, however that ends."""

import errno
from pathlib import Path

from evals.errors import MissingError

_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


def lock_file(descriptor: int, path: Path, *, instead: str, is_shared: bool = False, waits: bool = False) -> None:
    """Lock ``path``, open as ``descriptor``. ``instead`` is what to type to have the file elsewhere.

    Raises:
        BlockingIOError: another process holds the lock, and this one is not to wait for it.
        MissingError: the system or the file system has no locks; names the file.
        OSError: names the file.
    """
    try:
        import fcntl
    except ImportError:
        raise MissingError(
            f"{path} cannot be locked: this system has no fcntl; use Linux, macOS or, on Windows, WSL"
        ) from None
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, kind if waits else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise MissingError(
            f"{path} cannot be locked ({error.strerror}): its file system has no locks, so two processes could write "
            f"there at once; choose a folder on a local disk with {instead}, or mount this one with locks"
        ) from error
