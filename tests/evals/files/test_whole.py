"""Files that are the old one or the new one, never half."""

import os
import stat
from pathlib import Path

import pytest

from evals.errors import UsageError
from evals.files import whole


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, function):
    path = tmp_path / "table.csv"
    whole.write_text(path, "old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, function, fail)
        with pytest.raises(OSError, match=r"No space left on device: '.*table\.csv'"):
            whole.write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert os.listdir(tmp_path) == ["table.csv"]
    whole.write_text(path, "new λ")
    assert path.read_bytes() == "new λ".encode()


def test_a_file_that_a_user_named_is_written_where_a_link_points_and_nowhere_but_in_a_file(tmp_path):
    target, link = tmp_path / "folder" / "target.json", tmp_path / "link.json"
    link.symlink_to(target)
    whole.write_whole(link, [b"one, ", b"two"])
    assert link.is_symlink()
    assert target.read_bytes() == b"one, two"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~umask
    with pytest.raises(UsageError, match="is a folder and cannot be replaced"):
        whole.write_whole(target.parent, [b"one"])
    reader, writer = os.pipe()
    try:
        with pytest.raises(UsageError, match="is no regular file and cannot be replaced"):
            whole.write_whole(Path(f"/dev/fd/{writer}"), [b"one"])
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("name", ["../../etc/passwd", "a/b", "..", "", "x" * 500, "\x1b[2J", "a b"])
def test_fault_32_a_benchmark_name_cannot_leave_the_folder(name, tmp_path):
    stem = whole.file_stem(name)
    assert (tmp_path / f"{stem}.jsonl").resolve().parent == tmp_path.resolve()
    assert 0 < len(stem) < 100
    assert stem != name


def test_safe_names_stay_and_unsafe_ones_stay_apart():
    assert whole.file_stem("math500") == "math500"
    assert whole.file_stem("a/b") != whole.file_stem("a:b")
