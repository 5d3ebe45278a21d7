"""CPU seconds to grade completions: math-verify on every completion against `evals.grading`, in one process.

Both read the same completions and references. math-verify runs as its documentation says, `parse` and `verify` for
each completion, on an evenly spread share of them (--share), because all of them would take long; its time is scaled
up. Ours grades all of them.

    python benchmarks/grading_speed.py                       # 500 made-up problems, 256 completions each
    python benchmarks/grading_speed.py --problems 50 --n 64
    python benchmarks/grading_speed.py --file samples/math500.jsonl
"""

import argparse
import logging
from collections import Counter
from pathlib import Path

import numpy as np
from earlier import cpu_s
from math_verify import parse, verify

from evals.grading import grade_many
from evals.samples.reading import read_samples

Pairs = list[tuple[str, str]]

FILLER = "Let us look at the problem again. Since $a_{%d} = %d$, we have \\[ %d + x^2 = \\frac{%d}{%d} \\] and so on. "


def made_up(num_problems: int, n: int, rng: np.random.Generator) -> Pairs:
    """Answers as models write them: mostly one form of the right one, some other forms, and a tail of wrong ones."""
    pairs = []
    for problem in range(num_problems):
        reference, forms, wrong = _problem(problem, rng)
        for _ in range(n):
            numbers = tuple(int(number) for number in rng.integers(2, 90, 5))
            reasoning = (FILLER % numbers) * int(rng.integers(3, 12))
            kind = rng.random()
            if kind < 0.02:
                pairs.append((reasoning + "I do not know.", reference))
                continue
            texts = forms[:1] if kind < 0.5 else forms if kind < 0.6 else wrong
            # Wrong answers repeat themselves too: a few of them are most of the tail.
            index = min(int(rng.exponential(4)), len(texts) - 1)
            pairs.append((f"{reasoning}Thus the answer is $\\boxed{{{texts[index]}}}$.", reference))
    return pairs


def _problem(problem: int, rng: np.random.Generator) -> tuple[str, list[str], list[str]]:
    a, b, c = (int(number) for number in rng.integers(2, 60, 3))
    tail = [int(number) for number in rng.integers(2, 5000, 16)]
    if problem % 10 < 6:  # most references are integers
        return f"{a * b}", [f"{a * b}", f"{a * b}.0", f"x={a * b}"], [f"{number}" for number in tail]
    if problem % 10 == 6:
        forms = [f"\\frac{{{a}}}{{{a + b}}}", f"{a}/{a + b}", f"\\dfrac{{{2 * a}}}{{{2 * (a + b)}}}"]
        return forms[0], forms, [f"\\frac{{{number}}}{{{b}}}" for number in tail]
    if problem % 10 == 7:
        forms = [f"({a},{b})", f"\\left({a}, {b}\\right)", f"(x,y)=({a},{b})"]
        return forms[0], forms, [f"({number}, {b})" for number in tail]
    if problem % 10 == 8:
        forms = [f"{a}\\sqrt{{{c}}}", f"\\sqrt{{{a * a * c}}}"]
        return forms[0], forms, [f"{number}\\sqrt{{{c}}}" for number in tail]
    forms = [f"x^2+{a}x+{b}", f"{b}+{a}x+x^{{2}}"]
    return forms[0], forms, [f"x^2+{number}x+{c}" for number in tail]


def with_math_verify(pairs: Pairs) -> list[bool]:
    return [verify(parse(f"${reference}$"), parse(completion)) for completion, reference in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=500)
    parser.add_argument("--n", type=int, default=256, help="completions per problem")
    parser.add_argument("--file", type=Path, help="a samples file, in place of made-up completions")
    parser.add_argument("--share", type=float, default=0.01, help="of the completions, for math-verify")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)  # math-verify reports each timeout
    if options.file:
        rows = read_samples([options.file]).rows
        pairs = [(row.completion, str(row.answer)) for row in rows]
    else:
        pairs = made_up(options.problems, options.n, np.random.default_rng(0))

    share = pairs[:: max(1, round(1 / options.share))]
    their_s, theirs = cpu_s(lambda: with_math_verify(share))
    their_s *= len(pairs) / len(share)
    our_s, grades = cpu_s(lambda: grade_many(pairs))
    ours = grades[:: max(1, round(1 / options.share))]
    same = sum(grade.correct == is_accepted for grade, is_accepted in zip(ours, theirs, strict=True))
    outcomes, stages = Counter(grade.outcome for grade in grades), Counter(grade.stage for grade in grades)
    print(f"{len(pairs):,} completions: " + ", ".join(f"{name} {count:,}" for name, count in outcomes.items()))
    print("decided by " + ", ".join(f"{name} {count:,}" for name, count in stages.items()))
    print(f"math-verify alone {their_s:12.1f} CPU s (scaled up from {len(share):,} completions)")
    print(f"evals.grading     {our_s:12.1f} CPU s")
    print(f"ratio {their_s / our_s:.0f}; grades agree on {same} of the {len(theirs)} that both graded")


if __name__ == "__main__":
    main()
