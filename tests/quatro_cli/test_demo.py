"""`quatro demo` on runs and samples that are there already: what it reads from them."""

from pathlib import Path

import pytest
import typer

from quatro.config import load_config
from quatro.runs.directory import RunDir
from tests.kit import quatro, says, write_rows


@pytest.fixture
def finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A demo of two steps that only has to be read; both KLs differ, and only one is the constraint's."""
    for name, method, kl in (("quatro", None, 0.02), ("gspo", "gspo", 0.5)):
        with RunDir.create(tmp_path / name, load_config("quickstart", overrides=["steps=2"], method=method)) as run:
            for step in (1, 2):
                run.append_metrics({"step": step, "entropy/token_mean": 0.9, "kl/new_old": kl, "kl/old_new": 9.0})
            run.set_status("done", step=2)

    def drawn(command: list[str], *, dry_run: bool) -> None:
        if command[:2] == ["plot", "training"]:
            quatro(*command)
            return
        assert command[0] == "sample"  # the runs are done
        out = Path(command[-1])
        out.mkdir(parents=True)
        row = {"benchmark": "countdown", "id": "p", "answer": "7 2 7 6 2 8 -> 67", "correct": True}
        rows = [{**row, "sample_index": i, "completion": f"7+{i}"} for i in range(2)]
        write_rows(out / "countdown.jsonl", rows)

    monkeypatch.setattr("quatro_cli.commands.demo._run", drawn)
    return tmp_path


def test_the_demo_compares_delta_with_the_kl_that_it_bounds(finished):
    pytest.importorskip("matplotlib")
    result = quatro("demo", "-o", finished, "--steps", "2", "-n", "2")
    table = {line[:17].strip(): line.split()[-1] for line in result.stdout.splitlines()[1:5]}
    assert table == {"": "kl/new_old", "base": "-", "QUATRO delta=0.01": "0.020", "GSPO": "0.500"}
    assert "QUATRO moves by 2.0 times its delta of 0.01; GSPO, which has no delta, by 50 times as much" in result.stdout
    assert "old_new" not in result.stdout
    figures = finished / "figures"
    assert result.stdout.splitlines()[-1] == str(figures / "passk-ucc.png")
    assert {path.name for path in figures.iterdir()} == {"training.png", "passk-ucc.png"}


@pytest.mark.parametrize("stop", [typer.Exit(130), KeyboardInterrupt()])
def test_a_demo_that_is_stopped_says_how_it_goes_on(tmp_path, monkeypatch, stop):
    def stopped(command: list[str], *, dry_run: bool) -> None:
        raise stop

    monkeypatch.setattr("quatro_cli.commands.demo._run", stopped)
    result = quatro("demo", "-o", tmp_path / "a b", "--steps", "7", "-n", "3", code=130)
    says(result, advice=f"quatro demo -o '{tmp_path}/a b' --steps 7 -n 3")
    assert "warning" not in result.stderr
    assert "error" not in result.stderr


def test_a_demo_that_fails_ends_with_the_code_of_its_command(tmp_path):
    (tmp_path / "quatro").mkdir()
    (tmp_path / "quatro" / "file").touch()
    assert "not empty" in quatro("demo", "-o", tmp_path, "--steps", "2", "-n", "2", code=2).stderr
