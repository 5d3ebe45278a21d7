r"""The sentence around an answer: `The answer is 5`, `Hence 5`, `The value of x is 5`, `5 is the answer`, `5 in total`.

What may stand there without changing the answer is a small grammar of closed classes: a word of consequence, a subject
that names the quantity asked for, and a copula. Any other word stays where it is, so that `The wrong answer is 5` and
`The answer is about 5` say what they say.
"""

from __future__ import annotations

import re

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
