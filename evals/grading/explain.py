"""What the grader saw: the normal forms of an answer, in words for a person."""

from __future__ import annotations

from evals.grading.normal_form import Group, Item, parse_answer
from evals.grading.numbers import Number

MAX_SHOWN_CHARS = 200
STAGES = {
    "reference": "there is no reference answer",
    "extraction": "no complete answer was found",
    "string": "equal as text",
    "exact": "compared as texts and exact numbers",
    "symbolic": "compared by computer algebra",
    "unparsed": "not comparable: one side is no formula",
    "guard": "not sent to computer algebra",
    "countdown": "checked step by step",
    "sandbox": "run with its tests",
    "reasoning-gym": "judged by the task's own checker",
    "own": "decided by a function of your own",
}


def normal_forms(text: str) -> str:
    """The readings of an answer as the stages compare them, most literal first, separated by `or`."""
    return _cut(" or ".join(dict.fromkeys(_shown(item) for item in parse_answer(text))))


def _shown(item: Item) -> str:
    if isinstance(item.value, Number):
        # Python refuses to write out integers of more than 4,300 digits.
        is_long = max(item.value.value.numerator.bit_length(), item.value.value.denominator.bit_length()) > 1000
        text = "a number of hundreds of digits" if is_long else f"number {item.value.value}"
    elif isinstance(item.value, Group):
        text = f"{item.value.kind}{item.value.brackets and ' ' + item.value.brackets}: "
        text += ", ".join(_shown(part) for part in item.value.items)
    else:
        text = item.text
    name = f"{item.name} = " if item.name else ""
    links = "".join(f" = {_shown(link)}" for link in item.links)
    marks = (" %" if item.is_percent else "") + (f" [{item.unit}]" if item.unit else "")
    return name + text + marks + links + (" (as a text only)" if item.is_prose else "")


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[: MAX_SHOWN_CHARS - 3]}..."
