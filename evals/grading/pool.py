"""The symbolic stage in worker processes.

Limits are CPU seconds, so that a grade does not depend on what else the machine does. A pair whose worker is killed is
tried once more; a second time gives the outcome `infra_error`, as do pairs for which no worker is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from evals.errors import MissingError
from evals.worker_pool import CannotStartError, Failure, Message, WorkerPool, usable_cores

CPU_LIMIT_S = 2.0
MAX_ATTEMPTS = 2
CHUNK_SIZE = 16
# Real time only guards against a machine that hangs: far more than the CPU limit takes under any load.
WALL_LIMIT_S = 300.0
_COMMAND = ("-m", "evals.grading.worker")

# In place of a policy: the pair is graded by math-verify alone.
MATH_VERIFY = "math-verify"

SymbolicOutcome = Literal["correct", "incorrect", "timeout", "error", "infra_error"]


class Pair(NamedTuple):
    """One question for the symbolic stage; texts as extracted and as stored."""

    answer: str
    reference: str
    policy: str
    relative_tolerance: float


@dataclass(frozen=True, slots=True)
class SymbolicGrade:
    """``stage``: symbolic, unparsed (one side is no formula), or guard (not sent). ``detail``: why it failed."""

    outcome: SymbolicOutcome
    stage: str = "symbolic"
    detail: str = ""


class SymbolicGrader:
    """Grades pairs in up to ``num_workers`` processes; they start when needed and stay. Safe to use from threads.

    ``command`` replaces the arguments of the interpreter, for tests.
    """

    def __init__(
        self, *, num_workers: int = 0, cpu_limit_s: float = CPU_LIMIT_S, command: Sequence[str] = _COMMAND
    ) -> None:
        self._pool = WorkerPool(
            [*command, str(cpu_limit_s)],
            num_workers=num_workers or usable_cores(),
            timeout_s=WALL_LIMIT_S,
            start_timeout_s=WALL_LIMIT_S,
            chunk_size=CHUNK_SIZE,
            is_quiet=True,
            # Hash order changes how sympy simplifies: with a fixed seed every process answers alike.
            environment={"PYTHONHASHSEED": "0"},
        )

    def grade(
        self, pairs: Sequence[Pair], on_progress: Callable[[int], None] | None = None, *, jobs: int | None = None
    ) -> list[SymbolicGrade]:
        """Grades of the pairs, in their order; ``on_progress`` is told how many are done.

        ``jobs`` starts no more processes than that.

        Raises:
            MissingError: workers cannot be started on this machine: something that they need is missing.
        """
        # Pairs of one reference in one chunk: it is parsed once.
        open_pairs = sorted(range(len(pairs)), key=lambda index: (pairs[index].reference, index))
        grades: dict[int, SymbolicGrade] = {}
        num_done = 0
        for attempt in range(1, MAX_ATTEMPTS + 1):

            def count(answer: Message | Failure, is_last: bool = attempt == MAX_ATTEMPTS) -> None:
                nonlocal num_done
                num_done += is_last or _grade(answer).outcome != "infra_error"
                if on_progress:
                    on_progress(num_done)

            try:
                answers = self._pool.ask([pairs[index]._asdict() for index in open_pairs], count, jobs=jobs)
            except CannotStartError as error:
                raise MissingError(f"the grader's worker process cannot start: {error}") from error
            grades.update((index, _grade(answer)) for index, answer in zip(open_pairs, answers, strict=True))
            if any(isinstance(answer, Failure) and answer.kind == "not started" for answer in answers):
                break
            open_pairs = [index for index in open_pairs if grades[index].outcome == "infra_error"]
        return [grades[index] for index in range(len(pairs))]

    def close(self) -> None:
        """Ends the processes; grading again starts them anew."""
        self._pool.close()

    def abandon(self) -> None:
        """For the child of a fork: leaves the processes to the parent."""
        self._pool.abandon()


def _grade(answer: Message | Failure) -> SymbolicGrade:
    if isinstance(answer, Failure):
        return SymbolicGrade("infra_error", detail=f"worker {answer.detail}")
    outcome: SymbolicOutcome = "infra_error" if answer["outcome"] == "killed" else answer["outcome"]
    return SymbolicGrade(outcome, answer.get("stage", "symbolic"), answer.get("detail", ""))
