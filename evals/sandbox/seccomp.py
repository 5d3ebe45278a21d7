"""seccomp: the system calls that a program has no use for are refused.

A refused call returns EPERM, so a program that tries one goes on as on a machine that does not allow it. Threads,
asyncio, tempfile, sqlite and numpy keep working. Calls newer than this list do not exist for the program.
"""

import ctypes
import errno
import functools
import os
import struct
from pathlib import Path

from evals.sandbox.kernel import MACHINE, forbid_new_privileges, prctl

_COLUMN = {"x86_64": 0, "aarch64": 1}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
# Calls that are judged by an argument.
_SOME = {"clone": (56, 220), "clone3": (435, 435), "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}
_SOME |= {"fcntl": (72, 25), "ioctl": (16, 29), "socketpair": (53, 199), "sendto": (44, 206), "prctl": (157, 167)}
_LAST_KNOWN = 450

_CLONE_THREAD = 0x0001_0000
_AF_UNIX = 1
# Owners of signals (they reach other processes of the user), leases, notifications, larger pipes.
_FCNTL = (8, 10, 15, 1024, 1026, 1031)
_IOCTL = (0x5412, 0x541C, 0x5452, 0x8901, 0x8902)  # typing into terminals, owners of signals
_PRCTL = (1, 0x59616D61)  # outliving the parent, being traced

_LOAD, _EQUAL, _AT_LEAST, _HAS_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL, _ALLOW, _ERRNO = 0x8000_0000, 0x7FFF_0000, 0x0005_0000
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2

# Above any process number, and no other number of the filter.
_SOME_PID = 0x5A5A_5A5A

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, value
_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)
_DENIED: Instruction = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
_UNKNOWN: Instruction = (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)


@functools.cache
def prepare() -> bytes:
    """The filter, for a process with the number `_SOME_PID`: built once, before processes are forked that need it."""
    return b"".join(struct.pack("HBBI", *instruction) for instruction in _filter(_SOME_PID))


def refuse_calls() -> None:
    """The filter holds for this process and its threads from here on; signals reach this process alone."""
    program = prepare().replace(struct.pack("I", _SOME_PID), struct.pack("I", os.getpid()))
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    forbid_new_privileges()
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, head)


def _filter(own_pid: int) -> list[Instruction]:
    if MACHINE is None:
        raise OSError("there is no table of system calls for this machine")
    column = _COLUMN[MACHINE]
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _AUDIT_ARCH[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _LAST_KNOWN + 1),
        _UNKNOWN,
    ]
    for number in _numbers(column):
        code += [(_EQUAL, 0, 1, number), _DENIED]
    rules: dict[str, list[Instruction]] = {
        # glibc falls back to `clone`, whose flags a filter can read.
        "clone3": [_UNKNOWN],
        "clone": [_argument(0), (_HAS_BIT, 1, 0, _CLONE_THREAD), _DENIED, _ALLOWED],
        "kill": _only(0, own_pid),
        "tgkill": _only(0, own_pid),
        "prlimit64": _only(0, 0, own_pid),
        "socketpair": _only(0, _AF_UNIX),
        "fcntl": _none_of(1, *_FCNTL),
        "ioctl": _none_of(1, *_IOCTL),
        "prctl": _none_of(0, *_PRCTL),
        # An address would let one end of a socket pair speak to other sockets.
        "sendto": [*_only(4, 0, high_too=True)],
    }
    for name, rule in rules.items():
        code += [(_EQUAL, 0, len(rule), _SOME[name][column]), *rule]
    return [*code, _ALLOWED]


def _numbers(column: int) -> list[int]:
    """The calls of `refused_calls.txt`: names, each with its number on x86_64 and on aarch64."""
    lines = Path(__file__).with_name("refused_calls.txt").read_text(encoding="ascii").split("\n")
    words = " ".join(line for line in lines if not line.startswith("#")).split()
    found = [words[index + 1 + column] for index in range(0, len(words), 3)]
    return [int(number) for number in found if number != "-"]


def _argument(index: int, *, high: bool = False) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index + 4 * high)


def _only(index: int, *values: int, high_too: bool = False) -> list[Instruction]:
    """Allowed if the argument is one of the values."""
    high: list[Instruction] = [_argument(index, high=True), (_EQUAL, 1, 0, 0), _DENIED] if high_too else []
    tests = [instruction for value in values for instruction in [(_EQUAL, 0, 1, value), _ALLOWED]]
    return [*high, _argument(index), *tests, _DENIED]


def _none_of(index: int, *values: int) -> list[Instruction]:
    """Allowed unless the argument is one of the values."""
    tests = [instruction for value in values for instruction in [(_EQUAL, 0, 1, value), _DENIED]]
    return [_argument(index), *tests, _ALLOWED]
