"""seccomp: the system calls that a program has no use for are refused.

A refused call returns EPERM, so a program that tries one goes on as on a machine that does not allow it. Threads,
asyncio, tempfile, sqlite and numpy keep working. Calls newer than this list do not exist for the program.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct

from evals.sandbox.kernel import MACHINE, forbid_new_privileges, prctl

# Name, number on x86_64, number on aarch64 ("-": the machine does not have it).
_REFUSED = """
fork 57 -           vfork 58 -             execve 59 221          execveat 322 281
ptrace 101 117      process_vm_readv 310 270    process_vm_writev 311 271   process_madvise 440 440
kcmp 312 272        process_mrelease 448 448    pidfd_open 434 434          pidfd_getfd 438 438
tkill 200 130       pidfd_send_signal 424 424   rt_sigqueueinfo 129 138     rt_tgsigqueueinfo 297 240
socket 41 198       connect 42 203         bind 49 200            listen 50 201          accept 43 202
accept4 288 242     sendmsg 46 211         sendmmsg 307 269
chmod 90 -          fchmod 91 52           fchmodat 268 53        chown 92 -             fchown 93 55
lchown 94 -         fchownat 260 54        utime 132 -            utimes 235 -           utimensat 280 88
futimesat 261 -     setxattr 188 5         lsetxattr 189 6        fsetxattr 190 7
removexattr 197 14  lremovexattr 198 15    fremovexattr 199 16    mknod 133 -            mknodat 259 33
mount 165 40        umount2 166 39         move_mount 429 429     open_tree 428 428      fsopen 430 430
fsconfig 431 431    fsmount 432 432        fspick 433 433         mount_setattr 442 442  pivot_root 155 41
chroot 161 51       setns 308 268          unshare 272 97
memfd_create 319 279    memfd_secret 447 447       io_uring_setup 425 425     io_uring_enter 426 426
bpf 321 280             io_uring_register 427 427  perf_event_open 298 241    userfaultfd 323 282
keyctl 250 219          add_key 248 217            request_key 249 218
shmget 29 194       shmat 30 196           shmctl 31 195          shmdt 67 197
semget 64 190       semop 65 193           semctl 66 191          semtimedop 220 192
msgget 68 186       msgsnd 69 189          msgrcv 70 188          msgctl 71 187
mq_open 240 180     mq_unlink 241 181
fanotify_init 300 262   inotify_init 253 -      inotify_init1 294 26
name_to_handle_at 303 264   open_by_handle_at 304 265
init_module 175 105     finit_module 313 273    delete_module 176 106
kexec_load 246 104      kexec_file_load 320 294 reboot 169 142    swapon 167 224    swapoff 168 225
settimeofday 164 170    clock_settime 227 112   adjtimex 159 171  clock_adjtime 305 266
sethostname 170 161     setdomainname 171 162   iopl 172 -        ioperm 173 -      acct 163 89
quotactl 179 60         quotactl_fd 443 443     syslog 103 116    personality 135 92
modify_ldt 154 -        uselib 134 -            vhangup 153 58    sync 162 81       syncfs 306 267
setpriority 141 140     ioprio_set 251 30       sched_setscheduler 144 119    sched_setparam 142 118
sched_setattr 314 274   sched_setaffinity 203 122   migrate_pages 256 238     move_pages 279 239
setuid 105 146      setgid 106 144         setreuid 113 145       setregid 114 143
setresuid 117 147   setresgid 119 149      setgroups 116 159      setfsuid 122 151
setfsgid 123 152    capset 126 91          setpgid 109 154        setsid 112 157
mlock 149 228       mlock2 325 284         mlockall 151 230
"""
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
    denied = _answer(errno.EPERM)
    code: list[Instruction] = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, _AUDIT_ARCH[MACHINE]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, 0, 1, _LAST_KNOWN + 1),
        _answer(errno.ENOSYS),
    ]
    for number in _numbers(column):
        code += [(_EQUAL, 0, 1, number), denied]
    rules: dict[str, list[Instruction]] = {
        # glibc falls back to `clone`, whose flags a filter can read.
        "clone3": [_answer(errno.ENOSYS)],
        "clone": [_argument(0), (_HAS_BIT, 1, 0, _CLONE_THREAD), denied, _allowed()],
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
    return [*code, _allowed()]


def _numbers(column: int) -> list[int]:
    words = _REFUSED.split()
    found = [words[index + 1 + column] for index in range(0, len(words), 3)]
    return [int(number) for number in found if number != "-"]


def _answer(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERRNO | number)


def _allowed() -> Instruction:
    return (_RETURN, 0, 0, _ALLOW)


def _argument(index: int, *, high: bool = False) -> Instruction:
    return (_LOAD, 0, 0, 16 + 8 * index + 4 * high)


def _only(index: int, *values: int, high_too: bool = False) -> list[Instruction]:
    """Allowed if the argument is one of the values."""
    denied = _answer(errno.EPERM)
    high: list[Instruction] = [_argument(index, high=True), (_EQUAL, 1, 0, 0), denied] if high_too else []
    tests = [instruction for value in values for instruction in [(_EQUAL, 0, 1, value), _allowed()]]
    return [*high, _argument(index), *tests, denied]


def _none_of(index: int, *values: int) -> list[Instruction]:
    """Allowed unless the argument is one of the values."""
    tests = [instruction for value in values for instruction in [(_EQUAL, 0, 1, value), _answer(errno.EPERM)]]
    return [_argument(index), *tests, _allowed()]
