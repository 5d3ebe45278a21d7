"""The measured pages of docs/ are what `make pages` writes from the results that are committed."""

import pytest

from experiments import pages


@pytest.mark.slow
def test_the_pages_are_those_of_the_committed_results(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr("sys.argv", ["experiments.pages", "--out", str(tmp_path)])
    assert pages.main() == 0
    written = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    stems = ("ablation", "beyond-paper", "choosing-delta", "real-model", "replication")
    assert written == [*(f"{stem}.{ending}" for stem in stems for ending in ("json", "md")), "which-similarity.md"]
    for name in written:
        assert (tmp_path / name).read_bytes() == (pages.DOCS / name).read_bytes(), name
    assert len(capsys.readouterr().out.splitlines()) == len(written)
