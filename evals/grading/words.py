r"""What words say around and in an answer: the sentence that announces it, numbers in words, and units.

What may announce an answer is a small grammar of closed classes: a word of consequence, a subject that names the
quantity asked for, and a copula. Any other word stays where it is, so that `The answer is about 5` says what it says.
A word is a unit only if a list holds it: the symbols and names of `units.toml`, or the English nouns of `nouns.txt`.
An answer without its unit is right (the question names it), one with another unit is not, and words that no list
holds (`5\text{ or six}`, `5 grand`) stay a part of the answer.
"""

import re
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from evals.text import table_beside, words_of

FONT = r"\\(?:text|textbf|textit|textrm|textnormal|mbox|mathrm|mathbf)\s*\{"
_TOKEN = re.compile(rf"(?P<opening>{FONT})|(?P<closing>\}})|(?P<said>[A-Za-z]+(?:'s)?|[,:]|\.(?=[\s}}]))|\s+")
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
    rf"(?P<wrapper>{FONT}\s*)?(?:(?:所以|因此|故)[，,]?\s*)?(?:(?:最终|最後|最后)?(?:的)?答案?(?:是|为|為|:)|答えは|答え\s*:|정답은|답은|정답\s*:"
    r"|antwort\s*:|die antwort ist|respuesta\s*:|la respuesta es|réponse\s*:|la réponse est|ответ\s*:|risposta\s*:"
    r"|la risposta è|resposta\s*:|a resposta é):?\s*(?:(?P<closing>\})\s*)?",
    re.IGNORECASE,
)
# A sign of consequence, or of equality with what was asked for.
_SIGN = re.compile(r"\s*(?:=|\\(?:therefore|implies|Rightarrow|Longrightarrow)(?![A-Za-z]))\s*(?=[^\s=])")
_TRAIL = re.compile(
    rf"(?:({FONT})\s*|\s)(?:(?:is|are) (?:{_SUBJECT}|correct)|in (?:total|all)|altogether)\s*(\}})?$", re.IGNORECASE
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
        if (lead := _LEAD.fullmatch(" ".join(said).casefold())) is None:
            continue
        # `The value of` goes on with a variable, or with nouns as in `the sides of the triangle`.
        whose = lead["whose"] or ""
        if len(whose) == 1:
            found = f"{' '.join(said)[lead.start('whose')]}={wrapper}{rest}"
        elif not whose or unit_name(re.sub("^(?:the|an?) ", "", whose)) is not None:
            found = wrapper + rest
    return found


# -- numbers

_TO_NINE = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_CARDINALS = (*_TO_NINE, "ten", "eleven", "twelve", *_TEENS)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SMALL = {word: value for value, word in enumerate(_CARDINALS)} | {word: 10 * n for n, word in enumerate(_TENS, 2)}
_POWERS = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_POWERS |= {"quadrillion": 10**15, "quintillion": 10**18}
_MULTIPLIERS = {**_POWERS, "dozen": 12, "score": 20, "gross": 144}
_ORDINALS = ("third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ONE_PART = {name: value for value, name in enumerate(_ORDINALS, 3)} | {"quarter": 4, "hundredth": 100}
_ONE_PART["thousandth"] = 1000
_PLURAL_FRACTIONS = {f"{name}s": value for name, value in _ONE_PART.items()} | {"halves": 2}
_FRACTIONS = {**_ONE_PART, **_PLURAL_FRACTIONS, "half": 2}
_RAISED = {"squared": 2, "cubed": 3}
_OPERATORS = {"plus": "+", "minus": "+", "times": "*", "multiplied by": "*", "over": "/", "divided by": "/"}
_OPERATION = re.compile(rf"({'|'.join(_OPERATORS)}) (.+)")


class Reckoned(NamedTuple):
    """What words behind a number do to it: the operation, its second operand, and the words that remain."""

    op: str
    operand: Fraction
    rest: str = ""


def reckoned(phrase: str) -> Reckoned | None:
    """Plain arithmetic in words behind a number: `dozen eggs`, `squared`, `minus one`; None for any other words."""
    said = " ".join(phrase.casefold().strip(" .").split())
    first, _, rest = said.partition(" ")
    if first in _MULTIPLIERS:
        return Reckoned("*", Fraction(_MULTIPLIERS[first]), rest)
    if not rest and first in _RAISED:
        return Reckoned("^", Fraction(_RAISED[first]))
    if not rest and first in _PLURAL_FRACTIONS:
        return Reckoned("/", Fraction(_PLURAL_FRACTIONS[first]))
    if (found := _OPERATION.fullmatch(said)) and (value := number_in_words(found[2])) is not None:
        return Reckoned(_OPERATORS[found[1]], -value if found[1] == "minus" else value)
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


# -- units

_LISTS = table_beside(__file__, "units.toml")
UNMISTAKABLE = words_of(_LISTS["unmistakable"])
_SYMBOLS = UNMISTAKABLE | words_of(_LISTS["symbols"]) | words_of(_LISTS["of_other_languages"])
_SYMBOLS |= {prefix + base for prefix in "kMGmcdnpµμ" for base in _LISTS["bases"].split()}
_ADJECTIVES = words_of(_LISTS["adjectives"])
_NAMES = {name: symbol for symbol, names in _LISTS["names"].items() for name in names.split()}
# Plurals of nouns that are something else behind a number.
_NEVER = frozenset(["times", "means", "pros", "cons"])
_QUALIFIERS = {"square": 2, "sq": 2, "cubic": 3, "cu": 3}
_ARTICLES = frozenset(["the", "a", "an"])
_NEUTRAL = frozenset(["unit", "units"])
_PER_HOUR = {"kph": "km/h", "mph": "mi/h", "MPH": "mi/h"}
_UNIT_TOKEN = re.compile(r"[ap]\.m\.?(?![^\W\d_])|[^\W\d_]+(?:[-'’][^\W\d_]+)*(?:\(s\))?|-?\d+|[^\w\s]", re.IGNORECASE)
_MAX_CHARS = 200


@lru_cache(maxsize=20_000)
def unit_name(phrase: str) -> str | None:
    """One name for the unit that words name: `square meters` and `m^2` are `m2`, `km/h` is `h-1 km`; None if none.

    Units are nouns, joined by `per`, a slash, `of`, or `square` and `cubed`.
    """
    phrase = phrase.strip().removesuffix(",")
    if len(phrase) > _MAX_CHARS:
        return None
    if phrase[:1] == "(" and phrase[-1:] == ")":
        phrase = phrase[1:-1]
    bare = phrase.strip(" .,()")
    tokens = [token for token in _UNIT_TOKEN.findall(_PER_HOUR.get(bare, phrase)) if token not in "{}^*.-"]
    if len(tokens) > 1 and tokens[0].casefold() == "of" and tokens[1].casefold() in _ARTICLES:
        tokens = tokens[2:]  # 3/4 of a cup
    powers: dict[str, int] = {}
    before, sign, power, last = "start", 1, 1, ""
    for token in tokens:
        lower = token.casefold().removesuffix("(s)")
        before = _next(before, token)
        if not before:
            return None
        if lower in ("/", "per"):
            sign = -1
        elif lower in _QUALIFIERS:
            power = _QUALIFIERS[lower]
        elif before == "power":
            if last:
                powers[last] += sign * ((_RAISED.get(lower) or int(lower)) - 1)
        elif lower not in _NEUTRAL | _ARTICLES and lower not in _ADJECTIVES and lower != "of":
            last = _symbol(token.removesuffix("(s)"))
            powers[last] = powers.get(last, 0) + sign * power
            power = 1
    if before not in ("noun", "measure", "inch", "power"):
        return None
    if bare.casefold() in ("degree", "degrees", "deg", "度"):
        return "deg"
    return " ".join(f"{name}{power if power != 1 else ''}" for name, power in sorted(powers.items()) if power)


def _next(before: str, token: str) -> str:
    """What ``token`` is behind a token of the kind ``before``; empty where it must not stand there."""
    word = token.casefold().removesuffix("(s)")
    if word in ("per", "/"):
        kind, allowed = "joint", "start noun measure inch power"
    elif word == "of":
        kind, allowed = "joint", "noun measure"
    elif word in _ARTICLES:
        kind, allowed = "joint", "joint"
    elif word == "in":  # inches; in another place it is a preposition
        kind, allowed = "inch", "start joint qualifier"
    elif word in _QUALIFIERS:
        kind, allowed = "qualifier", "start joint noun measure qualifier"
    elif word in _RAISED or re.fullmatch(r"-?\d", word):
        kind, allowed = "power", "measure inch"
    elif is_noun(token):
        kind, allowed = "measure" if _is_measure(token) else "noun", "start joint qualifier noun measure power inch"
    elif word in _ADJECTIVES:
        kind, allowed = "qualifier", "start joint noun measure qualifier"
    else:
        return ""
    return kind if before in allowed.split() else ""


def _is_measure(token: str) -> bool:
    """Whether a word may be raised to a power: `m^2`, `units squared`, but not `apples squared`."""
    return token in _SYMBOLS or any(form in _NAMES or form in _NEUTRAL for form in _singular(token.casefold()))


def is_noun(token: str) -> bool:
    """Whether one word, maybe with hyphens, is a known unit or an English noun."""
    word = token.casefold().removesuffix("(s)")
    if token in _SYMBOLS or word in _NAMES or word in UNMISTAKABLE:
        return True
    *first, last = token.split("-")
    if first:  # man-hours, x-intercepts; but not or-six
        return is_noun(last) and all(len(part) == 1 or is_noun(part) for part in first)
    return word not in _NEVER and any(
        form in _NAMES or (len(form) > 2 and form in _nouns()) for form in _singular(word)
    )


def _singular(word: str) -> list[str]:
    found = [word]
    if word.endswith("s") and not word.endswith("ss"):
        found.append(word[:-1])
    for plural, singular in (("ies", "y"), ("es", ""), ("ves", "f"), ("ves", "fe"), ("men", "man")):
        if word.endswith(plural) and len(word) > len(plural) + 1:
            found.append(word.removesuffix(plural) + singular)
    return found


@lru_cache(maxsize=1)
def _nouns() -> frozenset[str]:
    lines = Path(__file__).with_name("nouns.txt").read_text(encoding="utf-8").split("\n")
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def _symbol(word: str) -> str:
    """Symbols keep their case (mW is not MW); words lose it and their plural."""
    lower = word.casefold()
    if word in ("AM", "PM"):
        return lower
    if len(word) <= 3 and word not in _NAMES and lower not in _NAMES:
        return word
    *plural, singular = [lower, *_singular(lower)[1:]][::-1]
    return next((_NAMES.get(form, form) for form in [*plural, singular] if form in _NAMES or form in _nouns()), lower)
