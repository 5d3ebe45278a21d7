"""A folder of samples: its name, which says how they were drawn, and its Pass@k and UCC@k. Imports no torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

from evals.errors import UsageError
from evals.files.belonging import TAG, read_or_empty
from evals.results.document import Result
from evals.samples.about import SAMPLING, about_samples, sampled_benchmarks
from quatro.runs.checkpoint import Step, find_checkpoint
from quatro.runs.directory import INSIDE, step_name

PASSK, UCC = "passk.json", "ucc.json"  # their names beside the samples


@dataclass(frozen=True)
class Tag:
    """``T1-p0.7-step000100``: temperature, top_p, top_k where it is on, and the step of the checkpoint.

    ``is_inside``: the checkpoint was saved inside the iteration after ``step``.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    step: int | None = None
    is_inside: bool = False

    @classmethod
    def parse(cls, name: str) -> Self | None:
        """The tag that is written ``name``; None for any other name, such as one given with --tag."""
        match = TAG.fullmatch(name)
        if match is None:
            return None
        temperature, top_p, top_k, step, inside = match.groups()
        tag = cls(float(temperature), float(top_p), int(top_k or 0), None if step is None else int(step), bool(inside))
        return tag if str(tag) == name else None

    def __str__(self) -> str:
        parts = [f"T{self.temperature:g}", f"p{self.top_p:g}"]
        if self.top_k:
            parts.append(f"k{self.top_k}")
        if self.step is not None:
            parts.append(f"step{self.step:06d}{INSIDE if self.is_inside else ''}")
        return "-".join(parts)

    def folder(self, run: Path) -> Path:
        """Where the samples of this tag lie in a run, or in a folder that stands for an untrained model."""
        return run / "samples" / str(self)


def samples_of_step(run: Path, step: Step, benchmarks: Sequence[str] = ()) -> Path:
    """The folder in ``run`` with the samples of its checkpoint after ``step`` iterations, or of its best one.

    Raises UsageError if ``run`` is no run, or has several such folders or none; then the command draws ``benchmarks``.
    """
    if not (run / "config.yaml").is_file():
        raise UsageError(f"--step {step} chooses a checkpoint of a run, and {run} is not a run; leave it out")
    name = find_checkpoint(run, step).name if step == "best" else step_name(step)
    folders = [file.parent for file in sorted((run / "samples").rglob(SAMPLING))]
    found = [folder for folder in folders if read_or_empty(folder / SAMPLING).get("checkpoint") == name]
    if not found:
        find_checkpoint(run, step)
        names = ",".join(benchmarks or dict.fromkeys(one for folder in folders for one in sampled_benchmarks(folder)))
        command = f"quatro sample {run} --step {step} -b {names or 'BENCHMARK'}"
        raise UsageError(f"--step {step}: {run} has no samples of {name}; draw them: `{command}`")
    if len(found) > 1:
        raise UsageError(f"--step {step}: several folders hold samples of {name}: name {' or '.join(map(str, found))}")
    return found[0]


class Measured(NamedTuple):
    """Both results of a folder of samples, with 95 % intervals over problems."""

    passk: Result
    ucc: Result


def measure_samples(folder: Path, *, n: int, label: str) -> Measured:
    """Pass@k and UCC@k at k = 1, 2, 4, ..., n, written to passk.json and ucc.json beside the samples.

    ucc.json has the counts of every problem too. Sweeps and demos measure like this, so that their tables are those of
    the paper: solutions are told apart by tfidf at 0.9, or exactly where answers are short.

    Raises DataError if the samples cannot be read or graded, and UsageError if a problem has fewer than n of them.
    """
    from evals.metrics.counting import Clustering
    from evals.metrics.passk_ucc import passk_result, ucc_result
    from evals.samples.graded import read_graded

    samples, grader = read_graded(sorted(folder.glob("*.jsonl")))
    about = about_samples(samples.files).model_copy(update={"label": label, "grader": grader})
    ks = sorted({n, *(2**i for i in range(n.bit_length()))})
    found = Measured(
        passk_result(samples, ks=ks, ci=True, about=about),
        ucc_result(samples, Clustering(as_published=True), ks=ks, ci=True, per_problem=True, about=about),
    )
    found.passk.write(folder / PASSK)
    found.ucc.write(folder / UCC)
    return found
