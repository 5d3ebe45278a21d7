"""What runs in the sandbox: the checker of a task that evaluates answers. Workers import it beforehand."""

from typing import Any

from evals.benchmarks.gym import Reference, dataset, entry, quiet
from evals.benchmarks.gym import task_names as _load

_load()  # the library itself: a confined process can read its files, but not those of this package


def score(reference: list[Any], answer: str) -> float:
    """The library's score of an answer. It raises what the checker raises."""
    about = Reference(*reference)
    with quiet():
        return float(dataset(about.task, about.settings, about.seed).score_answer(answer, entry(about)))
