"""The messages that docs/faq.md explains are those that the program prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
VARIES = "\0"  # stands for a value in a message
PAGE = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^> (.+)$", PAGE, re.MULTILINE)


def messages() -> str:
    """All texts of the program, a line each, with `VARIES` for each value in them."""
    found = set()
    for package in ("evals", "quatro", "quatro_cli"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    parts = [str(part.value) if isinstance(part, ast.Constant) else VARIES for part in node.values]
                    found.add("".join(parts))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.add(re.sub(r"%\.?\d*[a-z]", VARIES, node.value))
    return "\n".join(text.replace("\n", " ") for text in found)


def test_each_message_that_the_faq_quotes_is_one_of_the_program():
    program = messages()
    for quoted in QUOTED:
        pattern = re.escape(quoted).replace(re.escape("..."), f"[^\n]*{VARIES}[^\n]*")
        assert re.search(pattern, program), quoted


def test_each_message_is_followed_by_why_and_what_to_do():
    assert len(QUOTED) >= 20
    answers = re.split(r"^> .+$|^## .+$", PAGE, flags=re.MULTILINE)[1:]
    explained = [answer for answer in answers if answer.strip()]
    assert len(explained) == len(QUOTED)
    assert all("**Why.**" in answer and "**Do.**" in answer for answer in explained)
