"""The examples of docs/harnesses.md run, and print what the page shows, with a stand-in for the model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent

import pytest

from tests.harnesses.stand_ins import of_inspect_ai, run_lighteval, run_lm_eval
from tests.kit import quatro

pytestmark = pytest.mark.harness
for package in ("inspect_ai", "lighteval", "lm_eval"):
    pytest.importorskip(package)

PAGE = (Path(__file__).parents[2] / "docs/harnesses.md").read_text(encoding="utf-8")
TEXTS = {
    "a": ["17 and 25 are \\boxed{42}", "\\boxed{42}", "17 and 25 are \\boxed{42}", "\\boxed{32}"],
    "b": ["6 * 7 is 42, less 2: \\boxed{40}", "\\boxed{36}", "\\boxed{36}", "\\boxed{40}"],
}


def blocks(heading: str) -> list[str]:
    """The indented blocks below a heading."""
    section = re.split(r"^##+ ", PAGE.partition(f" {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    return [dedent(one).strip("\n") for one in re.findall(r"(?:^(?: {4}.*|)\n)+", section, re.MULTILINE) if one.strip()]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The stand-in's responses by prompt, in a folder with the questions and files of the page."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    (questions,) = blocks("In")
    (tmp_path / "sums").mkdir()
    (tmp_path / "sums/test.jsonl").write_text(questions + "\n", encoding="utf-8")
    for heading in ("inspect-ai", "lighteval", "lm-evaluation-harness"):
        file = blocks(heading)[0]
        (tmp_path / file.splitlines()[0].removeprefix("# ")).write_text(file, encoding="utf-8")
    return {row["input"]: TEXTS[row["id"]] for row in map(json.loads, questions.splitlines())}


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_the_example_of_inspect_ai_and_its_numbers_in_quatro(page, capsys):
    from inspect_ai import eval

    (log,) = eval("sums.py", model=of_inspect_ai(page), log_dir="logs", display="plain")
    printed = "\n".join(lines(capsys.readouterr().out))
    assert "\n".join(lines(blocks("inspect-ai")[1])) in printed
    quatro("eval", "import", log.location, "--from", "inspect", "-o", "samples.jsonl")
    found = {}
    for words in blocks("The same numbers in quatro")[0].splitlines()[1:]:
        rows = json.loads(quatro(*words.split()[1:], "--json").stdout)["rows"]
        found |= {row["metric"].replace("k", str(row["k"])): row["value"] for row in rows}
    theirs = {name.partition("/")[0]: one.value for name, one in log.results.scores[0].metrics.items()}
    assert theirs.items() <= found.items()


def test_the_example_of_lighteval(page, tmp_path):
    printed = lines(run_lighteval(page, tmp_path, "sums_task.py"))
    shown = lines(blocks("lighteval")[1])
    assert "\n".join(shown) in "\n".join(printed)


def test_the_example_of_lm_eval(page):
    printed, _, _ = run_lm_eval(page)
    assert lines(blocks("lm-evaluation-harness")[1]) == lines(printed)
