"""The checker of word problems: is the derivation of a right answer true, and by which strategy does it get there?

A solution states equations in signs (`8 + 7 = 15`) or in words (`Adding 7 to 8 gives 15`); each is computed again. The
reward never sees this: it looks at the box alone.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from evals.grading import last_boxed

Verdict = Literal["valid", "false", "none"]
VALIDITY: Mapping[Verdict, bool | None] = {"valid": True, "false": False, "none": None}
LONGEST_SENTENCE = 300  # characters; in a longer one no equation is looked for
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_N = r"(\d{1,9}(?:\.\d{1,9})?)"
# Words between a number and the next part of a phrase: `16 shells`, `the 16 of them`.
_GAP = r"\s+(?:[a-z]+\s+){0,3}?"
_PHRASES = [
    (rf"\b(?:adding|add)\b\D{{0,12}}?{_N}{_GAP}(?:to|and|with|together){_GAP}{_N}", r" \1 + \2 "),
    (rf"{_N}{_GAP}added to{_GAP}{_N}", r" \1 + \2 "),
    (rf"\b(?:taking|take|subtracting|subtract|removing)\b\D{{0,12}}?{_N}{_GAP}from{_GAP}{_N}", r" \2 - \1 "),
    (rf"\b(?:multiplying|multiply)\b\D{{0,12}}?{_N}{_GAP}(?:by|and|with|times){_GAP}{_N}", r" \1 * \2 "),
    (rf"\b(?:dividing|divide|sharing|share)\b\D{{0,12}}?{_N}{_GAP}(?:by|among|between|into){_GAP}{_N}", r" \1 / \2 "),
    (rf"{_N}\s+more than{_GAP}{_N}", r" \1 + \2 "),
    (rf"{_N}\s+[a-z]+\s+of\s+{_N}", r" \1 * \2 "),  # 3 groups of 4
    (r"\bmultiplied by\b|\btimes\b|[x×·](?=\s*\d)", " * "),
    (r"\bdivided by\b|÷", " / "),
    (r"\bplus\b|\band adding\b", " + "),
    (r"\bminus\b|\bless\b|[−–]", " - "),
]
_RESULTS = re.compile(
    r"\b(?:is|are|equals?|gives?|makes?|leaves?|gets?|becomes?|creates?|results? in|add to|leaving)\b|->"
)
_SENTENCES = re.compile(r"[;\n]|[.!?](?!\d)|,(?!\d{3})|\b(?:so|then|first)\b")
_OPERATIONS = frozenset("+-*/")


class Equation(NamedTuple):
    """``value`` is what the ``operands`` give; `is_true` compares it with all that the text says they give."""

    operands: tuple[Fraction, ...]
    value: Fraction
    is_true: bool


class Derivation(NamedTuple):
    """``strategy``: the results on the way to the answer, in order of size; empty unless the derivation is valid."""

    verdict: Verdict
    strategy: tuple[str, ...] = ()


def derivation_of(text: str) -> Derivation:
    """How the right solution ``text`` gets to its answer.

    *false*: it states an equation that is not true. *none*: no equation has the answer as its result. *valid*: else.
    Its strategy are the results of the equations that lead to the answer, so that what is not needed makes no strategy
    of its own, and neither does another order of operands.
    """
    found = equations_in(text)
    if not all(one.is_true for one in found):
        return Derivation("false")
    number = re.search(rf"-?{_N}", (last_boxed(text) or "").replace(",", ""))
    ends = [at for at, one in enumerate(found) if number and one.value == Fraction(number[0])]
    if not ends:
        return Derivation("none")
    used, open_ends = set[int](), [ends[-1]]
    while open_ends:
        at = open_ends.pop()
        used.add(at)
        earlier = [max((i for i in range(at) if found[i].value == one), default=None) for one in found[at].operands]
        open_ends += [i for i in earlier if i is not None and i not in used]
    return Derivation("valid", tuple(str(found[at].value) for at in sorted(used, key=lambda at: found[at].value)))


def equations_in(text: str) -> list[Equation]:
    """The equations that a solution states before its last box, in their order; what cannot be read is none."""
    text = re.sub(r"\\boxed\s*\{[^}]*\}.*", "", text, flags=re.DOTALL).lower()
    for number, word in enumerate(_NUMBERS):
        text = re.sub(rf"\b{word}\b", str(number), text)
    found = list[Equation]()
    for part in _SENTENCES.split(re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)):
        if len(part) > LONGEST_SENTENCE:
            continue
        part = part.replace("\\times", "*").replace("\\div", "/")
        for pattern, as_signs in _PHRASES:
            part = re.sub(pattern, as_signs, part)
        left, *others = _RESULTS.sub(" = ", part).split("=")
        if not others:
            continue
        if not re.search(r"[-+*/]", left):
            left = re.sub(rf"{_N}{_GAP}and{_GAP}{_N}", r"\1 + \2", left)
        sides = [side for side in map(_computed, (left, *others)) if side is not None]
        sums = [side for side in sides if len(side[0]) > 1]
        if sums and len(sides) > 1:
            operands, value = sums[0]
            found.append(Equation(operands, value, all(other == value for _, other in sides)))
    return found


def _computed(side: str) -> tuple[tuple[Fraction, ...], Fraction] | None:
    """The numbers of one side of an equation, and what they give; None where it is no sum of numbers."""
    signs = re.findall(r"\d+(?:\.\d+)?|[-+*/]", re.sub(r"(?<=[a-z])-|-(?=[a-z])", " ", side))
    numbers, operations = signs[::2], signs[1::2]
    if len(signs) % 2 == 0 or not set(operations) <= _OPERATIONS or set(numbers) & _OPERATIONS:
        return None
    operands = tuple(map(Fraction, numbers))
    total, product = Fraction(0), operands[0]  # what was added up so far, and the product that is still open
    for sign, operand in zip(operations, operands[1:], strict=True):
        if sign == "/" and operand == 0:
            return None
        if sign in "*/":
            product = product * operand if sign == "*" else product / operand
        else:
            total, product = total + product, operand if sign == "+" else -operand
    return operands, total + product
