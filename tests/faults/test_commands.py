"""Commands that write files, killed or without a disk at any file operation: repeated, they write the same files."""

from __future__ import annotations

import random
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit import write_rows

if TYPE_CHECKING:
    from conftest import Ended, Laboratory

PROBLEMS = [{"id": f"p{i}", "problem": f"{i} 2 7 6 2 8 -> 67", "answer": "67"} for i in range(1, 7)]
COMPLETIONS = [f"{way} it is \\boxed{{{value}}}" for way in ("by hand", "by a sum", "by parts") for value in (67, 66)]
NAMES = ("sample", "grade", "passk", "ucc", "table", "export", "report", "plot")


@pytest.fixture(scope="module")
def commands(lab: Laboratory, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[Path], list[str]]]:
    """Each of `NAMES`, as what to type to write below a folder."""
    folder = tmp_path_factory.mktemp("commands")
    problems, samples, run, result = (folder / name for name in ("toy.jsonl", "given.jsonl", "run", "result.json"))
    rows = [
        {"benchmark": "toy", "id": problem["id"], "sample_index": i, "completion": text, "answer": problem["answer"]}
        for problem in PROBLEMS
        for i, text in enumerate(COMPLETIONS)
    ]
    for path, lines in ((problems, PROBLEMS), (samples, rows)):
        write_rows(path, lines)
    assert lab.run([*lab.train, "-s", "steps=2", "-o", str(run)], root=run).code == 0
    assert lab.run(["eval", "passk", str(samples), "-o", str(result)], root=folder).code == 0
    drawn = ["sample", str(run), "-b", str(problems), "-n", "40", "--max-tokens", "12"]
    return {
        "sample": lambda out: [*drawn, "-o", str(out)],
        "grade": lambda out: ["eval", "grade", str(samples), "--jobs", "1", "-o", str(out)],
        "passk": lambda out: ["eval", "passk", str(samples), "-o", str(out / "passk.csv")],
        "ucc": lambda out: ["eval", "ucc", str(samples), "--jobs", "1", "-o", str(out / "ucc.json")],
        "table": lambda out: ["table", str(result), "-o", str(out / "table.tex")],
        "export": lambda out: ["export", str(run), "-o", str(out / "model")],
        "report": lambda out: ["report", str(run), "-o", str(out / "page.html")],
        "plot": lambda out: ["plot", "training", str(run), "-o", str(out / "figure.png")],
    }


def files_below(folder: Path) -> dict[str, bytes]:
    """All but the hidden files that a killed process was writing under another name."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    unfinished = re.compile(r"\..*\.[0-9a-f]{8}\.tmp")
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths if not unfinished.fullmatch(path.name)}


class Repeated:
    """One command of `commands`: what it writes when nothing goes wrong, and what is left when something did."""

    def __init__(self, lab: Laboratory, command: Callable[[Path], list[str]], folder: Path) -> None:
        self._lab, self._command, self._folder = lab, command, folder
        self.ended = self.run()
        assert self.ended.code == 0, self.ended.err
        self._whole = files_below(self.out)
        assert self._whole

    @property
    def out(self) -> Path:
        return self._folder / "out"

    def run(self, **faults) -> Ended:
        self.out.mkdir(exist_ok=True)
        return self._lab.run(self._command(self.out), root=self.out, **faults)

    def begin(self, **faults) -> Ended:
        """In an empty folder."""
        shutil.rmtree(self.out)
        return self.run(**faults)

    def difference_when_repeated(self) -> list[str]:
        """The files that are not what they would have been."""
        ended = self.run()
        # The one failure after an export has its name already: that the disk may not have noted the name yet.
        is_there = ended.code == 2 and "is not empty, and nothing is overwritten" in ended.err
        assert ended.code == 0 or is_there, ended.err
        found = files_below(self.out)
        return [name for name in found.keys() | self._whole.keys() if found.get(name) != self._whole.get(name)]


@pytest.fixture
def repeated(request: pytest.FixtureRequest, lab, commands, tmp_path) -> Repeated:
    return Repeated(lab, commands[request.param], tmp_path)


def difference_after_failure(repeated: Repeated, at: int, *, sticky: bool) -> list[str]:
    ended = repeated.begin(fail_at=at, sticky=sticky)
    assert "this is a bug" not in ended.err, ended.err
    assert "Traceback" not in ended.err, ended.err
    if ended.code != 0:
        assert str(repeated.out) in ended.err.replace("\n", ""), ended.err
    return repeated.difference_when_repeated()


@pytest.mark.slow
@pytest.mark.parametrize("repeated", NAMES, indirect=True)
def test_fault_04_39_a_command_whose_disk_is_full_says_so_and_loses_nothing(repeated):
    assert difference_after_failure(repeated, (1 + repeated.ended.operations) // 2, sticky=True) == []


@pytest.mark.long
@pytest.mark.parametrize("repeated", NAMES, indirect=True)
@pytest.mark.parametrize("sticky", [False, True])
def test_fault_04_39_a_command_whose_disk_fails_at_any_operation_loses_nothing(repeated, sticky):
    at_any = range(1, repeated.ended.operations + 1)
    differences = {at: difference_after_failure(repeated, at, sticky=sticky) for at in at_any}
    assert {at: difference for at, difference in differences.items() if difference} == {}


@pytest.mark.long
@pytest.mark.parametrize("repeated", NAMES, indirect=True)
def test_fault_17_39_a_command_that_is_killed_at_any_operation_loses_nothing(repeated):
    differences = {}
    for at in range(1, repeated.ended.operations + 1):
        assert repeated.begin(fail_at=at, kill=True).code == -signal.SIGKILL
        if difference := repeated.difference_when_repeated():
            differences[at] = difference
    assert differences == {}


@pytest.mark.long
@pytest.mark.parametrize(("repeated", "kills"), [("sample", 50), ("grade", 15), ("ucc", 15)], indirect=["repeated"])
def test_fault_17_a_command_that_is_killed_at_any_moment_loses_nothing(repeated, kills):
    dice, differences = random.Random(0), {}
    for number in range(kills):
        repeated.begin(signals=[(dice.uniform(0.0, repeated.ended.seconds), signal.SIGKILL)])
        if difference := repeated.difference_when_repeated():
            differences[number] = difference
    assert differences == {}
