"""Makes examples/quickstart.ipynb from examples/five_minutes.py: one code, cell by cell, with what each cell shows.

`python docs/notebook.py` runs it and stores the outputs; with `--to FILE` it writes the notebook there. That needs the
extra dev. `docs/generate.py --check` compares the code of the stored notebook with the script.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import tempfile
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPT, NOTEBOOK = EXAMPLES / "five_minutes.py", EXAMPLES / "quickstart.ipynb"
# The first cell, which the script does not need. Another project on package indexes is named quatro, too.
INSTALL = """\
# Installs quatro where it is missing: from PROJECT_URL if that is set, else from a wheel beside this notebook.
import importlib.util
import os
import subprocess
import sys
import warnings
from pathlib import Path

warnings.filterwarnings("ignore", "IProgress not found")  # tqdm asks for a package that its bars would need here
if importlib.util.find_spec("quatro_cli") is None:
    url, wheels = os.environ.get("PROJECT_URL"), sorted(Path.cwd().glob("quatro-*.whl"))
    if not url and not wheels:
        raise RuntimeError(
            "quatro is not installed: set PROJECT_URL to the address of its repository, put its wheel "
            "beside this notebook, or run pip install -e '.[train,plot]' in its checkout"
        )
    what = f"quatro[train,plot] @ git+{url}" if url else f"{wheels[-1]}[train,plot]"
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", what], check=True)"""
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def cells() -> list[tuple[str, str]]:
    """Kind (`markdown` or `code`) and text of each cell of the script, the installing one among them."""
    found: list[tuple[str, str]] = []
    for part in re.split(r"^# %%", SCRIPT.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            lines = [line.removeprefix("#").strip() for line in body.strip().splitlines()]
            found += [("markdown", "# Quickstart\n\n" + "\n".join(lines)), ("code", INSTALL)]
            continue
        title, _, rest = head.strip().partition(". ")
        if title:
            found.append(("markdown", f"## {title.rstrip('.')}\n\n{rest}".strip()))
        found.append(("code", body.strip()))
    return found


def document(before: dict[str, Any]) -> dict[str, Any]:
    """The notebook, with the outputs that a cell of the same code has in ``before``."""
    known = {"".join(cell["source"]): cell for cell in before.get("cells", []) if cell["cell_type"] == "code"}
    made = []
    for number, (kind, text) in enumerate(cells()):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)}
        if kind == "code":
            cell["execution_count"] = known.get(text, {}).get("execution_count")
            cell["outputs"] = known.get(text, {}).get("outputs", [])
        made.append(cell)
    info = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    return {"cells": made, "metadata": info, "nbformat": 4, "nbformat_minor": 5}


def text_of(notebook: dict[str, Any]) -> str:
    """The notebook as it lies on disk."""
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def stored() -> dict[str, Any]:
    """The notebook of examples/; empty where there is none."""
    return json.loads(NOTEBOOK.read_text(encoding="utf-8")) if NOTEBOOK.exists() else {}


def executed(folder: Path, timeout_s: int = 1200) -> dict[str, Any]:
    """The notebook as it is after all its cells ran in ``folder``.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.reads(text_of(document({})), as_version=4)
    sharp = ["--InlineBackend.figure_formats={'retina'}"]
    place = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=timeout_s, extra_arguments=sharp, resources=place, coalesce_streams=True).execute()
    return document(json.loads(nbformat.writes(notebook)))


def page(notebook: dict[str, Any]) -> tuple[str, dict[str, bytes]]:
    """The notebook as Markdown with its pictures by name, for the site."""
    parts, pictures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            if "image/png" in data:
                name = f"quickstart-{len(pictures)}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                width = output.get("metadata", {}).get("image/png", {}).get("width", 900)
                parts.append(f'<img src="../images/{name}" width="{width}" alt="What the cell above draws">')
            elif "text/html" in data:
                parts.append(f'<div style="overflow-x: auto">{"".join(data["text/html"])}</div>')
            elif text := "".join(output.get("text", data.get("text/plain", ""))).rstrip():
                parts.append(f"```text\n{text}\n```")
    return "\n\n".join(parts) + "\n", pictures


def main() -> None:
    """Run the notebook, and write it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--to", type=Path, default=NOTEBOOK, help="default: examples/quickstart.ipynb")
    to = options.parse_args().to
    with tempfile.TemporaryDirectory() as folder:
        made = executed(Path(folder))
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text_of(made), encoding="utf-8")


if __name__ == "__main__":
    main()
