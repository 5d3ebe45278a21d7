"""The way of a Ctrl-C: the first signal asks the loop to stop where it can save, the second ends it at once.

`StopRequest` catches the signal. The loop asks `StopCheck`, which raises `Stopped` on all ranks: between optimiser
steps (`loop/learn.py`), while responses are drawn (`loop/draw.py`) and after an iteration (`train.py`). `train.py`
catches `Stopped` and saves by `launch/saving.py`; `launch/recording.py` writes `interrupted` to status.json. A resume
goes on from there.
`quatro_cli/commands/train.py`, which opened the `StopRequest`, exits with its ``exit_code``.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quatro.processes.world import World

POLITE_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A stop was requested of this rank or another one; the loop saves its position as it is."""


class StopRequest:
    """``with StopRequest() as stop:`` catches SIGINT and SIGTERM; the loop asks ``stop.requested``.

    A second signal raises KeyboardInterrupt (SIGINT) or SystemExit(143) (SIGTERM) at once. ``notify`` is called once
    with a message for the user. Outside the main thread, where Python delivers no signals, nothing is caught;
    ``request()`` still works.
    """

    def __init__(self, notify: Callable[[str], None] | None = None) -> None:
        self.signal: signal.Signals | None = None
        self._notify = notify
        self._previous: dict[signal.Signals, Any] = {}

    @property
    def requested(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, 0 if nobody asked."""
        return 0 if self.signal is None else 128 + self.signal

    def request(self, cause: signal.Signals = signal.SIGINT) -> None:
        self.signal = cause

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in POLITE_SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        cause = signal.Signals(number)
        if self.requested:
            if cause is signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(128 + number)
        self.request(cause)
        if self._notify is not None:
            # The signal may have arrived inside a write to the same stream, which must not be entered twice.
            with contextlib.suppress(RuntimeError):
                self._notify(
                    f"{cause.name}: saving after this optimiser step. Responses that are still being drawn are "
                    "discarded; --resume draws them again. A second signal stops at once"
                )


class StopCheck:
    """Tells the training loop whether a stop was requested of any rank of ``world``."""

    def __init__(self, request: StopRequest | None, world: World) -> None:
        self._request = request or StopRequest()
        self._world = world

    def check(self) -> None:
        """All ranks call it between optimiser steps or iterations; raises Stopped on all if a stop was asked of any."""
        if self._is_agreed():
            raise Stopped

    def poll(self) -> None:
        """A rank calls it amid work that `end_of_work` ends; raises Stopped if a stop was requested of this rank."""
        if self._request.requested:
            raise Stopped

    def end_of_work(self, *, is_cut: bool) -> None:
        """All ranks call it after work with polls; raises Stopped on all if any ``is_cut``: stopped in the middle."""
        if self._world.largest(is_cut):
            self._is_agreed()
            raise Stopped

    def _is_agreed(self) -> bool:
        """Whether any rank was asked to stop; then every rank counts as asked."""
        request = self._request
        if self._world.size == 1:
            return request.requested
        number = self._world.largest(request.signal or 0)
        if number and not request.requested:
            request.request(signal.Signals(number))
        return number > 0
