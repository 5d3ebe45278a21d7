r"""What English says around and in an answer: the sentence that announces it, and numbers in words.

`The answer is 5`, `Hence 5`, `The value of x is 5`, `5 is the answer`, `5 in total`: what may stand there without
changing the answer is a small grammar of closed classes: a word of consequence, a subject that names the quantity asked
for, and a copula. Any other word stays where it is, so that `The wrong answer is 5` and `The answer is about 5` say
what they say. Numbers are `twenty-one`, `two thirds`, and behind a number `dozen`, `squared`, `minus one`.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import NamedTuple

from evals.grading.units import is_unit

_WRAPPER = r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf)\s*\{"
_TOKEN = re.compile(rf"(?P<opening>{_WRAPPER})|(?P<closing>\}})|(?P<said>[A-Za-z]+(?:'s)?|[,:]|\.(?=[\s}}]))|\s+")
# No lead-in has more tokens.
_MAX_TOKENS = 40

_DETERMINER = r"(?:the|our|my|your|this)"
_QUALITY = (
    r"(?:final|correct|right|required|requested|desired|exact|numerical|total|overall|simplified|unique|only|common"
    r"|minimum|maximum|smallest|largest|least|greatest)"
)
_ASKED = r"(?:answers?|ans|values?|numbers?|total|results?|solutions?|sum|count|amount|quantity)"
_MEASURED = (
    r"(?:product|difference|quotient|remainder|area|volume|perimeter|circumference|length|width|height|radius|diameter"
    r"|distance|probability|ratio|average|mean|median|mode|cost|price|profit|speed|rate|time|age|angle|slope|fraction"
    r"|percentage|degree|roots?|minimum|maximum)"
)
_OF = r"(?: of (?P<whose>[a-z]+(?: [a-z]+){0,5}?))?"
_SUBJECT = rf"(?:{_DETERMINER} )?(?:{_QUALITY} ){{0,2}}(?:{_ASKED}|{_MEASURED})"
_JUST = r"(?:exactly|precisely|simply|just|only|indeed)"
_COPULA = rf"(?:(?:therefore|thus|hence|then) )?(?:is|are|equals|must be|will be|is equal to|comes to)(?: {_JUST})?"
_CONSEQUENCE = r"(?:so|hence|thus|therefore|then|consequently|accordingly|finally|ergo)"
_PRONOUN = r"(?:it|this|that|which)"
_FINDING = r"(?:(?:we|i) (?:get|have|obtain|find|conclude)(?: that)?|(?:this|which|it) gives)"
_LEAD = re.compile(
    rf"(?:{_CONSEQUENCE}(?: ,)? ?)?(?:{_SUBJECT}{_OF} (?:{_COPULA}(?: :)?|:)"
    rf"|(?:{_DETERMINER} )?(?:{_QUALITY} )?{_ASKED}|ans \.|{_PRONOUN} {_COPULA}|it's|that's"
    rf"|(?:there (?:is|are)|{_FINDING})(?: {_JUST})?|{_COPULA}|{_JUST}|(?:there (?:is|are) )?a total of)?(?: :)?"
)
# The same in other languages: only what announces an answer, before a formula.
_FOREIGN_LEAD = re.compile(
    rf"(?P<wrapper>{_WRAPPER}\s*)?(?:(?:所以|因此|故)[，,]?\s*)?(?:(?:最终|最後|最后)?(?:的)?答案?(?:是|为|為|:)|答えは|答え\s*:|정답은|답은|정답\s*:"
    r"|antwort\s*:|die antwort ist|respuesta\s*:|la respuesta es|réponse\s*:|la réponse est|ответ\s*:|risposta\s*:"
    r"|la risposta è|resposta\s*:|a resposta é):?\s*(?:(?P<closing>\})\s*)?",
    re.IGNORECASE,
)
# A sign of consequence, or of equality with what was asked for.
_SIGN = re.compile(r"\s*(?:=|\\(?:therefore|implies|Rightarrow|Longrightarrow)(?![A-Za-z]))\s*(?=[^\s=])")
_TRAIL = re.compile(
    rf"(?:({_WRAPPER})\s*|\s)(?:(?:is|are) (?:{_SUBJECT}|correct)|in (?:total|all)|altogether)\s*(\}})?$", re.IGNORECASE
)


def without_sentence(text: str) -> str:
    """``text`` (cleaned) without the words that only say that it is the answer; `x=5` for `The value of x is 5`."""
    if (sign := _SIGN.match(text)) is not None:
        text = text[sign.end() :]
    if (lead := _FOREIGN_LEAD.match(text)) is not None and lead.end() < len(text):
        wrapper = lead["wrapper"] if not lead["closing"] else ""
        text = (wrapper or "") + text[lead.end() :]
    trail = _TRAIL.search(text)
    if trail and trail.start() and bool(trail[1]) <= bool(trail[2]):
        text = text[: trail.start()].rstrip(" ,") + ("}" if trail[2] and not trail[1] else "")
    return _without_lead(text)


def _without_lead(text: str) -> str:
    said: list[str] = []
    wrapper, position, found = "", 0, text
    while len(said) < _MAX_TOKENS and (token := _TOKEN.match(text, position)):
        position = token.end()
        if token["opening"]:
            if wrapper:
                break
            wrapper = token["opening"]
        elif token["closing"]:
            if not wrapper:
                break
            wrapper = ""
        elif token["said"]:
            said.append(token["said"])
        rest = text[position:].strip()
        if not said or not rest.strip("} .,:="):
            continue
        lead = _LEAD.fullmatch(" ".join(said).casefold())
        if lead is None or (lead["whose"] and not _is_owner(lead["whose"])):
            continue
        whose = said[said.index("of") + 1] if lead["whose"] and len(lead["whose"]) == 1 else ""
        found = (f"{whose}=" if whose else "") + (wrapper + rest if wrapper else rest)
    return found


def _is_owner(whose: str) -> bool:
    """Whether `the value of ...` goes on with a variable, or with nouns as `the sides of the triangle`."""
    return len(whose) == 1 or is_unit(whose.removeprefix("the ").removeprefix("a ").removeprefix("an "))


# -- numbers

_TO_NINE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_CARDINALS = (*_TO_NINE, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {word: value for value, word in enumerate(_CARDINALS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_POWERS |= {"quadrillion": 10**15, "quintillion": 10**18}
_MULTIPLIERS = {**_POWERS, "dozen": 12, "score": 20, "gross": 144}
_PLURAL_FRACTIONS = {"halves": 2, "quarters": 4} | {
    f"{name}s": value
    for value, name in enumerate(("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"), 3)
}
_PLURAL_FRACTIONS |= {"hundredths": 100, "thousandths": 1000}
_FRACTIONS = _PLURAL_FRACTIONS | {name.removesuffix("s"): value for name, value in _PLURAL_FRACTIONS.items()}
_FRACTIONS["half"] = _FRACTIONS.pop("halve")
_RAISED = {"squared": 2, "cubed": 3}
_OPERATORS = {"plus": ("+", 1), "minus": ("+", -1), "times": ("*", 1), "multiplied by": ("*", 1), "over": ("/", 1)}
_OPERATORS |= {"divided by": ("/", 1)}


class Reckoned(NamedTuple):
    """What words behind a number do to it: the operation, its second operand, and the words that remain."""

    op: str
    operand: Fraction
    rest: str = ""


def reckoned(phrase: str) -> Reckoned | None:
    """Plain arithmetic in words behind a number: `dozen eggs`, `squared`, `minus one`; None for any other words."""
    words = phrase.casefold().strip(" .").split()
    if not words:
        return None
    first, rest = words[0], " ".join(words[1:])
    if first in _MULTIPLIERS:
        return Reckoned("*", Fraction(_MULTIPLIERS[first]), rest)
    if not rest and first in _RAISED:
        return Reckoned("^", Fraction(_RAISED[first]))
    if not rest and first in _PLURAL_FRACTIONS:
        return Reckoned("/", Fraction(_PLURAL_FRACTIONS[first]))
    for name, (op, sign) in _OPERATORS.items():
        operand = " ".join(words).removeprefix(f"{name} ")
        if operand != " ".join(words) and (value := number_in_words(operand)) is not None:
            return Reckoned(op, sign * value)
    return None


def number_in_words(phrase: str) -> Fraction | None:
    """The number that words say: `twenty-one`, `two hundred five`, `minus four`, `two thirds`; None if none."""
    words = phrase.casefold().replace("-", " ").split()
    if len(words) > 1 and words[0] in ("minus", "negative"):
        value = number_in_words(" ".join(words[1:]))
        return None if value is None else -value
    denominator = _FRACTIONS.get(words[-1]) if len(words) > 1 else None
    cardinal = _cardinal(words[:-1] if denominator else words)
    return None if cardinal is None else Fraction(cardinal, denominator or 1)


def _cardinal(words: list[str]) -> int | None:
    total = group = 0
    room = 10**21  # what follows must be smaller than the place of the word before it
    for word in words:
        if word in _SMALL and _SMALL[word] < room and (_SMALL[word] or len(words) == 1):
            group += _SMALL[word]
            room = 10 if _SMALL[word] >= 20 else 1
        elif word == "hundred" and 0 < group < 10:
            group, room = group * 100, 100
        elif word in _POWERS and word != "hundred" and group and (not total or total % (_POWERS[word] * 1000) == 0):
            total, group, room = total + group * _POWERS[word], 0, 1000
        else:
            return None
    return total + group if words else None
