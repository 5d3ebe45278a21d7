"""Whole functions that read what a model wrote, with texts that repeat one part: their steps grow as the text does.

Run by `test_patterns` as a process of its own, as `pumping` is. Steps are lines of the three packages; what a line does
in C, such as a search, is held by a limit of CPU seconds.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FrameType
from typing import Any

from collecting import PACKAGES, ROOT
from pumping import BODIES, CPU_LIMIT_S, seconds, stop

from evals.benchmarks.prompts import split_thought
from evals.code.programs import extract_program, normal_solution
from evals.errors import QuatroError
from evals.files.frames import csv_cell
from evals.files.strict_json import parse_row
from evals.grading import EXTRACTION_POLICIES, extract, same_answer
from evals.grading.tokens import clean
from evals.grading.words import without_sentence
from evals.similarity.measures import TOKENISERS
from evals.text import visible

# With what stands before it, the longer text is still one that the grader looks into.
SIZES = (900, 3600)
LONGEST = 20_000
# Four times the text, and a tenth and a constant for what is not proportional to it.
GROWTH, CONSTANT = 4.5, 300
LIMIT_S = 0.5
MORE_BODIES = (
    *("\\boxed{1}", "=1", "\\pm1,", "\\cup", "1+", "^2", "x(", "f(x)", "a_", "|", "[1,", "x=1;", "1!", "\\sqrt[3]"),
    *("\\mbox{", "5\\text{ to }", "f("),
    *("\\text{", "\\text{a}", "\\frac{1}{2}", "\\begin{pmatrix}", "\\over", "and ", "\\approx", "2{1}", "a.", "²⁄"),
    *("def f():\n  x\n", "```\n", "```python\nx\n```\n", "<think>", "</think>", "'\\", '{"a":', '"\\u0', "- ", "a: "),
)


def _graded(text: str) -> None:
    for form in ("{}", "5 {}", "x={}", "5\\text{{{}@}}"):
        same_answer(form.format(text), "123456")
    same_answer("5", text)
    same_answer(text, "3\\text{ hours}")


def _read_row(text: str) -> None:
    for line in (text, f'{{"completion": "{text}"}}'):
        parse_row(line.encode(), "samples.jsonl:1", may_be_torn=True)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "the comparison of an answer": _graded,
    "clean": clean,
    "sentences": without_sentence,
    "thinking": lambda text: split_thought(text, "<think> </think>"),
    "programs": lambda text: (extract_program(text), normal_solution(f"```python\n{text}")),
    "row": _read_row,
    "CSV cell": csv_cell,
    "visible": visible,
    **{f"extraction {one}": lambda text, one=one: extract(text, one) for one in EXTRACTION_POLICIES},
    **{
        f"extraction of a box, {one}": lambda text, one=one: extract(f"\\boxed{{{text}", one)
        for one in EXTRACTION_POLICIES
    },
    **{f"tokens {name}": tokens for name, tokens in TOKENISERS.items()},
}


def steps(action: Callable[[], object]) -> int:
    """Lines of the three packages that an action runs through."""
    num_steps = 0
    roots = tuple(str(ROOT / package) for package in PACKAGES)

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal num_steps
        num_steps += event == "line"
        return in_frame

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if frame.f_code.co_filename.startswith(roots) else None

    sys.settrace(begin)
    try:
        action()
    finally:
        sys.settrace(None)
    return num_steps


def too_slow() -> Iterator[str]:
    for name, function in FUNCTIONS.items():
        sys.stderr.write(f"{name}\n")
        for body in (*BODIES, *MORE_BODIES):

            def read(size: int, function: Callable[[str], object] = function, body: str = body, end: str = "") -> None:
                with suppress(QuatroError):  # what is no YAML, no row
                    function(body * (size // len(body)) + end)

            short, long = (steps(lambda size=size: read(size)) for size in SIZES)
            if long > GROWTH * short + CONSTANT:
                yield f"{name}: {short} steps for {SIZES[0]} characters of {body!r}, {long} for {SIZES[1]}"
            for size in (SIZES[1], LONGEST):
                taken = seconds(lambda size=size: read(size, end="@"), LIMIT_S)
                if taken > LIMIT_S:
                    yield f"{name}: {taken:.2f} s for {size} characters of {body!r}"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    signal.signal(signal.SIGPROF, stop)
    for line in too_slow():
        sys.stdout.write(f"{line}\n")
