"""What a release states more than once is the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import yaml

from quatro import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_one_version_everywhere():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    newest = re.search(r"^## (\d\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest
    assert PROJECT["version"] == __version__ == cited["version"] == newest[1]


def test_the_pythons_that_are_named_are_those_that_are_tried():
    named = sorted(one.rpartition(" ")[2] for one in PROJECT["classifiers"] if "Python :: 3." in one)
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    makefile = re.search(r"^PYTHONS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert makefile
    assert named == makefile[1].split() == workflow["jobs"]["base"]["strategy"]["matrix"]["python"]
    assert PROJECT["requires-python"] == f">={named[0]}"


def test_hooks_of_pre_commit_fetch_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert {repo["repo"] for repo in config["repos"]} == {"local"}
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    assert {hook["id"] for hook in hooks} >= {"ruff", "ruff-format", "mypy"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
