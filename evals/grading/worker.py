"""The child process of the symbolic stage: `python -m evals.grading.worker CPU_LIMIT_S` and the pipes of the pool.

The process loads sympy once and stays warm. Pairs are graded in forks of it under hard limits of CPU time and memory,
so that no answer can slow down or kill the grading of another. It is a fresh interpreter with a single thread, which
makes the forks safe whatever threads the parent has.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from evals.grading.pool import MATH_VERIFY
from evals.worker_pool import Message, Respond, serve

MEMORY_LIMIT_BYTES = 2 << 30
CPU_SIGNALS = (signal.SIGPROF, signal.SIGXCPU)

UNDECIDED = "undecided: no difference was found and no proof of equality"


def grade_chunk(pairs: Sequence[Message], cpu_limit_s: float, respond: Respond) -> None:
    """Responds with the grade of each pair in order, or with what became of the process that graded it.

    One fork grades pair after pair, so that they share what was parsed; after a failure a new one goes on behind it.
    """
    position = 0
    while position < len(pairs):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _grade_and_exit(pairs[position:], cpu_limit_s, write_end)
        os.close(write_end)
        is_first = True
        with os.fdopen(read_end, "rb") as grades:
            for line in grades:
                respond(json.loads(line))
                position, is_first = position + 1, False
        _, status = os.waitpid(child, 0)
        failure = _failure(status)
        # What an earlier pair left behind may be to blame: the next process takes this pair first.
        if failure and (is_first or failure["outcome"] != "error"):
            respond(failure)
            position += 1


def _failure(status: int) -> Message | None:
    """What an exit status says; None for a process that ended because it was done."""
    if not os.WIFSIGNALED(status):
        code = os.waitstatus_to_exitcode(status)
        return {"outcome": "error", "detail": f"exit status {code}"} if code else None
    received = signal.Signals(os.WTERMSIG(status))
    if received in CPU_SIGNALS:
        return {"outcome": "timeout"}
    # A crash is the answer's doing; a kill comes from outside.
    is_killed = received in (signal.SIGKILL, signal.SIGTERM)
    return {"outcome": "killed" if is_killed else "error", "detail": received.name}


def _grade_and_exit(pairs: Sequence[Message], cpu_limit_s: float, write_end: int) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for position, pair in enumerate(pairs):
        try:
            _limit_cpu(cpu_limit_s)
            grade = _grade(pair)
        except BaseException as error:  # the reason is recorded; its text could be as hostile as the answer
            if position:
                os._exit(1)
            grade = {"outcome": "error", "detail": type(error).__name__}
        os.write(write_end, json.dumps(grade).encode("ascii") + b"\n")
        if grade["outcome"] == "error":
            break
    os._exit(0)


def _limit_cpu(seconds: float) -> None:
    """Ends this process after so many further seconds of CPU time."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    backstop = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (backstop, resource.RLIM_INFINITY))
    # The same, but finer than RLIMIT_CPU's whole seconds. Without a handler the signal ends the process even inside
    # C code; a Python handler would wait for that code to return.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _grade(pair: Message) -> Message:
    if pair["policy"] == MATH_VERIFY:
        return {"outcome": "correct" if _math_verify_accepts(pair) else "incorrect", "stage": MATH_VERIFY}
    from evals.grading.compare import compare
    from evals.grading.symbolic import Oracle

    oracle = Oracle()
    equality = compare(pair["answer"], pair["reference"], pair["policy"], pair["relative_tolerance"], oracle=oracle)
    is_equal = equality.is_equal is True
    stage = "unparsed" if oracle.num_unparsed and not is_equal else "symbolic"
    grade = {"outcome": "correct" if is_equal else "incorrect", "stage": stage}
    return grade | {"detail": UNDECIDED} if oracle.num_undecided and not is_equal else grade


def _math_verify_accepts(pair: Message) -> bool:
    from math_verify import parse, verify

    # Without its own limits of time: this process has one.
    reference, answer = (
        parse(text, parsing_timeout=None) for text in (f"${pair['reference']}$", f"\\boxed{{{pair['answer']}}}")
    )
    return bool(verify(reference, answer, timeout_seconds=None))


def prepare() -> Callable[[list[Message], Respond], None]:
    """What grades a chunk of pairs, once sympy is loaded; the CPU limit is the first argument of the command."""
    from evals.grading.symbolic import warm_up

    warm_up()
    gc.freeze()  # a collection in a fork would otherwise copy every page
    cpu_limit_s = float(sys.argv[1])
    return lambda pairs, respond: grade_chunk(pairs, cpu_limit_s, respond)


if __name__ == "__main__":
    serve(prepare)
