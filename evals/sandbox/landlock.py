"""Landlock: which files a process may reach, however it gets there. No capability is needed."""

from __future__ import annotations

import ctypes
import os
import site
import struct
import sys
import sysconfig
from pathlib import Path

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

_SYSTEM_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/urandom", "/dev/random")


def abi() -> int:
    """The kernel's version of Landlock; `OSError` if it has none or has it switched off."""
    return syscall(_CREATE_RULESET, None, 0, 1)


def readable_paths() -> list[str]:
    """The interpreter, its packages and the system's libraries: what a program may read."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), f"{sys.base_prefix}/lib", f"{sys.base_exec_prefix}/lib"}
    return sorted(path for path in paths | {*_SYSTEM_LIBRARIES, *_SYSTEM_FILES} if path and Path(path).exists())


def make_ruleset(work: str) -> int:
    """A descriptor of the rules: read `readable_paths`, write in ``work``, no TCP, no signals outwards.

    Raises:
        OSError: the kernel has no Landlock, or an older one than the rules need.
    """
    version = abi()
    if version < _OLDEST_ABI:
        raise OSError(f"Landlock has version {version} here; version {_OLDEST_ABI} is the first that guards truncation")
    rights = max(mask for since, mask in _RIGHTS_BY_ABI.items() if since <= version)
    attributes = struct.pack("QQQ", rights, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = syscall(_CREATE_RULESET, attributes[:size], size, 0)
    for path in readable_paths():
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
