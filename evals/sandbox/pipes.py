"""Pipes: messages (four bytes of length, then as many bytes), and the other ends of what a program reads and prints."""

from __future__ import annotations

import os
import select
import struct

ERROR_BYTES = 2048
_LENGTH = struct.Struct(">I")


class EndedError(Exception):
    """The other side closed its end."""


class TooLongError(Exception):
    """A message is longer than the reader accepts."""


def frame(data: bytes) -> bytes:
    """The message with its length before it."""
    return _LENGTH.pack(len(data)) + data


def write_frame(descriptor: int, data: bytes) -> None:
    """Sends one message; `EndedError` if nobody reads."""
    write_all(descriptor, frame(data))


def write_all(descriptor: int, view: bytes) -> None:
    """Writes the bytes; `EndedError` if nobody reads."""
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError as error:
        raise EndedError from error


def read_frame(descriptor: int, most: int = (1 << 32) - 1) -> bytes:
    """The next message.

    Raises:
        EndedError: the other side closed its end.
        TooLongError: the message announces more than ``most`` bytes.
    """
    length = frame_length(descriptor)
    if length > most:
        raise TooLongError(length)
    return read_exactly(descriptor, length)


def frame_length(descriptor: int) -> int:
    """The length of the next message, whose bytes are left unread."""
    return int(_LENGTH.unpack(read_exactly(descriptor, _LENGTH.size))[0])


def read_exactly(descriptor: int, count: int) -> bytes:
    """As many bytes; `EndedError` if the other side closed its end before."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, min(count - len(parts), 1 << 20))
        if not part:
            raise EndedError
        parts += part
    return bytes(parts)


def pass_on(source: int, target: int, null: int) -> None:
    """Moves the next message from one pipe to another inside the kernel: no byte of it enters this process's memory.

    A message that the target no longer reads goes to the descriptor ``null``.
    """
    length = frame_length(source)
    try:
        os.write(target, _LENGTH.pack(length))
    except BrokenPipeError:
        target = null
    while length:
        try:
            moved = os.splice(source, target, length)
        except BrokenPipeError:
            target = null
            continue
        if not moved:
            raise EndedError
        length -= moved


class Drain:
    """Reads and forgets what a program prints."""

    def __init__(self, descriptor: int, most_bytes: int) -> None:
        self.readers = [descriptor]  # none once the program has closed its end
        self._left = most_bytes

    @property
    def is_flood(self) -> bool:
        """Whether there was more than allowed."""
        return self._left < 0

    def read(self, ready: set[int]) -> None:
        """Reads what is there."""
        for descriptor in ready.intersection(self.readers):
            num_bytes = len(os.read(descriptor, 1 << 16))
            self._left -= num_bytes
            if not num_bytes:
                self.close()

    def close(self) -> None:
        """Closes the descriptor."""
        while self.readers:
            os.close(self.readers.pop())


class Talk:
    """Feeds a program's standard input and gathers its output and the end of its errors."""

    def __init__(self, given: bytes, writer: int, output: int, errors: int, most_bytes: int) -> None:
        self._given = memoryview(given)
        self._writer: int | None = writer
        self._open = {output, errors}
        self._output, self._most = output, most_bytes
        self.output, self._errors = bytearray(), b""
        os.set_blocking(writer, False)
        if not given:
            self._close_writer()

    @property
    def is_flood(self) -> bool:
        """Whether there is more output than allowed."""
        return len(self.output) > self._most

    @property
    def last_error(self) -> str:
        """The last line of the errors."""
        return self._errors.decode("utf-8", "replace").strip().split("\n")[-1]

    def run(self) -> None:
        """Goes on until the program closed its output and errors, or wrote too much; then closes what is open."""
        while self._open and not self.is_flood:
            poll = select.poll()
            for descriptor in self._open:
                poll.register(descriptor, select.POLLIN)
            if self._writer is not None:
                poll.register(self._writer, select.POLLOUT)
            self._go_on({descriptor for descriptor, _ in poll.poll()})
        self._close_writer()
        for descriptor in self._open:
            os.close(descriptor)

    def _go_on(self, ready: set[int]) -> None:
        """Reads and writes what is possible without waiting."""
        for descriptor in ready & self._open:
            data = os.read(descriptor, 1 << 16)
            if not data:
                self._open.discard(descriptor)
                os.close(descriptor)
            elif descriptor == self._output:
                self.output += data
            else:
                self._errors = (self._errors + data)[-ERROR_BYTES:]
        if self._writer in ready and self._writer is not None:
            try:
                self._given = self._given[os.write(self._writer, self._given) :]
            except BlockingIOError:
                return
            except BrokenPipeError:
                self._given = self._given[:0]
            if not self._given:
                self._close_writer()

    def _close_writer(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None
