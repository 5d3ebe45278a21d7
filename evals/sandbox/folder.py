"""The folder that a program works in: emptied after it, and watched while it runs."""

from __future__ import annotations

import os
import stat

MOST_FILES = 4096


def empty(folder: str) -> None:
    """Removes all that lies in a folder, without recursion: thousands of nested folders are no trouble."""
    counter = 0
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.path)
                continue
            os.chmod(entry.path, stat.S_IRWXU)
            for inner in list(os.scandir(entry.path)):
                counter += 1
                if inner.is_dir(follow_symlinks=False):
                    os.chmod(inner.path, stat.S_IRWXU)  # the kernel wants to write in what it moves
                os.rename(inner.path, os.path.join(folder, f"..{os.getpid()}-{counter}"))
            os.rmdir(entry.path)


def is_overfull(folder: str, most_bytes: int) -> bool:
    """Whether there are more files in a folder, or more bytes in them, than a program may have."""
    num_files = num_bytes = 0
    waiting = [folder]
    try:
        while waiting:
            for entry in os.scandir(waiting.pop()):
                num_files += 1
                num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                if num_files > MOST_FILES or num_bytes > most_bytes:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    except FileNotFoundError:
        return False  # it is being changed
    except OSError:
        return True  # a path that is too long, or a folder that cannot be read
    return False
