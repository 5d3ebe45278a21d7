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


def table(heading: str) -> Iterator[list[str]]:
    """The cells of each row of the first table below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1]
    lines = re.search(r"^\|[|-]+\|\n((?:\|.*\n)+)", section, re.MULTILINE)[1].splitlines()
    return ([cell.strip() for cell in line.strip("|").split(" | ")] for line in lines)


def check_files(folder: Path, heading: str, *, also: tuple[str, ...] = ()) -> None:
    """The table names every file of ``folder``, which has those that are there always, or as ``also`` says."""
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    named = set()
    for name, there, _ in table(heading):
        words = PLACE.sub("[^/]*", re.escape(name.strip("`"))) + (".*" if name.endswith("/`") else "")
        found = {file for file in files if re.fullmatch(words, file)}
        assert found or (there != "always" and not there.startswith(also)), name
        named |= found
    assert files == named


def test_the_columns_of_samples_are_those_that_are_read():
    columns = {name.strip("`"): required for name, required, _ in table("Samples")}
    assert tuple(name for name in columns if name not in (THOUGHT, JUDGED_AS)) == FIELDS
    assert tuple(name for name, required in columns.items() if required) == REQUIRED_FIELDS


@pytest.mark.parametrize(
    ("head", "document", "inside"),
    [
        ("key of the document", Result, {"sampling": SamplingInfo, "grader": GraderInfo}),
        ("key of a row", Row, {}),
        ("key of a problem", ProblemEntry, {}),
    ],
)
def test_the_keys_of_a_result_are_those_of_its_models(head, document, inside):
    lines = re.search(rf"^\| {head} .*\n[|-]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)[1].splitlines()
    keys = {field.alias or name for name, field in document.model_fields.items() if not field.exclude}
    keys |= {f"{key}.{name}" for key, model in inside.items() for name in model.model_fields}
    assert {line.split("`")[1] for line in lines} == keys - set(inside)


def test_the_keys_of_a_benchmark_are_those_of_its_table():
    names = [key for cells in table("quatro-benchmarks.toml") for key in re.findall(r"`(\w+)`", cells[0])]
    assert sorted(names) == sorted(set(Benchmark.model_fields) - {"name", "defined_in", "verified", "made_by"})


def test_the_files_of_a_run_are_those_in_its_table(tiny_folder, tmp_path):
    run = tmp_path / "run"
    quatro("train", "quickstart", *settings(f"model={tiny_folder}", *SMALL), "-o", run)
    quatro("sample", run, "-b", "countdown", "-n", "1", "--max-tokens", "2")
    quatro("eval", "grade", run)
    check_files(run, "A run", also=("after `quatro", "unless"))


@pytest.mark.slow
def test_the_files_of_a_sweep_are_those_in_its_table(tiny_folder, tmp_path):
    words = [*settings(f"model={tiny_folder}", *SMALL), "--eval", "countdown", "--eval-n", "1"]
    quatro("sweep", "quickstart", "-g", "method.delta=0.1", *words, "-o", tmp_path / "sweep")
    check_files(tmp_path / "sweep", "A sweep", also=("with",))
    assert {path.name for path in (tmp_path / "sweep/runs").glob("*/samples/*/*.json")} == {
        *("sampling.json", "passk.json", "ucc.json")
    }
