r"""What is never given to the computer algebra system: texts whose cost or meaning nothing bounds.

A refused answer is one that stays undecided, so it is incorrect. The bounds are far above honest answers.
"""

from __future__ import annotations

import re

MAX_CHARS = 600
MAX_DEPTH = 40
MAX_EXPONENT = 3000
MAX_EXPONENT_OF_SUM = 12
MAX_FACTORIAL = 200
MAX_MATRIX_CELLS = 36
MAX_FACTORS = 30

# Python, should it ever reach an evaluator, and commands that read files.
_CODE = re.compile(r"__|\*\*|lambda(?=\s*[\w:(,*]*:)|\bimport\b|\\(?:input|include|write|def|catcode|csname|special)\b")
_ENDLESS = re.compile(r"\\(?:i*int|oint|sum|prod|lim|limsup|liminf|bigcup|bigcap)(?![A-Za-z])")
_DERIVATIVE = re.compile(r"\\frac\{\\?(?:d|partial)\^\{?(\d+)\}?")
_FACTORIAL = re.compile(r"(?<!\d)(\d+)\s*(?:[)}]\s*)?!")
_FACTORIAL_OF_BRACKETS = re.compile(r"[)}]\s*!")
_NESTED_FACTORIAL = re.compile(r"![)}\]\s]*!")
_BINOMIAL = re.compile(r"\\(?:d|t)?binom|\\choose")
_NUMBER = re.compile(r"\d+")
_NUMBER_POWER = re.compile(r"\d[)}\s]*\^[({\s]*\d")
_LONG_NUMBER = re.compile(r"[\d.]{60}")
# latex2sympy would drop the base and compare the digits alone.
_OTHER_BASE = re.compile(r"\d\s*_")
# latex2sympy reads \cdots as a product with s, and computes \gcd of powers without evaluating them.
_MISREAD = re.compile(r"\\(?:[clv]?dots|gcd|lcm|mod|bmod|pmod|equiv|det)(?![A-Za-z])")
# latex2sympy would take --5 for 5; a sign in front of a sign is a slip of the pen, but for 2+-3.
_TWO_SIGNS = re.compile(r"-\s*[-+]|\+\s*\+|(?:^|[(\[{,=*/^])\s*\+\s*-")
_OPENING, _CLOSING = "([{", ")]}"


def refusal(text: str) -> str | None:
    """Why ``text`` (cleaned, see `typography.clean`) must not be sent, in a few words; None if it may be."""
    if len(text) > MAX_CHARS:
        return f"longer than {MAX_CHARS} characters"
    if not text.isprintable():
        return "control characters"
    if _CODE.search(text):
        return "looks like code"
    if _ENDLESS.search(text):
        return "sum, product, integral or limit"
    if _MISREAD.search(text):
        return "dots, gcd, lcm, mod or det"
    if _LONG_NUMBER.search(text):
        return "number of 60 digits"
    if _OTHER_BASE.search(text):
        return "number with a subscript"
    if _TWO_SIGNS.search(text):
        return "two signs in a row"
    if text.count("&") + text.count("\\\\") > MAX_MATRIX_CELLS:
        return "large matrix"
    if any(int(order) > 5 for order in _DERIVATIVE.findall(text)):
        return "derivative of high order"
    if _max_depth(text) > MAX_DEPTH:
        return f"nested deeper than {MAX_DEPTH}"
    if text.count("(") > MAX_FACTORS:
        return "product of many factors"
    return _power_refusal(text) or _factorial_refusal(text)


def _max_depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        if character in _OPENING:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSING:
            depth -= 1
    return deepest


def _factorial_refusal(text: str) -> str | None:
    if _NESTED_FACTORIAL.search(text):
        return "factorial of a factorial"
    if any(int(digits) > MAX_FACTORIAL for digits in _FACTORIAL.findall(text)):
        return "big factorial"
    # (10^9)! hides its size: only a plain sum of letters and small numbers may stand in the brackets.
    has_power_or_big = "^" in text or any(int(number) > MAX_FACTORIAL for number in _NUMBER.findall(text))
    if has_power_or_big and _FACTORIAL_OF_BRACKETS.search(text):
        return "big factorial"
    if text.count("!") > 6:
        return "many factorials"
    if _BINOMIAL.search(text) and any(int(number) > MAX_FACTORIAL for number in _NUMBER.findall(text)):
        return "big binomial"
    return None


def _power_refusal(text: str) -> str | None:
    """Towers (but e^{-x^2} and 2^{2^n} are none), and numbers in exponents or root indices that are too large."""
    for position, character in enumerate(text):
        if character == "^":
            exponent = _argument(text, position + 1)
            rest = text[position + 1 + len(exponent) :].lstrip()
            if exponent.count("^") > 1 or rest.startswith("^") or _NUMBER_POWER.search(exponent):
                return "tower of exponents"
            limit = MAX_EXPONENT_OF_SUM if text[:position].rstrip().endswith((")", "]", "}")) else MAX_EXPONENT
            if any(int(number) > limit for number in _NUMBER.findall(exponent)):
                return "large exponent"
    for index in re.findall(r"\\sqrt\s*\[([^\]]*)\]", text):
        if any(int(number) > MAX_FACTORIAL for number in _NUMBER.findall(index)) or "^" in index:
            return "large root index"
    return None


def _argument(text: str, start: int) -> str:
    """The argument that begins at ``start``: a braced or parenthesised group, or a number, letter or command."""
    while text[start : start + 1] == " ":
        start += 1
    if text[start : start + 1] not in ("{", "("):
        plain = re.compile(r"-?(?:\d+|\\[A-Za-z]+|.)?").match(text, start)
        return plain.group() if plain else ""
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] in _OPENING) - (text[position] in _CLOSING)
        if depth == 0:
            return text[start : position + 1]
    return text[start:]
