r"""How a formula is typeset, and what is left when that does not matter: ``clean`` text and ``canonical`` text.

``clean`` removes typography (spaces, ``\left``, dollar signs, fonts and colours, Unicode variants, old macros) and
``canonical`` gives the text of one expression. Neither looks for structure: see `normal_form`.
"""

from __future__ import annotations

import re
import unicodedata

_CHARACTERS: dict[int, str] = {
    **{ord(sign): "-" for sign in "−–—‐‑‒﹣"},
    **{ord(sign): " \\cdot " for sign in "×⋅·∙∗✕"},
    **{ord(sign): " " for sign in "\u00a0\u202f\u200b\u205f\u2060\u2061\u2062\u3000\ufeff"},
    **dict.fromkeys(range(0x2000, 0x200B), " "),
    **{fullwidth: chr(fullwidth - 0xFEE0) for fullwidth in range(0xFF01, 0xFF5F)},
    ord("⁰"): "{}^{0}",
    ord("÷"): "/",
    **{
        ord(letter): f"\\{unicodedata.name(letter).split()[-1].lower().replace('lamda', 'lambda')} "
        for letter in "αβγδεζηθικλμνξπρστυφχψω"
    },
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
    ord("’"): "'",
    ord("∨"): "\\lor ",
    ord("∧"): "\\land ",
    ord("…"): "\\ldots ",
    ord("ℝ"): "\\mathbb{R}",
    ord("⟨"): "\\langle ",
    ord("⟩"): "\\rangle ",
    **dict.fromkeys(map(ord, "⁄∕"), "/"),
    **{ord(sign): f" \\{name} " for sign, name in zip("€£¥¢", ("eur", "gbp", "jpy", "cent"), strict=True)},
}
# Letters and digits of mathematical alphabets, and vulgar fractions, by what Unicode says that they are made of.
_ALPHABETS = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0x1D400, 0x1D800)}
_VULGAR = re.compile("[¼½¾⅐-⅞]|(?<![⁰¹²³⁴-⁹])[⁰¹²³⁴-⁹]+[⁄∕/][₀-₉]+")
_RAISED = re.compile("[⁰¹²³⁴-⁹⁺⁻⁽⁾ⁿⁱ]{2,}|[¹²³⁴-⁹ⁿ]")
_LOWERED = re.compile("[₀-₉₊₋ₙ]+")
_ROOT = re.compile(r"([√∛∜])\s*(?:(\d+(?:\.\d+)?|[A-Za-z])|\(([^()]*)\))", re.ASCII)
_ROOT_INDICES = {"√": "", "∛": "[3]", "∜": "[4]"}

_MACROS = {
    **dict.fromkeys(["dfrac", "tfrac", "cfrac"], "\\frac"),
    **dict.fromkeys(["times", "cdot", "ast"], "*"),
    **dict.fromkeys(["left", "right", "displaystyle", "textstyle", "limits", "bf", "rm", "it"], ""),
    **dict.fromkeys(["big", "Big", "bigl", "bigr", "Bigl", "Bigr", "bigg", "Bigg", "biggl", "biggr"], ""),
    **dict.fromkeys(["tiny", "small", "normalsize", "large", "Large", "LARGE", "huge", "Huge"], ""),
    **dict.fromkeys(["quad", "qquad", "thinspace", "medspace", "thickspace", "negthinspace", "enspace", "enskip"], " "),
    # What prints nothing and takes no argument.
    **dict.fromkeys(["mathstrut", "strut", "null", "relax", "empty", "nobreak", "allowbreak", "break", "newline"], " "),
    **dict.fromkeys(
        ["noindent", "centering", "hfill", "hfil", "hss", "nonumber", "notag", "protect", "ignorespaces"], " "
    ),
    **dict.fromkeys(["scriptstyle", "scriptscriptstyle", "nolimits", "sf", "tt", "em", "sl", "sc", "boldmath"], ""),
    **dict.fromkeys(["footnotesize", "scriptsize", "middle", "mathopen", "mathclose", "unboldmath", "upshape"], ""),
    "dollar": "\\usd",
    "textdollar": "\\usd",
    "mathdollar": "\\usd",
    "pounds": "\\gbp",
    "euro": "\\eur",
    "texteuro": "\\eur",
    "yen": "\\jpy",
    **dict.fromkeys(["lvert", "rvert", "vert"], "|"),
    **dict.fromkeys(["lVert", "rVert", "Vert"], "\\|"),
    **dict.fromkeys(["vee", "lor"], "\\lor"),
    **dict.fromkeys(["wedge", "land"], "\\land"),
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
    **dict.fromkeys(["dots", "ldots", "cdots", "dotsc", "dotsb"], "\\ldots"),
    "div": "/",
    "degree": "^\\circ",
    "bigcup": "\\cup",
    "colon": ":",
    "lg": "\\log_{10}",
    "R": "\\mathbb{R}",
}

# A matrix ends its rows with two backslashes: matched first, so that the second one starts nothing.
_ESCAPE = re.compile(r"\\\\|\\([A-Za-z]+)|\\[!,;:> \n()\[\]]|~")
# A determinant (vmatrix) and a norm (Vmatrix) are numbers, not matrices.
_MATRIX_NAME = re.compile(r"\{(?:[bB]|small)matrix\}")
_ARRAY = re.compile(r"\[?\\begin\{array\}\{[clr| ]*\}(.*)\\end\{array\}\]?", re.DOTALL)
_CASES = re.compile(r"\\begin\{(cases|aligned|gathered)\}([^&]*)\\end\{\1\}")
_WORD_MACRO = r"\\(?:text|mathrm|mbox|textrm|textbf|textnormal)\s*\{"
_AND = re.compile(rf"{_WORD_MACRO}[\s,]*and[\s,]*\}}|(?<=[\s,$)])and(?=[\s$(\\])")
_OR = re.compile(rf"{_WORD_MACRO}[\s,]*or[\s,]*\}}|(?<=[\s,$)])or(?=[\s$(\\])|\\lor(?![A-Za-z])")
_TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|texttt|mathrm|mathbf|mathit|mathsf|mathcal|boldsymbol|bm|emph"
    r"|operatorname|mbox)\s*\{([^{}]*)\}"
)
# Space and a visible colour take an argument that is not part of the answer; a phantom sign only aligns.
_INVISIBLE = re.compile(
    r"\\(?:left|right|[bB]igg?[lr]?)\s*\.|^\s*\\h?phantom\s*\{[-+\d\s]*\}(?=[^}]*\d)|\\[hv]space\*?\s*\{[^{}]*\}|\\[hv]?phantom\s*(?:\{\s*(?:[-+=]\s*)?\}|[-+=])"
    r"|\\(?:color|textcolor|mathcolor)\s*\{\s*(?!white|transparent|none)[A-Za-z]+\s*\}"
)
_STRUCK_OUT = re.compile(r"~~([^~]+)~~")
_CONTINUED = re.compile(r"\.{3,}")
_NOT_RELATION = re.compile(r"\\not\s*(=|\\in(?![A-Za-z]))")
# A box inside the box is a frame, but for one that stands behind a digit or a letter as if it were a factor.
_FRAME = re.compile(r"(^|[-+*/=(\[,:{<>|&])\s*\\(?:boxed|fbox)(?=\s*\{)")
# A font around a formula or a number says nothing; around a letter it may make another letter of it.
_FONT = re.compile(
    r"\\(?:bm|boldsymbol|mathbf|pmb|textbf|emph|underline)\s*(?=\{(?:[^{}]*[\\{]|[-+\d.,/ ]+\}))", re.ASCII
)
# A sign in braces is the sign.
_BRACED_SIGN = re.compile(r"(?<![\^_A-Za-z}\]])\{\s*([-+=])\s*\}")
_WIDE_ACCENT = re.compile(r"\\(overline|widehat|widetilde|overrightarrow)\{([A-Za-z])\}")
_NARROW_ACCENTS = {"overline": "bar", "widehat": "hat", "widetilde": "tilde", "overrightarrow": "vec"}
_BARE_ACCENT = re.compile(r"\\(bar|hat|tilde|vec|dot|ddot) ([A-Za-z])(?![A-Za-z])")
_INNERMOST = re.compile(r"\{([^{}]*)\}|^([^{}]*)$")
_OVER = re.compile(r"\\over(?![A-Za-z])")
_FRAC = re.compile(r"\\frac\s*(\{[^{}]*\}|[A-Za-z0-9])\s*([A-Za-z0-9]|\{)")
_SQRT = re.compile(r"\\sqrt\s*([A-Za-z0-9])")
_BLACKBOARD = re.compile(r"\\mathbb\s*([A-Z])")
_NUMPY = re.compile(r"\bnp\.([a-z]+)")
_THOUSANDS = re.compile(
    r"(?<=\d)(?:(?:\\!)+,(?:\\!)*|,(?:\\!)+|(?:\\!)*\{,\}(?:\\!)*|\\!|\\,(?=\d{3}(?!\d)))\s*(?=\d{3})", re.ASCII
)
_SPACED_NUMBERS = re.compile(r"(?<![\d.])\d+(?: \d+)+", re.ASCII)
_MAGNITUDE = re.compile(
    rf"(?<=[\d}}])\s*(?:({_WORD_MACRO})\s*)?(hundred|thousand|million|billion|trillion)(?![a-z])", re.IGNORECASE
)
_POWERS_OF_TEN = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_ORDINAL = re.compile(
    r"(?<=\d)\s*(?:\^\s*(?:\{\s*)?\\(?:text|mathrm)\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?|\^\s*\{\s*(?:st|nd|rd|th)\s*\}"
    r"|\\(?:text|mathrm)\s*\{\s*(?:st|nd|rd|th)\s*\}|th(?![A-Za-z]))"
)
_TIMES_TEN = re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)", re.ASCII)
# ]2,5[ is the open interval; a bracket behind its comma or before it is one of a list of intervals.
_OUTWARD_INTERVAL = re.compile(r"([\[\]])([^\[\],;]+[,;][^\[\],;]+)([\[\]])")
_VECTOR = re.compile(r"^<(?=[^<>]*,)([^<>]*)>$")
RELATION = re.compile(r"[<>]|\\(?:le|ge|ne|lt|gt|equiv|sim)(?![A-Za-z])")

OPENING = frozenset(["(", "[", "{", "\\{", "\\begin", "\\langle"])
CLOSING = frozenset([")", "]", "}", "\\}", "\\end", "\\rangle"])
TOKENS = re.compile(r"\\[A-Za-z]+|\\.|\s+|[^\s\\]|\\", re.DOTALL)


def clean(text: str) -> str:
    """``text`` without typography; still with single spaces, because they separate words from units."""
    if not text.isascii():
        text = _from_unicode(text)
    if "\\begin" not in text and "\\\\" in text:
        text = text.replace("\\\\", "\\")  # escaped twice on the way here
    text = _STRUCK_OUT.sub(r"\\sout{\1}", _CONTINUED.sub(r"\\ldots ", text))
    text = _AND.sub(_comma, text)
    text = text.replace("\\$", " \\usd ").replace("$,$", " ; ").replace("$, $", " ; ").replace("$", " ")
    text = _THOUSANDS.sub("", text)
    text = text.replace("{,}", ".")  # a braced comma that groups no thousands is a decimal comma
    text = _NUMPY.sub(r"\\\1", text)
    if "\\" in text:
        text = _NOT_RELATION.sub(_negated, _FRAME.sub(r"\1", _INVISIBLE.sub(" ", text)))
        text = _BLACKBOARD.sub(r"\\mathbb{\1}", _FONT.sub("", text))
    text = _BRACED_SIGN.sub(r"\1", _ESCAPE.sub(_plain_escape, text))
    text = text.replace("!=", "\\ne ").replace("<=", "\\le ").replace(">=", "\\ge ").replace("**", "^")
    if RELATION.search(text):  # alternatives are a list of values, but x<1 or x>2 is one set
        text = _OR.sub(r" \\cup ", text).replace("\\land", " , ")
    else:
        text = _OR.sub(_comma, text)
    if "\\over" in text:
        text = _INNERMOST.sub(_fraction_of_over, text)
    if "\\begin" in text:
        text = _CASES.sub(lambda rows: rows[2].replace("\\\\", " , "), text)
        text = _MATRIX_NAME.sub("{pmatrix}", _ARRAY.sub(r"\\begin{pmatrix}\1\\end{pmatrix}", text))
    text = " ".join(text.split())
    text = _MAGNITUDE.sub(_power_of_ten, _ORDINAL.sub("", _TIMES_TEN.sub("*", text)))
    text = _SPACED_NUMBERS.sub(_joined_thousands, text)
    text = " ".join(text.split())
    if text.startswith("]") or text.endswith("[") or "[\\cup" in text or "\\cup]" in text:
        text = _OUTWARD_INTERVAL.sub(_inward_interval, text)
    text = _VECTOR.sub(r"\\langle \1\\rangle", text)
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
    out: list[str] = []
    has_space = False
    for token in TOKENS.findall(text):
        if token.isspace():
            has_space = True
            continue
        if out and has_space and _must_stay_apart(out[-1], token):
            out.append(" ")
        out.append(token)
        has_space = False
    text = "".join(out)
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text)
    text = _WIDE_ACCENT.sub(lambda accent: f"\\{_NARROW_ACCENTS[accent[1]]}{{{accent[2]}}}", text)
    text = _BARE_ACCENT.sub(r"\\\1{\2}", text)
    text = re.sub(r"\\exp\{([^{}]*)\}", r"e^{\1}", text)
    text = re.sub(r"(^|[(\[{,=])\+(?=[\d\\A-Za-z.])", r"\1", text)
    return text.removeprefix("\\approx").strip()


def _from_unicode(text: str) -> str:
    text = unicodedata.normalize("NFC", text).translate(_ALPHABETS)
    text = _VULGAR.sub(_vulgar_fraction, text)
    text = _RAISED.sub(lambda run: f"^{{{_plain_digits(run[0])}}}", text)
    text = _LOWERED.sub(lambda run: f"_{{{_plain_digits(run[0])}}}", text)
    text = _ROOT.sub(lambda root: f"\\sqrt{_ROOT_INDICES[root[1]]}{{{root[2] or root[3]}}}", text)
    return text.translate(_CHARACTERS)


def _plain_digits(run: str) -> str:
    return unicodedata.normalize("NFKC", run).replace("−", "-")


def _vulgar_fraction(fraction: re.Match[str]) -> str:
    numerator, _, denominator = _plain_digits(fraction[0]).replace("∕", "⁄").replace("/", "⁄").partition("⁄")
    return f"\\frac{{{numerator}}}{{{denominator}}}"


def _comma(conjunction: re.Match[str]) -> str:
    """A comma for an `and` between two values; one that joins nothing stays."""
    sides = (conjunction.string[: conjunction.start()], conjunction.string[conjunction.end() :])
    return " , " if all(side.strip(" .,;:$\\") for side in sides) else conjunction[0]


def _negated(relation: re.Match[str]) -> str:
    return "\\ne " if relation[1] == "=" else "\\notin "


def _plain_escape(escape: re.Match[str]) -> str:
    if escape[1]:
        return _MACROS.get(escape[1], escape[0])
    return escape[0] if escape[0] == "\\\\" else " "


def _fraction_of_over(braced: re.Match[str]) -> str:
    inside = braced[2] if braced[1] is None else braced[1]
    over = _OVER.search(inside)
    if over is None:
        return braced[0]
    return f"\\frac{{{inside[: over.start()].strip()}}}{{{inside[over.end() :].strip()}}}"


def _joined_thousands(numbers: re.Match[str]) -> str:
    """`1 234 567` as one number, and of `12345 678 901` the last two; none before a space."""
    parts = numbers[0].split(" ")
    if numbers.string.startswith(" ", numbers.end()):
        return numbers[0]
    start = len(parts) - 1
    while start > 0 and len(parts[start]) == 3 and len(parts[start - 1]) <= 3:
        start -= 1
    return " ".join([*parts[:start], "".join(parts[start:])])


def _power_of_ten(magnitude: re.Match[str]) -> str:
    opening, word = magnitude.groups()
    return f"*10^{{{_POWERS_OF_TEN[word.lower()]}}}{opening or ''}"


def _inward_interval(interval: re.Match[str]) -> str:
    opening, ends, closing = interval.groups()
    return ("(" if opening == "]" else "[") + ends + (")" if closing == "[" else "]")


def _braced_fraction(fraction: re.Match[str]) -> str:
    numerator = fraction[1] if fraction[1].startswith("{") else f"{{{fraction[1]}}}"
    return f"\\frac{numerator}" + ("{" if fraction[2] == "{" else f"{{{fraction[2]}}}")


def _must_stay_apart(left: str, right: str) -> bool:
    """`\\pi r` is not `\\pir`, and `1 2` is not `12`."""
    if left[0] == "\\" and left[-1].isalpha():
        return right[0].isalpha()
    return left.isdigit() and right.isdigit()
