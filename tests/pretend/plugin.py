"""``pytest -p tests.pretend.plugin -m gpu``: tests that need a CUDA device run on one that is not there."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.pretend.watched import pretended_gpu

_stack = ExitStack()
_gpu = _stack.enter_context(pretended_gpu())  # before the tests are collected: some are skipped without a device


def pytest_terminal_summary(terminalreporter: Any) -> None:
    num_kernels = sum(phase.kernels for phase in _gpu.phases.values())
    terminalreporter.line(f"pretended device: {sum(_gpu.total('faults').values())} faults in {num_kernels} kernels")


def pytest_unconfigure() -> None:
    _stack.close()
