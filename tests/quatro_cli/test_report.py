"""`quatro report` from the outside."""

import pytest

from quatro.config import config_to_yaml, load_config
from tests.kit import quatro, says, write_rows


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "runs/a"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config_to_yaml(load_config("quickstart")), encoding="utf-8")
    rows = [{"step": t, "reward/mean": t / 10} for t in range(1, 6)]
    write_rows(path / "metrics.jsonl", rows)
    return path


def test_the_page_is_written_its_path_printed_and_the_same_again(run, tmp_path):
    out = tmp_path / "new" / "page.html"
    pages = []
    for _ in range(2):
        assert quatro("report", run, "-o", out).stdout == f"{out}\n"
        pages.append(out.read_bytes())
    assert pages[0] == pages[1]
    assert pages[0].startswith(b"<!doctype html>")
    assert b"quatro sample" in pages[0]  # what fills the empty sections


def test_a_file_that_is_no_page_and_a_folder_that_is_no_run_are_refused(run, tmp_path):
    says(quatro("report", run, "-o", tmp_path / "x.pdf", code=2), "x.html")
    says(quatro("report", tmp_path / "none", "-o", tmp_path / "x.html", code=2), tmp_path / "none")
    assert not (tmp_path / "x.html").exists()


def test_a_page_that_stood_there_survives_a_broken_run(run, tmp_path):
    out = tmp_path / "x.html"
    out.write_text("old", encoding="utf-8")
    (run / "metrics.jsonl").write_text("broken\n", encoding="utf-8")
    quatro("report", run, "-o", out, code=4)
    assert out.read_text(encoding="utf-8") == "old"
