r"""Normal forms: two answers that differ only in how they are written become equal texts or equal structures.

``clean`` removes typography (spaces, ``\left``, dollar signs, Unicode variants, old macros), ``canonical`` gives the
text of one expression, and ``parse_answer`` finds the structure around expressions: lists, sets, tuples and intervals,
unions, matrices, names (``x=``) and units. The forms in which benchmarks store their references (``69$,$84``,
``8.7e8``, ``np.arcsin``, ``-3./2``, ``025``, ``336^\circ``) are handled here too, because sample files hold them raw.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from evals.grading.numbers import Number, parse_number

# Beyond this length an answer is compared as a string only.
MAX_PARSED_CHARS = 4000
MAX_DEPTH = 12

Kind = Literal["list", "tuple", "union", "matrix"]


@dataclass(frozen=True)
class Group:
    """Several values. The order of a ``list`` (or set) and of a ``union`` does not matter; ``brackets`` of a tuple or
    interval do."""

    kind: Kind
    items: tuple[Item, ...]
    brackets: str = ""


@dataclass(frozen=True)
class Item:
    """A value with the name before its equals sign and the unit behind it, each empty where there is none.

    ``equation`` is the text with its name, where there is a name: `a=b-c` may be an equation after all. ``is_prose``:
    all of it is marked as words, so that its letters are no product.
    """

    value: Number | str | Group
    text: str
    name: str = ""
    unit: str = ""
    is_percent: bool = False
    equation: str = ""
    is_prose: bool = False


_CHARACTERS: dict[int, str] = {
    **{ord(sign): "-" for sign in "−–—‐‑‒﹣"},
    **{ord(sign): " \\cdot " for sign in "×⋅·∙∗✕"},
    **{ord(sign): " " for sign in "\u00a0\u2009\u202f\u200b\u3000\u2061\ufeff"},
    **{fullwidth: chr(fullwidth - 0xFEE0) for fullwidth in range(0xFF01, 0xFF5F)},
    **{ord(sign): f"{{}}^{{{digit}}}" if sign in "⁰" else f"^{{{digit}}}" for digit, sign in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    ord("÷"): "/",
    ord("π"): "\\pi ",
    ord("θ"): "\\theta ",
    ord("°"): "^\\circ ",
    ord("∞"): "\\infty ",
    ord("∪"): "\\cup ",
    ord("∩"): "\\cap ",
    ord("≤"): "\\le ",
    ord("≥"): "\\ge ",
    ord("≠"): "\\ne ",
    ord("≈"): "\\approx ",
    ord("∈"): "\\in ",
    ord("∅"): "\\emptyset ",
    ord("±"): "\\pm ",
    ord("√"): "\\sqrt ",
    ord("½"): "\\frac{1}{2}",
    ord("⅓"): "\\frac{1}{3}",
    ord("⅔"): "\\frac{2}{3}",
    ord("¼"): "\\frac{1}{4}",
    ord("¾"): "\\frac{3}{4}",
    ord("’"): "'",
}

_MACROS = {
    **dict.fromkeys(["dfrac", "tfrac", "cfrac"], "\\frac"),
    **dict.fromkeys(["times", "cdot", "ast"], "*"),
    **dict.fromkeys(["left", "right", "displaystyle", "textstyle", "limits", "bf", "rm", "it"], ""),
    **dict.fromkeys(["big", "Big", "bigl", "bigr", "Bigl", "Bigr", "bigg", "Bigg", "biggl", "biggr"], ""),
    **dict.fromkeys(["quad", "qquad", "thinspace", "nobreak", "enspace"], " "),
    "leq": "\\le",
    "leqslant": "\\le",
    "geq": "\\ge",
    "geqslant": "\\ge",
    "neq": "\\ne",
    "varnothing": "\\emptyset",
    "lbrace": "\\{",
    "rbrace": "\\}",
    "lbrack": "[",
    "rbrack": "]",
    "lparen": "(",
    "rparen": ")",
    "bmatrix": "pmatrix",
    "div": "/",
    "degree": "^\\circ",
    "bigcup": "\\cup",
    "colon": ":",
}
# A matrix ends its rows with two backslashes: matched first, so that the second one starts nothing.
_ESCAPE = re.compile(r"\\\\|\\([A-Za-z]+)|\\[!,;:> \n()\[\]]|~")
_MATRIX_NAME = re.compile(r"\{[bBvV]?matrix\}")
_ARRAY = re.compile(r"\[?\\begin\{array\}\{[clr| ]*\}(.*)\\end\{array\}\]?", re.DOTALL)
_AND = re.compile(r"\\(?:text|mathrm|mbox|textrm)\s*\{[\s,]*(?:and|or)[\s,]*\}|(?<=[\s,$)])(?:and|or)(?=[\s$(\\])")
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|texttt|mathrm|mathbf|mathit|mathsf|mathcal|boldsymbol|operatorname|mbox)"
    r"\s*\{([^{}]*)\}"
)
_PROSE = re.compile(r"\\(?:text|textbf|textit|textrm|textnormal|mbox)\s*\{[^{}]*\}")
_FRAC = re.compile(r"\\frac\s*(\{[^{}]*\}|[A-Za-z0-9])\s*([A-Za-z0-9]|\{)")
_SQRT = re.compile(r"\\sqrt\s*([A-Za-z0-9])")
_NUMPY = re.compile(r"\bnp\.([a-z]+)")
_THOUSANDS = re.compile(r"(?<=\d)(?:,\\!|\\!,|\{,\}|\\,(?=\d{3}(?!\d)))\s*(?=\d{3})", re.ASCII)
_THOUSANDS_WHOLE = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_SPACED_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?: \d{3})+(?![\d ])", re.ASCII)

_TRAILING_UNIT = re.compile(
    r"\\(?:text|mathrm|mbox|textrm|textnormal)\s*\{([^{}]*)\}\s*(?:\^\s*\{?\s*(-?\d)\s*\}?)?\s*$"
)
_TRAILING_WORDS = re.compile(r"(?<=[\d})])\s+([a-z]{2,}\.?(?:\s[a-z]{2,}\.?)*)(?:\^\s*\{?\s*(\d)\s*\}?)?$")
_PERCENT = re.compile(r"\s*(?:\\%|%|\\?\s*(?:percent|percentage|pct)\.?)\s*$")
_DEGREES = re.compile(r"\s*\^\s*(?:\\circ|\{\s*\\circ\s*\})\s*$")
# cos 60 degrees is not cos 60.
_ANGLE_FUNCTION = re.compile(r"(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
# Lower-case words that are mathematics and not a unit behind a number.
_MATH_WORDS = re.compile(r"\b(?:pi|sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|mod|if|for|in|arcsin|arccos|arctan)\b")
_UNIT_LETTERS = frozenset("mgshNJKWVLCF")

_OPENING = frozenset(["(", "[", "{", "\\{", "\\begin"])
_CLOSING = frozenset([")", "]", "}", "\\}", "\\end"])
_TOKENS = re.compile(r"\\[A-Za-z]+|\\.|\s+|[^\s\\]|\\", re.DOTALL)
# Possessive (++): letters can be read as part of a macro or alone, and backtracking would try all ways.
_NAME = re.compile(r"(?:\(-?\d+\)|[A-Za-z'(){}\[\]:|,]|\\[A-Za-z]++|_\{[^{}]*\}|_\d)++")
_SIMPLE_NAME = re.compile(r"(?:\(-?\d+\)|[A-Za-z]|\\[A-Za-z]+)(?:_\{[^{}]*\}|_\w)?'*(?:\([A-Za-z,]+\))?")
_PRODUCT_SIGN = re.compile(r"\*(?!\d)", re.ASCII)
_PRODUCT_OF_COMMAND = re.compile(r"(\\[A-Za-z]+)\*(?=[A-Za-z])")
_RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt|equiv|sim)(?![A-Za-z])")


def clean(text: str) -> str:
    """``text`` without typography; still with single spaces, because they separate words from units."""
    text = text.translate(_CHARACTERS)
    if "\\begin" not in text and "\\\\" in text:
        text = text.replace("\\\\", "\\")  # escaped twice on the way here
    text = _AND.sub(" , ", text)
    text = text.replace("\\$", "").replace("$,$", " ; ").replace("$, $", " ; ").replace("$", " ")
    text = _THOUSANDS.sub("", text)
    text = text.replace("{,}", ".")  # a braced comma that groups no thousands is a decimal comma
    text = _NUMPY.sub(r"\\\1", text)
    text = _ESCAPE.sub(_plain_escape, text)
    text = text.replace("!=", "\\ne ").replace("<=", "\\le ").replace(">=", "\\ge ").replace("**", "^")
    if "\\begin" in text:
        text = _MATRIX_NAME.sub("{pmatrix}", _ARRAY.sub(r"\\begin{pmatrix}\1\\end{pmatrix}", text))
    text = _SPACED_THOUSANDS.sub(lambda number: number[0].replace(" ", ""), text)
    text = " ".join(text.split())
    stem = text.rstrip(" .,;:\\")
    is_decimal = stem[-1:].isdigit() and text[len(stem) :].startswith(".")  # `5.` as in -3./2
    return f"{stem}." if is_decimal else stem


def canonical(text: str) -> str:
    """The text of one cleaned expression: no wrappers, no needless braces or spaces, one sign for a product."""
    text = _TEXT.sub(r" \1 ", text)
    text = _SQRT.sub(r"\\sqrt{\1}", text)
    for _ in range(3):  # a fraction inside a numerator is seen in the next round
        text, num_changed = _FRAC.subn(_braced_fraction, text)
        if not num_changed:
            break
    tokens = _TOKENS.findall(text)
    out: list[str] = []
    has_space = False
    for token in tokens:
        if token.isspace():
            has_space = True
            continue
        if out and has_space and _must_stay_apart(out[-1], token):
            out.append(" ")
        out.append(token)
        has_space = False
    text = "".join(out)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text)
    text = re.sub(r"\\exp\{([^{}]*)\}", r"e^{\1}", text)
    text = re.sub(r"(^|[(\[{,=])\+(?=[\d\\A-Za-z.])", r"\1", text)
    return text.removeprefix("\\approx").strip()


def parse_answer(text: str) -> list[Item]:
    """The readings of an answer, most literal first: `1,234` is a list of two and a number with a thousands comma."""
    if len(text) > MAX_PARSED_CHARS:
        return [Item(value=(squeezed := re.sub(r"\s+", "", text)), text=squeezed)]
    text = clean(text)
    as_list = _parse_top(text)
    as_one = _parse_element(text, MAX_DEPTH)
    if ", " in text or not _THOUSANDS_WHOLE.fullmatch(as_one.text):
        return [as_list]
    joined = as_one.text.replace(",", "")
    return [as_list, Item(parse_number(joined) or joined, joined, as_one.name, as_one.unit, as_one.is_percent)]


def _parse_top(text: str) -> Item:
    text = _strip_braces(text)
    if text.startswith("\\{") and _closes_at_end(text):
        text = text[2:-2]
    parts = [part for part in _split(text, (",", ";")) if part.strip()]
    parts = [expanded for part in parts for expanded in _plus_minus(part)]
    if len(parts) > 1:
        items = tuple(_parse_element(part, 0) for part in parts)
        return Item(Group("list", items), ",".join(item.text for item in items))
    return _parse_element(parts[0] if parts else text, 0)


def _parse_element(text: str, depth: int) -> Item:
    """One value with its name and unit. At ``MAX_DEPTH`` and below, no structure is looked for."""
    text, unit, is_percent = _strip_unit(text.strip())
    whole = text
    name, text = _strip_name(text)
    equation = canonical(whole) if name else ""
    text = _strip_braces(text)
    structure = _parse_group(text, depth) if depth < MAX_DEPTH else None
    if isinstance(structure, Item):
        unit, is_percent = unit or structure.unit, is_percent or structure.is_percent
        return replace(structure, name=name, unit=unit, is_percent=is_percent, equation=equation)
    normal = canonical(text)
    value = structure or parse_number(normal)
    if value is not None:
        return Item(value, normal, name, unit, is_percent, equation)
    if len(normal) == 3 and normal[0] == "(" and normal[2] == ")":
        normal = normal[1]  # (C) is the choice C
    normal = _PRODUCT_SIGN.sub("", _PRODUCT_OF_COMMAND.sub(r"\1 ", normal))
    return Item(normal, normal, name, unit, is_percent, equation, is_prose=_PROSE.fullmatch(text) is not None)


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
    for token in _TOKENS.finditer(text):
        if token[0] in _OPENING:
            depth += 1
        elif token[0] in _CLOSING:
            depth -= 1
        elif depth == 0 and token[0] in separators:
            parts.append(text[start : token.start()])
            start = token.end()
    return [*parts, text[start:]]


def _closes_at_end(text: str) -> bool:
    """Whether the bracket that ``text`` starts with is closed by its last token. ``(`` may be closed by ``]``."""
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in _OPENING:
            depth += 1
        elif token[0] in _CLOSING:
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
    for token in _TOKENS.finditer(text):
        if token[0] in _OPENING:
            stack.append(token.start())
        elif token[0] in _CLOSING and stack:
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


def _strip_name(text: str) -> tuple[str, str]:
    """(name, rest) of ``x = 3``, ``f(n)=n``, ``(p, q) = (3, 2)``, ``x \\in [0, 1]``; an equation has no name."""
    if "\\in " in text or "\\in[" in text or "\\in(" in text:
        name, _, rest = text.partition("\\in")
        if _SIMPLE_NAME.fullmatch(name.strip()) and rest[:1] != "f":
            return canonical(name), rest.strip()
    if "=" not in text or _RELATION.search(text):
        return "", text
    *names, rest = _split(text, ("=",))
    forms = [canonical(name) for name in names]
    value = canonical(rest)
    if not value or not forms:
        return "", text
    if all(form == value for form in forms):
        return "", rest
    if not all(_NAME.fullmatch(form) and re.search("[A-Za-z]", form) for form in forms):
        return "", text
    # `MR=SRMC` is an equation between two quantities; `f(n)=n` and `k=m` say what f(n) and k are.
    if _NAME.fullmatch(value) and not all(_SIMPLE_NAME.fullmatch(form) for form in forms):
        return "", text
    return forms[0], rest.strip()


def _strip_unit(text: str) -> tuple[str, str, bool]:
    """(text without its unit, unit, whether that is a percent sign). A text that is nothing but words has no unit."""
    units: list[str] = []
    is_percent = False
    for _ in range(4):
        percent = _PERCENT.search(text)
        if percent and percent.start() > 0:
            text, is_percent = text[: percent.start()].rstrip(), True
            continue
        degrees = _DEGREES.search(text)
        if degrees and degrees.start() > 0 and not _ANGLE_FUNCTION.search(text):
            text = text[: degrees.start()].rstrip()
            continue
        unit = _TRAILING_UNIT.search(text) or _TRAILING_WORDS.search(text)
        if unit is None or not _is_unit(text[: unit.start()], unit[1]):
            break
        text = text[: unit.start()].rstrip()
        word = "".join(unit[1].split()).strip(".").lower()
        if word in ("percent", "percentage", "pct"):
            is_percent = True
        elif word not in ("degrees", "degree", "units", "unit", "squareunits", "cubicunits"):
            units.append(word.removesuffix("s") + (unit[2] or ""))
    return text, "".join(reversed(units)), is_percent


def _is_unit(before: str, unit: str) -> bool:
    before, unit = before.rstrip(), unit.strip()
    if not before or before[-1] in "+-*/^_=(,<>{" or before.endswith(("\\cdot", "\\frac")):
        return False
    if len(unit) == 1:
        return unit in _UNIT_LETTERS
    return bool(unit) and not _MATH_WORDS.search(unit) and not unit.startswith("(")


def _plain_escape(escape: re.Match[str]) -> str:
    if escape[1]:
        return _MACROS.get(escape[1], escape[0])
    return escape[0] if escape[0] == "\\\\" else " "


def _braced_fraction(fraction: re.Match[str]) -> str:
    numerator = fraction[1] if fraction[1].startswith("{") else f"{{{fraction[1]}}}"
    return f"\\frac{numerator}" + ("{" if fraction[2] == "{" else f"{{{fraction[2]}}}")


def _must_stay_apart(left: str, right: str) -> bool:
    """`\\pi r` is not `\\pir`, and `1 2` is not `12`."""
    if left[0] == "\\" and left[-1].isalpha():
        return right[0].isalpha()
    return left.isdigit() and right.isdigit()
