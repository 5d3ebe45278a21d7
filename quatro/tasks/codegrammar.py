"""Small functions: the embedded code benchmark. Write the Python body of a function that its docstring describes.

A prompt is ``def f(xs):`` and a docstring such as ``sort, add 3 to each, drop the first``. A completion is the body,
one to three lines::

    xs = [x + 3 for x in sorted(xs)]
    return xs[1:]

Every function has several right bodies. A function is what it returns for the hidden inputs, and no two problems have
the same one: what is right for a test problem is wrong for every problem of the training split.
"""

import random
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evals.benchmarks.problems import Problem
from evals.code.grading import Answer, CodeGrader, Tests, as_json
from evals.errors import UsageError
from evals.samples.types import GradedProblem
from evals.sandbox import Calls
from quatro.tasks.warm_start import SPECIAL_TOKENS, Vocabulary, WarmStart, WarmstartRows

ENTRY_POINT = "f"
TRAIN_PROBLEMS, TEST_PROBLEMS = 2400, 200
# The longest body of a problem has 39 tokens; the end token is one more.
MAX_ANSWER_TOKENS = 40

# A token is a piece of text, and a text is its tokens without anything between them.
_PROMPT_TOKENS = (
    *('def f(n):\n    """', 'def f(xs):\n    """', '"""\n', ", "),
    *("add ", "subtract ", "multiply ", "divide ", "reduce ", "raise ", "cap ", "each ", " to each", " from each"),
    *("by ", "modulo ", "to at least ", "at ", "negate", "square", "sort", "reverse", "drop the first"),
    *("drop the last", "keep every second number", "keep the even numbers", "keep the odd numbers"),
    *("keep those above ", "keep those below ", "take the sum", "take the largest", "take the smallest"),
    *("take the length", "take the first", "take the last"),
)
_BODY_TOKENS = (
    *("    ", "return ", "\n", "n", "xs", "x", "(", ")", "[", "]", "-", " + ", " - ", " * ", " // ", " % ", " ** "),
    *(" = ", " += ", " -= ", " *= ", " //= ", " %= ", " > ", " < ", " == ", " for x in ", " if ", " else "),
    *("sum(", "max(", "min(", "len(", "sorted(", "list(reversed(", ".sort()", ".reverse()", "del "),
    *("[::-1]", "[::2]", "[1:]", "[:1]", "[:-1]", "[-1:]", "[0]", "[-1]", *"0123456789"),
)
_TOKENS = (*SPECIAL_TOKENS, *_PROMPT_TOKENS, *_BODY_TOKENS)
# At each place of a text the longest token that fits is its next.
VOCABULARY = Vocabulary(_TOKENS, "|".join(re.escape(token) for token in sorted(_TOKENS, key=len, reverse=True)))

_SEED = 20261
_SHARE_OF_N = 0.35  # of the functions drawn
_SHARE_OF_REDUCTIONS = 0.3  # of the steps that take a list

Kind = Literal["n", "xs"]
# What the hidden tests call a function with.
HIDDEN_INPUTS: dict[Kind, tuple[Any, ...]] = {
    "n": (0, 1, 2, 3, 5, 8, 9, 14, 17, 30, 52, -4),
    "xs": (
        *([3, 1, 4], [9, 2], [5, 5, 8, 1, 0], [7, 6, 2, 9, 4, 3], [0, 8, -2, 6], [2, 4, 6, 8, 3, 7, 1]),
        *([1, 9, 9], [16, 3, 5, 0, 7], [8, 7], [4, 1, 1, 6, 9, 2, 5, 3], [9, 5, 7, 23, 8], [2, 0, -7, 9]),
    ),
}


class Code(NamedTuple):
    """Code around an argument ``@``. It binds as tightly as ``level``, its argument must as tightly as ``needs``.

    Choices are -1, sums 0, products 1, calls 2 and names 3.
    """

    text: str
    level: int = 2
    needs: int = -1


class Step(NamedTuple):
    """One thing that a function does: in words, from which kind of value to which, and the forms to write it in.

    ``statement`` is a line that does it in place, if there is one.
    """

    words: str
    takes: Kind
    gives: Kind
    forms: tuple[Code, ...]
    statement: str = ""


class CodeProblem(NamedTuple):
    """A docstring's function: right bodies, and what it returns for the hidden inputs of its kind."""

    id: str
    prompt: str
    kind: Kind
    bodies: tuple[str, ...]
    expected: tuple[Any, ...]

    @property
    def tests(self) -> Tests:
        """The hidden tests."""
        inputs = [[value] for value in HIDDEN_INPUTS[self.kind]]
        return as_json(Calls(entry_point=ENTRY_POINT, inputs=inputs, expected=self.expected))


def _arithmetic() -> Iterator[Step]:
    """Steps with a constant, for a number and for each number of a list."""
    for c in range(1, 10):
        least = (Code(f"max(@, {c})"), Code(f"max({c}, @)"), Code(f"@ if @ > {c} else {c}", -1, 3))
        most = (Code(f"min(@, {c})"), Code(f"min({c}, @)"), Code(f"@ if @ < {c} else {c}", -1, 3))
        yield from _both(f"add {c}", f"add {c} to each", "+=", Code(f"@ + {c}", 0, 0), Code(f"{c} + @", 0, 1))
        yield from _both(f"subtract {c}", f"subtract {c} from each", "-=", Code(f"@ - {c}", 0, 0))
        yield from _both(f"raise to at least {c}", f"raise each to at least {c}", "", *least)
        yield from _both(f"cap at {c}", f"cap each at {c}", "", *most)
        if c > 1:
            times = (Code(f"@ * {c}", 1, 1), Code(f"{c} * @", 1, 2))
            yield from _both(f"multiply by {c}", f"multiply each by {c}", "*=", *times)
            yield from _both(f"divide by {c}", f"divide each by {c}", "//=", Code(f"@ // {c}", 1, 1))
            yield from _both(f"reduce modulo {c}", f"reduce each modulo {c}", "%=", Code(f"@ % {c}", 1, 1))


def _both(words: str, words_for_each: str, operator: str, *forms: Code) -> Iterator[Step]:
    yield Step(words, "n", "n", forms, f"n {operator} {words.split()[-1]}" if operator else "")
    # A choice for each number of a list would make the longest bodies.
    each = [Code(f"[{form.text.replace('@', 'x')} for x in @]") for form in forms if form.level >= 0]
    yield Step(words_for_each, "xs", "xs", tuple(each))


def _steps() -> Iterator[Step]:
    yield from _arithmetic()
    yield Step("negate", "n", "n", (Code("-@", 1, 2),))
    yield Step("square", "n", "n", (Code("@ ** 2", 1, 2), Code("@ * @", 1, 3)))
    for c in range(1, 9):
        yield Step(f"keep those above {c}", "xs", "xs", (Code(f"[x for x in @ if x > {c}]"),))
        yield Step(f"keep those below {c}", "xs", "xs", (Code(f"[x for x in @ if x < {c}]"),))
    yield Step("keep the even numbers", "xs", "xs", (Code("[x for x in @ if x % 2 == 0]"),))
    yield Step(
        "keep the odd numbers", "xs", "xs", (Code("[x for x in @ if x % 2 == 1]"), Code("[x for x in @ if x % 2]"))
    )
    yield Step("sort", "xs", "xs", (Code("sorted(@)"),), "xs.sort()")
    yield Step("reverse", "xs", "xs", (Code("@[::-1]", 2, 2), Code("list(reversed(@))")), "xs.reverse()")
    yield Step("drop the first", "xs", "xs", (Code("@[1:]", 2, 2),), "del xs[:1]")
    yield Step("drop the last", "xs", "xs", (Code("@[:-1]", 2, 2),), "del xs[-1:]")
    yield Step("keep every second number", "xs", "xs", (Code("@[::2]", 2, 2),))
    yield Step("take the sum", "xs", "n", (Code("sum(@)"),))
    yield Step("take the largest", "xs", "n", (Code("max(@)"), Code("sorted(@)[-1]")))
    yield Step("take the smallest", "xs", "n", (Code("min(@)"), Code("sorted(@)[0]")))
    yield Step("take the length", "xs", "n", (Code("len(@)"),))
    yield Step("take the first", "xs", "n", (Code("@[0]", 2, 2),))
    yield Step("take the last", "xs", "n", (Code("@[-1]", 2, 2),))


STEPS = tuple(_steps())


def bodies(steps: Sequence[Step], name: Kind, *, most_lines: int = 3) -> Iterator[str]:
    """The bodies that the grammar has for ``steps`` on the argument ``name``: every cut into lines, in every form."""
    yield from (f"    return {text}" for text in _expressions(steps, name))
    if most_lines == 1:
        return
    for cut in range(1, len(steps) + 1):
        rest = list(bodies(steps[cut:], steps[cut - 1].gives, most_lines=most_lines - 1))
        yield from (f"    {line}\n{body}" for line, body in product(_assignments(steps[:cut], name), rest))


def _assignments(steps: Sequence[Step], name: Kind) -> Iterator[str]:
    yield from (f"{steps[-1].gives} = {text}" for text in _expressions(steps, name))
    if len(steps) == 1 and steps[0].statement:
        yield steps[0].statement


def _expressions(steps: Sequence[Step], name: Kind) -> Iterator[str]:
    for forms in product(*(step.forms for step in steps)):
        text, level = str(name), 3
        for form in forms:
            if level < form.needs == 3:  # it has its argument twice
                break
            argument = text if level >= form.needs else f"({text})"
            text, level = form.text.replace("@", argument), form.level
        else:
            yield text


def problems(split: Literal["train", "test"]) -> tuple[CodeProblem, ...]:
    """The 2,400 training or the 200 held-out problems: always the same, and no two return the same."""
    return _all_problems()[split]


@cache
def _all_problems() -> dict[str, tuple[CodeProblem, ...]]:
    # random() alone is promised to give the same numbers in every version of Python.
    rng = random.Random(_SEED)
    found: dict[str, CodeProblem] = {}
    singles = iter([[step] for step in STEPS])
    while len(found) < TEST_PROBLEMS + TRAIN_PROBLEMS:
        steps = next(singles, None) or _drawn(rng)
        kind, written = steps[0].takes, tuple(bodies(steps, steps[0].takes))
        expected = _returned(written[0], kind)
        # A constant, and what returns its argument, have right bodies that their docstring says nothing of.
        if expected is None or len({*map(repr, expected)}) == 1 or expected == HIDDEN_INPUTS[kind]:
            continue
        prompt = f'def {ENTRY_POINT}({kind}):\n    """{", ".join(step.words for step in steps)}"""\n'
        found.setdefault(repr(expected), CodeProblem("", prompt, kind, written, expected))
    rows = list(found.values())
    for i in range(len(rows) - 1, 0, -1):
        j = int((i + 1) * rng.random())
        rows[i], rows[j] = rows[j], rows[i]

    splits = {"test": rows[:TEST_PROBLEMS], "train": rows[TEST_PROBLEMS:]}
    return {
        split: tuple(row._replace(id=f"codegrammar/{split}/{i:04d}") for i, row in enumerate(chosen))
        for split, chosen in splits.items()
    }


def _drawn(rng: random.Random) -> list[Step]:
    """Two or three random steps."""
    kind: Kind = "n" if rng.random() < _SHARE_OF_N else "xs"
    steps: list[Step] = []
    for _ in range(2 + int(2 * rng.random())):
        is_reduction = kind == "xs" and rng.random() < _SHARE_OF_REDUCTIONS
        usable = [step for step in STEPS if step.takes == kind and (step.gives == "n" or not is_reduction)]
        steps.append(usable[int(len(usable) * rng.random())])
        kind = steps[-1].gives
    return steps


def _returned(body: str, kind: Kind, inputs: Sequence[Any] | None = None) -> tuple[Any, ...] | None:
    """What a body of the grammar, of one line and trusted, returns for (hidden) inputs; None if it fails on one."""
    scope: dict[str, Any] = {}
    exec(f"def {ENTRY_POINT}({kind}):\n{body}\n", scope)
    try:
        return tuple(scope[ENTRY_POINT](value) for value in inputs or HIDDEN_INPUTS[kind])
    except (IndexError, ValueError):  # an empty list
        return None


def problems_of(name: str, split: Literal["train", "test"]) -> list[Problem]:
    """The problems as those of a benchmark of programs."""
    return [
        Problem(name, one.id, one.prompt, None, {"entry_point": ENTRY_POINT, "tests": {"base": one.tests}})
        for one in problems(split)
    ]


def validities(problems: Sequence[GradedProblem]) -> list[list[bool | None]]:
    """Whether the function in each completion returns for 60 further inputs, too, what its docstring says.

    Raises:
        UsageError: a problem is none of this benchmark.
        MissingError: programs cannot be isolated on this machine.
    """
    known, answers = {one.id: one for split in _all_problems().values() for one in split}, []
    for problem in problems:
        if problem.id not in known:
            raise UsageError(f"{problem.id!r} is no problem of codegrammar; choose with -b codegrammar")
        one, rng = known[problem.id], random.Random(problem.id)
        lists = [rng.choices(range(-20, 61), k=rng.randint(1, 9)) for _ in range(60)]
        drawn = [first for first, *_ in lists] if one.kind == "n" else lists
        inputs = [[each] for each in drawn if _returned(one.bodies[0], one.kind, [each])]
        expected = _returned(one.bodies[0], one.kind, [each for (each,) in inputs])
        calls = Calls(entry_point=ENTRY_POINT, inputs=inputs, expected=expected or ())
        extra = {"entry_point": ENTRY_POINT, "tests": {"base": as_json(calls)}}
        answers += [Answer(one.id, text, extra, one.prompt) for text in problem.completions]
    with closing(CodeGrader()) as grader:
        grades = iter(grader.grade(answers))
    return [[next(grades).is_right for _ in problem.completions] for problem in problems]


@cache
def _row_table() -> tuple[NDArray[np.int64], WarmstartRows]:
    """A row for each body of each training problem; those of problem i begin at number ``first[i]``."""
    first = np.cumsum([0, *(len(problem.bodies) for problem in problems("train"))])
    pairs = [(problem.prompt, body) for problem in problems("train") for body in problem.bodies]
    return first, VOCABULARY.rows(pairs)


@dataclass(frozen=True)
class CodeWarmStart(WarmStart):
    """A policy that writes small functions. It ends to learn once the mean loss of 20 steps is at ``enough_loss``.

    Pass@1 rises from 0.05 to 0.5 within two hundred steps, sooner or later by chance; the loss says where it stands.
    """

    vocabulary: ClassVar[Vocabulary] = VOCABULARY
    rows: int = 96
    enough_loss: float = 0.35

    def draw(self, num_rows: int) -> WarmstartRows:
        """Prompts of random training problems, each with a random one of its bodies; never one of the test split."""
        rng = np.random.default_rng(self.seed)
        first, table = _row_table()
        problem = rng.integers(0, len(first) - 1, size=num_rows)
        row = rng.integers(first[problem], first[problem + 1])
        return WarmstartRows(table.token_ids[row], table.answer_mask[row])

    def is_enough(self, losses: Sequence[float]) -> bool:
        """Whether the mean loss of the last 20 steps is low enough."""
        return len(losses) >= 20 and float(np.mean(losses[-20:])) <= self.enough_loss


RECIPES: dict[str, WarmStart] = {"embedded:code": CodeWarmStart()}
