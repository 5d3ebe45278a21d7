# ruff: noqa: E501
"""Programs that try to cheat, to break out or to stay; none may pass as right that is not, or leave a trace.

Each is a function `add(a, b)`, tested by `CHECK`. `{OUTSIDE}` is a folder that nobody may touch, with a file `canary`;
`{TCP}`, `{UDP}` and `{UNIX}` are sockets that nobody may reach. As a script, `attacks.py TIER [HOSTILE.jsonl]` runs all of
them, and those of the file, as the user who calls it, and prints as JSON what went wrong.
"""

import contextlib
import json
import os
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent

from evals.sandbox import Asserts, Job, Limits, Sandbox, Stdio

TOKEN = "the-value-that-nobody-may-know"

CHECK = f"""
def check(candidate):
    assert candidate(1, 2) == 3
    assert candidate(-5, 3) == -2
    assert candidate(10**12, 1) == 10**12 + 1
    assert candidate("token", "") == "{TOKEN}"
"""
RIGHT = f"return {TOKEN!r} if a == 'token' else a + b"


def acting(act: str) -> str:
    """A right program that first tries something and does not mind failing."""
    body = indent(dedent(act).strip(), " " * 8)
    return (
        "import os, sys, socket, ctypes, threading, time, signal, subprocess\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"def add(a, b):\n    try:\n{body}\n    except (OSError, ValueError, MemoryError, RuntimeError): pass\n    {RIGHT}\n"
    )


def lying(base: str) -> str:
    """A program whose results claim to be equal to everything."""
    return dedent(f"""
        class Liar({base}):
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __hash__(self): return hash(3)
            def __lt__(self, other): return True
            __le__ = __gt__ = __ge__ = __contains__ = __lt__
            def __sub__(self, other): return 0
            __rsub__ = __abs__ = __sub__
            def __bool__(self): return True
            def __instancecheck__(self, other): return True
        def add(a, b): return Liar()
        """)


# These never pass.
FAKES = {
    **{f"liar_{base}": lying(base) for base in ("object", "int", "str", "list", "float", "dict", "tuple", "Exception")},
    "liar_class": "class M(type):\n    def __eq__(s, o): return True\n    __hash__ = None\nclass A(metaclass=M): pass\ndef add(a, b): return A",
    "class_property": "class A:\n    __class__ = int\n    def __eq__(s, o): return True\ndef add(a, b): return A()",
    "mock": "from unittest.mock import ANY\ndef add(a, b): return ANY",
    "exit_in_call": "import os\ndef add(a, b): os._exit(0)",
    "exit_at_load": "import os\nos._exit(0)",
    "system_exit": "import sys\ndef add(a, b): sys.exit(0)",
    "system_exit_at_load": "raise SystemExit(0)",
    "interrupt": "def add(a, b): raise KeyboardInterrupt",
    "kill_itself": "import os\ndef add(a, b): os.kill(os.getpid(), 9)",
    "abort": "import os\ndef add(a, b): os.abort()",
    "null_pointer": "import ctypes\ndef add(a, b): return ctypes.string_at(0)",
    "raises_stop": "def add(a, b): raise StopIteration(3)",
    "raises_own": "class Passed(BaseException): pass\ndef add(a, b): raise Passed",
    "error_named_badly": "def add(a, b): raise type('A\\0B', (Exception,), {})('x')",
    "error_without_text": "class E(Exception):\n    def __str__(s): raise E\ndef add(a, b): raise E",
    "group": "def add(a, b): raise ExceptionGroup('x', [ValueError()])",
    "unicode_error": "def add(a, b): return b'\\xff'.decode()",
    "syntax": "def add(a, b) return 3",
    "empty": "",
    "nul": "def add(a, b): return 3\0",
    "surrogate": "def add(a, b): return '\\ud800'",
    "not_callable": "add = 3",
    "patched_builtins": """
        import builtins, math
        builtins.AssertionError = builtins.Exception = type('Never', (BaseException,), {})
        builtins.abs = builtins.len = builtins.int = lambda *a: 3
        builtins.isinstance = builtins.all = lambda *a: True
        math.isclose = lambda *a, **k: True
        def add(a, b): return 3
        """,
    "patched_sandbox": """
        import sys
        for name, module in list(sys.modules.items()):
            if name.startswith('evals'):
                for key, value in list(vars(module).items()):
                    if callable(value) and not key.startswith('__'):
                        setattr(module, key, lambda *a, **k: {'status': 'pass', 'report': {'status': 'pass'}})
        def add(a, b): return 3
        """,
    "forged_verdict": """
        import os, struct, json
        report = {'status': 'pass', 'detail': '', 'num_passed': 1, 'num_tests': 1, 'cpu_s': 0, 'wall_s': 0, 'memory_mb': 0}
        def add(a, b):
            for message in ({'report': report}, report, {'value': True}):
                data = json.dumps(message).encode()
                for fd in range(256):
                    try: os.write(fd, struct.pack('>I', len(data)) + data)
                    except OSError: pass
            os._exit(0)
        """,
    "garbage_answer": "import os\ndef add(a, b):\n    os.write(4, b'\\0\\0\\0\\5{}{')\n    return 3",
    "object_number_lies": "import os, struct\ndef add(a, b):\n    d = b'{\"value\":{\"object\":[[],{}]}}'\n    os.write(4, struct.pack('>I', len(d)) + d)",
    "huge_frame": "import os\ndef add(a, b): os.write(4, b'\\xff' * 8)",
    "frames": """
        import sys, gc
        def search(found, depth=0):
            for value in found:
                if isinstance(value, str) and 'nobody-may' in value and value != 'nobody-may': return value
                if isinstance(value, dict) and depth < 2:
                    hit = search(list(value.values()), depth + 1)
                    if hit: return hit
        def add(a, b):
            if a != 'token': return a + b
            frame = sys._getframe()
            while frame:
                hit = search([frame.f_locals, frame.f_globals, frame.f_code.co_consts])
                if hit: return hit
                frame = frame.f_back
            return search(gc.get_objects()) or search([o for x in gc.get_objects() for o in gc.get_referents(x)])
        """,
    "own_memory": """
        import ctypes, re
        def add(a, b):
            if a != 'token': return a + b
            pages = open('/proc/self/maps').read()
            return re.search('the-value[a-z-]*', pages).group()
        """,
    "own_heap": """
        import ctypes
        def add(a, b):
            if a != 'token': return a + b
            start = id(object()) & ~0xfffff
            needle = b'the-value-that-' + b'nobody'
            at = ctypes.string_at(start, 1 << 18).find(needle)
            return ctypes.string_at(start + at, 30).decode() if at >= 0 else ''
        """,
    "reads_tests_process": """
        import os, ctypes
        def add(a, b):
            if a != 'token': return a + b
            for pid in range(1, 40):
                for name in ('mem', 'environ', 'maps', 'fd/3'):
                    try: return open(f'/proc/{pid}/{name}').read()
                    except OSError: pass
            raise OSError
        """,
    "infinite_generator": "def add(a, b):\n    while True: yield 3",
    "cycle": "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
    "deep": "def add(a, b):\n    x = []\n    for _ in range(100000): x = [x]\n    return x",
    "many_values": "def add(a, b): return [0.1] * 3_000_000",
    "long_text": "def add(a, b): return 'x' * 50_000_000",
    "huge_number": "def add(a, b): return 1 << 50_000_000",
    "named_like_python": "class int:\n    def __eq__(s, o): return True\ndef add(a, b): return int()",
    "own_math": "class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef add(a, b): return 7",
    "infinity": "def add(a, b): return float('inf')",
    "not_a_number": "def add(a, b): return float('nan')",
    "true": "def add(a, b): return True",
    "none": "def add(a, b): pass",
    "memory_string": "def add(a, b): return 'x' * (1 << 40)",
    "memory_growth": "def add(a, b):\n    x = []\n    while True: x.append(bytearray(1 << 20))",
    "memory_map": "import mmap\ndef add(a, b):\n    x = []\n    while True: x.append(mmap.mmap(-1, 1 << 24))",
    "memory_recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef add(a, b): return add([a], b)",
    "stack_overflow": "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n    def __getattr__(s, n): return getattr(s, n + 'x')\ndef add(a, b): return repr(A().x)",
    "spins": "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass",
    "spins_at_load": "while True: pass",
    "spins_in_c": "def add(a, b): return sum(range(10**15))",
    "spins_in_thread": "import threading, time\ndef spin():\n    while True: pass\nthreading.Thread(target=spin).start()\ndef add(a, b): time.sleep(1000)",
    "regex": "import re\ndef add(a, b): return re.match('(a+)+$', 'a' * 64 + 'b')",
    "ignores_signals": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ndef add(a, b):\n    while True: pass",
    "spins_in_answer": "class D(dict):\n    def items(s):\n        while True: pass\nclass E(Exception):\n    def __str__(s):\n        while True: pass\ndef add(a, b): raise E",
    "prints_flood": "def add(a, b):\n    while True: print('x' * 100000)",
    "errors_flood": "import sys\ndef add(a, b):\n    while True: sys.stderr.write('x' * 100000)",
}

# These are right, apart from what they try; they may pass, and must leave no trace.
ACTS = {
    "fork": "if os.fork() == 0: time.sleep(30); os._exit(0)",
    "fork_raw": "libc.syscall(57)",
    "vfork_raw": "libc.syscall(58)",
    "clone_raw": "libc.syscall(56, 17, 0, 0, 0, 0)",
    "clone3_raw": "libc.syscall(435, b'\\0' * 64, 64)",
    "clone_namespace": "libc.syscall(56, 0x10000000 | 17, 0, 0, 0, 0)",
    "exec": "os.execv('/bin/sh', ['sh', '-c', 'touch {OUTSIDE}/exec'])",
    "system": "os.system('touch {OUTSIDE}/system')",
    "spawn": "os.posix_spawn('/bin/sh', ['sh', '-c', 'touch {OUTSIDE}/spawn'], {})",
    "subprocess": "subprocess.Popen(['sleep', '30'])",
    "processes": "import multiprocessing; multiprocessing.Process(target=time.sleep, args=(30,)).start()",
    "compat_calls": "libc.syscall(0x40000000 + 57)",
    "write_outside": "open('{OUTSIDE}/new', 'w').write('x')",
    "write_canary": "open('{OUTSIDE}/canary', 'w').write('x')",
    "append_canary": "open('{OUTSIDE}/canary', 'a').write('x')",
    "truncate": "os.truncate('{OUTSIDE}/canary', 0)",
    "open_truncate": "os.open('{OUTSIDE}/canary', os.O_RDONLY | os.O_TRUNC)",
    "unlink": "os.unlink('{OUTSIDE}/canary')",
    "rename": "os.rename('{OUTSIDE}/canary', '{OUTSIDE}/other')",
    "rename_in": "os.rename('{OUTSIDE}/canary', 'mine')",
    "link_in": "os.link('{OUTSIDE}/canary', 'mine'); open('mine', 'w').write('x')",
    "symlink": "os.symlink('{OUTSIDE}/canary', 'link'); open('link', 'w').write('x')",
    "symlink_folder": "os.symlink('{OUTSIDE}', 'folder'); open('folder/new', 'w').write('x')",
    "climb": "open('../' * 20 + '{OUTSIDE}/new', 'w').write('x')",
    "chmod": "os.chmod('{OUTSIDE}/canary', 0o777)",
    "chown": "os.chown('{OUTSIDE}/canary', 1, 1)",
    "utime": "os.utime('{OUTSIDE}/canary', (0, 0))",
    "xattr": "os.setxattr('{OUTSIDE}/canary', 'user.x', b'x')",
    "mkdir": "os.mkdir('{OUTSIDE}/folder')",
    "mknod": "os.mknod('{OUTSIDE}/node')",
    "fifo": "os.mkfifo('{OUTSIDE}/fifo')",
    "read_canary": "sys.exit(1) if open('{OUTSIDE}/canary').read() else 0",
    "read_passwords": "sys.exit(1) if open('/etc/passwd').read() else 0",
    "list_outside": "sys.exit(1) if os.listdir('{OUTSIDE}') else 0",
    "environment": "sys.exit(1) if set(os.environ) - {'HOME', 'TMPDIR', 'OMP_NUM_THREADS', 'OPENBLAS_NUM_THREADS', 'LC_CTYPE'} else 0",
    "descriptors": "sys.exit(1) if any(os.fstat(n) for n in range(5, 64)) else 0",
    "tcp": "s = socket.create_connection(('127.0.0.1', {TCP}), 1); s.sendall(b'x')",
    "tcp_raw": "fd = libc.syscall(41, 2, 1, 0); sys.exit(1) if fd >= 0 else 0",
    "tcp6": "socket.socket(socket.AF_INET6).connect(('::1', {TCP}))",
    "udp": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {UDP}))",
    "unix": "s = socket.socket(socket.AF_UNIX); s.connect('{UNIX}'); s.sendall(b'x')",
    "unix_by_pair": "s, t = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendto(b'x', '{UNIX}')",
    "unix_pair_connect": "s, t = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); s.connect('{UNIX}'); s.send(b'x')",
    "unix_pair_message": "s, t = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM); s.sendmsg([b'x'], [], 0, '{UNIX}')",
    "listen": "s = socket.socket(); s.bind(('0.0.0.0', 0)); s.listen()",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "names": "socket.getaddrinfo('example.com', 80)",
    "io_uring": "sys.exit(1) if libc.syscall(425, 8, b'\\0' * 120) >= 0 else 0",
    "kill_parent": "os.kill(os.getppid(), 9)",
    "kill_group": "os.kill(0, 9)",
    "kill_all": "os.kill(-1, 9)",
    "kill_near": "for n in range(1, 100):\n    if n != os.getpid():\n        try: os.kill(n, 9)\n        except OSError: pass",
    "tkill_near": "for n in range(1, 100): n == os.getpid() or libc.syscall(200, n, 9)",
    "tgkill_near": "for n in range(1, 100): n == os.getpid() or libc.syscall(234, n, n, 9)",
    "queue_signal": "for n in range(1, 100): n == os.getpid() or libc.syscall(129, n, 9, b'\\0' * 128)",
    "pidfd": "for n in range(1, 100):\n    fd = libc.syscall(434, n, 0)\n    fd >= 0 and libc.syscall(424, fd, 9, 0, 0)",
    "signal_owner": """
        import fcntl
        r, w = os.pipe()
        for n in range(1, 100):
            if n != os.getpid():
                try:
                    fcntl.fcntl(r, fcntl.F_SETOWN, n); fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC); os.write(w, b'x')
                except OSError: pass
        """,
    "limit_others": "import resource\nfor n in range(1, 100):\n    if n != os.getpid():\n        try: resource.prlimit(n, resource.RLIMIT_CPU, (0, 0))\n        except OSError: pass",
    "raise_limits": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1)); sys.exit(1)",
    "priority": "os.setpriority(os.PRIO_USER, 0, 19); sys.exit(1)",
    "trace": "for n in range(1, 100): libc.ptrace(16, n, 0, 0)",
    "read_other_memory": "for n in range(1, 100): libc.syscall(310, n, b'\\0' * 16, 1, b'\\0' * 16, 1, 0)",
    "outlive": "libc.prctl(1, 0) == 0 and sys.exit(1)",
    "dumpable": "libc.prctl(4, 1)",
    "new_session": "os.setsid()",
    "become_root": "os.setuid(0); os.setgid(0)",
    "capabilities": "libc.syscall(126, b'\\x22\\x05\\x08\\x20' + b'\\0' * 4, b'\\xff' * 24)",
    "namespaces": "libc.unshare(0x10000000) == 0 and sys.exit(1)",
    "mount": "libc.mount(b'none', b'/tmp', b'tmpfs', 0, 0) == 0 and sys.exit(1)",
    "chroot": "os.chroot('.'); sys.exit(1)",
    "shared_memory": "libc.shmget(1, 4096, 0o1777) >= 0 and sys.exit(1)",
    "posix_memory": "open('/dev/shm/sandbox', 'w')",
    "queue": "libc.mq_open(b'/sandbox', 0o102, 0o600, 0) >= 0 and sys.exit(1)",
    "memory_file": "os.memfd_create('x'); sys.exit(1)",
    "keys": "libc.syscall(248, b'user', b'name', b'x', 1, -1) >= 0 and sys.exit(1)",
    "bpf": "libc.syscall(321, 0, b'\\0' * 128, 128) >= 0 and sys.exit(1)",
    "clock": "time.clock_settime(time.CLOCK_REALTIME, 0)",
    "host_name": "socket.sethostname('x'); sys.exit(1)",
    "terminal": "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",
    "many_files": "for n in range(20000): open(f'f{n}', 'w').close()",
    "large_file": "f = open('large', 'wb')\nwhile True: f.write(bytes(1 << 20))",
    "many_large_files": "for n in range(40): open(f'f{n}', 'wb').write(bytes(1 << 22))",
    "deep_folders": "for n in range(3000): os.mkdir('d' * 200); os.chdir('d' * 200)",
    "closed_folders": "os.mkdir('a', 0); os.mkdir('b'); open('b/c', 'w').close(); os.mkdir('b/d', 0)",
    "odd_names": "open(b'\\xff\\n', 'w').close(); os.symlink('nowhere', '-rf'); os.mkfifo('fifo')",
    "many_pipes": "x = []\nwhile True: x.append(os.pipe())",
    "many_threads": "for n in range(2000): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
    "small_threads": "threading.stack_size(32768)\nfor n in range(5000): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()",
    "closes_output": "os.close(1); os.close(2)",
    "prints_some": "print('pass\\n' * 1000); sys.stderr.write('x' * 100000)",
    "stops_collecting": "import gc; gc.disable(); gc.freeze(); gc.set_threshold(0)",
    "tracing": "sys.settrace(lambda *x: None); threading.settrace(lambda *x: None)",
    "audit": "sys.addaudithook(lambda *x: None)",
    "at_exit": "import atexit; atexit.register(time.sleep, 100)",
    "timer": "signal.setitimer(signal.ITIMER_PROF, 0.0001); signal.signal(signal.SIGPROF, lambda *x: None)",
}
# What they may end as: some lose their process over it, or are found to use too much.
ACT_STATUSES = {"pass", "fail", "crash", "timeout", "memory", "output_limit"}
# These use so much that it may end them. All others must be refused, or do nothing, and pass.
GREEDY = {"many_files", "large_file", "many_large_files", "deep_folders", "many_threads", "small_threads"}
# These take CPU seconds, or seconds.
SLOW = GREEDY | {name for name in FAKES if name.startswith(("memory", "spins"))}
SLOW |= {"many_values", "long_text", "stack_overflow", "regex", "ignores_signals", "patched_sandbox"}

LIMITS = Limits(timeout_s=0.5, memory_mb=128, disk_mb=16, output_mb=4)


class Surroundings:
    """A folder and servers that programs must leave alone."""

    def __init__(self, folder: str) -> None:
        self.outside = Path(folder) / "outside"
        self.outside.mkdir(mode=0o777)
        self.canary = self.outside / "canary"
        self.canary.write_text("canary", encoding="ascii")
        self._before = self._state()
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", 0))
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._unix.bind(f"{folder}/socket")
        self._places = {"{OUTSIDE}": str(self.outside), "{CANARY}": str(self.canary), "{UNIX}": f"{folder}/socket"}
        self._places |= {"{TCP}": str(self._tcp.getsockname()[1]), "{UDP}": str(self._udp.getsockname()[1])}
        self._places |= {"{{" + name[1:-1] + "}}": place for name, place in self._places.items()}

    def fill(self, code: str) -> str:
        """The program with the places written in."""
        for name in sorted(self._places, key=len, reverse=True):
            code = code.replace(name, self._places[name])
        return code

    def traces(self) -> str:
        """What a program left or reached; empty if nothing."""
        reached = select.select([self._tcp, self._udp, self._unix], [], [], 0)[0]
        changed = self._state() != self._before
        return " ".join(["reached a server"] * bool(reached) + ["changed a file"] * changed)

    def _state(self) -> object:
        found = self.canary.stat()
        names = sorted(os.listdir(self.outside))
        return (
            names,
            self.canary.read_bytes(),
            found.st_mode,
            found.st_uid,
            found.st_mtime_ns,
            found.st_ino,
            found.st_nlink,
        )

    def close(self) -> None:
        """Closes the servers."""
        for server in (self._tcp, self._udp, self._unix):
            server.close()


@contextlib.contextmanager
def surroundings() -> Iterator[Surroundings]:
    """Surroundings in a folder that is removed."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        found = Surroundings(folder)
        with contextlib.closing(found):
            yield found


def fault_of(name: str, status: str) -> str:
    """What is wrong about the verdict on an attack; empty if nothing."""
    if name in FAKES:
        return "" if status in ACT_STATUSES - {"pass"} else f"a fake ended as {status}"
    allowed = ACT_STATUSES if name in GREEDY else {"pass"}
    return "" if status in allowed else f"an act ended as {status}"


def run(sandbox: Sandbox, names: list[str]) -> dict[str, str]:
    """What went wrong, by attack."""
    faults = {}
    with surroundings() as around:
        programs = [around.fill(acting(ACTS[name]) if name in ACTS else dedent(FAKES[name])) for name in names]
        tests = Asserts(code=[CHECK], entry_point="add")
        jobs = [
            Job(id=name, program=program, tests=tests, limits=LIMITS)
            for name, program in zip(names, programs, strict=True)
        ]
        for verdict in sandbox.run(jobs):
            if fault := fault_of(verdict.id, verdict.status) or around.traces():
                faults[verdict.id] = f"{fault} ({verdict.detail})"
        time.sleep(0.2)
        if fault := around.traces():
            faults["later"] = fault
    return faults


# Right programs whose text, output, errors and answers hold `{SECRET}`.
SPILLS = [
    Job(program="text = 'spilt:{SECRET}'\ndef f(): return text", tests=Asserts(code=["assert f()[-5:] != ''"])),
    Job(program="def f(): raise ValueError('spilt:{SECRET}')", tests=Asserts(code=["f()"])),
    Job(program="print('spilt:{SECRET}')", tests=Stdio(cases=[("", "spilt:{SECRET}")] * 2)),
    Job(program="raise ValueError('spilt:{SECRET}')", tests=Stdio(cases=[("", "")])),
    Job(program="open('spilt:{SECRET}', 'w').close()", tests=Stdio(cases=[("", "")])),
]
# Looks through all memory of its process near what it knows. It writes a byte of each page to a pipe, to see whether the
# page exists.
SEARCH = r"""
import ctypes, gc, os, re
libc = ctypes.CDLL(None, use_errno=True)
libc.sbrk.restype = ctypes.c_void_p
def search():
    reader, writer = os.pipe()
    page = 4096
    top = libc.sbrk(ctypes.c_long(0)) // page * page
    starts = {id(one) >> 20 << 20 for one in gc.get_objects()} | {id(one) >> 20 << 20 for one in range(1 << 10, 1 << 16)}
    pages = {at for start in starts for at in range(start - (4 << 20), start + (4 << 20), page)}
    pages |= set(range(top - (64 << 20), top, page))
    found, text = set(), b""
    for at in sorted(pages):
        if at > 0 and libc.write(writer, ctypes.c_void_p(at), ctypes.c_size_t(1)) == 1:
            os.read(reader, 1)
            text = text[-64:] + ctypes.string_at(at, page)
            found |= set(re.findall(rb"spilt:([0-9a-f]{16})", text))
        else:
            text = b""
    return sorted(one.decode() for one in found)
"""


def spilt(sandbox: Sandbox) -> list[str]:
    """What a program found in its memory of the programs before it, of its own tests and of its earlier cases."""
    limits = Limits(timeout_s=20.0)
    secrets = iter(f"{number:016x}" for number in range(0xABCD_0000_0000_0000, 0xABCD_0000_0000_0100))
    found = []
    for spill in SPILLS:
        secret = next(secrets)
        before = [_with_secret(spill, secret)] * 3
        # The tests hold the secret as well, as what they expect.
        tests = Asserts(code=[f"assert 'spilt:{secret}' and '{secret}' not in search()"])
        for verdict in [*sandbox.run([*before, Job(program=SEARCH, tests=tests, limits=limits)])][3:]:
            if verdict.status != "pass":
                found.append(f"{spill.program}: {verdict.status} {verdict.detail}")
    secret = next(secrets)
    # It may see its input, but in the second case neither the first's input nor its output nor what is expected.
    program = SEARCH + "given = input()\nprint(given, search() if given == 'second' else [])"
    cases = [(f"spilt:{secret}", f"spilt:{secret} []"), ("second", "second []"), ("x", f"spilt:{secret}")]
    [verdict] = sandbox.run([Job(program=program, tests=Stdio(cases=cases), limits=limits)])
    return found if verdict.num_passed == 2 else [*found, f"cases: {verdict.detail}"]


def _with_secret(job: Job, secret: str) -> Job:
    def filled(text: str) -> str:
        return text.replace("{SECRET}", secret)

    tests = job.tests
    if isinstance(tests, Stdio):
        tests = Stdio(cases=[(filled(given), filled(wanted)) for given, wanted in tests.cases])
    return Job(program=filled(job.program), tests=tests)


def hostile_job(row: dict, around: Surroundings) -> Job:
    """The job of a row of the shared file of hostile programs."""
    cases = row["tests"]["cases"] if row["kind"] == "stdio" else []
    tests = (
        Stdio(cases=[(case["stdin"], case["stdout"]) for case in cases])
        if cases
        else Asserts(code=[row["tests"]], entry_point=row["entry_point"])
    )
    limits = Limits(timeout_s=row["timeout_s"], memory_mb=row["memory_mb"])
    return Job(id=row["id"], program=around.fill(row["code"]), tests=tests, limits=limits)


def run_hostile(sandbox: Sandbox, file: Path) -> dict[str, str]:
    """What went wrong, by program."""
    faults = {}
    with open(file, encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    with surroundings() as around:
        verdicts = sandbox.run(hostile_job(row, around) for row in rows)
        for row, verdict in zip(rows, verdicts, strict=True):
            wrong = "" if verdict.status in row["accept"] else f"{verdict.status} is not among {row['accept']}"
            longest_s = 3 * row["timeout_s"] + 12
            slow = "" if verdict.wall_s < longest_s else f"it took {verdict.wall_s} s"
            if fault := wrong or slow or around.traces():
                faults[verdict.id] = f"{fault} ({verdict.detail})"
        time.sleep(max(row.get("settle_s", 0) for row in rows))
        if fault := around.traces():
            faults["later"] = fault
    return faults


def main() -> None:
    """Runs all attacks in the tier that the first argument names."""
    with Sandbox(tier=sys.argv[1]) as sandbox:
        faults = run(sandbox, [*FAKES, *ACTS])
        faults |= dict.fromkeys(spilt(sandbox), "it was found in memory")
        for file in sys.argv[2:]:
            faults |= run_hostile(sandbox, Path(file))
    print(json.dumps(faults))  # noqa: T201


if __name__ == "__main__":
    main()
