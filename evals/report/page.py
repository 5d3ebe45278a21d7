"""The page of a report: one file that needs and may load nothing else, and never takes data for markup.

Everything that runs did travels as JSON in a script element that no browser executes; the page's own script puts it on
screen as text nodes. The content security policy names that script by its hash and forbids every other one, every
address and every assignment of markup.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from functools import cache
from importlib.resources import files

from evals.figures.method_looks import PALETTE
from evals.report.problems import Json

SCRIPTS = ("report_base.js", "report_charts.js", "report_tables.js", "report_problems.js", "report.js")
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def report_page(values: Json) -> str:
    """The page of a `document` as HTML; the same values give the same bytes."""
    colors = "".join(f"--c{position}:{color};" for position, color in enumerate(PALETTE))
    style = f":root{{{colors}}}\n{_asset('report.css')}"
    script = '"use strict";\n(() => {\n' + "\n".join(_asset(name) for name in SCRIPTS) + "})();\n"
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash_source(script)}",
            f"style-src {_hash_source(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    parts = {
        "POLICY": policy,
        "TITLE": html.escape(str(values["title"])),
        "STYLE": style,
        "DATA": embedded(values),
        "SCRIPT": script,
    }
    # In one pass: what was put in is not searched again.
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match.group(1)], _asset("report.html"))


def embedded(values: object) -> str:
    """JSON that can stand inside a script element: plain ASCII without `<`, `>` and `&`."""
    return json.dumps(values, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


@cache
def _asset(name: str) -> str:
    return files("evals.report").joinpath("assets", name).read_text(encoding="utf-8")
