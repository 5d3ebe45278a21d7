r"""Rewrites a normal form so that latex2sympy cannot misread it: every identifier becomes a plain symbol of ours.

latex2sympy takes ``y''`` for ``y``, ``A^{T}`` for ``A``, ``N`` for ``n``, ``E_0^2`` for a syntax error and ``I`` for
the imaginary unit, and it computes decimals in floating point. Here a letter with its accents, primes and subscripts is
one identifier, equal only to itself; decimals become exact fractions.
"""

from __future__ import annotations

import re
from fractions import Fraction

_WORD = re.compile(r"\w+")
_FUNCTIONS = _WORD.findall(
    "arcsinh arccosh arctanh arcsin arccos arctan sinh cosh tanh sin cos tan cot sec csc ln log exp sqrt"
)
_ONE_ARGUMENT = frozenset(_FUNCTIONS) - {"sqrt"}
# Commands that latex2sympy understands, or refuses, and that name no identifier.
_COMMANDS = frozenset(
    _FUNCTIONS
    + _WORD.findall("frac binom operatorname pi infty emptyset cdot circ pm mp min max")
    + _WORD.findall("cup cap setminus in notin subset le ge ne lt gt approx sim mid to")
    + _WORD.findall("begin end lfloor rfloor lceil rceil")
)
_ACCENTS = frozenset(
    _WORD.findall("vec hat bar tilde dot ddot overline underline overrightarrow widehat mathbb mathcal mathbf")
)
_SETS = frozenset(["\\mathbb{R}", "\\mathbb{Z}", "\\mathbb{N}", "\\mathbb{Q}", "\\mathbb{C}"])

# Without those that latex2sympy reads as something else: d, e, E, i, I, and T as in a transpose.
_LETTERS = "xyzabcklmnpqrstuwABCFGHJKLMPQRUVWXYZ"
_CONSTANTS = {"e": "e", "i": "I", "π": "\\pi "}
_ARGUMENT = re.compile(r"\s*(?:\{|-?(?:\d+(?:\.\d+)?|\\[A-Za-z]+|[^\W_]))")

_TOKEN = re.compile(
    r"(?P<number>\d+(?:\.\d*)?|\.\d+)(?P<exponent>[eE][-+]?\d{1,3}(?![\d.]))?"
    r"|(?P<environment>\\(?:begin|end)\{[a-z]+\})"
    r"|(?P<accent>\\[a-z]+\s*(?:\{[A-Za-z]+\}|[A-Za-z](?![A-Za-z])))"
    r"|(?P<command>\\[A-Za-z]+)"
    r"|(?P<function>" + "|".join(_FUNCTIONS) + r")(?![a-z])"
    r"|(?P<greek>pi)(?![A-Za-z])"
    r"|(?P<letter>[^\W\d_])"
    r"|(?P<other>\\.|.)",
    re.DOTALL,
)
_SUFFIX = re.compile(
    r"\s*(?:'+|_\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\\[A-Za-z]+|\w)|\^\{?(?:\\top|\\prime|\\dagger|')\}?)"
)
_DIFFERENTIALS = re.compile(r"\\frac\{d[^{}]*\}\{d[^{}]*\}")
TRIGONOMETRY = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)")
_DEGREES = re.compile(r"(?<!\d)(\d+(?:\.\d+)?)\s*\^\s*\{?\\circ\}?")
_BRACED_DIGITS = re.compile(r"(\d+)\}")
_MIXED = re.compile(r"\\frac\{(\d+)\}\{(\d+)\}")
_PLAIN_EXPONENT = re.compile(r"\^\s*\(([^()]*)\)")
_PLAIN_SQRT = re.compile(r"\\?sqrt\s*\(([^()]*)\)")
# mgh is a product, ABCD an order of four things.
_WORDS = re.compile(r"[A-Z]{3,}|[^\W\d_]{5,}")


class Names:
    """Symbols of the identifiers of one pair of answers: the same identifier, the same symbol."""

    def __init__(self) -> None:
        self._symbols: dict[str, str] = {}

    def symbol(self, identifier: str) -> str:
        number = len(self._symbols)
        # Plain letters parse several times faster than letters with subscripts.
        fresh = _LETTERS[number] if number < len(_LETTERS) else f"v_{{{number}}}"
        return self._symbols.setdefault(identifier, fresh)


def is_words(text: str) -> bool:
    """Whether ``text`` is prose rather than a product of letters, which could be reordered."""
    return _WORDS.fullmatch(text) is not None


def rewrite(text: str, names: Names) -> str:
    """``text`` in the spelling described above."""
    text = _PLAIN_EXPONENT.sub(r"^{\1}", text)
    text = _PLAIN_SQRT.sub(r"\\sqrt{\1}", text)
    if TRIGONOMETRY.search(text):
        text = _DEGREES.sub(r"(\\frac{\1\\pi}{180})", text)
    return _Rewriter(_DEGREES.sub(r"\1", text), names).whole()


class _Rewriter:
    """One pass over the tokens of a text."""

    def __init__(self, text: str, names: Names) -> None:
        self.text = text
        self.names = names
        self.position = 0
        self.joins_differentials = _DIFFERENTIALS.search(text) is not None
        # x(y+1) is a product, and latex2sympy takes x(y) for a function; behind sin it must stay an argument.
        self.is_behind_factor = False
        self.is_behind_function = False
        # 6(1) is a product too, and latex2sympy takes it for a mixed number; the 2 of \log_2(8) is no factor.
        self.is_behind_number = False
        self.is_behind_underscore = False

    def whole(self) -> str:
        out = []
        while self.position < len(self.text):
            token = _TOKEN.match(self.text, self.position)
            assert token is not None  # the last alternative takes anything
            self.position = token.end()
            out.append(self.token(token.lastgroup or "", token.group()))
        return "".join(out)

    def token(self, kind: str, word: str) -> str:
        is_behind_function, self.is_behind_function = self.is_behind_function, False
        is_behind_number, self.is_behind_number = self.is_behind_number, word == ")"
        is_behind_underscore, self.is_behind_underscore = self.is_behind_underscore, word == "_"
        if kind == "letter":
            return self.letter(word)
        if kind == "accent":
            return self.accent(word)
        if kind == "command":
            return self.command(word)
        if word == "^":
            self.is_behind_function = is_behind_function
            return self.exponent()
        if word == "{" and is_behind_function and (end := _closing(self.text, self.position - 1)):
            return self.argument(end)
        if word == "{" and is_behind_number and (digits := _BRACED_DIGITS.match(self.text, self.position)):
            self.position = digits.end()
            return digits[1]  # 6{1} shows as 61
        is_applied = word in ("(", "[") and (is_behind_number or (self.is_behind_factor and word == "("))
        is_applied = is_applied and not self.has_comma()
        self.is_behind_factor = False
        if kind in ("number", "exponent"):
            self.is_behind_number = not is_behind_underscore
            return self.number(word)
        if kind == "function":
            self.is_behind_function = word in _ONE_ARGUMENT
            return f"\\{word} "
        if kind == "greek":
            return "\\pi "
        return f"\\cdot {word}" if is_applied else word

    def number(self, word: str) -> str:
        fraction = _MIXED.match(self.text, self.position)
        if fraction is None or not word.isdigit():
            return _exact(word)
        self.position = fraction.end()
        return f"(\\frac{{{int(word) * int(fraction[2]) + int(fraction[1])}}}{{{int(fraction[2])}}})"

    def letter(self, word: str) -> str:
        start = self.position - 1
        if word == "d" and self.joins_differentials and re.match("[A-Za-z]", self.rest()):
            self.position += 1
        self.skip_suffixes()
        if word in "fg" and self.rest().startswith("(") and (end := _closing(self.text, self.position)):
            self.position = end  # f(2x) as a whole: it is not 2 f(x)
        return self.symbol(start)

    def accent(self, word: str) -> str:
        command = re.match(r"\\[a-z]+", word)
        assert command is not None
        start = self.position - len(word)
        if command.group()[1:] not in _ACCENTS:
            self.position = start + command.end()  # \pi before a letter: only the command is taken
            return self.command(command.group())
        if word in _SETS:
            self.is_behind_factor = False
            return word
        self.skip_suffixes()
        return self.symbol(start)

    def command(self, word: str) -> str:
        if word[1:] in _COMMANDS:
            self.is_behind_factor = False
            self.is_behind_function = word[1:] in _ONE_ARGUMENT
            return f"{word} " if self.rest()[:1].isalnum() else word
        start = self.position - len(word)
        self.skip_suffixes()
        return self.symbol(start)

    def exponent(self) -> str:
        """The exponent keeps what was known of its base."""
        is_behind_factor = self.is_behind_factor
        argument = _ARGUMENT.match(self.text, self.position)
        if argument is None or self.rest().lstrip().startswith("\\frac"):
            self.is_behind_factor = False
            return "^"
        end = _closing(self.text, self.position) if argument.group() == "{" else argument.end()
        inner = self.text[self.position : end].strip()
        self.position = end or len(self.text)
        piece = rewrite(inner[1:-1] if inner.startswith("{") else inner, self.names)
        self.is_behind_factor = is_behind_factor
        return f"^{piece}" if len(piece) == 1 else f"^{{{piece}}}"  # bare exponents parse twice as fast

    def argument(self, end: int) -> str:
        """A function's argument in parentheses: latex2sympy would take what follows the braces for a part of it."""
        piece = rewrite(self.text[self.position : end - 1], self.names).strip()
        self.position = end
        self.is_behind_factor = False
        is_parenthesised = piece.startswith("(") and _closing(piece, 0) == len(piece)
        return piece if is_parenthesised else f"({piece})"

    def symbol(self, start: int) -> str:
        identifier = "".join(self.text[start : self.position].split())
        self.is_behind_factor = True
        return _CONSTANTS.get(identifier) or self.names.symbol(identifier)

    def skip_suffixes(self) -> None:
        while suffix := _SUFFIX.match(self.text, self.position):
            self.position = suffix.end()

    def rest(self) -> str:
        return self.text[self.position :]

    def has_comma(self) -> bool:
        end = _closing(self.text, self.position - 1)
        return end is not None and "," in self.text[self.position : end]


def _closing(text: str, start: int) -> int | None:
    """The position after the bracket that closes the one at ``start``."""
    opening = text[start]
    closing = {"(": ")", "[": "]", "{": "}"}[opening]
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == closing)
        if depth == 0:
            return position + 1
    return None


def _exact(number: str) -> str:
    if number.isdigit():
        return number.lstrip("0") or "0"
    value = Fraction(number)
    if value.denominator == 1:
        return str(value.numerator)
    return f"(\\frac{{{value.numerator}}}{{{value.denominator}}})"


def variables(text: str) -> frozenset[str]:
    """The letters of ``text`` that are no constants and no functions, and its commands that no expression has."""
    found = set()
    for token in _TOKEN.finditer(text):
        word = token[0].rstrip()
        if token.lastgroup == "letter" and word not in _CONSTANTS:
            found.add(word)
        elif token.lastgroup in ("command", "accent") and word not in _SETS:
            command, letters = re.match(r"\\[A-Za-z]+", word), re.sub(r"\\[A-Za-z]+", "", word)
            assert command is not None  # as the token begins
            found.update(letter for letter in letters if letter.isalpha() and letter not in _CONSTANTS)
            known = _COMMANDS - {"infty"} if not letters else _COMMANDS | _ACCENTS
            if command[0][1:] not in known:
                found.add(command[0])
    return frozenset(found)
