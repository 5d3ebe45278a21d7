"""Where the rows of each problem stand in a samples file, so that one problem of thousands is read at once.

An index holds counts and places, no texts. It goes on where it ended when rows were appended.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from evals.errors import DataError
from evals.files.strict_json import parse_row, refuse
from evals.samples.reading import SamplesReader
from evals.samples.types import Problem

_decode = json.JSONDecoder().decode  # ten times faster than the strict reader, which checks what is shown


@dataclass
class Place:
    """``num_correct`` of the n samples that stand at the bytes ``starts`` are correct, ``num_graded`` have a grade."""

    starts: list[int] = field(default_factory=list)
    num_correct: int = 0
    num_graded: int = 0

    @property
    def n(self) -> int:
        return len(self.starts)

    def may_have_right(self, number: int) -> bool:
        """Whether so many samples are correct, or could be once all are graded."""
        return self.num_correct + self.n - self.num_graded >= number


class SamplesIndex:
    """The places of all samples in ``file``, by benchmark and id; `update` reads what was appended."""

    def __init__(self, file: Path) -> None:
        self.file, self.places, self._end = file, dict[tuple[str, str], Place](), 0

    def update(self) -> None:
        """Reads on from where it ended; half of a last line is left for the next time.

        Raises DataError, which names the file, for what is no sample.
        """
        try:
            with self._open() as stream:
                stream.seek(self._end)
                for line in stream:
                    try:
                        if not line.isspace():
                            self._add(line)
                    except ValueError:
                        if line.endswith(b"\n"):
                            raise
                        break  # half of a line, which is being written
                    self._end += len(line)
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{self.file}: no samples at byte {self._end}: {type(error).__name__}: {error}") from error

    def problem(self, benchmark: str, id: str) -> Problem:
        """All samples of a problem, read strictly; raises DataError for a damaged row."""
        reader, read = SamplesReader(benchmarks=None, keep_extra=True), []
        for start, line in self._lines(self.places[benchmark, id]):
            at = f"{self.file}, byte {start}"
            read.append(reader.check(parse_row(line, at) or refuse(at, "no row"), self.file, start))
        return Problem(benchmark, id, sorted(read, key=lambda row: row.sample_index))

    def _lines(self, place: Place) -> Iterator[tuple[int, bytes]]:
        with self._open() as stream:
            for start in place.starts:
                stream.seek(start)
                yield start, stream.readline().removeprefix(b"\xef\xbb\xbf")

    def _open(self) -> BinaryIO:
        is_packed = self.file.suffix == ".gz"
        return gzip.open(self.file) if is_packed else self.file.open("rb")  # type: ignore[return-value]

    def _add(self, line: bytes) -> None:
        row = _decode(line.decode("utf-8-sig"))
        place = self.places.setdefault((row["benchmark"], row["id"]), Place())
        place.starts.append(self._end)
        place.num_graded += (is_correct := row.get("correct")) is not None
        place.num_correct += is_correct is True
