"""Texts in LaTeX. Every text is untrusted: it can neither run a command nor break what it stands in.

That holds for every engine and font encoding.
"""

from __future__ import annotations

import re
import unicodedata

from evals.text import visible

# TeX cannot set a line wider than 5.7 m, and nobody wants to read one.
LONGEST_TEXT = 80
LONGEST_PIECE = 20  # of a word without a place to break it

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"{''}",
    "`": r"{`}",
    "'": r"{'}",
    # After \\ or a rule these would start an optional argument or the starred form.
    "[": r"{[}",
    "]": r"{]}",
    "*": r"{*}",
}
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER ([A-Z]+)")
# Greek letters that TeX has a macro for: no omicron, and no capitals that look like Latin ones.
_SMALL = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi"
_CAPITALS = "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
_GREEK_MACROS = {*_SMALL.split(" "), "omega", *_CAPITALS.split(" ")}
_MATHS = {
    "±": r"\pm",
    "×": r"\times",
    "÷": r"\div",
    "·": r"\cdot",
    "≤": r"\leq",
    "≥": r"\geq",
    "≠": r"\neq",
    "≈": r"\approx",
    "−": "-",
    "∞": r"\infty",
    "→": r"\to",
    "°": r"{}^\circ",
    "µ": r"\mu",
    "†": r"{}^\dagger",
}
# Further characters that LaTeX's UTF-8 has in every font encoding: letters with one of these accents, and these.
_ACCENTS = "\u0300\u0301\u0302\u0303\u0304\u0306\u0307\u0308\u030a\u030b\u030c\u0327"
_TEXT = "ßæÆøØłŁœŒ–—‘’“”…"
_DELTA = re.compile(r"(?:\bdelta|δ) ?= ?([0-9][0-9.]*(?:e[-+]?[0-9]+)?)\b")


def latex_text(text: str) -> str:
    """``text`` on one line, in UTF-8 that any engine prints with the default fonts; `delta=0.01` becomes mathematics.

    What has no such form is spelled `[U+4E2D]`. A long text loses its middle.
    """
    parts = _DELTA.split(_cut(text).replace(">=", "≥").replace("<=", "≤"))  # text, number, text, number, ..., text
    shown = (rf"$\delta={part}$" if i % 2 else "".join(map(_character, part)) for i, part in enumerate(parts))
    return re.sub("-(?=-)", "-{}", "".join(shown))  # two hyphens are two hyphens, not a dash


def latex_heading(text: str) -> str:
    """`latex_text` that may be broken inside a long word."""
    words = _cut(text).split()
    pieces = ([word[i : i + LONGEST_PIECE] for i in range(0, len(word), LONGEST_PIECE)] for word in words)
    return " ".join("\\allowbreak{}".join(map(latex_text, some)) for some in pieces)


def latex_lines(text: str) -> str:
    """``text`` line by line as it was written, each a paragraph; escaped as `latex_text` does, and never cut.

    Indentation is kept, and a line may be broken inside a long word.
    """
    lines = []
    for line in unicodedata.normalize("NFC", visible(text, keep="\n")).split("\n"):
        bare = line.lstrip(" ")
        indent = f"\\hspace*{{{(len(line) - len(bare)) / 2:g}em}}" if bare != line and bare else ""
        words = (_breakable(word) for word in bare.split(" "))
        lines.append(f"\\noindent{indent}{{}}{' '.join(words)}\\par" if bare.strip() else "\\smallskip")
    return "\n".join(lines)


def _cut(text: str) -> str:
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 23]}...{text[-20:]}"


def _breakable(word: str) -> str:
    pieces = (word[i : i + LONGEST_PIECE] for i in range(0, len(word), LONGEST_PIECE))
    escaped = ("".join(map(_character, piece)) for piece in pieces)
    return "\\allowbreak{}".join(re.sub("-(?=-)", "-{}", piece) for piece in escaped)


def _character(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if " " <= character <= "~":
        return character
    if character in _MATHS:
        return f"${_MATHS[character]}$"
    if character in _TEXT or _is_accented(character):
        return character
    greek = _GREEK.fullmatch(unicodedata.name(character, ""))
    if greek is not None:
        name = greek[2].replace("LAMDA", "LAMBDA").lower()
        name = name if greek[1] == "SMALL" else name.capitalize()
        if name in _GREEK_MACROS:
            return f"$\\{name}$"
    return f"{{[}}U+{ord(character):04X}{{]}}"


def _is_accented(character: str) -> bool:
    """Whether it is a letter of Latin-1 or Latin Extended-A that is made of an ASCII letter and an accent."""
    letter, *accents = list(unicodedata.normalize("NFD", character))
    return character < "\u0180" and letter.isascii() and len(accents) == 1 and accents[0] in _ACCENTS
