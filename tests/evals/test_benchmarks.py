import gzip
import json
import os
import sys
import tomllib
from importlib import resources
from pathlib import Path

import pytest

from evals.benchmarks import Problem, content_hash, load_problems, registry
from evals.countdown import count_solutions, verify
from evals.errors import DataError, MissingError, UsageError
from evals.prompts import TEMPLATES


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_registry_entries_are_complete_and_refer_to_what_exists() -> None:
    assert list(registry()) == [
        "countdown",
        "math500",
        "amc23",
        "aime24",
        "aime25",
        "minerva",
        "olympiad",
        "math_train",
    ]
    for name, entry in registry().items():
        assert entry.name == name
        assert entry.title
        assert entry.licence
        assert entry.count > 0
        assert entry.template in TEMPLATES
        assert entry.grader in ("math", "countdown")
        assert (entry.source == "built-in") == (not entry.hub)
        if entry.source == "hub":
            assert (entry.answer_field is None) != (entry.solution_field is None)
        assert bool(entry.sha256) == entry.verified


def test_registry_tables_have_no_other_keys() -> None:
    tables = tomllib.loads(resources.files("evals").joinpath("benchmarks.toml").read_text(encoding="utf-8"))
    known = set(vars(next(iter(registry().values()))))
    assert all(set(table) <= known - {"name"} for table in tables.values())


@pytest.mark.parametrize("name", [name for name, entry in registry().items() if entry.source == "hub"])
def test_verified_counts_and_hashes_are_those_of_the_data(name: str) -> None:
    folder = os.environ.get("QUATRO_DATA")
    if not folder or not (Path(folder) / f"{name}.jsonl").exists():
        pytest.skip("QUATRO_DATA does not name a folder with this benchmark")
    problems = load_problems(str(Path(folder) / f"{name}.jsonl"))
    dropped = 2 if name == "math_train" else 0
    assert len(problems) == registry()[name].count - dropped
    assert content_hash(problems) == registry()[name].sha256
    assert {problem.benchmark for problem in problems} == {name}


def test_countdown_answers_are_the_prompts_themselves() -> None:
    test, train = load_problems("countdown"), load_problems("countdown", split="train")
    assert len(test) == registry()["countdown"].count == 200
    assert len(train) == 3000
    assert content_hash(test) == registry()["countdown"].sha256
    assert test[0].answer == test[0].problem
    assert not verify(test[0].problem, "")
    *digits, _, target = test[0].problem.split()
    assert count_solutions([int(digit) for digit in digits], int(target)) > 0


def test_files_may_name_their_fields_in_several_ways(tmp_path: Path) -> None:
    source = write(
        tmp_path / "mine.jsonl",
        {"id": "a", "problem": "1+1?", "answer": "2"},
        {"question": "2+2?", "answer": 4, "extra": [1]},
        {"id": 7, "prompt": "1/2?", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}."},
        {"id": "code", "problem": "def f():", "answer": None},
    )
    assert load_problems(source) == [
        Problem("mine", "a", "1+1?", "2"),
        Problem("mine", "2", "2+2?", "4"),
        Problem("mine", "7", "1/2?", r"\frac{1}{2}"),
        Problem("mine", "code", "def f():", None),
    ]


def test_gzip_files_are_read_and_named_after_their_stem(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('{"problem": "π?", "answer": "3.14"}\n')
    assert load_problems(str(path)) == [Problem("mine", "1", "π?", "3.14")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "1"}, "lacks the problem"),
        ({"problem": "", "answer": "1"}, "problem is empty"),
        ({"problem": " \n", "answer": "1"}, "problem is empty"),
        ({"problem": ["x"], "answer": "1"}, "problem must be a string"),
        ({"problem": "x"}, "lacks `answer`"),
        ({"problem": "x", "answer": ""}, "reference answer is empty"),
        ({"problem": "x", "solution": "no box"}, "reference answer is empty"),
        ({"problem": "x", "solution": None}, "solution must be a string"),
        ({"problem": "x", "answer": True}, "answer must be"),
        ({"problem": "x", "answer": ["1"]}, "answer must be"),
        ({"problem": "x", "answer": "1", "id": " a"}, "white space"),
        ({"problem": "x", "answer": "1", "id": "ok"}, "already used on line 1"),
        ("text", "expected a JSON object"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path: Path, row: object, reason: str) -> None:
    source = write(tmp_path / "mine.jsonl", {"id": "ok", "problem": "x", "answer": "1"}, row)
    with pytest.raises(DataError, match=reason) as caught:
        load_problems(source)
    assert str(caught.value).startswith(f"{source}:2: ")


def test_empty_and_missing_files_are_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="no problems"):
        load_problems(str(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        load_problems(str(tmp_path / "gone.jsonl"))


def test_a_file_named_like_a_benchmark_gets_its_row_fixes(tmp_path: Path) -> None:
    rows = [{"problem": "x", "solution": "no box"}, {"problem": "y", "solution": r"\boxed{2}"}]
    assert load_problems(write(tmp_path / "math_train.jsonl", *rows)) == [Problem("math_train", "2", "y", "2")]


def test_unknown_names_and_needless_splits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of countdown, math500"):
        load_problems("math501")
    with pytest.raises(UsageError, match="split"):
        load_problems("math500", split="train")


def test_without_the_hub_client_the_message_says_how_to_use_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)  # import raises ImportError
    with pytest.raises(MissingError, match=r"-s data\.prompts=math500\.jsonl") as caught:
        load_problems("math500")
    assert caught.value.exit_code == 3


class FakeHub:
    """Stands in for the package `datasets`."""

    def __init__(self, rows: list[dict[str, str]] | None) -> None:
        self.rows = rows
        self.calls: list[tuple[str, str, str | None]] = []

    def load_dataset(self, hub_id: str, *, split: str, cache_dir: str | None) -> list[dict[str, str]]:
        self.calls.append((hub_id, split, cache_dir))
        if self.rows is None:
            raise ConnectionError("no route to host")
        return self.rows


def test_an_unreachable_hub_says_how_to_use_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", FakeHub(None))
    with pytest.raises(MissingError, match=r"no route to host; use a local file instead: `-s data\.prompts=amc23"):
        load_problems("amc23")


def test_hub_rows_become_problems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hub = FakeHub([{"question": f"{i}?", "answer": str(i)} for i in range(40)])
    monkeypatch.setitem(sys.modules, "datasets", hub)
    problems = load_problems("amc23", cache=tmp_path)
    assert problems[3] == Problem("amc23", "amc23/3", "3?", "3")
    assert hub.calls == [("math-ai/amc23", "test", str(tmp_path))]
    hub.rows = hub.rows[:39]
    with pytest.raises(DataError, match="39 rows in split test, expected 40"):
        load_problems("amc23")


def test_the_hash_ignores_order_and_spacing_but_not_content() -> None:
    rows = [Problem("a", "1", "x  y", "1"), Problem("a", "2", "z", "2")]
    same = [Problem("b", "9", "z\n", " 2"), Problem("b", "8", "x y", "1")]
    assert content_hash(rows) == content_hash(same)
    assert content_hash(rows) != content_hash([rows[0], Problem("a", "2", "z", "3")])
