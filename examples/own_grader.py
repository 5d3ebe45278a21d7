"""A grader of your own: a response is correct if its last number is within 1 % of the reference.

    quatro eval passk examples/own_benchmark/samples.jsonl --grader examples.own_grader:within --k 1,4
    quatro eval grade examples/own_benchmark/samples.jsonl --grader examples.own_grader:within -o graded

For a benchmark of your own, write `grader = "own_grader:within"` into its table in quatro-benchmarks.toml.
"""

import re
from fractions import Fraction

TOLERANCE = Fraction(1, 100)


def within(completion: str, reference: str) -> bool:
    """`completion` is the text of a response without its prompt, `reference` the answer as it stands in the samples."""
    numbers = re.findall(r"-?\d+(?:\.\d+|/[1-9]\d*)?", completion)
    if not numbers:
        return False
    expected = Fraction(reference)
    return abs(Fraction(numbers[-1]) - expected) <= TOLERANCE * abs(expected)
