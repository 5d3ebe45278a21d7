r"""Units behind a value: which tail of an answer is one, and one name for all the ways to write it.

`12\text{ meters}`, `12 m`, `5\frac{\text{m}}{\text{s}}` and `5\text{ km/h}` are values with units; an answer without
its unit is still right (the question names it), one with another unit is not.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_WRAPPED = r"(?:\\mu\s*)?\\(?:text|mathrm|mbox|textrm|textbf|textnormal|operatorname)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
_POWER = r"(?:\s*\^\s*\{?\s*(-?\d)\s*\}?)?"
_ATOM = re.compile(rf"([*/]?)\s*{_WRAPPED}{_POWER}")
_PRODUCT = re.compile(rf"{_WRAPPED}{_POWER}(?:\s*[*/]?\s*{_WRAPPED}{_POWER})*\s*$")
_QUOTIENT = re.compile(rf"\\frac\s*\{{\s*({_WRAPPED}{_POWER})\s*\}}\s*\{{\s*({_WRAPPED}{_POWER})\s*\}}\s*$")
_SYMBOL = (
    r"(?:[cmk]?m|[mk]?g|m?s|min|hr?|[mk]?L|k?N|[kM]?J|[kM]?W|[mk]?V|m?A|k?Pa|[kM]?Hz|mol|K|ft|in|yd|mi|lb|oz|[kM]?eV)"
)
# Without a wrapper, letters are a unit where they are a quotient behind a space, or an unmistakable symbol.
_PLAIN = re.compile(
    rf"(?<=[\d}})])(?:\s+(?P<quotient>{_SYMBOL}{_POWER}(?:\s*[*/]\s*{_SYMBOL}{_POWER})+)"
    rf"|(?P<symbol>(?:cm|mm|kg|mL|lbs|[mk]ph){_POWER}))$"
)
_WORDS = re.compile(r"(?<=[\d})])\s+([a-z]{2,}\.?(?:[\s/][a-z]{2,}\.?)*)" + _POWER + "$")
_PERCENT = re.compile(r"\s*(?:\\%|%|\\?\s*(?:percent|percentage|pct)\.?)\s*$")
_DEGREES = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*$|(?<=\d)\^\{?o\}?$")
# cos 60 degrees is not cos 60.
_ANGLE_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
# Lower-case words that are mathematics and not a unit behind a number.
_MATH_WORDS = re.compile(r"\b(?:pi|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|mod|if|for|in|arcsin|arccos|arctan)\b")
_UNIT_LETTERS = frozenset("mgshNJKWVLCF")
_NEUTRAL = frozenset(["unit", "units"])
_DEGREE_WORDS = frozenset(["degree", "degrees", "deg"])
_PERCENT_WORDS = frozenset(["percent", "percentage", "pct"])

_NAMES = {
    name: symbol
    for symbol, names in {
        "m": "meter metre",
        "cm": "centimeter centimetre",
        "mm": "millimeter millimetre",
        "km": "kilometer kilometre",
        "s": "second sec",
        "min": "minute mins",
        "h": "hour hr hrs",
        "g": "gram",
        "kg": "kilogram kgs",
        "L": "liter litre l",
        "mL": "milliliter millilitre ml",
        "ft": "foot feet",
        "in": "inch inches",
        "yd": "yard",
        "mi": "mile",
        "lb": "pound lbs",
        "oz": "ounce",
        "N": "newton",
        "J": "joule",
        "W": "watt",
        "V": "volt",
        "A": "ampere",
        "K": "kelvin",
        "Hz": "hertz",
        "C": "celsius",
        "F": "fahrenheit",
        "rad": "radian rads",
        "dollar": "usd",
        "am": "a.m.",
        "pm": "p.m.",
    }.items()
    for name in names.split()
}
_PER_HOUR = {"kmh": "km/h", "kph": "km/h", "mph": "mi/h"}
_TOKEN = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+\.)?|-?\d+|/")
_QUALIFIERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_SUFFIXES = {"squared": 2, "cubed": 3}


class Measured(NamedTuple):
    """A value's text without its unit. ``unit`` is empty for degrees and percent, which have their own marks."""

    text: str
    unit: str = ""
    is_percent: bool = False
    is_degrees: bool = False


def strip_unit(text: str) -> Measured:
    """``text`` without the unit it ends in. A text that is nothing but words has no unit."""
    units: list[str] = []
    is_percent = is_degrees = False
    for _ in range(4):
        percent = _PERCENT.search(text)
        if percent and percent.start() > 0:
            text, is_percent = text[: percent.start()].rstrip(), True
            continue
        degrees = _DEGREES.search(text)
        if degrees and degrees.start() > 0 and not _ANGLE_FUNCTION.search(text):
            text, is_degrees = text[: degrees.start()].rstrip(), True
            continue
        start, unit = _tail(text)
        if not unit:
            break
        text = text[:start].rstrip()
        word = "".join(unit.split()).strip(".").lower()
        is_percent = is_percent or word in _PERCENT_WORDS
        is_degrees = is_degrees or word in _DEGREE_WORDS
        if word not in _PERCENT_WORDS | _DEGREE_WORDS:
            units.append(unit)
    return Measured(text, unit_name(" ".join(reversed(units))), is_percent, is_degrees)


def unit_name(unit: str) -> str:
    """One name for a unit: `square meters` and `m^2` are `m2`, `kilometers per hour` and `km/h` are `h-1 km`."""
    powers: dict[str, int] = {}
    sign, qualifier, last = 1, 1, ""
    for token in _TOKEN.findall(_PER_HOUR.get(unit.strip(), unit)):
        lower = token.lower()
        if token == "/" or lower == "per":
            sign = -1
        elif lower in _QUALIFIERS:
            qualifier = _QUALIFIERS[lower]
        elif lower in _SUFFIXES or token.lstrip("-").isdigit():
            if last:
                powers[last] += sign * ((_SUFFIXES.get(lower) or int(token)) - 1)
        elif lower not in _NEUTRAL:
            last = _symbol(token)
            powers[last] = powers.get(last, 0) + sign * qualifier
            qualifier = 1
    return " ".join(f"{name}{power if power != 1 else ''}" for name, power in sorted(powers.items()) if power)


def _symbol(word: str) -> str:
    """Symbols keep their case (mW is not MW); words lose it and their plural."""
    lower = word.lower()
    singular = lower.removesuffix("s") if len(lower) > 3 else lower
    return _NAMES.get(lower) or _NAMES.get(singular) or (word if len(word) <= 3 else singular)


def _tail(text: str) -> tuple[int, str]:
    """(where the unit begins, its text) at the end of ``text``; (0, "") if it ends in none."""
    quotient = _QUOTIENT.search(text)
    if quotient and _stands_behind_value(text[: quotient.start()]):
        return quotient.start(), f"{_inside(quotient[1])} / {_inside(quotient[4])}"
    product = _PRODUCT.search(text)
    if product and _stands_behind_value(text[: product.start()]):
        atoms = list(_ATOM.finditer(text, product.start()))
        if all(_is_unit(atom[2], is_marked=True) for atom in atoms):
            return product.start(), " ".join(f"{atom[1]} {atom[2]} {atom[3] or ''}" for atom in atoms)
        return 0, ""
    plain = _PLAIN.search(text)
    if plain:
        return plain.start(), plain["quotient"] or plain["symbol"]
    words = _WORDS.search(text)
    if words and _stands_behind_value(text[: words.start()]) and _is_unit(words[1], is_marked=False):
        return words.start(), f"{words[1]} {words[2] or ''}"
    return 0, ""


def _inside(wrapped: str) -> str:
    return " ".join(f"{atom[2]} {atom[3] or ''}" for atom in _ATOM.finditer(wrapped))


def _stands_behind_value(before: str) -> bool:
    before = before.rstrip()
    return bool(before) and before[-1] not in "+-*/^_=(,<>{" and not before.endswith(("\\cdot", "\\frac"))


def _is_unit(word: str, *, is_marked: bool) -> bool:
    word = word.strip()
    if len(word) == 1:
        return word in _UNIT_LETTERS
    if is_marked and word.strip(".") == "in":
        return True
    return bool(word) and not _MATH_WORDS.search(word) and not word.startswith("(")
