"""The site of docs/: its links and llms.txt, without MkDocs, which `make site` has."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def website(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    return runpy.run_path(str(ROOT / "docs/website.py"))


def test_links_lead_to_where_files_stand_in_the_site(website):
    linked = website["linked"]
    assert linked("[a](docs/data.md#mine)", "README.md") == ("[a](data.md#mine)", {"docs/data.md"})
    assert linked("![a](docs/images/rooms.svg)", "README.md")[0] == "![a](images/rooms.svg)"
    assert linked("[a](../README.md)", "docs/faq.md")[0] == "[a](index.md)"
    assert linked("[a](../SECURITY.md)", "docs/faq.md")[0] == "[a](repository/SECURITY.md)"
    assert linked("[a](../examples)", "docs/faq.md")[0] == "[a](repository/examples.md)"
    assert linked("[a](docs/faq.md)", "CONTRIBUTING.md")[0] == "[a](../faq.md)"
    assert linked("[a](evals/sandbox/README.md)", "SECURITY.md")[0] == "[a](evals/sandbox/README.md)"
    for same in ("[a](#b)", "[a](https://a.example/b)", "`[a](docs/faq.md)`", "    [a](docs/faq.md)", "[a](none.md)"):
        assert linked(same, "README.md") == (same, set())


def test_a_file_is_shown_as_code_and_a_folder_as_a_list(website):
    page = website["page_of"]
    assert page("examples/own_grader.py").startswith("# examples/own_grader.py\n\n````python\n")
    assert "- [own_method.py](examples/own_method.py)\n" in page("examples")
    assert page("SECURITY.md") == (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_the_navigation_names_every_page_once(website):
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = re.findall(r"[\w-]+\.md", nav)
    assert len(named) == len(set(named))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(named)


def test_llms_txt_has_a_line_for_each_page_with_what_it_is_about(website):
    pages = {
        "a.md": "# Of A\n\n<!-- made -->\n\n![x](y.png)\n\nIt is **about** [a](b.md), v. 2. More.\n",
        "b.md": "# Of B\n",
    }
    website["MARKDOWN"].update(pages)
    lines = website["llms_text"]("quatro 1.0", "In short.", ["a.md", "b.md"]).splitlines()
    assert lines[0] == "# quatro 1.0"
    assert lines[-2:] == ["- [Of A](a.md): It is about a, v. 2.", "- [Of B](b.md): Of B."]
