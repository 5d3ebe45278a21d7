"""`quatro benchmarks`: what there is, what is here, and fetching it from a file."""

import json
import os
import sys
from pathlib import Path

import pytest

from evals.benchmarks.prompts import TEMPLATES
from tests.kit import quatro, says, write_rows


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def amc23(tmp_path) -> Path:
    path = tmp_path / "copy.jsonl"
    return write_rows(path, ({"id": f"x/{i}", "problem": f"What is {i} \x1b[2J?", "answer": str(i)} for i in range(40)))


def benchmarks(*words: object, code: int = 0):
    return quatro("benchmarks", *words, code=code)


def test_the_list_says_what_is_verified_and_what_is_here():
    shown = benchmarks("list").stdout
    for name in ("countdown", "math500", "amc23", "aime24", "aime25", "minerva", "olympiad", "math_train"):
        assert name in shown
    document = json.loads(benchmarks("list", "--json").stdout)
    here = {entry["name"]: (entry["problems"], entry["verified"], entry["here"]) for entry in document["benchmarks"]}
    assert here["countdown"] == (200, True, True)
    assert here["math_train"] == (7500, True, False)


def test_what_is_not_here_says_how_to_get_it():
    shown = benchmarks("show", "math500")
    assert "quatro benchmarks fetch math500" in shown.stdout
    assert "Prompt of" not in shown.stdout
    assert json.loads(benchmarks("show", "math500", "--json").stdout)["copy"] is None


def test_a_fetched_file_is_shown_with_its_first_prompt(amc23, cache):
    fetched = benchmarks("fetch", "amc23", "--from", amc23)
    assert fetched.stdout == f"{cache / 'benchmarks/amc23.jsonl'}\n"
    result = benchmarks("show", "amc23")
    shown = result.stdout
    assert "40" in shown
    says(result, "hash")  # these are not the real problems
    assert "[user]\nWhat is 0 " in shown
    assert "\x1b" not in shown
    document = json.loads(benchmarks("show", "amc23", "--json").stdout)
    assert document["copy"]["same_as_registry"] is False
    assert document["first_prompt"][-1]["content"].startswith("What is 0")
    assert "here" in benchmarks("list").stdout


def test_a_file_of_ones_own_is_shown_by_its_path(tmp_path):
    file = tmp_path / "tenmath.csv"
    file.write_text("question,answer\n1+1?,2\n", encoding="utf-8")
    document = json.loads(benchmarks("show", file, "--json").stdout)
    assert (document["name"], document["copy"]["problems"], document["copy"]["path"]) == ("tenmath", 1, str(file))
    assert document["first_prompt"][-1]["content"].startswith("1+1?")
    says(benchmarks("show", tmp_path / "nope.csv", code=2), tmp_path / "nope.csv")


def test_the_prompt_of_the_built_in_benchmark_is_its_problem():
    shown = benchmarks("show", "countdown").stdout
    assert "built-in" in shown
    assert shown.rstrip().endswith("9 3 8 2 8 5 -> 78")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["show", "math501"], 2, "countdown, codegrammar, word-problems, math500"),
        (["fetch", "math501"], 2, "countdown, codegrammar, word-problems, math500"),
        (["fetch", "countdown"], 2, "built in"),
        (["fetch", "amc23", "--from", "gone.jsonl"], 4, "gone.jsonl"),
    ],
)
def test_what_cannot_be_fetched_ends_with_its_exit_code(arguments, code, said):
    result = benchmarks(*arguments, code=code)
    assert said in result.stderr
    assert "this is a bug" not in result.stderr
    assert "Traceback" not in result.stderr


def test_without_the_hub_the_way_out_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    result = benchmarks("fetch", "math500", code=3)
    assert "quatro benchmarks fetch math500 --from FILE" in result.stderr
    assert "-s data.prompts=" in result.stderr


def test_other_content_is_refused_with_both_hashes(amc23):
    benchmarks("fetch", "amc23", "--from", amc23)
    text = amc23.read_text(encoding="utf-8").replace('"7"', '"8"')
    amc23.write_text(text, encoding="utf-8")
    result = benchmarks("fetch", "amc23", "--from", amc23, code=4)
    assert len([word for word in result.stderr.replace(",", " ").replace(";", " ").split() if len(word) == 64]) == 2


def test_a_users_benchmark_is_listed_sampled_from_and_graded_by_its_entry(tmp_path, monkeypatch, tiny_folder):
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "own.toml"))
    (tmp_path / "own.toml").write_text(
        '[sums]\nfile = "sums.jsonl"\nlicence = "CC0"\nanswer_after = "####"\ntemplate = "paper-example"\n',
        encoding="utf-8",
    )
    (tmp_path / "sums.jsonl").write_text('{"problem": "1+1?", "answer": "so #### 2"}\n', encoding="utf-8")
    shown = benchmarks("show", "sums").stdout
    assert "CC0" in shown
    assert "in a boxed form." in shown
    benchmarks("fetch", "sums", code=2)
    dry = quatro("sample", tiny_folder, "-b", "sums", "-n", "4", "--dry-run")
    assert "1 problems x 4 samples = 4 of sums" in dry.stdout
    assert "template paper-example" in dry.stdout
    (tmp_path / "sums.jsonl").unlink()
    assert f"no; there is no {tmp_path / 'sums.jsonl'}" in benchmarks("show", "sums").stdout


@pytest.mark.parametrize("name", ["math500", "amc23", "aime24", "aime25", "minerva", "olympiad", "math_train"])
def test_the_real_data_are_what_the_registry_says(name):
    folder = os.environ.get("QUATRO_DATA")
    if not folder or not (Path(folder) / f"{name}.jsonl").exists():
        pytest.skip("QUATRO_DATA does not name a folder with this benchmark")
    result = benchmarks("fetch", name, "--from", Path(folder) / f"{name}.jsonl")
    assert "the registry's count and hash" in result.stderr
    assert json.loads(benchmarks("show", name, "--json").stdout)["copy"]["missing"] == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[mine\n", 2),
        ('[tool.other]\nrepeats = 3\n[[suite]]\nname = "x"\n', 2),
        ('[mine]\nfile = "mine.jsonl"\n', 0),
    ],
    ids=["no TOML", "of another project", "of our form"],
)
def test_a_benchmarks_toml_is_read_under_our_name_only(text, code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUATRO_BENCHMARKS", raising=False)
    (tmp_path / "benchmarks.toml").write_text(text, encoding="utf-8")
    shown = benchmarks("list")
    assert str(tmp_path) not in shown.stdout
    assert not shown.stderr
    (tmp_path / "benchmarks.toml").rename(tmp_path / "quatro-benchmarks.toml")
    benchmarks("list", code=code)


def test_every_template_has_a_line_in_the_schema():
    schema = quatro("config", "schema").stdout
    assert all(f"\n      {name}  {template.about}\n" in schema for name, template in TEMPLATES.items())
