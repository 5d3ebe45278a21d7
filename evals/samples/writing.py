"""Samples files: appending that survives a crash, by one process at a time."""

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from evals.errors import LockedError, UsageError
from evals.files.whole import lock_file, naming
from evals.samples.reading import SamplesReader
from evals.samples.types import Sample


class SampleWriter(AbstractContextManager["SampleWriter"]):
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
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        try:
            lock_file(self._file.fileno(), self.path, instead="-o DIR")
            reader = SamplesReader(benchmarks=None, keep_extra=False)
            reader.read(self.path, may_be_empty=True)
            self.warnings = reader.warnings  # of a last line that is torn
            self._size = self._mend_tail(is_torn=bool(self.warnings))
        except BlockingIOError:
            self._file.close()
            raise LockedError(f"{self.path}: another process is writing this file; wait for it to end") from None
        except BaseException:
            self._file.close()
            raise
        self.present = {(sample.id, sample.sample_index) for sample in reader.rows}
        self.asked = {sample.id: (sample.prompt, sample.answer) for sample in reader.rows}

    def _mend_tail(self, *, is_torn: bool) -> int:
        """Ends the last line in a newline, or removes it if it is torn; returns the size in bytes afterwards."""
        with self.path.open("rb") as stream:
            size = sum(len(line) for line in stream if line.endswith(b"\n"))
        whole = self.path.stat().st_size
        if is_torn:
            with naming(self.path):
                self._file.truncate(size)
        return size if is_torn or size == whole else whole + self._write(b"\n", whole)

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

    def __exit__(self, *error: object) -> None:
        self.close()
