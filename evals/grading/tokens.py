r"""From the text of an answer to its tokens: numbers, words, signs and commands, each in one spelling.

Every character is looked at once. What only sets a formula (`\left`, `\displaystyle`, a colour) vanishes; what hides a
part of it makes the whole no formula.
"""

import re
import unicodedata
from typing import NamedTuple

from evals.text import table_beside, words_of

MAX_CHARS = 4000
MAX_DEPTH = 40


class NotAFormula(Exception):
    """The text is none that the parser knows; its message is the reason."""


class Token(NamedTuple):
    """A piece of an answer. ``gap`` is what stands before it: nothing, `thin` or `wide` white space.

    ``kind``: number, word (letters), text (words that are set as text), prose (a sign set as text), command, sign, row,
    rows (begin or end of lines of formulas) or end.
    """

    kind: str
    text: str
    gap: str = ""

    @property
    def is_mark(self) -> bool:
        """Whether it is a sign or a command, and not something written."""
        return self.kind in ("sign", "command", "row")


END = Token("end", "")

_SPELLINGS = table_beside(__file__, "spellings.toml")
_MACROS = {name: sign for sign, names in _SPELLINGS["commands"].items() for name in names.split()}
_ONLY_SET = words_of(
    "left right middle big Big bigl bigr bigm Bigl Bigr bigg Bigg biggl biggr Biggl Biggr displaystyle"
    " textstyle quad qquad limits rm bf it mathop mathstrut strut hfill noindent large Large small"
    " normalsize therefore because boldmath nonumber"
)
_COLOURS = frozenset(["color", "textcolor", "mathcolor"])
_WITH_ARGUMENT = frozenset(["hspace", "vspace", "label"]) | _COLOURS
_FORMULA_FONTS = words_of(
    "mathbf boldsymbol bm pmb mathit underline ensuremath boxed fbox mathsf mathtt mathbin mathrel"
    " mathord mathopen mathclose"
)
_UNIT_VECTORS = words_of("mathbf boldsymbol bm hat vec vb widehat overrightarrow")
_IJK = re.compile(
    r"\s*(?:\{\s*)?(?:\\(?:mathbf|boldsymbol|bm|hat|vec)\s*(?:\{\s*)?)?"
    r"(?:\\(?P<dotless>[ij])math(?![a-z])|(?P<plain>[ijk])(?![A-Za-z]))(?:\s*\})*"
)
_TEXT_FONTS = words_of("text textbf textit textrm textnormal mbox mathrm textsf texttt hbox operatorname emph textup")
_ROWS_OF_FORMULAS = re.compile(r"\s*\{(?:aligned|align|gathered|split|equation|gather|eqnarray|displaymath)\*?\}")
_SIGNS = _SPELLINGS["signs"].split()  # a character, then the command that it is
_CHARACTERS = {sign: f"\\{name} " for sign, name in zip(_SIGNS[::2], _SIGNS[1::2], strict=True)}
_CHARACTERS |= {sign: f"\\{unicodedata.name(sign).split()[-1].lower()} " for sign in "αβγδεζηθικλμνξοπρστυφχψω"}
_CHARACTERS |= {sign: f"\\{unicodedata.name(sign).split()[-1].capitalize()} " for sign in "ΓΔΘΛΞΠΣΦΨΩ"}
_CHARACTERS |= {sign: f"\\mathbb{{{letter}}}" for sign, letter in zip("ℝℤℚℕℂ", "RZQNC", strict=True)}
_CHARACTERS |= dict.fromkeys("°º", "^\\circ ") | {"″": "''", "\xa0": " "}
_CHARACTERS |= {sign: plain for plain, signs in _SPELLINGS["characters"].items() for sign in signs}
_REPLACED = str.maketrans(_CHARACTERS)
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_VULGAR = re.compile("[¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_DOUBLED = re.compile(r"\\\\(?=[A-Za-z])")


def clean(text: str) -> str:
    """``text`` in one spelling of each character: LaTeX for signs, and ASCII digits."""
    text = unicodedata.normalize("NFC", text)
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(r"\\", text)  # a string that was escaped twice
    if text.isascii():
        return text
    text = _RAISED.sub(lambda run: f"^{{{_plain(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_plain(run[0])}}}", text)
    text = _VULGAR.sub(lambda sign: "\\frac{{{}}}{{{}}}".format(*_plain(sign[0]).split("⁄")), text)
    return unicodedata.normalize("NFKC", text.translate(_REPLACED))


def _plain(signs: str) -> str:
    return unicodedata.normalize("NFKC", signs).replace("−", "-")


_WIDTH = {"\\!": "thin", "\\,": "thin", "\\;": "thin", "\\:": "thin", "\\>": "thin", "~": "wide", "\\ ": "wide"}
_PIECE = re.compile(
    r"(?P<gap>\s+|\\[,;:!> ]|~)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3}(?![\w.]))?)"
    r"|\\(?P<command>(?:operatorname|hspace|tag)\*|[A-Za-z]+)"
    r"|(?P<word>[^\W\d_]+)"
    r"|(?P<row>\\\\(?:\[[^\]]{0,9}\])?)|(?P<delimiter>\\[()\[\]]|\$\$?)|\\(?P<escaped>.)|(?P<sign><=|>=|!=|\*\*|.)",
    re.DOTALL,
)
# Words as they stand in a text: a hyphen inside, and the marks of units.
_SAID = re.compile(
    r"(?P<gap>\s+|\\[,;:!> ]|~)|(?P<number>[0-9]+(?:\.[0-9]+)?)"
    r"|(?P<text>(?:[ap]\.m\.?)(?![^\W\d_])|[^\W\d_]+(?:[-'’][^\W\d_]+)*(?:\(s\))?)"
    r"|\$(?P<formula>[^$]*)\$|\\(?P<command>[A-Za-z]+)|\\(?P<escaped>%)|(?P<prose>\\[$&#_{}]|.)",
    re.DOTALL | re.IGNORECASE,
)


# A plain number that begins a text: `\text{-3 apples}`.
_VALUE = re.compile(r"\s*-?(?:\d+(?:,\d{3})*(?:\.\d+)?|\.\d+)(?:/\d+)?(?=\s|$|\})", re.ASCII)


class Tokens:
    """The tokens of a cleaned text, in the order of the text."""

    def __init__(self, text: str) -> None:
        if "~~" in text:
            raise NotAFormula("a part is struck out")
        if len(text) > MAX_CHARS:
            raise NotAFormula(f"longer than {MAX_CHARS:,} characters")
        self.found: list[Token] = []
        self._gap = ""
        self._depth = 0
        self._closing = self._braces(text)
        self._read(text, 0, len(text), is_money=text.count("$") - text.count("\\$") == 1)

    def _add(self, kind: str, text: str) -> None:
        self.found.append(Token(kind, text, self._gap))
        self._gap = ""

    def _space(self, width: str) -> None:
        if width != "plain":
            self._gap = "wide" if "wide" in (self._gap, width) else width
        elif not self._gap:
            self._gap = "wide"

    def _read(self, text: str, start: int, end: int, *, is_said: bool = False, is_money: bool = False) -> None:
        """Adds the tokens of a part of ``text``. ``is_said``: words are no letters to multiply, signs no arithmetic."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotAFormula(f"nested more than {MAX_DEPTH} times")
        at = start
        while at < end:
            piece = (_SAID if is_said else _PIECE).match(text, at, end)
            assert piece is not None
            kind, value, at = piece.lastgroup or "", piece[piece.lastgroup or 0], piece.end()
            if kind == "gap":
                self._space(_WIDTH.get(value, "plain"))
            elif kind == "command":
                at = self._command(value, text, at, end)
            elif kind == "formula":
                self._read(text, piece.start("formula"), piece.end("formula"))
            elif kind == "delimiter":
                if is_money and value == "$" and text[at : at + 1].isdigit() and not self.found:
                    self._add("sign", "\\$")
                else:
                    self._space("wide")
            elif kind == "escaped":
                self._add("sign", "%" if value == "%" else f"\\{value}")
            elif kind == "sign":
                self._sign("^" if value == "**" else value)
            else:
                self._add(kind, value)
        self._depth -= 1

    def _sign(self, sign: str) -> None:
        opening, inner = self.found[-2:] if len(self.found) > 1 else (END, END)
        is_alone = (opening.kind, opening.text, inner.kind, sign) == ("sign", "{", "sign", "}")
        if is_alone and inner.text in (*"-+,:=<>;*/", "<=", ">="):  # {,} and {:}
            self._gap = opening.gap
            del self.found[-2:]
            sign = "{,}" if inner.text == "," else inner.text
        self._add("sign", sign)

    def _command(self, name: str, text: str, at: int, end: int) -> int:
        """Adds what a command stands for; the position behind it."""
        name = name.removesuffix("*")
        if (
            name in _UNIT_VECTORS
            and (vector := _IJK.match(text, at, end))
            and vector[0].count("{") == vector[0].count("}")
        ):
            self._add("command", f"unit {vector['dotless'] or vector['plain']}")
            return vector.end()
        if name in _TEXT_FONTS or name in _FORMULA_FONTS:
            opening = _opening(text, at, end)
            if opening is None:
                self._space("wide")
                return at
            close = self._end_of(opening)
            if name in _FORMULA_FONTS:
                is_sum = any(sign in text[opening:close] for sign in "+-")
                if is_sum:
                    self._add("sign", "(")
                self._read(text, opening, close)
                if is_sum:
                    self._add("sign", ")")
            else:
                self._said(text, opening, close)
            return close + 1
        if name in _COLOURS or name in _WITH_ARGUMENT or name.endswith("phantom"):
            return self._unseen(name, text, at, end)
        if name in _ONLY_SET:
            if name not in ("big", "Big", "left", "right", "middle"):
                self._space("wide")
            return at + (name in ("left", "right") and text[at : at + 1] == ".")
        if name in ("begin", "end") and (rows := _ROWS_OF_FORMULAS.match(text, at, end)):
            self._add("rows", name)
            return rows.end()
        sign = _MACROS.get(name, name)
        self._add("command" if sign.isalpha() else "sign", sign)
        return at

    def _unseen(self, name: str, text: str, at: int, end: int) -> int:
        """Passes over a colour, a space or a label; what is written in white, or as a phantom, is no answer."""
        option = _OPTION.match(text, at, end)
        opening = _opening(text, option.end() if option else at, end)
        close = self._end_of(opening) if opening is not None else at - 1
        argument = text[opening:close].strip() if opening is not None else ""
        if opening is None and name.endswith("phantom") and (sign := _SIGN_BEHIND.match(text, at, end)):
            close = sign.end() - 1
        if name.endswith("phantom"):
            if argument not in ("-", "+", "") and (self.found or argument.strip("0")):
                raise NotAFormula("a part is hidden")
        elif name in _COLOURS and _WHITE.match(argument):
            raise NotAFormula("a part is written in white")
        if name not in _COLOURS:
            self._space("wide")
            return close + 1
        following = _opening(text, close + 1, end)
        if following is not None:
            last, num_before = self._end_of(following), len(self.found)
            self._read(text, following, last)
            pair = self.found[num_before - 1 : num_before + 1] if num_before else []
            if len(pair) == 2 and all(token.text.isdigit() for token in pair) and not pair[1].gap:
                # 6\color{red}{5} is 65
                self.found[num_before - 1 : num_before + 1] = [pair[0]._replace(text=pair[0].text + pair[1].text)]
            return last + 1
        return close + 1

    def _said(self, text: str, start: int, end: int) -> None:
        """What stands in `\\text{...}`; where the answer begins with it, a plain number before the words is one."""
        self._space("thin")
        if not self.found and (plain := _VALUE.match(text, start, end)):
            self._read(text, start, plain.end())
            start = plain.end()
        self._read(text, start, end, is_said=True)
        self._space("thin")

    def _braces(self, text: str) -> dict[int, int]:
        """The position of the closing brace for the position behind each opening one."""
        open_braces: list[int] = []
        found: dict[int, int] = {}
        for at, sign in enumerate(text):
            if sign in "{}" and text[at - 1 : at] != "\\":
                if sign == "{":
                    open_braces.append(at + 1)
                elif open_braces:
                    found[open_braces.pop()] = at
        return found

    def _end_of(self, opening: int) -> int:
        if opening not in self._closing:
            raise NotAFormula("a brace is not closed")
        return self._closing[opening]


_SIGN_BEHIND = re.compile(r"\s*[-+]")
_OPTION = re.compile(r"\[[^\]]{0,20}\]")
_WHITE = re.compile(r"(?:white|transparent|#?fff(?:fff)?\b|1(?:\.0*)?(?:,1(?:\.0*)?){0,2}$|255,255,255)", re.IGNORECASE)


def _opening(text: str, at: int, end: int) -> int | None:
    """The position behind the opening brace that comes next, None where something else does."""
    while at < end and text[at].isspace():
        at += 1
    return at + 1 if at < end and text[at] == "{" else None
