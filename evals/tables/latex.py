"""Tables as LaTeX floats.

Floats need booktabs, and use graphicx, rotating and colortbl where these are loaded. How a table is set follows from
its width: in a column, across the page, as blocks below one another, or turned.

Every text is untrusted: it can neither run a command nor break what it stands in, with every engine and font encoding.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from evals.tables.parts import Cell, Column, Line, Section, Table, beside_text, cell_text
from evals.text import table_beside

SHADE = "[gray]{0.92}"
# Each is left as it is where a package or another table has defined it.
PREAMBLE = Path(__file__).with_name("preamble.tex").read_text(encoding="utf-8")
# Points: the paper's column, its page, and the page turned. A text of 7 points may shrink to 5 before a table is set
# in another way.
COLUMN_PT, PAGE_PT, TURNED_PT, LEAST_SCALE = 235, 487, 640, 0.72
CHARACTER_PT, GAP_PT, SMALL_OVER_SCRIPT = 3.9, 6.0, 9 / 7
MOST_LINES = 76  # of a float, in \scriptsize


def to_latex(tables: Sequence[Table], *, with_ci: bool) -> str:
    """Floats to paste or \\input into a paper; neighbours with the same ``plate`` share one, two side by side."""
    writer = _Writer(with_ci)
    floats: list[str] = []
    for plate, group in groupby(tables, key=lambda table: table.plate):
        members = list(group)
        floats += writer.plates(members) if plate and len(members) > 1 else map(writer.alone, members)
    return PREAMBLE + "\n".join(floats)


class _Writer:
    def __init__(self, with_ci: bool) -> None:
        self.with_ci = with_ci
        self.names: Counter[str] = Counter()

    def alone(self, table: Table) -> str:
        """One table as a float."""
        width = self.width_pt(table)
        blocks = [table]
        size = "\\small" if width * SMALL_OVER_SCRIPT <= COLUMN_PT else "\\scriptsize"
        if width <= COLUMN_PT / LEAST_SCALE:
            environment = "table"
        elif width <= PAGE_PT / LEAST_SCALE:
            environment = "table*"
        else:
            environment, blocks = "table*", self._stacked(table, PAGE_PT)
            if any(self.width_pt(block) > PAGE_PT / LEAST_SCALE for block in blocks):
                environment, blocks = "sidewaystable*", self._stacked(table, TURNED_PT)
        parts = [f"{size}\\setlength{{\\tabcolsep}}{{3pt}}", self._fitted(blocks), *_notes(table.notes)]
        return self._float(environment, table.title, table.name, parts)

    def plates(self, tables: Sequence[Table]) -> Iterator[str]:
        """Several tables in as few floats as they need, two side by side where they are narrow enough."""
        half = PAGE_PT * 0.48
        abreast = 2 if all(self.width_pt(table) <= half / LEAST_SCALE for table in tables) else 1
        share = "0.48" if abreast == 2 else "1"
        rows = [tables[i : i + abreast] for i in range(0, len(tables), abreast)]
        floats: list[list[Sequence[Table]]] = [[]]
        for row in rows:
            tallest = sum(max(map(_num_lines, one)) for one in (*floats[-1], row))
            if floats[-1] and tallest > MOST_LINES:
                floats.append([])
            floats[-1].append(row)
        for position, some in enumerate(floats):
            parts = []
            for row in some:
                boxes = [
                    f"\\begin{{minipage}}[t]{{{share}\\textwidth}}\\centering\\textbf{{{latex_text(table.name)}}}"
                    f"\\\\[2pt]\n\\scriptsize\\setlength{{\\tabcolsep}}{{3pt}}\n{self._fitted([table])}\n\\end{{minipage}}"
                    for table in row
                ]
                parts.append("\\hfill\n".join(boxes) + "\n\\par\\vspace{1.5ex}")
            notes = dict.fromkeys(note for row in some for table in row for note in table.notes)
            yield self._float("table*", tables[0].plate, tables[0].plate, [*parts, *_notes([*notes])], part=position)

    def _float(self, environment: str, title: str, name: str, parts: Sequence[str], *, part: int = 0) -> str:
        """A float with its caption and label. A further ``part`` has the number of the first."""
        slug = "-".join(re.findall("[a-z0-9]+", name.lower()))[:60] or "table"
        self.names[slug] += not part
        slug += f"-{self.names[slug]}" if self.names[slug] > 1 else ""
        caption = f"\\caption{{{latex_title(title)}}}\\label{{tab:{slug}}}"
        if part:
            caption = f"\\addtocounter{{table}}{{-1}}\\caption{{{latex_title(title)} (continued)}}"
        lines = [f"\\begin{{{environment}}}[htp]", "\\centering\\setlength{\\belowcaptionskip}{4pt}", caption]
        return "\n".join([*lines, *parts, f"\\end{{{environment}}}", ""])

    def width_pt(self, table: Table) -> float:
        """About how wide the table is in \\scriptsize."""
        places: dict[int, int] = {}
        stub = len(table.stub)
        for section in table.sections:
            for place, column in enumerate(section.columns):
                texts = [column.name, *(self._plain(line.cells[place]) for line in section.lines)]
                places[place] = max(places.get(place, 0), *(len(text.replace("delta=", "d=")) for text in texts))
            stub = max(stub, *(len(line.label.replace("delta=", "d=")) for line in section.lines))
        return CHARACTER_PT * (stub + sum(places.values())) + GAP_PT * (1 + len(places))

    def _plain(self, cell: Cell | None) -> str:
        text = cell_text(cell)
        is_wider = self.with_ci and cell is not None and bool(beside_text(cell))
        return text + "0" * (2 * len(text) if is_wider else 0)

    def _stacked(self, table: Table, limit_pt: float) -> list[Table]:
        """The table in blocks of whole groups of columns, as many in each as ``limit_pt`` is wide."""
        columns = table.columns
        if columns is None or not columns[0].group:
            return [table]
        blocks: list[Table] = []
        chosen: list[int] = []
        for _, places in groupby(range(len(columns)), key=lambda place: columns[place].group):
            wider = [*chosen, *places]
            if chosen and self.width_pt(_with_columns(table, wider)) > limit_pt:
                blocks.append(_with_columns(table, chosen))
                wider = wider[len(chosen) :]
            chosen = wider
        return [*blocks, _with_columns(table, chosen)]

    def _fitted(self, blocks: Sequence[Table]) -> str:
        """The blocks below one another, all at the same scale."""
        tabulars = list(map(self._tabular, blocks))
        if len(tabulars) > 1:
            stack = "\\\\[8pt]\n".join(tabulars)
            tabulars = [f"\\begin{{tabular}}{{@{{}}l@{{}}}}\n{stack}\n\\end{{tabular}}"]
        return f"\\fittoline{{%\n{tabulars[0]}}}"

    def _tabular(self, table: Table) -> str:
        widest = max((section.columns for section in table.sections), key=len)
        lines = [f"\\begin{{tabular}}{{l{'r' * len(widest)}}}", "\\toprule"]
        if table.columns is not None:
            lines += _head(table.stub, table.columns)
        for position, section in enumerate(table.sections):
            title = f"\\multicolumn{{{len(widest) + 1}}}{{c}}{{\\textbf{{{latex_text(section.title)}}}}} \\\\"
            if table.columns is not None:
                lines += ["\\midrule", title, "\\midrule"] if section.title else ["\\midrule"]
            else:
                lines += ["\\midrule"] if position else []
                lines += [title, "\\midrule", *_head(table.stub, section.columns), "\\midrule"]
            lines += [self._line(line, section.columns) for line in section.lines]
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])

    def _line(self, line: Line, columns: Sequence[Column]) -> str:
        shade = f"\\rowcolor{SHADE} " if line.is_ours else ""
        return shade + " & ".join([latex_text(line.label), *map(self._cell, line.cells, columns)]) + " \\\\"

    def _cell(self, cell: Cell | None, column: Column) -> str:
        if cell is None:
            return "--"
        text = cell_text(cell).replace("-", "$-$")
        text = f"\\textbf{{{text}}}" if cell.is_best else text
        text += "$^\\dagger$" if cell.is_misprint else ""
        beside = beside_text(cell) if self.with_ci else ""
        text += f" {{\\tiny {beside}}}" if beside else ""
        return f"\\cellcolor{SHADE} {text}" if column.is_ours else text


def _notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    shown = "\\par\n".join(" ".join(latex_text(word) for word in note.split()) for note in notes)
    return [f"\\par\\smallskip\\begin{{minipage}}{{\\linewidth}}\\scriptsize\\raggedright\n{shown}\n\\end{{minipage}}"]


def _num_lines(table: Table) -> int:
    """About how many lines the table takes in \\scriptsize, with its heading."""
    return 4 + sum(len(section.lines) + (2 if section.title else 1) for section in table.sections)


def _with_columns(table: Table, places: Sequence[int]) -> Table:
    sections = tuple(
        Section(
            section.title,
            tuple(section.columns[place] for place in places),
            tuple(replace(line, cells=tuple(line.cells[place] for place in places)) for line in section.lines),
        )
        for section in table.sections
    )
    return replace(table, sections=sections)


def _head(stub: str, columns: Sequence[Column]) -> list[str]:
    """One line of names, and above it the groups, if there are any."""
    lines = []
    if any(column.group for column in columns):
        cells, rules, last = [], [], 1  # the stub
        for group, members in groupby(column.group for column in columns):
            first, last = last + 1, last + len(list(members))
            cells.append(f"\\multicolumn{{{last - first + 1}}}{{c}}{{{latex_title(group)}}}")
            rules += [f"\\cmidrule(lr){{{first}-{last}}}"] if group else []
        lines += [" & ".join(["", *cells]) + " \\\\", "".join(rules)]
    return [*lines, " & ".join([latex_text(stub), *(latex_text(column.name) for column in columns)]) + " \\\\"]


def latex_title(text: str) -> str:
    """Our own titles, with the k of `@k`, `among k` and `k = 32` as mathematics."""
    escaped = " ".join(latex_text(word) for word in text.split())
    escaped = re.sub(r"(@|\bagainst |\bamong )k\b", r"\1$k$", escaped)
    return re.sub(r"\b([kn]) = (\d+)", r"$\1=\2$", escaped)


# -- texts

# TeX cannot set a line wider than 5.7 m, and nobody wants to read one.
LONGEST_TEXT = 80

_SPELLED = table_beside(__file__, "characters.toml")
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


def _cut(text: str) -> str:
    text = unicodedata.normalize("NFC", " ".join(text.split()))
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 23]}...{text[-20:]}"


def _character(character: str) -> str:
    if character in _SPELLED["text"]:
        return str(_SPELLED["text"][character])
    if " " <= character <= "~":
        return character
    if character in _SPELLED["maths"]:
        return f"${_SPELLED['maths'][character]}$"
    if character in _TEXT or _is_accented(character):
        return character
    return f"{{[}}U+{ord(character):04X}{{]}}"


def _is_accented(character: str) -> bool:
    """Whether it is a letter of Latin-1 or Latin Extended-A that is made of an ASCII letter and an accent."""
    letter, *accents = list(unicodedata.normalize("NFD", character))
    return character < "\u0180" and letter.isascii() and len(accents) == 1 and accents[0] in _ACCENTS
