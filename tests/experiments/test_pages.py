"""The measured pages of docs/ are what `make pages` writes from the results that are committed."""

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
    for name in written:
        assert (tmp_path / name).read_bytes() == (pages.DOCS / name).read_bytes(), name
    assert len(capsys.readouterr().out.splitlines()) == len(written)
    # No archived arm is on no page: the seeds of all lines are the runs of all archives.
    rows = (tmp_path / "best.md").read_text(encoding="utf-8").partition("## Every archived arm")[2].splitlines()
    seeds = sum(int(row.split(" | ")[4]) for row in rows if row.startswith("| ") and " seeds " not in row)
    assert seeds == sum(
        name.startswith("runs/") and name.endswith("/config.yaml")
        for folder in known_archives().values()
        for path in folder.glob("*.json.xz")
        for name in json.loads(lzma.decompress(path.read_bytes()))
    )
