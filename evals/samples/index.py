"""Where the rows of each problem stand in a samples file, so that one problem of thousands is read at once.

An index holds counts and places, no texts. It goes on where it ended when rows were appended.
"""

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evals.errors import DataError
from evals.files.strict_json import open_lines, parse_row
from evals.samples.reading import SamplesReader
from evals.samples.types import Problem

_decode = json.JSONDecoder().decode  # ten times faster than the strict reader, which checks what is shown


@dataclass
class Place:
    """Of the samples in ``lines``, at the bytes ``starts``, so many are correct and wrong; the others have no grade."""

    starts: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    num_correct: int = 0
    num_wrong: int = 0


class SamplesIndex:
    """The places of all samples in ``file``, by benchmark and id; `update` reads what was appended."""

    def __init__(self, file: Path) -> None:
        self.file, self.places = file, dict[tuple[str, str], Place]()
        self._end, self._num_lines = 0, 0

    def update(self) -> None:
        """Reads on from where it ended; half of a last line is left for the next time.

        Raises DataError, which names the file, for what is no sample.
        """
        try:
            with open_lines(self.file) as stream:
                stream.seek(self._end)
                for line in stream:
                    try:
                        row = None if line.isspace() else _decode(line.decode("utf-8-sig"))
                    except ValueError:
                        if line.endswith(b"\n"):
                            raise
                        break  # half of a line, which is being written
                    if row is not None:
                        place = self.places.setdefault((row["benchmark"], row["id"]), Place())
                        place.starts.append(self._end)
                        place.lines.append(self._num_lines + 1)
                        place.num_correct += row.get("correct") is True
                        place.num_wrong += row.get("correct") is False
                    self._end += len(line)
                    self._num_lines += line.endswith(b"\n")
        except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, RecursionError) as error:
            at = f"{self.file}:{self._num_lines + 1}"
            raise DataError(f"{at}: no sample: {type(error).__name__}: {error}") from error

    def problem(self, benchmark: str, id: str) -> Problem:
        """All samples of a problem, read strictly; raises DataError for a damaged row."""
        return next(self.problems(benchmark, [id]))

    def problems(self, benchmark: str, ids: Sequence[str]) -> Iterator[Problem]:
        """`problem` of each of ``ids``. In the order of the file a packed one is unpacked once."""
        with open_lines(self.file) as stream:
            for id in ids:
                reader, read = SamplesReader(benchmarks=None, keep_extra=True), []
                place = self.places[benchmark, id]
                for start, number in zip(place.starts, place.lines, strict=True):
                    stream.seek(start)
                    row = parse_row(stream.readline().removeprefix(b"\xef\xbb\xbf"), f"{self.file}:{number}")
                    read.append(reader.check(row or {}, self.file, number))
                yield Problem(benchmark, id, sorted(read, key=lambda row: row.sample_index))
