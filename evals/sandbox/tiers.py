"""Which isolation this machine and this user allow, found out by trying what must be refused."""

import functools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.sandbox import kernel, landlock, seccomp

TIERS = {
    "full": ("limits", "landlock", "seccomp", "namespaces"),
    "landlock+seccomp": ("limits", "landlock", "seccomp"),
    "none": (),
}
# Where this package is imported from.
_ROOT = str(Path(__file__).parents[2])
# The same order of sets in every process; no other word of the caller's environment reaches it.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
_PROBE_S = 60.0
_MB = 1 << 20


class IsolationError(RuntimeError):
    """Programs cannot be isolated here, or not as asked."""


@dataclass(frozen=True)
class Check:
    """One act that a layer must refuse, or must still allow; ``fault`` is empty if it did."""

    layer: str
    act: str
    fault: str


@dataclass(frozen=True)
class Tier:
    """The strongest isolation to be had, as "full", "landlock+seccomp" or "none", and what was tried."""

    name: str
    checks: tuple[Check, ...]

    def faults(self, name: str) -> list[str]:
        """Why the tier ``name`` cannot be had; empty if it can."""
        checks = [check for check in self.checks if check.layer in TIERS[name] and check.fault]
        return [f"{check.layer}: {check.act}: {check.fault}" for check in checks]


@functools.cache
def probe() -> Tier:
    """The strongest tier, tried out once per process, in processes of its own."""
    if not sys.platform.startswith("linux"):
        return Tier("none", (Check("limits", "run on Linux", f"this is {sys.platform}"),))
    checks: tuple[Check, ...] = ()
    for _ in range(2):  # a probe that somebody killed says nothing about the machine
        try:
            with tempfile.TemporaryDirectory(prefix="sandbox-probe-") as folder:
                command = [*interpreter("tiers"), folder]
                done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, timeout=_PROBE_S, check=True)
            checks = tuple(Check(**check) for check in json.loads(done.stdout))
            break
        except (subprocess.SubprocessError, ValueError) as error:
            checks = (Check("limits", "start the probe", str(error)),)
            if not (isinstance(error, subprocess.CalledProcessError) and error.returncode < 0):
                break
    found = Tier("none", checks)
    return Tier(next(name for name in TIERS if not found.faults(name)), checks)


def interpreter(module: str) -> list[str]:
    """The command that runs `main` of a module of this package, without the caller's paths."""
    start = f"import sys; sys.path.insert(0, {_ROOT!r}); from evals.sandbox.{module} import main; main()"
    return [sys.executable, "-s", "-P", "-c", start]


Act = Callable[[], object]


def main() -> None:
    """Tries all layers, each in processes that nothing else holds back; prints the checks as JSON."""
    kernel.adopt_orphans()
    base = Path(sys.argv[1])
    secret, work = base / "secret", base / "work"
    secret.write_text("secret", encoding="ascii")
    work.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    readable = landlock.readable_paths()
    layers: dict[str, tuple[Act, dict[str, tuple[Act, bool]]]] = {
        "limits": (_limits, _limits_acts()),
        "landlock": (lambda: _landlock(work, readable), _landlock_acts(secret, work)),
        "seccomp": (seccomp.refuse_calls, _seccomp_acts(secret)),
        "namespaces": (lambda: _namespaces(work), _namespace_acts(secret, work, listener.getsockname(), os.getpid())),
    }
    checks = [
        Check(layer, name, _in_process(enter, act, is_refused))
        for layer, (enter, acts) in layers.items()
        for name, (act, is_refused) in acts.items()
    ]
    sys.stdout.write(json.dumps([vars(check) for check in checks]) + "\n")


def _in_process(enter: Act, act: Act, is_refused: bool) -> str:
    """What is wrong with an act in a process of its own that has entered the layer; empty if nothing is."""
    import multiprocessing  # here, and below, so that no worker has to hold it

    reader, writer = multiprocessing.Pipe(duplex=False)
    status = _ended(lambda: writer.send(_fault(enter, act, is_refused)))
    with reader, writer:
        return str(reader.recv()) if reader.poll() else f"its process ended with status {status}"


def _ended(act: Act) -> int | None:
    """The exit status of a child that does the act."""
    import multiprocessing

    process = multiprocessing.get_context("fork").Process(target=act)
    process.start()
    process.join()
    return process.exitcode


def _fault(enter: Act, act: Act, is_refused: bool) -> str:
    signal.alarm(10)
    try:
        enter()
    except OSError as error:
        return f"not to be had here: {error}"
    try:
        act()
    except (OSError, MemoryError, ValueError) as error:
        return "" if is_refused else f"it was refused: {error}"
    return "it was allowed" if is_refused else ""


def _limits() -> None:
    kernel.limit(resource.RLIMIT_AS, 512 * _MB)
    kernel.limit(resource.RLIMIT_FSIZE, _MB)
    kernel.drop_capabilities()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _limits_acts() -> dict[str, tuple[Act, bool]]:
    def write_much() -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            file.write(bytes(_MB))
            file.write(b"x")

    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    return {
        "take more memory": (lambda: bytearray(1024 * _MB), True),
        "write more to a file": (write_much, True),
        "raise a limit": (lambda: resource.setrlimit(resource.RLIMIT_AS, unlimited), True),
        "take less memory": (lambda: bytearray(_MB), False),
    }


def _landlock(work: Path, readable: Iterable[str]) -> None:
    kernel.drop_capabilities()
    landlock.restrict(landlock.make_ruleset(str(work), readable))


def _landlock_acts(secret: Path, work: Path) -> dict[str, tuple[Act, bool]]:
    return {
        "read a file outside": (secret.read_bytes, True),
        "write to a file outside": (lambda: secret.write_text("changed"), True),
        "truncate a file outside": (lambda: os.truncate(secret, 0), True),
        "make a file outside": ((secret.parent / "other").touch, True),
        "remove a file outside": (secret.unlink, True),
        "rename a file outside": (lambda: secret.rename(secret.parent / "renamed"), True),
        "list a folder outside": (lambda: os.listdir(secret.parent), True),
        "list the installed packages": (lambda: os.listdir(sysconfig.get_path("purelib")), True),
        "read a process": (lambda: Path("/proc/self/environ").read_bytes(), True),
        "write in the working folder": (lambda: (work / "file").write_text("text"), False),
        "import a module": (lambda: __import__("wave"), False),
    }


def _seccomp_acts(secret: Path) -> dict[str, tuple[Act, bool]]:
    def start_thread() -> None:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    return {
        "fork": (lambda: os.fork() or os._exit(0), True),
        "run a program": (lambda: os.execv("/proc/self/exe", ["python", "-c", "pass"]), True),
        "open a socket": (socket.socket, True),
        "signal another process": (lambda: os.kill(os.getppid(), 0), True),
        "be traced": (lambda: kernel.syscall(101 if kernel.MACHINE == "x86_64" else 117, 0, 0, 0, 0), True),
        "change a file's mode": (lambda: secret.chmod(0o600), True),
        "leave its namespaces": (lambda: kernel.syscall(272 if kernel.MACHINE == "x86_64" else 97, 0x1000_0000), True),
        "outlive its parent": (lambda: kernel.prctl(1, 0), True),
        "open a pair of sockets": (socket.socketpair, False),
        "start a thread": (start_thread, False),
    }


def _namespaces(work: Path) -> None:
    kernel.enter_namespaces(str(work), work_bytes=_MB, work_files=64)
    kernel.number_children_anew()


def _namespace_acts(secret: Path, work: Path, address: Any, prober: int) -> dict[str, tuple[Act, bool]]:
    def signal_from_child() -> None:  # where the new process numbers hold
        if _ended(lambda: os.kill(prober, 0)):
            raise OSError("the child was refused")

    return {
        "connect to a server of the machine": (lambda: socket.create_connection(address, 5), True),
        "write to a file outside": (lambda: secret.write_text("changed"), True),
        "fill the working folder": (lambda: (work / "large").write_bytes(bytes(2 * _MB)), True),
        "signal a process outside": (signal_from_child, True),
        "write in the working folder": (lambda: (work / "file").write_text("text"), False),
    }
