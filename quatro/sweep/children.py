"""The child processes of a sweep: which processor each may use, how it is stopped, and what its log says."""

import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evals.errors import UsageError
from evals.worker_pool import usable_cores
from quatro.processes.launcher import torchrun_options
from quatro.processes.stop import StopRequest
from quatro.runs.status import log_lines

POLL_S = 0.1
DEVICES = "CUDA_VISIBLE_DEVICES"
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


Slot = Mapping[str, str]  # a place where one point runs at a time: what its processes find in their environment


def make_slots(jobs: int, gpus: Sequence[str] = (), *, gpus_each: int = 1) -> list[Slot]:
    """``jobs`` places, or one for each ``gpus_each`` of ``gpus``, which share the CPU threads evenly.

    These are the threads that this process may use: `OMP_NUM_THREADS`, else its cores. The key `threads` of a
    configuration is applied by the run itself and wins over this.

    Raises UsageError if the GPUs cannot be divided evenly.
    """
    if len(gpus) % gpus_each:
        raise UsageError(
            f"--gpus {','.join(gpus)}: a point of this sweep has {gpus_each} processes, each on a GPU of its own; "
            f"name {gpus_each} of them, or a multiple"
        )
    groups = [",".join(gpus[start : start + gpus_each]) for start in range(0, len(gpus), gpus_each)]
    count = len(groups) or jobs
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    available = int(wanted) if wanted.isdecimal() and int(wanted) > 0 else usable_cores()
    each = str(max(1, available // count))
    threads = dict.fromkeys(THREAD_VARIABLES, each) if count > 1 else {}
    devices = [{DEVICES: group} for group in groups] or [{}] * count
    return [{**threads, **device} for device in devices]


def num_gpus(slot: Slot) -> int:
    """How many GPUs a place has for itself; 0 where it has none or shares them."""
    return len(slot[DEVICES].split(",")) if DEVICES in slot else 0


def launched(command: Sequence[str], processes: int) -> list[str]:
    """``command``, an interpreter and what it runs, as torchrun starts it in several processes.

    A file in the working folder that is named like a module, such as random.py, is not taken for it (`-P`); a caller's
    own module may lie there.
    """
    interpreter, *rest = command
    if processes == 1:
        return [interpreter, *(["-P"] if rest[:2] == ["-m", "quatro_cli"] else []), *rest]
    return [interpreter, "-P", "-m", "torch.distributed.run", "--standalone", *torchrun_options(processes), *rest]


@dataclass(frozen=True)
class Children:
    """Runs child processes until ``stop`` is requested, of which they are told, or ``abandoned``, which kills them."""

    stop: StopRequest
    abandoned: threading.Event = field(default_factory=threading.Event)

    @property
    def is_stopping(self) -> bool:
        return self.abandoned.is_set() or self.stop.requested

    def run(self, command: Sequence[str], log: Path, slot: Slot, *, is_first: bool) -> int:
        """The exit code of ``command``, whose output goes to ``log``: anew if ``is_first``, else behind what is there.

        The log says it, too, if somebody else's signal killed the command.

        Raises OSError if the command or its log cannot be opened.
        """
        with log.open("w" if is_first else "a", encoding="utf-8") as stream:
            # A session of its own: Ctrl-C reaches the child once, from here, and not a second time from the terminal.
            child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, **slot},
                start_new_session=True,
            )
            was_asked = False
            try:
                while child.poll() is None and not self.abandoned.wait(POLL_S):
                    if self.stop.signal is not None and not was_asked:
                        child.send_signal(self.stop.signal)
                        was_asked = True
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        if child.returncode < 0 and not was_asked and not self.abandoned.is_set():
            note_error(log, f"killed by signal {-child.returncode} ({signal.Signals(-child.returncode).name})")
        return child.returncode


def last_error(log: Path, *, or_last_line: bool = True) -> str:
    """The last error message in a log, else its last line; nothing where there is none."""
    lines = [line.strip() for line in log_lines(log) if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or (lines if or_last_line else []) or [""])[-1]


def note_error(log: Path, error: Exception | str) -> None:
    """Add to ``log`` what went wrong outside the child."""
    with log.open("a", encoding="utf-8") as stream:
        stream.write(f"error: {error}\n")
