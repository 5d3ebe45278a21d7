"""What `quatro paper` has made of a sweep, and the pages that show it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from evals.figures.sheet import WIDTHS
from evals.results.paper import paper
from evals.tables.latex import latex_title
from evals.tables.parts import Table
from evals.text import visible
from quatro.runs.tag import Tag

NOTES = "notes.md"  # in the sweep's folder: what its page says first


class Made(NamedTuple):
    """A table or figure of the page: its file name without ending, title, and the paper's label for it, if any."""

    name: str
    title: str
    label: str
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()


class Missing(NamedTuple):
    """What could not be made, and why."""

    title: str
    label: str
    reason: str


@dataclass(frozen=True)
class PaperPage:
    """What `write_paper` has written into ``out``."""

    out: Path
    tables: list[Made] = field(default_factory=list)
    figures: list[Made] = field(default_factory=list)
    missing: list[Missing] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def document(page: PaperPage) -> str:
    """A LaTeX document of all tables and figures, these as large as they are drawn."""
    lines = [
        r"\documentclass{article}",
        r"\usepackage[margin=2cm]{geometry}",
        r"\usepackage{booktabs,graphicx,rotating}",
        r"\usepackage[table]{xcolor}",
        r"\begin{document}",
        *(rf"\input{{tables/{made.name}.tex}}" + "\n\\clearpage" for made in page.tables),
        *(
            "\\begin{figure}[p]\\centering\n"
            rf"\includegraphics[width={WIDTHS['page']}in,height=.88\textheight,keepaspectratio]{{figures/{made.name}.pdf}}"
            f"\n\\caption{{{latex_title(made.title)}}}\n\\end{{figure}}"
            for made in page.figures
        ),
        r"\end{document}",
    ]
    return "\n".join(lines)


def readme(page: PaperPage, folder: Path, *, num_runs: int, models: Sequence[str], tag: Tag) -> str:
    """The page about the sweep in ``folder``, Markdown: its notes, what is missing, then everything that is there."""
    notes = folder / NOTES
    lines = [
        f"# {visible(folder.resolve().name)}",
        "",
        *([notes.read_text(encoding="utf-8").strip(), ""] if notes.is_file() else []),
        f"{num_runs} finished runs of {', '.join(map(visible, models))}, measured at temperature "
        f"{tag.temperature:g} and top_p {tag.top_p:g}{_unlike_paper(tag)}. Every table is in [tables](tables) as "
        "LaTeX, CSV and Markdown, every figure in [figures](figures) as PDF and PNG; [paper.tex](paper.tex) shows all.",
        "",
        *_missing_lines(page),
    ]
    for made in page.tables:
        text = (page.out / "tables" / f"{made.name}.md").read_text(encoding="utf-8")
        lines += [f"## {made.title}{_of_paper(made.label)}", "", text, ""]
    for made in page.figures:
        lines += [f"## {made.title}{_of_paper(made.label)}", "", f"![{made.title}](figures/{made.name}.png)", ""]
        lines += [f"{note}\n" for note in made.notes]
    return "\n".join(lines)


def _unlike_paper(tag: Tag) -> str:
    temperature, top_p = paper().sampling["temperature"], paper().sampling["top_p"]
    return "" if tag == Tag(temperature, top_p) else f" (the paper: temperature {temperature:g} and top_p {top_p:g})"


def _of_paper(label: str) -> str:
    return f" ({label})" if label else ""


def _missing_lines(page: PaperPage) -> list[str]:
    if not page.missing:
        return ["Nothing of the paper's is missing.", ""]
    rows = [f"- {one.title}{_of_paper(one.label)}: {one.reason}" for one in page.missing]
    return ["## What is missing", "", *rows, ""]
