"""math-verify as a grader of your own, to see where it and ours differ (`pip install math-verify`).

quatro eval grade samples.jsonl -o theirs --grader examples.math_verify_grader:verified
quatro eval grade theirs/samples.jsonl --grader math --disagree    # only what is now graded differently
"""

import functools
import logging

from math_verify import parse, verify

from evals.grading import last_boxed

LONGEST = 1000  # math-verify often meets its own limit of time on longer answers
logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it reports each answer that takes too long


def verified(completion: str, reference: str) -> bool:
    """Whether math-verify takes what stands in the last box of `completion` for `reference`."""
    answer = last_boxed(completion) or ""
    return 0 < len(answer) <= LONGEST and _are_equal(answer, reference)


@functools.cache
def _are_equal(answer: str, reference: str) -> bool:
    return bool(verify(parse(f"${reference}$"), parse(f"\\boxed{{{answer}}}")))
