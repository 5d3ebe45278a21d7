"""Digit countdown: the embedded benchmark. Reach a target with a chain of running totals over some of six digits.

A prompt is ``7 2 7 6 2 8 -> 67``. An answer is ``8 *7 =56 +7 =63 +6 =69 -2 =67``: a digit, then pairs of an operation
and the total it gives. It uses 2 to 5 of the six digits, each at most once, every total lies in 0..99 and the last is
the target. Equal digits are interchangeable: a solution is a token sequence, not a choice of positions.
"""

import itertools
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evals.benchmarks.problems import Problem
from evals.errors import DataError
from evals.files.strict_json import shown
from quatro.tasks.warm_start import EOS_ID, PAD_ID, SPECIAL_TOKENS, Vocabulary, WarmStart, WarmstartRows

NUM_DIGITS = 6
MIN_USED, MAX_USED = 2, 5
MAX_TOTAL = 99
PROMPT_TOKENS = NUM_DIGITS + 2
MAX_ANSWER_TOKENS = 2 * MAX_USED - 1

VOCABULARY = Vocabulary(
    (
        *(*SPECIAL_TOKENS, "->", ":"),
        *(str(number) for number in range(MAX_TOTAL + 1)),
        *(f"{operation}{digit}" for operation in "+-*" for digit in range(1, 10)),
        *(f"={total}" for total in range(MAX_TOTAL + 1)),
    )
)
NUM_PROBLEMS = {"test": 200, "train": 3000, "more": 400}  # of each split, in the order in which they are drawn

_PROBLEM_SEED = 20260
# Tables instead of int(): they know exactly the texts of the vocabulary, whatever else Unicode calls a digit.
_DIGIT = {str(digit): digit for digit in range(1, 10)}
_NUMBER = {str(number): number for number in range(MAX_TOTAL + 1)}
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_STEP = {f"{sign}{digit}": (apply, digit) for sign, apply in _OPERATIONS.items() for digit in range(1, 10)}
_LENGTHS = range(2 * MIN_USED - 1, MAX_ANSWER_TOKENS + 1, 2)
_TOTAL = {f"={total}": total for total in range(MAX_TOTAL + 1)}

Digits = tuple[int, ...]


class CountdownProblem(NamedTuple):
    """Six digits, and the target that a chain over some of them has to reach."""

    id: str
    prompt: str
    digits: Digits
    target: int


@lru_cache(maxsize=8192)
def parse_prompt(prompt: str) -> tuple[Digits, int]:
    """The six digits, in the prompt's order, and the target.

    Raises DataError, a ValueError, unless ``prompt`` is six digits 1..9, ``->`` and a number 0..99 with single spaces.
    """
    tokens = prompt.strip().split(" ") if isinstance(prompt, str) else []
    is_prompt = (
        len(tokens) == PROMPT_TOKENS
        and all(token in _DIGIT for token in tokens[:NUM_DIGITS])
        and tokens[NUM_DIGITS] == "->"
        and tokens[-1] in _NUMBER
    )
    if not is_prompt:
        raise DataError(
            f"not a countdown prompt: {shown(prompt)}; expected six digits 1 to 9, an arrow and a target up to 99, "
            "such as '7 2 7 6 2 8 -> 67'"
        )
    return tuple(_DIGIT[token] for token in tokens[:NUM_DIGITS]), _NUMBER[tokens[-1]]


def check_answer(answer: object, id: str, benchmark: str) -> None:
    """Raises DataError for a reference ``answer`` that is not a whole problem, which is what the grader needs."""
    try:
        parse_prompt(str(answer))
    except DataError as error:
        raise DataError(
            f"the answer to {shown(id)} of {benchmark} is {error}; the grader countdown (key `grader` of the "
            "benchmark's table) needs the whole problem in the answer column; write it there, or choose another grader"
        ) from error


def distance(prompt: str, completion: str) -> int | None:
    """How far from the target the chain of ``completion`` ends; None if it is no chain over the prompt's digits.

    Raises as `parse_prompt`.
    """
    digits, target = parse_prompt(prompt)
    total = _total_of(digits, completion)
    return None if isinstance(total, str) else abs(total - target)


def fault(prompt: str, completion: str, finish_reason: str | None) -> str:
    """Why `solves` is False, in words; empty where it is True. Raises as `parse_prompt`.

    Strict: the exact tokens, one space between them; white space around the whole answer is ignored. Any other
    completion is wrong, never an error.
    """
    digits, target = parse_prompt(prompt)
    if finish_reason == "length":
        return "cut off by the length limit"
    total = _total_of(digits, completion)
    if isinstance(total, str):
        return total
    return "" if total == target else f"ends at {total}, the target is {target}"


def _total_of(digits: Digits, completion: str) -> int | str:
    """Where the chain of ``completion`` ends, or in words why it is no chain over ``digits``."""
    tokens = completion.strip().split(" ", MAX_ANSWER_TOKENS) if isinstance(completion, str) else ()
    if len(tokens) not in _LENGTHS:
        return f"no chain of {MIN_USED} to {MAX_USED} digits, such as 8 +6 =14 *2 =28"
    total = _DIGIT.get(tokens[0])
    if total is None:
        return "begins with no digit"
    used = [total]
    for step_token, total_token in zip(tokens[1::2], tokens[2::2], strict=True):
        step, claimed = _STEP.get(step_token), _TOTAL.get(total_token)
        if step is None or claimed is None:
            return f"step {len(used)} is not an operation, a digit and the new total"
        apply, digit = step
        total = apply(total, digit)
        if total != claimed:
            return f"step {len(used)} gives {total}, not {claimed}"
        used.append(digit)
    for digit in used:
        if used.count(digit) > digits.count(digit):
            return f"uses {digit} {used.count(digit)} times, and has it {digits.count(digit)} times"
    return total


def solves(prompt: str, completion: str, finish_reason: str | None) -> bool:
    """Whether a response is correct and finished, as training rewards it and Pass@k counts it.

    A chain that the length limit cut off is wrong, even if the part before the cut is a solution. An unknown
    ``finish_reason`` counts as finished. Raises as `fault`.
    """
    return not fault(prompt, completion, finish_reason)


def count_solutions(digits: Sequence[int], target: int) -> int:
    """The exact number of distinct solutions (token sequences), of digits and a target as `parse_prompt` has them."""
    return _ways(tuple(sorted(digits)))[target]


Split = Literal["test", "train", "more"]


@cache
def problems(split: Split) -> tuple[CountdownProblem, ...]:
    """The 200 held-out, the 3,000 training or 400 more held-out problems: always the same, and all different.

    No (sorted digits, target) occurs twice. Digits are drawn at random, then the target uniformly from the totals 1..99
    that they can reach. The final totals of random chains would be easy targets.
    """
    ends = list(itertools.accumulate(NUM_PROBLEMS.values(), initial=0))
    start, end = dict(zip(NUM_PROBLEMS, itertools.pairwise(ends), strict=True))[split]
    return tuple(
        CountdownProblem(f"countdown/{split}/{i:04d}", f"{' '.join(map(str, digits))} -> {target}", digits, target)
        for i, (digits, target) in enumerate(_different(end)[start:])
    )


def problems_of(name: str, split: Literal["train", "test"]) -> list[Problem]:
    """The problems of the benchmark ``name``; countdown-600 has 400 more to measure on, and the same to train on."""
    more = problems("more") if (name, split) == ("countdown-600", "test") else ()
    return [Problem(name, one.id, one.prompt, one.prompt) for one in problems(split) + more]


def found_share(prompt: str, num_found: int) -> float:
    """``num_found`` distinct solutions as a share of all that ``prompt`` has; 0 if it has none."""
    num_solutions = count_solutions(*parse_prompt(prompt))
    return num_found / num_solutions if num_solutions else 0.0


@cache
def _different(count: int) -> list[tuple[Digits, int]]:
    """The first ``count`` problems of one stream."""
    # random() alone is promised to give the same numbers in every version of Python; randrange and choice are not.
    rng = random.Random(_PROBLEM_SEED)
    drawn: dict[tuple[Digits, int], tuple[Digits, int]] = {}
    while len(drawn) < count:
        digits = tuple(1 + int(9 * rng.random()) for _ in range(NUM_DIGITS))
        key = tuple(sorted(digits))
        reachable = [target for target, ways in enumerate(_ways(key)) if ways and target >= 1]
        target = reachable[int(len(reachable) * rng.random())]
        drawn.setdefault((key, target), (digits, target))
    return list(drawn.values())


def _random_chains(
    rng: np.random.Generator, num_rows: int, random_target_share: float
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Token rows as in WarmstartRows, their digits in prompt order and their targets (0 where the chain ends at 0)."""
    order = rng.integers(1, 10, size=(num_rows, NUM_DIGITS))  # in the order in which a chain uses them
    num_used = rng.integers(MIN_USED, MAX_USED + 1, size=num_rows)
    rows = np.full((num_rows, PROMPT_TOKENS + MAX_ANSWER_TOKENS + 1), PAD_ID, dtype=np.int64)
    total = order[:, 0].copy()
    rows[:, PROMPT_TOKENS] = VOCABULARY.ids["0"] + total
    for step in range(1, MAX_USED):
        digit = order[:, step]
        outcome = np.stack([total + digit, total - digit, total * digit], axis=1)
        is_valid = (outcome >= 0) & (outcome <= MAX_TOTAL)
        # The largest of three uniform numbers among the valid operations: each wins equally often. One always is valid.
        operation = np.where(is_valid, rng.random(is_valid.shape), -1.0).argmax(axis=1)
        new_total = np.take_along_axis(outcome, operation[:, None], axis=1)[:, 0]
        is_used = step < num_used
        column = PROMPT_TOKENS + 2 * step - 1
        rows[is_used, column] = (VOCABULARY.ids["+1"] + 9 * operation + digit - 1)[is_used]
        rows[is_used, column + 1] = (VOCABULARY.ids["=0"] + new_total)[is_used]
        total = np.where(is_used, new_total, total)
    rows[np.arange(num_rows), PROMPT_TOKENS + 2 * num_used - 1] = EOS_ID
    other = 1 + rng.integers(0, MAX_TOTAL - 1, size=num_rows)
    other += other >= total  # uniform on 1..99 without the true total (a total of 0 leaves 2..99)
    target = np.where(rng.random(num_rows) < random_target_share, other, total)
    digits = rng.permuted(order, axis=1)
    rows[:, :NUM_DIGITS] = VOCABULARY.ids["0"] + digits
    rows[:, NUM_DIGITS] = VOCABULARY.ids["->"]
    rows[:, NUM_DIGITS + 1] = VOCABULARY.ids["0"] + target
    return rows, digits, target


def _keys(digits: NDArray[np.int64], target: NDArray[np.int64]) -> NDArray[np.int64]:
    """One integer per row that two rows share exactly if they have the same multiset of digits and the same target."""
    return np.sort(digits, axis=1) @ 10 ** np.arange(NUM_DIGITS) * 100 + target


@cache
def _ways(digits: Digits) -> tuple[int, ...]:
    """For each total 0..99 the number of solutions that end there, using any 2..5 of the sorted ``digits``."""
    subsets = {()} if not digits else {(), (digits[0],)}
    for digit in digits[1:]:
        subsets |= {(*subset, digit) for subset in subsets if len(subset) < MAX_USED}
    ways = np.zeros(MAX_TOTAL + 1, dtype=np.int64)
    for subset in subsets:
        if len(subset) >= MIN_USED:
            ways += _ways_using_all(subset)
    return tuple(ways.tolist())


@cache
def _ways_using_all(digits: Digits) -> NDArray[np.int64]:
    """For each total 0..99 the number of chains that use exactly the sorted ``digits`` and end there.

    The last digit of a chain is one of the distinct digits; what comes before is a chain over the others.
    """
    ways = np.zeros(MAX_TOTAL + 1, dtype=np.int64)
    if len(digits) == 1:
        ways[digits[0]] = 1
        return ways
    for i, digit in enumerate(digits):
        if i and digits[i - 1] == digit:
            continue
        before = _ways_using_all(digits[:i] + digits[i + 1 :])
        ways[digit:] += before[:-digit]
        ways[:-digit] += before[digit:]
        ways[::digit] += before[: MAX_TOTAL // digit + 1]
    return ways


@dataclass(frozen=True)
class CountdownWarmStart(WarmStart):
    """A policy that plays countdown. It learns from random chains, with their final total as the target.

    With probability ``random_target_share`` the target of a row is replaced by another number 1..99: such rows teach
    the form of an answer, but the answer is wrong.
    """

    vocabulary: ClassVar[Vocabulary] = VOCABULARY

    def draw(self, num_rows: int) -> WarmstartRows:
        """Random chains, 18 tokens wide, never to a held-out prompt.

        A chain draws its length (2..5) uniformly, its digits at random and each operation uniformly among those that
        keep the total in 0..99.
        """
        rng = np.random.default_rng(self.seed)
        # The model of seed 0 is older than the benchmark countdown-600 and has seen a part of its problems.
        held_out: tuple[Split, ...] = ("test", "more") if self.seed else ("test",)
        left_out = [problem for split in held_out for problem in problems(split)]
        left_out_keys = _keys(np.array([p.digits for p in left_out]), np.array([p.target for p in left_out]))
        parts: list[NDArray[np.int64]] = []
        missing = num_rows
        while missing > 0:
            rows, digits, target = _random_chains(rng, missing + missing // 8 + 16, self.random_target_share)
            is_usable = (target >= 1) & ~np.isin(_keys(digits, target), left_out_keys)
            parts.append(rows[is_usable][:missing])
            missing -= len(parts[-1])
        token_ids = np.concatenate(parts)
        mask = token_ids != PAD_ID
        mask[:, :PROMPT_TOKENS] = False
        return WarmstartRows(token_ids, mask)


RECIPES: dict[str, WarmStart] = {
    "embedded:countdown": CountdownWarmStart(),
    # 40 % of the rows carry a random target: a base that leaves many problems unsolved, for flip rates.
    "embedded:countdown-hard": CountdownWarmStart(random_target_share=0.4),
}
