r"""The readings of an answer: each a tree, or the words of a text that is no formula.

`1,234` is read as one number and as two; `(C) 12` as the choice C and as 12; `2024-01-05`, `10:30`, `1990-1995` and
`BA` as a date, a time, a range and a word of capitals, which arithmetic must not touch.
"""

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from evals.grading.parse import Parser
from evals.grading.tokens import MAX_CHARS, NotAFormula, Token, Tokens, clean
from evals.grading.tree import Answer, Node, num, sym
from evals.grading.words import FONT, number_in_words, unit_name, without_sentence

_PHRASES = {
    **dict.fromkeys(["all real numbers", "all reals", "real numbers", "the real numbers"], "\\mathbb{R}"),
    **dict.fromkeys(["no solution", "no solutions", "no real solutions", "empty set", "the empty set"], "\\emptyset"),
    "infinity": "\\infty",
}
_SET_AS_TEXT = re.compile(FONT + r"([^{}]*)\}")
# One letter, and a letter with more behind it.
_LETTER = re.compile(rf"(?:{FONT}\s*(?:[Oo]ption |[Cc]hoice )?\(?([A-Za-z])\)?[.:]?\s*\}}|\(([A-Z])\)|([A-Z])[.)])")
_CHOICE = re.compile(
    rf"(?:{FONT}\s*\(?([A-H])\)?[.:]?\s*\}}[\s:.~]*(?![\s:.~])|\(([A-H])\)\s*|([A-H])[.):]\s+)"
    r"(?![-+*/^=,_(&|]|\\(?:to|implies|cup|lor|neq?|text\{ (?:or|and|not)))(\S.*)",
    re.DOTALL,
)
_ANOTHER_LETTER = re.compile(
    r"(?<![A-Za-z\\])[A-Ha-h](?![A-Za-z])|\\text\{\s*(?:or|not|is|isn)\b|^\s*(?:or|and|not|is|isn|are|was|but)\b"
)
_DATE = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})|(\d{1,2})[-/.](\d{1,2})[-/.](\d{4})", re.ASCII)
_CAPITALS = re.compile(r"[A-Z]{2,}")
_GROUP = re.compile(r"[0-9]{3}(?:\.[0-9]*)?")
_BEHIND_INTERVALS = ("", "cup", "cap", "setminus", ",", ";", ")", "}", "\\}")
_QUOTED = ("**", "__", '"', "`", "''", "'")


@lru_cache(maxsize=20_000)
def read(text: str) -> tuple[Answer, ...]:
    """Every reading of ``text``; where no formula is found, its words alone."""
    if len(text) > MAX_CHARS:
        return (Answer(Node("words", (squeezed(text[: 2 * MAX_CHARS]),))),)
    plain = _plain(text)
    if (kind := _of_a_kind(plain)) is not None:
        return (Answer(kind),)
    if (letter := _LETTER.fullmatch(plain)) and not plain.startswith("\\mathbf"):
        return (Answer(sym(next(filter(None, letter.groups())).upper())),)  # no constant: these are small
    if names := _listed_words(plain):
        return (Answer(Node("list", names)),)
    said = " ".join(_unset(plain).casefold().split()).strip(" .")
    found, _ = _formulas(_PHRASES.get(said, plain))
    if not found and (value := number_in_words(said)) is not None:
        found = [Answer(num(value))]
    return tuple(found) or (_words(without_sentence(clean(text).strip())),)


@lru_cache(maxsize=20_000)
def choice(text: str) -> tuple[Answer, ...]:
    """`(C) 12` as the choice C and as 12; empty where no letter begins the text, or another one may be meant."""
    if len(text) > MAX_CHARS:
        return ()
    plain = re.sub(r"^(\\text\s*\{\(?[A-H][).]) (?=[^{}]*\}$)", r"\1}\\text{", _plain(text))
    found = _CHOICE.fullmatch(plain)
    if found is None or _ANOTHER_LETTER.search(found[4]):
        return ()
    letter = next(filter(None, found.groups()[:3]))
    return (Answer(sym(letter.upper())), *read(found[4]))


def squeezed(text: str) -> str:
    """``text`` without what only sets it; a blank stays between digits."""
    text = " ".join(_unset(_unquoted(clean(text).strip())).split())
    text = _unquoted(text[:-1].rstrip() if text.endswith(".") and not text.endswith("..") else text)
    return re.sub(r"(?<!\d) | (?!\d)", "", text)


def why_words(text: str) -> str:
    """Why ``text`` is no formula."""
    return _formulas(_plain(text))[1] or "its words"


def _words(text: str) -> Answer:
    return Answer(Node("words", (squeezed(text).casefold(),)))


def _unset(text: str) -> str:
    """``text`` without what sets words as text, without dollars and backslashes before blanks."""
    return _SET_AS_TEXT.sub(r" \1 ", text).replace("\\ ", " ").replace("$", " ")


def _plain(text: str) -> str:
    """The formula of ``text``: cleaned, without the sentence around it, quotes, dollars and braces around all of it."""
    text = _unquoted(clean(text).strip())
    text = re.sub(r"(?<=\d)\s*x\s*(?=10\s*\^)", "*", text.replace("np.", ""))
    text = re.sub(r"\.\.\.", r"\\ldots ", text)
    if text.endswith("."):
        text = text[:-1].rstrip()
    if text.endswith("\\\\"):
        text = text[:-2].rstrip()
    return _unquoted(_without_braces(without_sentence(_without_braces(text))))


def _unquoted(text: str) -> str:
    for mark in _QUOTED:
        if len(text) > 2 * len(mark) and text.startswith(mark) and text.endswith(mark) and text.count(mark) == 2:
            text = text[len(mark) : -len(mark)].strip()
    return text


def _without_braces(text: str) -> str:
    text = text.strip()
    if not (text.startswith("$") and text.count("$") == 1):
        text = text.strip("$").strip()
    partner: dict[int, int] = {}
    stack: list[int] = []
    for at, sign in enumerate(text):
        if sign in "{(":
            stack.append(at)
        elif sign in "})" and stack:
            partner[stack.pop()] = at
    start, end = 0, len(text)
    while partner.get(start) == end - 1 and (text[start] == "{" or partner.get(start + 1) == end - 2):
        inner = text[start + 1 : end - 1]
        if text[start] == "{" and "," in inner and "{" in inner:
            break  # {1,{2}} holds a set
        start, end = start + 1, end - 1
    return text[start:end].strip()


def _formulas(plain: str) -> tuple[list[Answer], str]:
    """The trees of a text, with `1,234` as a list and as a number; why there is none, if there is none."""
    found: dict[Answer, None] = {}
    why = ""
    try:
        tokens = _without_french_brackets(_with_sets(_without_rows(Tokens(plain).found)))
    except NotAFormula as reason:
        return [], str(reason)
    for variant in dict.fromkeys([tuple(_joined(tokens, False)), tuple(_joined(tokens, True))]):
        try:
            parser = Parser(variant)
            found[_one(parser.whole(), parser)] = None
        except NotAFormula as reason:
            why = why or str(reason)
        except (ValueError, ArithmeticError, IndexError) as error:
            why = why or type(error).__name__
    return list(found), why


def _one(items: list[Answer], parser: Parser) -> Answer:
    if len(items) > 1 and items[-1].node.op == "mod":
        items = [_residue(item, items[-1].node.args[1]) for item in items]
    if len(items) > 1:
        says_or = any(token.text.casefold() in ("or", "lor") for token in parser.tokens)
        is_union = says_or and all(item.node.op == "rel" for item in items)
        return Answer(Node("cup" if is_union else "list", tuple(items)))
    [one] = items
    if one.node == Node("sym", ("unit i",)):
        return one
    if any(name.startswith("unit ") for name in one.node.names) and (parts := _vector(one.node)):
        coordinates = [Answer(parts.get(f"unit {axis}", num(0))) for axis in "ijk"]
        return replace(one, node=Node("vector", ("ijk", *coordinates)))
    return replace(one, node=_of_braces(one.node)) if one.node.op == "set" else one


def _vector(node: Node) -> dict[str, Node] | None:
    """The coordinates of a sum of multiples of unit vectors; None for any other formula."""
    if node.op == "sym":
        return {node.args[0]: num(1)} if node.args[0].startswith("unit ") else None
    if node.op == "neg":
        inner, factor, op = _vector(node.args[0]), num(-1), "*"
    elif node.op == "+":
        found: dict[str, Node] = {}
        for term in node.args:
            if not (parts := _vector(term)):
                return None
            found |= {
                axis: Node("+", (found[axis], value)) if axis in found else value for axis, value in parts.items()
            }
        return found
    elif node.op in ("*", "/"):
        op, (first, factor) = node.op, node.args
        inner = _vector(first)
        if inner is None and op == "*":
            inner, factor = _vector(factor), first
    else:
        return None
    if inner is None or any(name.startswith("unit ") for name in factor.names):
        return None
    return {axis: Node(op, (value, factor)) for axis, value in inner.items()}


def _residue(item: Answer, modulus: Node) -> Answer:
    """A residue of a list of which only the last has its modulus: `x \\equiv 1, 4 \\pmod 5`."""
    node = item.node
    if node.op == "mod":
        return replace(item, name=None)
    value = node.args[2] if node.op == "rel" and node.args[0] == ("equiv",) else node
    return replace(item, node=Node("mod", (Answer(value), modulus)), name=None)


def _of_braces(node: Node) -> Node:
    r"""What stands between the braces of a set; the condition of `\{x | x > 1\}`."""
    if len(node.args) == 1 and node.args[0].node.op == "rel":
        signs, *sides = node.args[0].node.args
        if sides[0].op == "ratio" and len(sides[0].args) == 2:  # {x : x > 1}
            return Node("rel", (signs, sides[0].args[1], *sides[1:]))
        if "|" in signs:
            at = signs.index("|")
            if signs[:at] not in ((), ("in",)) or (at and sides[1] != Node("sym", ("mathbb:R",))):
                return Node("words", (repr(node),))
            rest = sides[at + 1 :]
            return Node("rel", (signs[at + 1 :], *rest)) if len(rest) > 1 else rest[0]
    return Node("list", node.args)


# -- kinds of answers that are no arithmetic


def _of_a_kind(plain: str) -> Node | None:
    text = _SET_AS_TEXT.sub(r"\1", plain).strip().replace("{:}", ":").replace("--", "-")
    if date := _DATE.fullmatch(text):
        year, month, day = date.groups()[:3] if date[1] else (date[6], *date.groups()[3:5])
        return Node("date", (int(year), int(month), int(day), ""))
    return Node("capitals", (text,)) if _CAPITALS.fullmatch(text) else None


def range_or_time(text: str) -> Node | None:
    """A range or score, or a time, as which a *reference* is taken and no formula; None for any other text.

    `9:16` may be a ratio too, and is read as one; what a clock would show (`10:30`, `7:45`, `3:27 pm`) may not.
    """
    try:
        tokens = [token for token in Tokens(_plain(text)).found if token.text not in ("{", "}")]
    except NotAFormula:
        return None
    signs = "".join(
        "9" if token.kind == "number" else token.text if token.is_mark or token.kind == "prose" else " "
        for token in tokens
    )
    unit = " ".join(token.text for token in tokens if token.kind in ("text", "word"))
    half = {"am": "a", "pm": "p"}.get(re.sub("[. ]", "", unit.casefold()), "")
    numbers = [token.text for token in tokens if token.kind == "number"]
    numeric = signs.replace(".", "").replace("--", "-").strip()
    if numeric == "9-9" and (name := unit_name(unit) if unit else "") is not None:
        return Node("range", (*map(Fraction, numbers), name))
    if numeric in ("9:9", "9:9:9") and all(number.isdigit() for number in numbers):
        hours, *rest = map(int, numbers)
        may_be = (half or not unit) and hours <= 24 and all(len(part) == 2 and int(part) < 60 for part in numbers[1:])
        looks_like_a_clock = all(part % 5 == 0 for part in rest) or len(numbers[0]) == 2 > len(str(hours))
        if may_be and (half or looks_like_a_clock or math.gcd(hours, *rest) > 1):
            return Node("time", (hours, *rest, half))
    return None


def same_kind(one: Node, other: Node) -> bool:
    """Whether two dates, ranges or times are the same; one of them may leave out its unit or half of the day."""
    (*values, unit), (*others, other_unit) = one.args, other.args
    return one.op == other.op and values == others and (unit == other_unit or not (unit and other_unit))


def _listed_words(plain: str) -> tuple[Answer, ...]:
    r"""`\text{Alice and Bob}` as a list of names."""
    text = _SET_AS_TEXT.fullmatch(plain)
    names = [name.strip() for name in re.split(r",|\band\b", text[1])] if text else []
    return tuple(map(_words, names)) if len(names) > 1 and all(names) and not re.search(r"\d", plain) else ()


# -- tokens that are read in two ways


def _without_rows(tokens: list[Token]) -> list[Token]:
    r"""Lines of `aligned` as values between commas, or as links of a chain where they begin with a relation."""
    found: list[Token] = []
    depth = 0
    has_closing = any(token.text == "\\}" for token in tokens)
    for at, token in enumerate(tokens):
        following = tokens[at + 1 : at + 3]
        if token.kind == "rows":
            depth += 1 if token.text == "begin" else -1
        elif token.text == "\\{" and not has_closing and at + 1 < len(tokens) and tokens[at + 1].kind == "rows":
            continue  # \left\{\begin{aligned}...\right.
        elif depth and token.kind == "row":
            texts = [one.text for one in following]
            if not ("=" in texts and texts[0] in ("&", "=")):  # or it is a link of a chain
                found.append(Token("sign", ",", "wide"))
        elif not (depth and token.kind == "sign" and token.text == "&"):
            found.append(token)
    return found


def _with_sets(tokens: list[Token]) -> list[Token]:
    """`{1,{2}}` as the set that it is, where plain braces are all of the answer and hold others."""
    is_set = len(tokens) > 2 and (tokens[0].text, tokens[-1].text) == ("{", "}")
    if not is_set or any(token.kind == "command" for token in tokens):
        return tokens
    return [token._replace(text=f"\\{token.text}") if token.text in ("{", "}") else token for token in tokens]


def _without_french_brackets(tokens: list[Token]) -> list[Token]:
    """`]2,5[` and `<2,5>` as `(2,5)`: a bracket that closes nothing opens, and one that cannot open closes."""
    found = list(tokens)
    if len(tokens) > 2 and (tokens[0].text, tokens[-1].text) == ("<", ">") and any(one.text == "," for one in tokens):
        found[0], found[-1] = tokens[0]._replace(text="("), tokens[-1]._replace(text=")")
        return found
    opened: list[bool] = []  # of the brackets that are open, whether a comma stands behind each
    for at, token in enumerate(tokens):
        if token.kind != "sign":
            continue
        following = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.text == "[" and opened and opened[-1] and following in _BEHIND_INTERVALS:
            found[at] = token._replace(text=")")
            opened.pop()
        elif token.text in ("[", "(") or (token.text == "]" and not opened):
            found[at] = token._replace(text="(") if token.text == "]" else token
            opened.append(False)
        elif token.text in ("]", ")") and opened:
            opened.pop()
        elif token.text in ",;" and opened:
            opened[-1] = True
    return found


def _joined(tokens: list[Token], is_number: bool) -> list[Token]:
    """``tokens`` with groups of three digits put together: `1{,}234` and `12 345` always, `1,234` if ``is_number``."""
    commas = ("{,}", ",") if is_number else ("{,}",)
    found: list[Token] = []
    open_at: int | None = None  # where the number stands that three more digits may belong to
    for token in tokens:
        if open_at is not None and _GROUP.fullmatch(token.text):
            between = found[open_at + 1 :]
            has_comma = len(between) == 1 and between[0].kind == "sign" and between[0].text in commas
            if token.gap if not between else has_comma and "wide" not in (between[0].gap, token.gap):
                found[open_at:] = [found[open_at]._replace(text=found[open_at].text + token.text)]
                open_at = None if "." in token.text else open_at
                continue
        if token.kind == "number":
            open_at = len(found) if len(token.text) <= 3 and token.text.isdigit() else None
        found.append(token)
    return found
