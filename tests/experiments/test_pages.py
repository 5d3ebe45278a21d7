"""The measured pages of docs/ are what `make pages` writes from the results that are committed."""

import csv
import json
import lzma

import pytest

from experiments import pages
from experiments.archive import known_archives


@pytest.mark.slow
def test_the_pages_are_those_of_the_committed_results(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("sys.argv", ["experiments.pages", "--out", str(tmp_path)])
    assert pages.main() == 0
    written = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    stems = ("ablation", "beyond-paper", "budgeted", "choosing-delta", "real-model", "replication")
    single = ["best.md", "which-similarity.md"]
    assert written == sorted([*(f"{stem}.{ending}" for stem in stems for ending in ("json", "md")), *single])
    tables = sorted(f"data/{path.name}" for path in (tmp_path / "data").iterdir())
    assert tables == sorted(f"data/{path.name}" for path in (pages.DOCS / "data").iterdir())
    pages_text = "".join((tmp_path / name).read_text(encoding="utf-8") for name in written)
    assert [name for name in tables if f"]({name})" not in pages_text] == []
    written += tables
    for name in written:
        assert (tmp_path / name).read_bytes() == (pages.DOCS / name).read_bytes(), name
    assert len(capsys.readouterr().out.splitlines()) == len(written)
    # Every archived arm is in the table that best.md names: the seeds of all its lines are the runs of all archives.
    assert "(data/arms.csv)" in (tmp_path / "best.md").read_text(encoding="utf-8")
    with (tmp_path / "data/arms.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = [tuple(row[key] for key in ("task (sweep)", "cell", "method", "setting")) for row in rows]
    assert len(set(names)) == len(names)  # each once
    assert sum(int(row["seeds"]) for row in rows) == sum(
        name.startswith("runs/") and name.endswith("/config.yaml")
        for folder in known_archives().values()
        for path in folder.glob("*.json.xz")
        for name in json.loads(lzma.decompress(path.read_bytes()))
    )
