"""A laboratory for faults: `quatro` runs in forked children whose disk fails or who are killed, at chosen moments."""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

STEPS = 6


@dataclass(frozen=True)
class Ended:
    """How a child ended: ``code`` as a shell gives it (-9 for SIGKILL), and how many file operations it got to."""

    code: int
    operations: int
    seconds: float
    out: str
    err: str


class Laboratory:
    """``lab.run(argv, root=...)`` runs `quatro argv`; only what happens below ``root`` can fail.

    ``lab.train`` begins a small run: `STEPS` short iterations of 4 optimiser steps, with a checkpoint after every other
    one. The children's working directory holds the module `digit_reward` with the reward function `share`.
    """

    def __init__(self, fork: Callable[..., Any], folder: Path, model: Path) -> None:
        self._fork = fork
        self.folder = folder
        settings = [
            *(f"model={model}", "reward={name: 'digit_reward:share', workers: 1}", f"steps={STEPS}", "threads=1"),
            *("prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=4", "inner_updates=2"),
            *("optimizer.lr=1e-3", "optimizer.warmup_steps=0", "checkpoint.every=2", "checkpoint.keep=2"),
        ]
        self.train = ["train", "quickstart", *(word for setting in settings for word in ("-s", setting))]

    def start(self, argv: Sequence[str]) -> Any:
        """`quatro argv` in a child that goes on by itself; see `Forked`."""
        return self._fork(["quatro", *argv], cwd=self.folder)

    def run(
        self,
        argv: Sequence[str],
        *,
        root: Path,
        fail_at: int = 0,
        sticky: bool = False,
        kill: bool = False,
        clock_s: int = 0,
        signals: Sequence[tuple[float, int]] = (),
    ) -> Ended:
        """``fail_at``: the number of the operation that fails (0: none), ``sticky``: and all after it, ``kill``: by
        SIGKILL just before it. ``clock_s``: seconds by which the wall clock jumps at every look. ``signals``: (seconds
        after the start, signal number), in order of time."""
        begin = time.monotonic()
        fault = {"root": str(root), "fail_at": fail_at, "sticky": sticky, "kill": kill, "clock_s": clock_s}
        child = self._fork(["quatro", *argv], cwd=self.folder, fault=fault)
        for after_s, number in signals:
            if child.poll(begin + after_s - time.monotonic()) is None:
                child.send_signal(number)
        code = child.wait()
        seconds = time.monotonic() - begin
        out, err = child.communicate()
        return Ended(code, child.operations, seconds, out, err)

    @functools.cached_property
    def whole(self) -> tuple[str, Ended]:
        """The outcome of the uninterrupted run, and how it ended."""
        run = self.folder / "whole"
        ended = self.run([*self.train, "-o", str(run)], root=run)
        assert ended.code == 0, ended.err
        return outcome(run), ended

    def begin(self, run: Path, **faults: Any) -> Ended:
        """Train, with ``faults``."""
        return self.run([*self.train, "-o", str(run)], **{"root": run, **faults})

    def go_on(self, run: Path, **faults: Any) -> Ended:
        """Resume, or begin where nothing had begun."""
        has_begun = (run / "config.yaml").exists()
        argv = ["train", str(run), "--resume"] if has_begun else [*self.train, "-o", str(run)]
        return self.run(argv, **{"root": run, **faults})

    outcome = staticmethod(lambda run: outcome(run))

    def finish(self, run: Path) -> str:
        """Go on without faults, to the end; the outcome, which is to be that of `whole`."""
        ended = self.go_on(run)
        assert ended.code == 0, ended.err
        return outcome(run)


def outcome(run: Path) -> str:
    """Everything that must repeat: metrics but for times, rollouts, final weights and state."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    kept = [{key: value for key, value in row.items() if not key.startswith("perf/")} for row in rows]
    files = [*(run / "checkpoints" / f"step-{STEPS:06d}" / "model").iterdir(), *(run / "rollouts").iterdir()]
    files.append(run / "checkpoints" / f"step-{STEPS:06d}" / "tensors.safetensors")
    digests = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}
    return json.dumps([kept, digests], indent=1)


@pytest.fixture(scope="session")
def lab(
    tmp_path_factory: pytest.TempPathFactory, fork: Any, failing_io: str, digit_reward: str, tiny_folder: Path
) -> Laboratory:
    if not failing_io:
        pytest.skip("needs Linux and a C compiler for the failing disk")
    folder = tmp_path_factory.mktemp("faults")
    (folder / "digit_reward.py").write_text(digit_reward, encoding="utf-8")
    return Laboratory(fork, folder, tiny_folder)
