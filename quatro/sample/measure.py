"""Pass@k and UCC@k of a folder of samples. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from evals.results.document import About, Result

PASSK, UCC = "passk.json", "ucc.json"  # their names beside the samples


class Measured(NamedTuple):
    """Both results of a folder of samples, with 95 % intervals over problems."""

    passk: Result
    ucc: Result


def measure_samples(folder: Path, *, n: int, label: str) -> Measured:
    """Pass@k and UCC@k at k = 1, 2, 4, ..., n, written to passk.json and ucc.json beside the samples.

    ucc.json has the counts of every problem too.

    Raises:
        DataError: the samples cannot be read or graded.
        UsageError: a problem has fewer than n of them.
    """
    from evals.metrics.passk_ucc import passk_result, ucc_result
    from evals.samples.about import about_samples
    from evals.samples.graded import read_graded

    samples, grader = read_graded(sorted(folder.glob("*.jsonl")))
    about: About = {**about_samples(samples.files), "label": label, "grader": grader}
    ks = sorted({n, *(2**i for i in range(n.bit_length()))})
    found = Measured(
        passk_result(samples, ks=ks, ci=True, **about),
        ucc_result(samples, ks=ks, ci=True, per_problem=True, **about),
    )
    found.passk.write(folder / PASSK)
    found.ucc.write(folder / UCC)
    return found
