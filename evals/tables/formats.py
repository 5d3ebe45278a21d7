"""Tables as CSV, Markdown and JSON. Every text is untrusted: none can become a formula, markup or another cell."""

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

from evals.files.frames import csv_text
from evals.tables.parts import Cell, Section, Table, beside_text, cell_text, decimal_text
from evals.text import visible

_MARKDOWN = re.compile(r"([\\`*_{}\[\]<|~#&!$])")


def to_csv(tables: Sequence[Table], *, with_ci: bool) -> str:
    """One CSV table for all ``tables``. Lines with the same name are joined; absent values are empty.

    If there are several tables or sections, leading columns name them. Intervals have columns of their own.
    """
    named = len({table.name for table in tables}) > 1
    titled = any(section.title for table in tables for section in table.sections)
    section_kind = next((table.section_kind for table in tables if table.section_kind), "Section")
    columns: dict[str, None] = {}
    records: dict[tuple[str, str, str], dict[str, str]] = {}
    for table in tables:
        for section in table.sections:
            names = [column.full_name for column in section.columns]
            for line in section.lines:
                record = records.setdefault((table.name, section.title, line.label), {})
                for name, cell in zip(names, line.cells, strict=True):
                    for suffix, value in _csv_values(cell, with_ci).items():
                        columns[name + suffix] = None
                        record[name + suffix] = value
    stub = tables[0].stub or "Metric"
    kind = "Setting" if stub == "Dataset" else "Dataset"  # what the names of several tables are
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    head = [*([kind] if named else []), *([section_kind] if titled else []), stub, *columns]
    writer.writerow([csv_text(name) for name in head])
    for (name, title, label), record in records.items():
        lead = [*([name] if named else []), *([title] if titled else []), label]
        writer.writerow([*map(csv_text, lead), *(record.get(column, "") for column in columns)])
    return stream.getvalue()


def _csv_values(cell: Cell | None, with_ci: bool) -> dict[str, str]:
    """Suffix of the column -> what stands there."""
    values = {"": "" if cell is None else cell_text(cell)}
    if with_ci:
        ends = {" ci_low": cell.low, " ci_high": cell.high} if cell else dict.fromkeys((" ci_low", " ci_high"))
        values |= {suffix: "" if end is None else decimal_text(end) for suffix, end in ends.items()}
        values[" ci_over"] = (cell and cell.over) or ""
    return values


def markdown_text(text: str) -> str:
    """``text`` on one line with everything escaped that Markdown, HTML or a terminal would act on."""
    return _MARKDOWN.sub(r"\\\1", visible(" ".join(text.split()), keep=""))


def to_markdown(tables: Sequence[Table], *, with_ci: bool) -> str:
    """A title, a table that lines up in a terminal, and its notes. The best is bold, a misprint has a dagger."""
    blocks = []
    for table in tables:
        parts = [f"**{markdown_text(table.title)}**"]
        groups = [list(table.sections)] if table.columns is not None else [[section] for section in table.sections]
        for group in groups:
            if table.columns is None and group[0].title:
                parts.append(markdown_text(group[0].title))
            parts.append(_markdown_table(table, group, with_ci))
        parts += [markdown_text(note) for note in table.notes]
        blocks.append("\n\n".join(parts))
    return "\n\n".join(blocks) + "\n"


def _markdown_table(table: Table, sections: Sequence[Section], with_ci: bool) -> str:
    titled = table.columns is not None and any(section.title for section in sections)
    head = [*([table.section_kind] if titled else []), table.stub]
    head += [column.full_name for column in sections[0].columns]
    rows = [[markdown_text(name) for name in head]]
    for section in sections:
        for line in section.lines:
            lead = [*([section.title] if titled else []), line.label]
            rows.append([*map(markdown_text, lead), *(_markdown_cell(cell, with_ci) for cell in line.cells)])
    num_stubs = len(head) - len(sections[0].columns)
    sides = ["<"] * num_stubs + [">"] * len(sections[0].columns)
    widths = [max(3, *(len(row[i]) for row in rows)) for i in range(len(head))]
    rule = ["-" * width if side == "<" else "-" * (width - 1) + ":" for width, side in zip(widths, sides, strict=True)]
    lines = [
        "| " + " | ".join(f"{text:{sides[i]}{widths[i]}}" for i, text in enumerate(row)) + " |"
        for row in (rows[0], rule, *rows[1:])
    ]
    return "\n".join(lines)


def _markdown_cell(cell: Cell | None, with_ci: bool) -> str:
    if cell is None:
        return "-"
    text = markdown_text(cell_text(cell))
    text = f"**{text}**" if cell.is_best else text
    text += "†" if cell.is_misprint else ""
    beside = markdown_text(beside_text(cell)) if with_ci else ""
    return f"{text} {beside}".rstrip()


def to_json(layout: str, tables: Sequence[Table], *, with_ci: bool) -> str:
    """One ASCII document: ``value`` in full precision and the unit shown, ``text`` as in the other formats."""
    found = [_table_document(table, with_ci) for table in tables]
    return json.dumps({"schema": 1, "layout": layout, "tables": found}, indent=2, allow_nan=False) + "\n"


def _table_document(table: Table, with_ci: bool) -> dict[str, Any]:
    return {
        "title": table.title,
        "name": table.name,
        "unit": table.unit,
        "notes": list(table.notes),
        "sections": [
            {
                "title": section.title or None,
                "columns": [{"name": column.name, "group": column.group or None} for column in section.columns],
                "rows": [
                    {
                        "label": line.label,
                        "is_ours": line.is_ours,
                        "cells": [_cell_document(cell, with_ci) for cell in line.cells],
                    }
                    for line in section.lines
                ],
            }
            for section in table.sections
        ],
    }


def _cell_document(cell: Cell | None, with_ci: bool) -> dict[str, Any] | None:
    if cell is None:
        return None
    document: dict[str, Any] = {
        "value": cell.value,
        "text": cell_text(cell),
        "is_best": cell.is_best,
        "is_misprint": cell.is_misprint,
    }
    if with_ci:
        document |= {"ci_low": cell.low, "ci_high": cell.high, "ci_over": cell.over}
    return document
