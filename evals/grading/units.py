r"""Units behind a value: which tail of an answer is one, and one name for all the ways to write it.

`12\text{ meters}`, `12 m/s`, `5\frac{\text{m}}{\text{s}}` and `5\text{ km/h}` are values with units; an answer without
its unit is still right (the question names it), one with another unit is not. Which words are a unit, `words` says;
words that are plain arithmetic (`3\text{ dozen}`) become a formula, and all others stay where they are.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from evals.grading.words import UNMISTAKABLE, is_closed, is_unit, reckoned

_WRAPPED = (
    r"(?:\\mu\s*)?\\(?:text|mathrm|mbox|textrm|textbf|textit|textnormal|operatorname)\s*\{((?:[^{}]|\{[^{}]*\})*)\}"
)
_POWER = r"(?:\s*\^\s*(?:\{\s*)?(-?\d)(?:\s*\})?)?"
_ATOM = re.compile(rf"(?:([*/])\s*)?(?P<wrapped>{_WRAPPED}{_POWER})")
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
_TIME = re.compile(r"(?:(?<=:\d\d)\s*|(?<=\d)\s+)([ap])\.?m\.?$", re.IGNORECASE)
# A noun of another alphabet needs no space: 20米.
_FOREIGN = re.compile(r"(?<=[\d})])\s*((?=[^\W\d_]*[^\W\d_A-Za-z])[^\W\d_]+)$")
_CURRENCY = re.compile(r"\\(usd|eur|gbp|jpy|cent)(?![A-Za-z])\s*")
_CURRENCIES = {"usd": "dollar", "eur": "euro", "gbp": "lb", "jpy": "yen", "cent": "cent"}
_SYMBOL_BEHIND = re.compile(r"(?<=[\d})])\s+([A-Za-z]{1,4})\.?" + _POWER + "$")
_PERCENT = re.compile(
    r"(?<!\s)\s*(?:\\text\s*\{\s*\\?%\s*\}|\\%|%|(?:\\\s*)?(?:percent|per cent|percentage|pct)\.?)\s*$"
)
# 100\%-80\%: every term of a sum, but for the last, whose sign has been read.
_PERCENT_SUM = re.compile(r"-?[\d.]+\s*\\?%(?:\s*[-+]\s*[\d.]+\s*\\?%)*\s*[-+]\s*[\d.]+", re.ASCII)
_DEGREES = re.compile(r"(?<!\s)\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*$|(?<=\d)\^\{?o\}?$")
# cos 60 degrees is not cos 60.
_ANGLE_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
# A number that plain arithmetic in words can follow.
_PLAIN_NUMBER = re.compile(r"(?:^|(?<==))\s*(-?(?:\d+(?:\.\d+|/\d+)?|\.\d+|\\frac\{\d+\}\{\d+\}))$", re.ASCII)
# Words that the answer is not without: what stands in its text, but for indices and short products of letters.
_MARKED_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mbox)\s*\{(?=[^{}]*[^\W\d_]{2})[^{}]*\}")
_ROMAN_WORDS = re.compile(r"\\(?:mathrm|mathbf|mathit|mathsf|texttt|emph|operatorname)\s*\{([A-Za-z\s]{2,})\}")
_PLAIN_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?:\s+[A-Za-z]{2,})*(?![A-Za-z])")
_INDEX = re.compile(r"_\s*(?:\{(?:[^{}]|\{[^{}]*\})*\}|\\[A-Za-z]+\s*\{[^{}]*\})")
_BESIDE_NUMBER = re.compile(r"(?:^|\s)([A-Za-z]{2})\s+[-\d]|\d\s+([A-Za-z]{2})$")
# One letter, however it is marked.
_LETTER = re.compile(r"[\s({]*(?:\\[a-z]+\s*\{[\s(]*)?[A-Za-z][\s)}.:]*")
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
        "am": "a.m. a.m",
        "pm": "p.m. p.m",
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


class _Tail(NamedTuple):
    start: int
    unit: str
    formula: str = ""


def strip_unit(text: str) -> Measured:
    """``text`` without the unit it ends in. A text that is nothing but words has no unit."""
    units: list[str] = []
    is_percent = is_degrees = False
    for _ in range(4):
        percent = _PERCENT.search(text)
        if percent and percent.start() > 0 and not (is_percent or is_degrees):
            text, is_percent = text[: percent.start()].rstrip(), True
            if _PERCENT_SUM.fullmatch(text):
                text = text.replace("\\%", "").replace("%", "")
            continue
        degrees = _DEGREES.search(text)
        if degrees and degrees.start() > 0 and not (is_percent or is_degrees) and not _ANGLE_FUNCTION.search(text):
            text, is_degrees = text[: degrees.start()].rstrip(), True
            continue
        tail = _tail(text)
        if tail is None:
            break
        text = text[: tail.start].rstrip()
        word = "".join(tail.unit.split()).strip(".").lower()
        is_percent = is_percent or word in _PERCENT_WORDS
        is_degrees = is_degrees or word in _DEGREE_WORDS
        if word and word not in _PERCENT_WORDS | _DEGREE_WORDS:
            units.append(tail.unit)
        if tail.formula:
            plain = _PLAIN_NUMBER.search(text)
            assert plain is not None  # `_reckoned_tail` has looked
            text = f"{text[: plain.start(1)]}({plain[1]}){tail.formula}"
            break
    return Measured(text, unit_name(" ".join(reversed(units))), is_percent, is_degrees)


def strip_currency(text: str) -> tuple[str, str]:
    """``text`` without the sign of a currency, and the unit that the sign is; empty where there is none."""
    sign = _CURRENCY.search(text)
    return (_CURRENCY.sub("", text), _CURRENCIES[sign[1]]) if sign else (text, "")


def holds_words(text: str) -> bool:
    """Whether ``text``, without its unit, still says something in words, which is no product of their letters."""
    text = _INDEX.sub("", text)
    if _MARKED_WORDS.search(text):
        return True
    if any(is_closed(word) for run in _ROMAN_WORDS.findall(text) for word in run.split()):
        return True
    for run in _PLAIN_WORDS.finditer(text):
        words = run[0].split()
        if any(is_closed(word) and (len(word) > 2 or len(words) > 1) for word in words):
            return True
    return any(is_closed(first or last) for first, last in _BESIDE_NUMBER.findall(text))


def strip_symbol(text: str, unit: str) -> str | None:
    """``text`` without the bare letters behind it, if they are the symbol of ``unit``: `3 h` where hours are meant."""
    symbol = _SYMBOL_BEHIND.search(text)
    if symbol is None or unit_name(f"{symbol[1]} {symbol[2] or ''}") != unit:
        return None
    return text[: symbol.start()].rstrip()


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


def _tail(text: str) -> _Tail | None:
    """The unit at the end of ``text``, or the arithmetic in words."""
    quotient = _QUOTIENT.search(text)
    if quotient and _stands_behind_value(text[: quotient.start()]):
        unit = f"{_inside(quotient[1])} / {_inside(quotient[4])}"
        return _Tail(quotient.start(), unit) if is_unit(unit) else None
    product = _product(text)
    if product and _stands_behind_value(before := text[: product[0].start("wrapped")]):
        unit = " ".join([_named(product[0]), *(f"{atom[1] or ''} {_named(atom)}".strip() for atom in product[1:])])
        if is_unit(unit) and not (len(unit) == 1 and _LETTER.fullmatch(before)):  # A with the unit C is no answer
            return _Tail(len(before), unit)
        return _reckoned_tail(before, unit)
    plain = _PLAIN.search(text)
    if plain:
        return _Tail(plain.start(), plain["quotient"] or plain["symbol"])
    time = _TIME.search(text)
    if time:
        return _Tail(time.start(), f"{time[1].lower()}m")
    foreign = _FOREIGN.search(text)
    if foreign and is_unit(foreign[1]):
        return _Tail(foreign.start(), foreign[1])
    words = _WORDS.search(text)
    if words and _stands_behind_value(before := text[: words.start()]):
        unit = f"{words[1]} {words[2] or ''}".strip()
        if is_unit(unit) and (len(words[1]) > 2 or words[1] in UNMISTAKABLE):
            return _Tail(words.start(), unit)
        return _reckoned_tail(before, unit)
    return None


def _reckoned_tail(before: str, phrase: str) -> _Tail | None:
    arithmetic = reckoned(phrase)
    if arithmetic is None or not _PLAIN_NUMBER.search(before.rstrip()):
        return None
    formula, unit = arithmetic
    return _Tail(len(before), unit, formula) if not unit or is_unit(unit) else None


def _inside(wrapped: str) -> str:
    return " ".join(map(_named, _ATOM.finditer(wrapped)))


def _named(atom: re.Match[str]) -> str:
    return f"{atom[3]} {atom[4] or ''}".strip()


def _product(text: str) -> list[re.Match[str]]:
    """The words and powers that ``text`` ends in, with nothing but signs and spaces between them."""
    atoms: list[re.Match[str]] = []
    end = 0
    for atom in _ATOM.finditer(text):
        if text[end : atom.start()].strip():
            atoms = []
        atoms.append(atom)
        end = atom.end()
    return [] if text[end:].strip() else atoms


def _stands_behind_value(before: str) -> bool:
    before = before.rstrip()
    return bool(before) and before[-1] not in "+-*/^_=(,<>{" and not before.endswith(("\\cdot", "\\frac"))
