"""Tables as LaTeX. They need booktabs; rows are shaded if colortbl (or xcolor[table]) is loaded.

Every text is untrusted: it can neither run a command nor break the table, whatever the engine and font encoding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from evals.tables.parts import Cell, Column, Line, Section, Table, decimal_text

# TeX cannot set a line wider than 5.7 m, and nobody wants to read one.
LONGEST_TEXT = 80
SHADE = "[gray]{0.92}"
PREAMBLE = """\
% In the preamble: \\usepackage{booktabs} and, for shaded rows, \\usepackage{colortbl}
\\providecommand{\\rowcolor}[2][]{}\\providecommand{\\cellcolor}[2][]{}
"""

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
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    if len(text) > LONGEST_TEXT:
        text = f"{text[: LONGEST_TEXT - 23]}...{text[-20:]}"
    parts = _DELTA.split(text.replace(">=", "≥").replace("<=", "≤"))  # text, number, text, number, ..., text
    shown = (rf"$\delta={part}$" if i % 2 else "".join(map(_character, part)) for i, part in enumerate(parts))
    return re.sub("-(?=-)", "-{}", "".join(shown))  # two hyphens are two hyphens, not a dash


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


def to_latex(tables: Sequence[Table], *, digits: int, with_ci: bool, standalone: bool = False) -> str:
    """Floats to paste or \\input into a paper; with ``standalone`` a document that is as wide as its widest table."""
    floats = "\n".join(_float(table, digits, with_ci) for table in tables)
    if not standalone:
        return PREAMBLE + floats
    columns = max(len(section.columns) for table in tables for section in table.sections)
    width_cm = min(500, max(21, 8 + columns * (3.6 if with_ci else 1.7)))
    return (
        "\\documentclass{article}\n"
        f"\\usepackage[paperwidth={width_cm:g}cm,paperheight=29.7cm,margin=1cm]{{geometry}}\n"
        "\\usepackage{booktabs,colortbl}\n\\pagestyle{empty}\n\\begin{document}\n"
        f"{floats}\\end{{document}}\n"
    )


def _float(table: Table, digits: int, with_ci: bool) -> str:
    num_columns = max(len(section.columns) for section in table.sections)
    environment = "table*" if num_columns > 12 else "table"
    same_columns = len({section.columns for section in table.sections}) == 1
    lines = [
        f"\\begin{{{environment}}}[ht]",
        "\\centering\\setlength{\\belowcaptionskip}{4pt}",
        f"\\caption{{{_title(table.title)}}}",
        "\\scriptsize\\setlength{\\tabcolsep}{3pt}",
        f"\\begin{{tabular}}{{l*{{{num_columns}}}{{r}}}}",
        "\\toprule",
    ]
    if same_columns:
        lines += _head(table.stub, table.sections[0].columns)
    for position, section in enumerate(table.sections):
        title = f"\\multicolumn{{{num_columns + 1}}}{{c}}{{\\textbf{{{latex_text(section.title)}}}}} \\\\"
        if same_columns:
            lines += ["\\midrule", title, "\\midrule"] if section.title else ["\\midrule"]
        else:
            lines += ["\\midrule"] if position else []
            lines += [title, "\\midrule", *_head(table.stub, section.columns), "\\midrule"]
        lines += [_line(line, section, digits, with_ci) for line in section.lines]
    lines += ["\\bottomrule", "\\end{tabular}"]
    lines += [f"\\par\\smallskip {_note(note)}" for note in table.notes]
    return "\n".join([*lines, f"\\end{{{environment}}}", ""])


def _head(stub: str, columns: Sequence[Column]) -> list[str]:
    """One line of names, and above it the groups, if there are any."""
    lines = []
    if any(column.group for column in columns):
        spans: list[tuple[str, int, int]] = []  # group, first and last column, 1 is the stub
        for position, column in enumerate(columns, start=2):
            if spans and spans[-1][0] == column.group:
                spans[-1] = (column.group, spans[-1][1], position)
            else:
                spans.append((column.group, position, position))
        cells = [f"\\multicolumn{{{last - first + 1}}}{{c}}{{{_title(group)}}}" for group, first, last in spans]
        rules = [f"\\cmidrule(lr){{{first}-{last}}}" for _, first, last in spans]
        lines += [" & ".join(["", *cells]) + " \\\\", "".join(rules)]
    return [*lines, " & ".join([latex_text(stub), *(latex_text(column.name) for column in columns)]) + " \\\\"]


def _line(line: Line, section: Section, digits: int, with_ci: bool) -> str:
    cells = [_cell(cell, digits, with_ci) for cell in line.cells]
    shade = f"\\rowcolor{SHADE} " if line.is_ours else ""
    return shade + " & ".join([latex_text(line.label), *cells]) + " \\\\"


def _cell(cell: Cell | None, digits: int, with_ci: bool) -> str:
    if cell is None:
        return "--"
    text = decimal_text(cell.value, digits)
    text = f"\\textbf{{{text}}}" if cell.is_best else text
    text += "$^\\dagger$" if cell.is_misprint else ""
    if with_ci and cell.low is not None and cell.high is not None:
        text += f" {{\\tiny [{decimal_text(cell.low, digits)}, {decimal_text(cell.high, digits)}]}}"
    return f"\\cellcolor{SHADE} {text}" if cell.is_ours else text


def _title(text: str) -> str:
    """Our own titles, with `@k` and `k = 32` as mathematics."""
    escaped = " ".join(latex_text(word) for word in text.split())
    return re.sub(r"\b([kn]) = (\d+)", r"$\1=\2$", re.sub(r"@k\b", "@$k$", escaped))


def _note(text: str) -> str:
    return " ".join(latex_text(word) for word in text.split())
