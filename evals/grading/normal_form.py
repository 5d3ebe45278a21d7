r"""Normal forms: two answers that differ only in how they are written become equal texts or equal structures.

``parse_answer`` finds the structure around the expressions of an answer, which `typography` has cleaned: lists, sets,
tuples and intervals, unions, matrices, names (``x=``) and units (`units`). The forms in which benchmarks store their
references (``69$,$84``, ``8.7e8``, ``np.arcsin``, ``-3./2``, ``025``, ``336^\circ``) are handled too, because sample
files hold them raw.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from evals.grading.chains import read_chain, sides
from evals.grading.numbers import Number, parse_number
from evals.grading.sentences import without_sentence
from evals.grading.typography import CLOSING, OPENING, TOKENS, canonical, clean
from evals.grading.units import holds_words, strip_currency, strip_symbol, strip_unit
from evals.grading.words import number

# Beyond this length an answer is compared as a string only.
MAX_PARSED_CHARS = 4000
MAX_DEPTH = 12

Kind = Literal["list", "tuple", "union", "matrix"]


@dataclass(frozen=True)
class Group:
    """Several values.

    The order of a ``list`` (or set) and of a ``union`` does not matter; ``brackets`` of a tuple or interval do.
    """

    kind: Kind
    items: tuple[Item, ...]
    brackets: str = ""


@dataclass(frozen=True)
class Item:
    """A value with the name before its equals sign and the unit behind it, each empty where there is none.

    ``equation`` is the text with its name, where there is a name: `a=b-c` may be an equation after all. ``is_prose``:
    it says something in words or in signs that no formula has, so that it equals its own text only. ``links`` are the
    other values of a chain `x = 2+3 = 5`, which must be equal too.
    """

    value: Number | str | Group
    text: str
    name: str = ""
    unit: str = ""
    is_percent: bool = False
    equation: str = ""
    is_prose: bool = False
    is_degrees: bool = False
    links: tuple[Item, ...] = ()


_THOUSANDS_WHOLE = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_MIXED_NUMBER = re.compile(r"(-?(?<!\d)\d+) (\d+)/(\d+)", re.ASCII)
_WORDS_OF_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mbox)\s*\{([^{}]*)\}")
_PROSE = re.compile(rf"{_WORDS_OF_TEXT.pattern}|\\mathrm\s*\{{[A-Za-z]{{3,}}\}}")
# What is said in words, and the formula that says the same.
_PHRASES = {
    **dict.fromkeys(["all real numbers", "all reals", "real numbers", "the real numbers"], "\\mathbb{R}"),
    **dict.fromkeys(["no solution", "no solutions", "no real solutions", "empty set", "the empty set"], "\\emptyset"),
    "infinity": "\\infty",
}
_BASE = re.compile(r"\(?(?=[A-F]*\d)([\dA-F]+)\)?_(?:\{\(?(\w+)\)?\}|(\w))", re.ASCII)
# The letter of a choice and what it stands for. Unmarked, `(C) -5` could be a difference.
_MARKED_CHOICE = re.compile(
    r"\\(?:text|textbf|mathrm|textrm)\s*\{\s*\(?([A-H])\)?[.:]?\s*\}[\s:.]*(?![\s:.])(.+)", re.DOTALL
)
_CHOICE = re.compile(r"(?:\(([A-H])\)|([A-H])[.):]) (?![-+*/^=,_(])(.+)", re.DOTALL)
_CHOICE_IN_TEXT = re.compile(
    r"(\\(?:text|textbf|mathrm|textrm|mbox)\s*\{)\s*(?:(?:[Oo]ption|[Cc]hoice)\s+)?\(?([A-Z])(?:[).:]+(?![).:])\s*(?!\s)([^{}]*)|\s*)\}"
)
# A choice's own text does not begin so: `(A) or (C)`, `(A) is wrong`.
_CONTINUING = frozenset(["is", "isn", "are", "was", "or", "and", "but", "nor", "xor"])
_OTHER_CHOICE = re.compile(r"(?<![A-Za-z\\])(?:[(\[{]\s*[A-H]\s*[)\]}]|[A-H][.):](?![^\s}]))")
_SET_BUILDER = re.compile(r"\s*[A-Za-z]\s*(?:\\in\s*\\mathbb\s*\{?R\}?\s*)?(?:\\mid(?![A-Za-z])|\||:)(.+)", re.DOTALL)

# What hides, strikes out or negates, and a percent sign that is no unit: a text that holds it is no formula.
_UNREADABLE = re.compile(
    r"%|\\(?:[hv]?phantom|[bx]?cancel(?:to)?|sout|st|not|neg|lnot|tag|label|boxed|fbox|(?:text|math)?color(?:box)?"
    r"|[a-z]*lap|smash|footnote[a-z]*|iff|implies|Rightarrow|Leftrightarrow)(?![A-Za-z])"
)
# The primes of a name: y', f'(x), x_1''.
_PRIMED = re.compile(
    r"(?:\\[A-Za-z]+\s*\{[A-Za-z]+\}|(?:\\|(?<![A-Za-z]))[A-Za-z]+)(?:_\{[^{}]*\}|_\w)?\s*(?:'|\^\s*(?:\\prime|\{(?:\s|'|\\prime)+\}))+"
)
# One wrapper around a value and the words behind it.
_MEASURED_TEXT = re.compile(
    r"\\(text|textbf|textrm|textnormal|mbox|mathrm)\s*\{\s*(-?(?:[\d,]*\.)?\d[\d,]*(?:/\d+)?)(\s[^{}]*)?\}", re.ASCII
)
# A sign whose other side is missing, or two numbers with nothing between them: no expression.
_BROKEN = re.compile(r"^[*/^=]|[-+*/^=]$|(?:^|[^_^\d.])[\d.]+ \d|(?:^|[-+*/=(,])\{[\d.]+\}\{?\d|\\\}\d|\d\\\{")
_PRODUCT_SIGN = re.compile(r"\*(?!\d)", re.ASCII)
_PRODUCT_OF_COMMAND = re.compile(r"(\\[A-Za-z]+)\*(?=[A-Za-z])")


def parse_answer(text: str) -> list[Item]:
    """The readings of an answer, most literal first: `1,234` is a list of two and a number with a thousands comma."""
    if len(text) > MAX_PARSED_CHARS:
        return [Item(value=(squeezed := re.sub(r"\s+", "", text)), text=squeezed)]
    text = _without_preamble(clean(text))
    as_list = _parse_top(text)
    as_one = _parse_element(text, MAX_DEPTH)
    if ", " in text or not _THOUSANDS_WHOLE.fullmatch(as_one.text):
        return [as_list]
    joined = as_one.text.replace(",", "")
    return [as_list, Item(parse_number(joined) or joined, joined, as_one.name, as_one.unit, as_one.is_percent)]


def unit_reading(text: str, unit: str) -> Item | None:
    """The one value of ``text`` where the letters behind it are the symbol of ``unit``: `3 h` beside `3 hours`."""
    if len(text) > MAX_PARSED_CHARS or (value := strip_symbol(clean(text), unit)) is None:
        return None
    item = _parse_top(value)
    return None if item.unit or isinstance(item.value, Group) else replace(item, unit=unit)


def identity_reading(text: str) -> Item | None:
    """The last side of an equation whose sides must all be the same: `(x+1)^2 = x^2+2x+1` says `x^2+2x+1`."""
    if "=" not in text or len(text) > MAX_PARSED_CHARS:
        return None
    whole, unit, is_percent, is_degrees = strip_unit(_strip_braces(_without_preamble(clean(text))))
    parts = sides(whole, _split)
    if len(parts) < 2 or len(_split(whole, (",", ";"))) > 1:
        return None
    *links, value = (_parse_element(part, 1) for part in parts)
    is_tautology = all(link.text == value.text for link in links)
    if is_tautology or any(item.name or item.is_prose for item in (*links, value)):
        return None
    return replace(value, unit=unit or value.unit, is_percent=is_percent, is_degrees=is_degrees, links=tuple(links))


def choice_readings(text: str) -> list[Item]:
    """`(C) 12` as the choice C and as the value 12.

    Empty where no such letter begins the answer, or where another letter may be meant: `(A) B`, `(A) or (C)`.
    """
    if len(text) > MAX_PARSED_CHARS:
        return []
    text = _strip_braces(_without_preamble(clean(text)))
    choice = _MARKED_CHOICE.fullmatch(text) or _CHOICE.fullmatch(text)
    if choice is None:
        return []
    *letters, rest = choice.groups()
    if _offers_choice(rest):
        return []
    letter = next(filter(None, letters))
    return [Item(letter, letter), _parse_top(rest)]


def _offers_choice(rest: str) -> bool:
    words = re.findall(r"[A-Za-z]+|\d", re.sub(r"\\[A-Za-z]+", " ", rest))
    is_letter = len(words) == 1 and words[0] in "abcdefgh"
    has_letter = any(word in "ABCDEFGH" for word in words) and not any(word.isdigit() for word in words)
    is_marked = _OTHER_CHOICE.search(rest) is not None
    return not words or is_letter or has_letter or is_marked or words[0].casefold() in _CONTINUING


def _without_preamble(text: str) -> str:
    """``text`` without the sentence around the answer, and with the letter of a choice apart from what it says."""
    text = without_sentence(text)
    choice = _CHOICE_IN_TEXT.fullmatch(text)
    if choice is None:
        return text
    return f"\\text{{({choice[2]})}}" + (f" {choice[1]}{choice[3]}}}" if choice[3] else "")


def _parse_top(text: str) -> Item:
    text = _strip_braces(text)
    if text.startswith("\\{") and _closes_at_end(text) and text[2:-2].strip():
        text = text[2:-2]
        if condition := _SET_BUILDER.fullmatch(text):
            text = condition[1]
    if (prose := _WORDS_OF_TEXT.fullmatch(text)) and len(words := _split(prose[1], (",",))) > 1:
        text = ",".join(f"\\text{{{word.strip()}}}" for word in words if word.strip())
    rows = [_split(row, (",",)) for row in _split(text, (";",))]
    if len(rows) > 1 and all(len(row) > 1 and all("=" in part for part in row) for row in rows):
        text = ",".join(f"({','.join(row)})" for row in rows)  # x=1,y=2; x=3,y=4
    parts = [part for part in _split(text, (",", ";")) if part.strip()]
    parts = [expanded for part in parts for expanded in _plus_minus(part)]
    if len(parts) > 1:
        items = tuple(_parse_element(part, 0) for part in parts)
        return Item(Group("list", items), ",".join(item.text for item in items))
    return _parse_element(parts[0] if parts else text, 0)


def _parse_element(text: str, depth: int) -> Item:
    """One value with its name and unit. At ``MAX_DEPTH`` and below, no structure is looked for."""
    text, currency = strip_currency(text)
    text = _MEASURED_TEXT.sub(_unwrapped, text.strip())
    whole, unit, is_percent, is_degrees = strip_unit(text)
    unit = unit or currency
    name, text, links, is_void = read_chain(whole, _split)
    text = _formula_of_words(_strip_braces(text))
    equation = canonical(whole) if name and not links else ""
    chained = tuple(_parse_element(link, depth + 1) for link in links) if depth < MAX_DEPTH else ()
    frame = Item("", "", name, unit, is_percent, equation, is_degrees=is_degrees, links=chained)
    structure = _parse_group(text, depth) if depth < MAX_DEPTH else None
    if isinstance(structure, Item):
        frame = replace(
            frame,
            unit=unit or structure.unit,
            is_percent=is_percent or structure.is_percent,
            is_degrees=is_degrees or structure.is_degrees,
        )
        return replace(frame, value=structure.value, text=structure.text, is_prose=structure.is_prose)
    normal = _MIXED_NUMBER.sub(r"\1\\frac{\2}{\3}", canonical(text))
    value = structure or parse_number(normal)
    if value is not None:
        return replace(frame, value=value, text=normal)
    if len(normal) == 3 and normal[0] == "(" and normal[2] == ")":
        normal = normal[1]  # (C) is the choice C
    is_broken = _BROKEN.search(normal) is not None
    if not is_broken:
        normal = _PRODUCT_SIGN.sub("", _PRODUCT_OF_COMMAND.sub(r"\1 ", normal))
    if based := _BASE.fullmatch(normal):
        base = based[2] or based[3]
        normal = f"{based[1]}_{number(base) or base}"
    is_prose = is_void or is_broken or _PROSE.fullmatch(text) is not None or _says_more(text)
    return replace(frame, value=normal, text=normal, is_prose=is_prose)


def _unwrapped(measured: re.Match[str]) -> str:
    macro, value, words = measured.groups()
    return f"{value}\\{macro}{{{words}}}" if words and words.strip() else value


def _says_more(text: str) -> bool:
    """Whether an expression holds words, hidden or struck-out parts, or primes that belong to no name."""
    if _UNREADABLE.search(text) or holds_words(text):
        return True
    has_primes = "'" in text or "\\prime" in text
    return has_primes and re.search(r"'|\\prime", _PRIMED.sub("", text)) is not None


def _formula_of_words(text: str) -> str:
    words = _WORDS_OF_TEXT.fullmatch(text)
    said = " ".join((words[1] if words else text).split()).casefold()
    if said == "\\{\\}":
        return "\\emptyset"
    return _PHRASES.get(said) or (number(said) if said.replace("-", "").replace(" ", "").isalpha() else None) or text


def _parse_group(text: str, depth: int) -> Group | Item | None:
    """The structure of ``text``; an Item for a value in parentheses; None for an expression without structure."""
    unions = _split(text, ("\\cup",))
    if len(unions) > 1:
        return Group("union", tuple(_parse_element(part, depth + 1) for part in unions))
    if text.startswith("\\begin{pmatrix}") and text.endswith("\\end{pmatrix}"):
        body = text[len("\\begin{pmatrix}") : -len("\\end{pmatrix}")]
        rows = [_split(row, ("&",)) for row in _split(body, ("\\\\",)) if row.strip()]
        cells = tuple(_parse_element(cell, depth + 1) for row in rows for cell in row)
        return Group("matrix", cells, brackets=",".join(str(len(row)) for row in rows))
    if text.startswith("\\langle") and text.endswith("\\rangle") and _closes_at_end(text):
        parts = _split(text.removeprefix("\\langle").removesuffix("\\rangle"), (",", ";"))
        return (
            Group("tuple", tuple(_parse_element(part, depth + 1) for part in parts), "()") if len(parts) > 1 else None
        )
    opening = "\\{" if text.startswith("\\{") else text[:1]
    if opening not in ("(", "[", "\\{") or not _closes_at_end(text):
        return None
    closing = "\\}" if text.endswith("\\}") else text[-1:]
    parts = _split(text[len(opening) : -len(closing)], (",", ";"))
    if opening == "(" and closing == ")" and len(parts) == 1:
        inner = _parse_element(parts[0], depth + 1)
        return None if isinstance(inner.value, str) else inner
    items = tuple(_parse_element(part, depth + 1) for part in parts)
    if opening == "\\{":
        return Group("list", items)
    return Group("tuple", items, brackets=opening + closing)


def _split(text: str, separators: tuple[str, ...]) -> list[str]:
    """``text`` cut at ``separators`` outside all brackets."""
    if not any(separator in text for separator in separators):
        return [text]
    parts, depth, start = [], 0, 0
    for token in TOKENS.finditer(text):
        if token[0] in OPENING:
            depth += 1
        elif token[0] in CLOSING:
            depth -= 1
        elif depth == 0 and token[0] in separators:
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]]


def _closes_at_end(text: str) -> bool:
    """Whether the bracket that ``text`` starts with is closed by its last token. ``(`` may be closed by ``]``."""
    depth = 0
    for token in TOKENS.finditer(text):
        if token[0] in OPENING:
            depth += 1
        elif token[0] in CLOSING:
            depth -= 1
            if depth <= 0:
                return depth == 0 and token.end() == len(text)
    return False


def _strip_braces(text: str) -> str:
    """``text`` without the pairs of braces, and of doubled parentheses, around all of it, in one pass."""
    text = text.strip()
    if text[:1] not in "{(" or text[-1:] not in "})":
        return text
    stack: list[int] = []
    partner: dict[int, int] = {}
    for token in TOKENS.finditer(text):
        if token[0] in OPENING:
            stack.append(token.start())
        elif token[0] in CLOSING and stack:
            partner[stack.pop()] = token.start()
    start, end = 0, len(text)
    while end - start >= 2 and partner.get(start) == end - 1:
        is_double = text[start + 1] == "(" and partner.get(start + 1) == end - 2
        if text[start] == "(" and not is_double:
            break
        start, end = start + 1, end - 1
    return text[start:end].strip()


def _plus_minus(text: str) -> list[str]:
    if "\\pm" not in text and "\\mp" not in text:
        return [text]
    return [
        text.replace("\\pm", "+").replace("\\mp", "-"),
        text.replace("\\pm", "-").replace("\\mp", "+"),
    ]
