"""Texts of models in framed boxes of LaTeX, which break across pages: with tcolorbox where it is loaded, else plain.

Every text is untrusted. It is shown as it was written, LaTeX included, and never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from evals.tables.latex_text import latex_heading, latex_lines

LONGEST_SHOWN = 4000
PREAMBLE = r"""% In the preamble, for coloured boxes: \usepackage[most]{tcolorbox}
\makeatletter\@ifundefined{samplesbox}{\@ifundefined{tcolorbox}{%
  \newenvironment{samplesbox}[2]{\par\medskip\hrule\smallskip{\raggedright\noindent\textbf{#2}\par}\smallskip}%
    {\par\smallskip\hrule\medskip}}{%
  \newenvironment{samplesbox}[2]{\begin{tcolorbox}[colback=#1!4,colframe=#1!65,colbacktitle=#1!15,coltitle=black,%
    title={#2},fonttitle=\bfseries,boxrule=0.8pt,arc=3pt,enhanced/.try,breakable/.try]}{\end{tcolorbox}}}}{}\makeatother
"""


class Text(NamedTuple):
    """A text of a model, or about one, under its ``heading``."""

    heading: str
    text: str


class Box(NamedTuple):
    """A box with a title and its texts."""

    title: str
    color: Literal["gray", "blue"]
    texts: Sequence[Text]


def boxes_to_latex(boxes: Sequence[Box]) -> str:
    """The boxes, to paste or \\input into a paper; of a text above 4000 characters the rest is only counted."""
    return PREAMBLE + "\n".join(map(_box, boxes))


def _box(box: Box) -> str:
    parts = []
    for heading, text in box.texts:
        rest = len(text) - LONGEST_SHOWN
        shown = text if rest <= 0 else f"{text[:LONGEST_SHOWN]}\n... ({rest} more characters)"
        lines = f"{{\\footnotesize\\ttfamily\\raggedright\\parindent0pt\n{latex_lines(shown)}\n}}"
        parts.append(
            f"{{\\raggedright\\noindent\\textbf{{{latex_heading(heading)}}}\\par}}\\nobreak\\smallskip\n{lines}"
        )
    body = "\\par\\medskip\n".join(parts)
    return f"\\begin{{samplesbox}}{{{box.color}}}{{{latex_heading(box.title)}}}\n{body}\n\\end{{samplesbox}}\n"
