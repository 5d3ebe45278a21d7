"""Runs `quatro` again and again in children forked from one warm process, with faults; requests and replies are JSON.

Importing torch and transformers takes seconds; a fork has them at once. A request: {"argv": [...], "root": folder,
"fail_at": N (0: none), "sticky": bool, "kill": bool, "signals": [[after_s, number], ...], "cwd": folder}. The reply:
{"code": exit status or -signal, "operations": file operations below root, "out": text, "err": text}.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import sys
import tempfile
import time
from typing import Any

import torch
import transformers.models.qwen2.modeling_qwen2  # noqa: F401

from quatro_cli.app import main


def serve(library: str) -> None:
    torch.set_num_threads(1)
    faults = ctypes.CDLL(library)
    faults.fault_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    for line in sys.stdin:
        sys.stdout.write(json.dumps(run(json.loads(line), faults)) + "\n")
        sys.stdout.flush()


def run(request: dict[str, Any], faults: ctypes.CDLL) -> dict[str, Any]:
    counter = mmap.mmap(-1, mmap.PAGESIZE)
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.chdir(request["cwd"])
            sys.path.insert(0, request["cwd"])
            address = ctypes.addressof(ctypes.c_char.from_buffer(counter))
            root = os.fsencode(request["root"])
            faults.fault_arm(root, request["fail_at"], request["sticky"], request["kill"], address)
            os._exit(in_child(["quatro", *request["argv"]]))
        begin, status = time.monotonic(), None
        for after_s, number in request["signals"]:
            while status is None and time.monotonic() - begin < after_s:
                status = ended(child)
                time.sleep(0.0005)
            if status is None:
                os.kill(child, number)
        if status is None:
            status = os.waitpid(child, 0)[1]
        return {
            "code": os.waitstatus_to_exitcode(status),
            "operations": int.from_bytes(counter[:8], sys.byteorder),
            "seconds": time.monotonic() - begin,
            "out": text_of(out),
            "err": text_of(err),
        }


def in_child(argv: list[str]) -> int:
    """The exit status as the interpreter would give it."""
    sys.argv = argv
    try:
        main()
        code: Any = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else int(code is not None)


def ended(child: int) -> int | None:
    pid, status = os.waitpid(child, os.WNOHANG)
    return status if pid else None


def text_of(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode("utf-8", "replace"))


if __name__ == "__main__":
    serve(sys.argv[1])
