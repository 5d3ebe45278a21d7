"""What the machine around does - its folders, locale, encoding and time zone - changes no result."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

ENVIRONMENTS = {
    "ascii": {
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "PYTHONUTF8": "0",
        "TZ": "Asia/Kathmandu",
        "PYTHONHASHSEED": "1",
    },
    "utf8": {"LC_ALL": "C.utf8", "TZ": "America/St_Johns", "PYTHONHASHSEED": "2", "COLUMNS": "400"},
}


def quatro(argv: Sequence[str | Path], folder: Path, environment: dict[str, str]) -> bytes:
    """What a new process of the command prints on stdout."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "PYTHON"))}
    paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    ended = subprocess.run(
        [sys.executable, "-m", "quatro_cli", *map(str, argv)],
        cwd=folder,
        env={**kept, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Answers in many scripts, two to a problem."""
    texts = ["ответ \\boxed{4}", "答案是 \\boxed{4}", "ça va: \\boxed{5}", "\u2028 \\boxed{4} \U0001f600"]
    rows = [
        {"benchmark": "naïve", "id": f"задача-{i}", "sample_index": j, "completion": texts[2 * i + j], "answer": "4"}
        for i in range(2)
        for j in range(2)
    ]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


MEASURES = [["passk", "--k", "1,2", "--json"], ["ucc", "--k", "2", "-o", "ucc.json"]]
SHOWS = [
    ["eval", "grade", "../samples.jsonl", "-o", "graded"],
    ["eval", "flips", "../samples.jsonl", "../samples.jsonl", "--k", "1"],
    ["eval", "ucc", "../samples.jsonl", "--k", "1,2", "-o", "ucc.json"],
    ["table", "ucc.json", "--format", "latex", "-o", "ucc.tex"],
    ["table", "ucc.json", "--format", "csv", "-o", "ucc.csv"],
    ["plot", "ucc", "ucc.json", "-o", "ucc.png"],
    ["plot", "ucc", "ucc.json", "-o", "ucc.pdf"],
]


@pytest.mark.parametrize(
    "commands",
    [
        [["eval", name, "../samples.jsonl", *options] for name, *options in MEASURES],
        pytest.param(SHOWS, marks=pytest.mark.slow),
    ],
    ids=["measured", "shown"],
)
def test_fault_20_locale_encoding_and_time_zone_change_no_byte_of_a_result(commands, samples, tmp_path):
    found = {}
    for name, environment in ENVIRONMENTS.items():
        folder = tmp_path / name
        folder.mkdir()
        printed = [quatro(command, folder, environment) for command in commands]
        files = {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
        assert len(files) >= sum("-o" in command for command in commands)
        found[name] = (printed, files)
    assert found["ascii"] == found["utf8"]
    assert "naïve".encode() in found["ascii"][0][1]


@pytest.mark.slow
def test_fault_20_locale_encoding_and_time_zone_change_no_trained_byte(lab, tmp_path):
    outcomes = []
    for name, environment in ENVIRONMENTS.items():
        quatro([*lab.train, "-o", tmp_path / name], lab.folder, environment)
        outcomes.append(lab.outcome(tmp_path / name))
    assert outcomes == [lab.whole[0]] * 2


@pytest.fixture
def without_writing(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """``without_writing(folder, *argv, cwd=...)``: the command while ``folder`` is read-only."""

    def run(folder: Path, *argv: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        prefix: list[str] = []
        if os.geteuid() != 0:
            folder.chmod(0o555)
        elif shutil.which("unshare") and subprocess.run(["unshare", "-m", "true"]).returncode == 0:
            # Root is stopped by the mount alone: the folder on itself, read-only, in a namespace of the command's own.
            mount = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
            prefix = ["unshare", "-m", "sh", "-c", mount, str(folder)]
        else:
            pytest.skip("needs a mount namespace, or another user than root")
        command = [*prefix, sys.executable, "-m", "quatro_cli", *map(str, argv)]
        paths = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
        try:
            return subprocess.run(
                command, cwd=cwd, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True
            )
        finally:
            folder.chmod(0o755)

    return run


def refusal(ended: subprocess.CompletedProcess[str], folder: Path) -> str:
    assert ended.returncode == 1, ended.stderr
    assert "this is a bug" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "Read-only file system" in ended.stderr or "Permission denied" in ended.stderr
    assert str(folder) in ended.stderr.replace("\n", "")
    return ended.stderr


@pytest.fixture
def nothing_is_taught(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache: whoever needs an embedded model must teach it first, and says so."""
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.mark.usefixtures("nothing_is_taught")
def test_fault_05_a_folder_that_cannot_be_written_is_refused_before_any_work(lab, tmp_path, without_writing):
    argv = [*lab.train, "-s", "model=embedded:countdown", "-o", tmp_path / "run"]
    said = refusal(without_writing(tmp_path, *argv, cwd=lab.folder), tmp_path)
    assert "teach" not in said
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", "checkpoints", "rollouts"])
def test_fault_05_a_run_that_cannot_be_written_is_not_resumed(lab, tmp_path, without_writing, name):
    run = tmp_path / "run"
    assert lab.begin(run, root=run / "checkpoints", fail_at=50, kill=True).code != 0
    before = (run / "metrics.jsonl").read_bytes()
    refusal(without_writing(run / name, "train", run, "--resume", cwd=lab.folder), run / name)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert lab.finish(run) == lab.whole[0]


@pytest.mark.usefixtures("nothing_is_taught")
def test_fault_05_samples_that_cannot_be_written_are_not_drawn(lab, tmp_path, without_writing):
    argv = ["sample", "embedded:countdown", "-b", "countdown", "-o", tmp_path / "samples"]
    said = refusal(without_writing(tmp_path, *argv, cwd=lab.folder), tmp_path)
    assert "teach" not in said
