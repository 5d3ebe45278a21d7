"""docs/files.md names the columns, the keys and the files that there are: all of them, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from evals.benchmarks.catalogue import JUDGED_AS, Benchmark
from evals.benchmarks.prompts import THOUGHT
from evals.results.document import GraderInfo, ProblemEntry, Result, Row, SamplingInfo
from evals.samples.types import FIELDS, REQUIRED_FIELDS
from tests.kit import quatro, settings

PAGE = (Path(__file__).parents[2] / "docs/files.md").read_text(encoding="utf-8")
PLACE = re.compile("NNNNNN|TAG|BENCHMARK|NAME")
SMALL = ("steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "threads=1")


def section(heading: str) -> str:
    """What stands below a line and before the next heading."""
    return PAGE.split(f"\n{heading}\n")[1].partition("\n#")[0]


def entries(text: str) -> Iterator[tuple[list[str], str]]:
    """The names that each entry of a list explains, and how its explanation begins."""
    for names, meaning in re.findall(r"^- ((?:`[^`]+`,?\s*)+): (.*)$", text, re.MULTILINE):
        yield re.findall("`([^`]+)`", names), meaning


def check_files(folder: Path, heading: str, *, also: tuple[str, ...] = ()) -> None:
    """The list names every file of ``folder``, which has those that are there always, or as ``also`` says."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    named = set()
    for names, meaning in entries(section(heading)):
        for name in names:
            words = PLACE.sub("[^/]*", re.escape(name)) + (".*" if name.endswith("/") else "")
            found = {file for file in files if re.fullmatch(words, file)}
            is_sure = meaning.startswith(also) or not meaning.startswith(("if ", "unless ", "with ", "after "))
            assert found or not is_sure, name
            named |= found
    assert files == named


def test_the_columns_of_samples_are_those_that_are_read():
    rows = re.findall(r"^- `(\w+)`( \(required\))?: ", section("## Samples"), re.MULTILINE)
    columns = {name: bool(required) for name, required in rows}
    assert tuple(name for name in columns if name not in (THOUGHT, JUDGED_AS)) == FIELDS
    assert tuple(name for name, required in columns.items() if required) == REQUIRED_FIELDS


@pytest.mark.parametrize(
    ("head", "document", "inside"),
    [
        ("Keys of the document:", Result, {"sampling": SamplingInfo, "grader": GraderInfo}),
        ("Keys of a row:", Row, {}),
        ("Keys of a problem:", ProblemEntry, {}),
    ],
)
def test_the_keys_of_a_result_are_those_of_its_models(head, document, inside):
    named = [name for names, _ in entries(section(head).split("\n\n")[0]) for name in names]
    keys = {field.alias or name for name, field in document.model_fields.items() if not field.exclude}
    keys |= {f"{key}.{name}" for key, model in inside.items() for name in model.model_fields}
    assert sorted(named) == sorted(keys - set(inside))


def test_the_keys_of_a_benchmark_are_those_of_its_table():
    names = [name for names, _ in entries(section("## quatro-benchmarks.toml")) for name in names]
    assert sorted(names) == sorted(set(Benchmark.model_fields) - {"name", "defined_in", "verified", "made_by"})


def test_the_files_of_a_run_are_those_in_its_table(tiny_folder, tmp_path):
    run = tmp_path / "run"
    quatro("train", "quickstart", *settings(f"model={tiny_folder}", *SMALL), "-o", run)
    quatro("sample", run, "-b", "countdown", "-n", "1", "--max-tokens", "2")
    quatro("eval", "grade", run)
    check_files(run, "## A run", also=("after `quatro", "unless"))


@pytest.mark.slow
def test_the_files_of_a_sweep_are_those_in_its_table(tiny_folder, tmp_path):
    words = [*settings(f"model={tiny_folder}", *SMALL), "--eval", "countdown", "--eval-n", "1"]
    quatro("sweep", "quickstart", "-g", "method.delta=0.1", *words, "-o", tmp_path / "sweep")
    check_files(tmp_path / "sweep", "## A sweep", also=("with ",))
    assert {path.name for path in (tmp_path / "sweep/runs").glob("*/samples/*/*.json")} == {
        *("sampling.json", "passk.json", "ucc.json")
    }
