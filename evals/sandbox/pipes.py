"""Pipes: messages (four bytes of length, then as many bytes), and the other ends of what a program reads and prints."""

import os
import select
import struct
from typing import NamedTuple

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


class Said(NamedTuple):
    """What a program wrote on its standard output, and the last line of its errors."""

    output: bytes
    last_error: str
    is_flood: bool


def talk(given: bytes, writer: int, output: int, errors: int, most_bytes: int) -> Said:
    """Feeds a program's standard input until it closed its output and errors, or wrote more than ``most_bytes``.

    The descriptors are closed.
    """
    os.set_blocking(writer, False)
    left = memoryview(given)
    found, said = bytearray(), b""
    readers, writers = {output, errors}, {writer}
    while readers and len(found) <= most_bytes:
        if not left and writers:
            os.close(writers.pop())
        readable, writable, _ = select.select(readers, writers, [])
        for descriptor in readable:
            data = os.read(descriptor, 1 << 16)
            if not data:
                readers.discard(descriptor)
                os.close(descriptor)
            elif descriptor == output:
                found += data
            else:
                said = (said + data)[-ERROR_BYTES:]
        if writable:
            try:
                left = left[os.write(writer, left) :]
            except BlockingIOError:
                pass
            except BrokenPipeError:
                left = left[:0]
    for descriptor in readers | writers:
        os.close(descriptor)
    last_error = said.decode("utf-8", "replace").strip().split("\n")[-1]
    return Said(bytes(found), last_error, len(found) > most_bytes)
