"""Runs a command of quatro and writes which functions of the packages were called, in the order of their first call.

    python walking.py '{"argv": [...], "interrupt_in": "module.function" or null, "to": file}'

``interrupt_in``: when this function is called for the first time, the process sends itself a SIGINT, as Ctrl-C does.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any


def main() -> None:
    request = json.loads(sys.argv[1])
    called: dict[str, None] = {}

    def watch(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.partition(".")[0] in ("quatro", "evals", "quatro_cli"):
            name = f"{module}.{frame.f_code.co_qualname}"
            if name == request["interrupt_in"] and name not in called:
                os.kill(os.getpid(), signal.SIGINT)
            called.setdefault(name)

    from quatro_cli.app import main as quatro

    sys.argv = ["quatro", *request["argv"]]
    sys.setprofile(watch)
    try:
        quatro()
    finally:
        sys.setprofile(None)
        Path(request["to"]).write_text(json.dumps(list(called)), encoding="utf-8")


if __name__ == "__main__":
    main()
