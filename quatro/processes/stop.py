"""A polite end of training: the first signal asks the loop to stop where it can save, the second stops it now."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quatro.processes.world import World

POLITE_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """A stop was requested, of this rank or of another; whoever catches it saves what is there."""


class StopRequest:
    """``with StopRequest() as stop:`` catches SIGINT and SIGTERM; the loop asks ``stop.requested``.

    It asks between two optimiser steps, and whenever a response has been drawn.

    A second signal raises KeyboardInterrupt (SIGINT) or SystemExit(143) (SIGTERM) where the program stands.
    ``notify`` is told once, in words, that the request was heard. Outside the main thread nothing is installed,
    because Python delivers signals there only; ``request()`` still works.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
                    f"{cause.name}: saving after this optimiser step; responses still being drawn are discarded, and "
                    "drawn again by --resume; once more stops at once"
                )


class StopCheck:
    """What the training loop asks of a stop: whether it was requested of any rank of ``world``."""

    def __init__(self, request: StopRequest | None, world: World) -> None:
        self._request = request or StopRequest()
        self._world = world

    def check(self) -> None:
        """Called by all ranks, between two optimiser steps or iterations.

        Raises:
            Stopped: on all ranks, once a stop was requested of any.
        """
        if self._is_agreed():
            raise Stopped

    def poll(self) -> None:
        """Called by this rank alone, in the middle of work that `end_of_work` ends.

        Raises:
            Stopped: a stop was requested of this rank.
        """
        if self._request.requested:
            raise Stopped

    def end_of_work(self, *, is_cut: bool) -> None:
        """Called by all ranks after work in which they polled; ``is_cut``: this rank was stopped in the middle.

        Raises:
            Stopped: on all ranks, if any of them was.
        """
        if self._world.any(is_cut):
            self._is_agreed()
            raise Stopped

    def _is_agreed(self) -> bool:
        """Whether any rank was asked to stop; the others then take it as asked of them too."""
        request = self._request
        if self._world.size == 1:
            return request.requested
        number = self._world.largest(request.signal or 0)
        if number and not request.requested:
            request.request(signal.Signals(number))
        return number > 0
