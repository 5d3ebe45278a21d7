"""What the sandbox asks of Linux beyond Python's `os`: raw system calls, process flags, namespaces, capabilities."""

import ctypes
import os
import platform
import resource
from pathlib import Path

# Only these machines have tables of system call numbers here.
MACHINE = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}.get(platform.machine())
_X86 = MACHINE == "x86_64"

_CAPSET = 126 if _X86 else 91
_MOUNT = 165 if _X86 else 40
_UMOUNT = 166 if _X86 else 39
_UNSHARE = 272 if _X86 else 97
_PRCTL = 157 if _X86 else 167
_MOUNT_SETATTR = 442

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 38, 36
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63

_NEW_MOUNTS, _NEW_UTS, _NEW_IPC = 0x0002_0000, 0x0400_0000, 0x0800_0000
_NEW_USERS, _NEW_PIDS, _NEW_NETWORK = 0x1000_0000, 0x2000_0000, 0x4000_0000
_NOSUID, _NODEV, _NOEXEC = 2, 4, 8
_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_ATTR_RDONLY, _ATTR_NOSUID, _MS_PRIVATE = 1, 2, 1 << 18

# PyDLL keeps the interpreter's lock: between a fork and the end of confinement nothing else may run.
_libc = ctypes.PyDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def syscall(number: int, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """The result of a raw system call; `OSError` with the kernel's errno if it fails."""
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *values)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def fork() -> int:
    """As `os.fork`, without what Python does after it."""
    pid: int = _libc.fork()
    if pid < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return pid


def prctl(option: int, value: int | ctypes.Array[ctypes.c_char] = 0, more: int | bytes = 0) -> int:
    """The result of `prctl`."""
    return syscall(_PRCTL, option, value, more, 0, 0)


def forbid_new_privileges() -> None:
    """No later act of this process gains rights; the kernel demands it before Landlock and seccomp."""
    prctl(_PR_SET_NO_NEW_PRIVS, 1)


def die_with_parent() -> None:
    """This process is killed when its parent ends."""
    prctl(_PR_SET_PDEATHSIG, 9)


def hide_memory() -> None:
    """Processes of the same user can neither trace this one nor open its memory."""
    prctl(_PR_SET_DUMPABLE, 0)


def adopt_orphans() -> None:
    """Descendants whose parent ended become children of this process, which can then kill them."""
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bound_capabilities() -> None:
    """No program that this process or its children may start gets a capability. They keep those that they have."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            break  # EINVAL past the last one; EPERM for an ordinary user, who has none to drop


def drop_capabilities() -> None:
    """This process keeps no capability, whoever its user is."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    syscall(_CAPSET, bytes(header), bytes(24))


def limit(what: int, value: int) -> None:
    """Sets the soft and the hard limit, never above the hard limit of today."""
    hard = resource.getrlimit(what)[1]
    most = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (most, most))


def enter_namespaces(work: str, *, work_bytes: int, work_files: int) -> None:
    """Leaves the machine's users, mounts, network and IPC behind.

    Every mounted file system becomes read-only except a fresh one in memory at ``work``. The process must have one
    thread. `OSError` if the kernel or this user does not allow it.
    """
    user, group = os.geteuid(), os.getegid()
    flags = _NEW_MOUNTS | _NEW_UTS | _NEW_IPC | _NEW_NETWORK
    try:
        syscall(_UNSHARE, flags | _NEW_USERS)
    except OSError:
        syscall(_UNSHARE, flags)  # root may, even where nobody gets a user namespace
    else:
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    attributes = (ctypes.c_uint64 * 4)(_ATTR_RDONLY | _ATTR_NOSUID, 0, _MS_PRIVATE, 0)
    syscall(_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, bytes(attributes), 32)
    options = f"size={work_bytes},nr_inodes={work_files},mode=0700".encode()
    syscall(_MOUNT, b"none", os.fsencode(work), b"tmpfs", _NOSUID | _NODEV | _NOEXEC, options)


def number_children_anew() -> None:
    """Later children of this process see only one another. When the first of them ends, the kernel kills the others."""
    syscall(_UNSHARE, _NEW_PIDS)


def unmount(work: str) -> None:
    """Gives up the file system in memory that `enter_namespaces` made."""
    syscall(_UMOUNT, os.fsencode(work), _DETACH)
