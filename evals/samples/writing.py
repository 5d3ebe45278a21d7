"""Samples files: appending that survives a crash, by one process at a time."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from evals.errors import LockedError, UsageError
from evals.files.strict_json import parse_row
from evals.files.whole import lock_file, naming
from evals.samples.reading import SamplesReader, torn_line_warning
from evals.samples.types import Sample


class SampleWriter:
    """Appends rows to one `.jsonl` file.

    ``present`` has the rows already there, so that sampling draws the rest, and ``asked`` by id the prompt and the
    reference answer of their problems.

    Opening takes a lock on the file, checks every row in it as `read_samples` would, and cuts off a last line torn by
    a crash (named in ``warnings``). Each `append` reaches the disk whole, or is taken back before OSError is raised.

    Raises:
        DataError: a row of the existing file breaks the contract.
        LockedError: another process is writing this file.
        MissingError: its file system has no locks.
        UsageError: the name does not end in `.jsonl` (a gzip file cannot be mended after a crash).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.suffix != ".jsonl":
            raise UsageError(f"{self.path}: samples are appended to a .jsonl file; compress it when it is complete")
        self.warnings: list[str] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        try:
            self._lock()
            self._size = self._mend_tail()
            reader = SamplesReader(benchmarks=None, keep_extra=False)
            if self._size:
                reader.read(self.path, may_be_empty=True)
        except BaseException:
            self._file.close()
            raise
        self.present = {(sample.id, sample.sample_index) for sample in reader.rows}
        self.asked = {sample.id: (sample.prompt, sample.answer) for sample in reader.rows}

    def _lock(self) -> None:
        try:
            lock_file(self._file.fileno(), self.path, instead="-o DIR")
        except BlockingIOError:
            raise LockedError(f"{self.path}: another process is writing this file; wait for it to end") from None

    def _mend_tail(self) -> int:
        """Ends the last line in a newline, or removes it if it is torn; returns the size in bytes afterwards."""
        size, number, tail = 0, 0, b""
        with self.path.open("rb") as stream:
            for tail in stream:
                number += 1
                size += len(tail)
        if not tail or tail.endswith(b"\n"):
            return size
        if tail.strip() and parse_row(tail, f"{self.path}:{number}", may_be_torn=True) is not None:
            return size + self._write(b"\n", size)
        with naming(self.path):
            self._file.truncate(size - len(tail))
        self.warnings.append(torn_line_warning(self.path, number))
        return size - len(tail)

    def append(self, samples: Iterable[Sample]) -> None:
        """Appends the rows and waits until the disk has them."""
        rows = list(samples)
        keys = [(sample.id, sample.sample_index) for sample in rows]
        twice = [key for key, count in Counter(keys).items() if count > 1 or key in self.present]
        if twice:
            raise ValueError(
                f"sample {twice[0]} is in {self.path} already; draw only samples that are not in `present`"
            )
        self._size += self._write(b"".join(sample.to_json_line() for sample in rows), self._size)
        self.present.update(keys)

    def _write(self, data: bytes, size: int) -> int:
        rest = memoryview(data)
        with naming(self.path):
            try:
                while rest:  # a raw write may take only a part, near a full disk or a file-size limit
                    rest = rest[self._file.write(rest) :]
                os.fsync(self._file.fileno())
            except OSError:
                self._file.truncate(size)
                raise
        return len(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
