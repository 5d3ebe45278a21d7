"""vLLM's own server of a model, for the tests that draw from it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

START_LIMIT_S = 600
# One process and one thread: a crowded machine has no more to give.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}


class VllmServer:
    """vLLM's server of a model, in a process group of its own; ``name`` is what it calls the model."""

    def __init__(self, folder: Path, log: Path, *, longest: int = 64, name: str | None = None) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        arguments = ["--model", str(folder), "--host", "127.0.0.1", "--port", str(port)]
        arguments += ["--max-model-len", str(longest), "--served-model-name", name or str(folder)]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                # `vllm serve` wants the metadata of a package called vllm, and the CPU build is called vllm-cpu.
                [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *arguments, "--dtype", "float32"]
                + ["--enforce-eager", "--kv-cache-memory-bytes", str(64 << 20)],
                env={**os.environ, **ENVIRONMENT},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_LIMIT_S
        while not self.is_ready():
            assert self.process.poll() is None, log.read_text(encoding="utf-8")[-3000:]
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")[-3000:]
            time.sleep(0.5)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/models", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
