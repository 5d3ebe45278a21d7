"""The generated reference is that of the program as it is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from quatro_cli.app import app

ROOT = Path(__file__).parent.parent


def test_generated_pages_are_up_to_date():
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_the_demo_takes_as_long_in_its_help_as_in_the_readme():
    texts = [(ROOT / "README.md").read_text(encoding="utf-8"), CliRunner().invoke(app, ["demo", "--help"]).stdout]
    said = [re.findall(r"about (\w+ minutes) on one", " ".join(text.lower().split())) for text in texts]
    assert said[0] == said[1] == [said[0][0]]
