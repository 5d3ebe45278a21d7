"""Starts real processes that have torch and transformers at once, which takes a new one seconds: forks of this one.

Requests and replies are lines of JSON. {"argv": ["quatro", ...] or [script, ...], "cwd": folder, "env": all of it,
"out": file, "err": file, "fault": null} is answered with the process id. A fault is {"root": folder, "fail_at": N,
"sticky": bool, "kill": bool, "clock_s": seconds}, see `failing_io.c`. {"pid": N, "within_s": seconds} is answered with
null while the process lives, and then with [exit status or -signal, file operations below the root].
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import mmap
import os
import runpy
import sys
import threading
import time
import traceback
from typing import Any

import torch
import transformers.models.qwen2.modeling_qwen2  # noqa: F401

from quatro_cli.app import main

Counters = dict[int, mmap.mmap]


def serve(library: str) -> None:
    torch.set_num_threads(1)
    gc.freeze()  # a child's collections leave alone what is shared with this process
    counters: Counters = {}
    for line in sys.stdin:
        request = json.loads(line)
        if "pid" in request:
            reply = ended(counters, request["pid"], request["within_s"])
        else:
            counter = mmap.mmap(-1, mmap.PAGESIZE)
            reply = os.fork()
            if reply == 0:
                os._exit(become(request, library, counter))  # without clearing away modules that are not its own
            counters[reply] = counter
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


def become(request: dict[str, Any], library: str, counter: mmap.mmap) -> int:
    """The process that was asked for: its exit status, after what Python does at the end of a program."""
    for number, name, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY),
        (2, request["err"], os.O_WRONLY),
    ):
        os.dup2(os.open(name, flags), number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.path[:0] = [request["cwd"], *request["env"].get("PYTHONPATH", "").split(os.pathsep)]
    sys.argv = request["argv"]
    if fault := request["fault"]:
        faults = ctypes.CDLL(library)
        faults.clock_arm(ctypes.c_long(fault["clock_s"]))
        arm = faults.fault_arm
        arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        address = ctypes.addressof(ctypes.c_char.from_buffer(counter))
        arm(os.fsencode(fault["root"]), fault["fail_at"], fault["sticky"], fault["kill"], address)
    code: Any = 0
    try:
        if sys.argv[0] == "quatro":
            main()
        else:
            runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def ended(counters: Counters, pid: int, within_s: float) -> tuple[int, int] | None:
    deadline = time.monotonic() + within_s
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status), int.from_bytes(counters.pop(pid)[:8], sys.byteorder)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.001)


if __name__ == "__main__":
    serve(sys.argv[1])
