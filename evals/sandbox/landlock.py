"""Landlock: which files a process may reach, however it gets there. No capability is needed."""

import ctypes
import functools
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from evals.sandbox import packages
from evals.sandbox.kernel import forbid_new_privileges, syscall

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
# From this version on the kernel refuses truncation too. Before it a program could empty any file of its user.
_OLDEST_ABI = 3

# Bits of access rights (linux/landlock.h).
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_EXECUTE, _MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 0, 1 << 6, 1 << 9, 1 << 11
_TRUNCATE, _IOCTL_DEVICE = 1 << 14, 1 << 15
_RIGHTS_BY_ABI = {3: (1 << 15) - 1, 5: (1 << 16) - 1}
_TCP = 0b11  # bind and connect, from version 4 on
_SCOPES = 0b11  # abstract sockets and signals to processes outside, from version 6 on

_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")


@functools.cache
def readable_paths(names: tuple[str, ...] = packages.PACKAGES) -> list[str]:
    """What a program may read: the standard library, the named packages and the system's libraries.

    A rule holds for all beneath a path, so a folder that holds installed packages is never one of these.
    """
    paths = {*_SYSTEM_FILES, *packages.system_libraries(), *packages.standard_library(), *packages.installed(names)}
    return sorted(path for path in paths if os.path.exists(path))


def make_ruleset(work: str, readable: Iterable[str]) -> int:
    """A descriptor of the rules: read the paths ``readable``, write in ``work``, no TCP, no signals outwards.

    Raises OSError if the kernel has no Landlock, or an older one than the rules need.
    """
    version = syscall(_CREATE_RULESET, None, 0, 1)  # `OSError` if it has none or has it switched off
    if version < _OLDEST_ABI:
        raise OSError(f"Landlock has version {version} here; version {_OLDEST_ABI} is the first that guards truncation")
    rights = max(mask for since, mask in _RIGHTS_BY_ABI.items() if since <= version)
    attributes = struct.pack("QQQ", rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = syscall(_CREATE_RULESET, attributes[:size], size, 0)
    for path in readable:
        _allow(ruleset, path, _READ_FILE | _READ_DIR)
    for path in _DEVICES:
        if os.path.exists(path):
            _allow(ruleset, path, _READ_FILE | _WRITE_FILE | _TRUNCATE & rights)
    _allow(ruleset, work, rights & ~(_EXECUTE | _MAKE_CHAR | _MAKE_BLOCK | _MAKE_SOCK | _IOCTL_DEVICE))
    return ruleset


def _allow(ruleset: int, path: str, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not Path(path).is_dir():
            rights &= _READ_FILE | _WRITE_FILE | _TRUNCATE
        attributes = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor))
        syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, attributes, 0)
    finally:
        os.close(descriptor)


def restrict(ruleset: int) -> None:
    """The rules hold for this process and its children from here on."""
    forbid_new_privileges()
    syscall(_RESTRICT_SELF, ruleset, 0)
