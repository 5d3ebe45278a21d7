"""Messages over pipes: four bytes of length, then as many bytes."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable

_LENGTH = struct.Struct(">I")


class EndedError(Exception):
    """The other side closed its end."""


class TooLongError(Exception):
    """A message is longer than the reader accepts."""


def frame(data: bytes) -> bytes:
    """The message with its length before it."""
    return _LENGTH.pack(len(data)) + data


def write_frame(descriptor: int, data: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    """Sends one message; `EndedError` if nobody reads."""
    write_all(descriptor, frame(data), write)


def write_all(descriptor: int, view: bytes, write: Callable[[int, bytes], int] = os.write) -> None:
    """Writes the bytes; `EndedError` if nobody reads."""
    try:
        while view:
            view = view[write(descriptor, view) :]
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
