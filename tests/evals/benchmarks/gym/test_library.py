"""Tasks of reasoning-gym as benchmarks: names, settings, splits, and an item that is drawn again elsewhere."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

from evals.benchmarks import gym as library
from evals.benchmarks.catalogue import find_benchmark, kind_of, registry
from evals.benchmarks.gym import COLUMN, PREFIX, REFUSED, Reference, as_key, entry, reference_of, task_names
from evals.benchmarks.gym.items import items
from evals.benchmarks.gym.scoring import IN_PROCESS
from evals.benchmarks.loading import is_here, load_problems, local_copy
from evals.benchmarks.problems import content_hash
from evals.errors import DataError, MissingError, UsageError


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes a quatro-benchmarks.toml into the folder where the test works."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUATRO_BENCHMARKS", raising=False)

    def write(text: str) -> None:
        (tmp_path / "quatro-benchmarks.toml").write_text(textwrap.dedent(text), encoding="utf-8")

    return write


def test_a_task_is_a_benchmark_with_the_questions_of_the_library():
    from reasoning_gym.factory import create_dataset

    problems = load_problems(f"{PREFIX}palindrome_generation")
    reference = reference_of(problems[3].extra[COLUMN])
    data = create_dataset("palindrome_generation", seed=reference.seed, size=50)
    assert problems[3].problem == data[reference.index]["question"]
    assert problems[3].answer == data[reference.index]["answer"]
    assert problems[3].id == "palindrome_generation/test/0003"
    assert len(problems) == 200
    assert find_benchmark(f"{PREFIX}palindrome_generation").template == "reasoning-gym"
    assert kind_of(f"{PREFIX}palindrome_generation").grader == "reasoning-gym"


def test_settings_of_ones_own_are_those_of_the_problems(own):
    own("""
        [palin6]
        reasoning_gym = "palindrome_generation"
        settings = { min_length = 6, max_length = 6 }
        count = 30
        num_train = 40
        """)
    test, train = load_problems("palin6"), load_problems("palin6", split="train")
    assert (len(test), len(train)) == (30, 40)
    assert {len(problem.answer) for problem in test + train} == {6}
    assert {problem.benchmark for problem in test + train} == {"palin6"}
    assert kind_of("palin6").grader == "reasoning-gym"
    assert local_copy(registry()["palin6"])[1]["missing"] == 0


def test_a_hash_that_was_written_down_is_checked(own):
    text = '[palin6]\nreasoning_gym = "palindrome_generation"\ncount = 20\nsha256 = "{}"\n'
    own('[palin6]\nreasoning_gym = "palindrome_generation"\ncount = 20\n')
    right = content_hash(load_problems("palin6"))
    own(text.format(right))
    assert len(load_problems("palin6")) == 20
    own(text.format("0" * 64))
    with pytest.raises(DataError, match=f"says SHA-256 0+, but the test problems have {right}"):
        load_problems("palin6")


@pytest.mark.parametrize("task", ["palindrome_generation", "gcd", "list_functions", "graph_color", "syllogism"])
def test_no_question_is_in_both_splits_or_twice_in_one(task):
    sizes = {"num_test": 30, "at": "here"}
    test = items(task, "{}", "test", count=30, **sizes)
    train = items(task, "{}", "train", count=60, **sizes)
    questions = [item.prompt for item in test + train]
    assert len(set(questions)) == len(questions) == 90


def test_the_splits_share_no_seed_of_an_item():
    """Item i is drawn from Random(seed + i): what must differ is the sum."""
    sizes = {"num_test": 200, "at": "here"}
    sums = [
        {item.reference.seed + item.reference.index for item in items("gcd", "{}", part, count=200, **sizes)}
        for part in ("train", "test", "start")
    ]
    assert sum(map(len, sums)) == len(set().union(*sums)) == 600


def test_a_task_that_has_too_few_items_says_how_many():
    settings = as_key({"min_length": 1, "max_length": 1})
    with pytest.raises(
        DataError, match=r"here: the task palindrome_generation .* gives only 2\d different test items .*`count`"
    ):
        items("palindrome_generation", settings, "test", count=27, num_test=27, at="here")
    with pytest.raises(DataError, match="gives only 6 different train items that are not in the test split"):
        items("palindrome_generation", settings, "train", count=7, num_test=20, at="here")


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        ("palindrom_generation", {}, "has no task 'palindrom_generation'; did you mean palindrome_generation"),
        ("palindrome_generation", {"min_lenght": 3}, "no setting 'min_lenght'; did you mean min_length"),
        ("palindrome_generation", {"min_length": "3"}, "refuses settings.min_length = '3'"),
        ("palindrome_generation", {"min_length": 0}, "refuses settings.min_length = 0: min_length must be >= 1"),
        ("palindrome_generation", {"seed": 3}, "settings.seed is chosen by quatro"),
        ("puzzle24", {}, "puzzle24 of reasoning-gym cannot be used: its checker accepts any four numbers"),
    ],
)
def test_a_wrong_task_or_setting_is_named(task, settings, message):
    with pytest.raises(UsageError, match=f"^here: .*{message}"):
        library.check(task, settings, "here")


def test_the_checkers_that_are_refused_are_as_bad_as_the_refusals_say():
    data = library.dataset("puzzle24", "{}", 0)
    assert data.score_answer("4*6*1*1", {"metadata": {"numbers": [9, 9, 9, 8]}}) == 1
    data = library.dataset("game_of_life_halting", "{}", 0)
    assert {data.score_answer("no idea", data[i]) for i in range(10)} == {1.0}
    data = library.dataset("coin_flip", "{}", 0)
    assert data.score_answer("0", {"answer": "0.234375"}) == 1


def test_an_entry_with_two_sources_or_settings_of_nothing_is_refused(own):
    own('[a]\nreasoning_gym = "gcd"\nfile = "a.jsonl"\n')
    with pytest.raises(UsageError, match="`reasoning_gym` and `file`"):
        registry()
    own('[a]\nfile = "a.jsonl"\nsettings = { x = 1 }\n')
    with pytest.raises(UsageError, match="has `settings`, which belong to a task of reasoning-gym"):
        registry()


@pytest.mark.slow
def test_items_are_the_same_in_a_process_with_another_order_of_sets():
    """Five tasks that draw from sets, dictionaries or the global generators, or keep lists of their own."""
    tasks = ["list_functions", "acre", "course_schedule", "zebra_puzzles", "letter_counting"]
    code = (
        "import sys, json; from evals.benchmarks.gym import *\n"
        "print(json.dumps([[digest_of(drawn(dataset(task, '{}', 7), i)) for i in range(8)] for task in sys.argv[1:]]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code, *tasks],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(json.loads(found.pop())) == 5


def test_another_version_of_an_item_is_an_error():
    problem = load_problems(f"{PREFIX}gcd")[0]
    column = dict(problem.extra[COLUMN])
    assert str(entry(reference_of(column))["answer"]) == problem.answer
    with pytest.raises(UsageError, match="is another problem in the reasoning-gym that is installed here"):
        entry(reference_of({**column, "digest": "0" * 12}))
    assert reference_of({**column, "more": 1}) is None
    assert reference_of({**column, "index": "0"}) is None
    assert reference_of("gcd") is None
    assert reference_of(json.loads(json.dumps(column))) == reference_of(column)


def test_what_does_not_go_into_a_column_is_left_out():
    reference = Reference("gcd", "{}", 1, 2, "abc")
    assert reference.column() == {"task": "gcd", "seed": 1, "index": 2, "digest": "abc"}
    assert reference_of(reference.column()) == reference


def test_without_the_library_the_error_names_the_command(monkeypatch):
    for module in ("evals.errors", "evals.benchmarks.loading"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"not installed; run pip install -e '.*\[gym\]'"):
        load_problems(f"{PREFIX}gcd")
    assert not is_here(registry()["palindrome"])


def test_the_library_does_not_print(capsys):
    library.drawn(library.dataset("caesar_cipher", "{}", 1), 0)
    list(items("figlet_font", "{}", "test", count=3, num_test=3, at="here"))
    assert capsys.readouterr().out == ""


def test_checkers_in_process_evaluate_nothing():
    """Neither they nor what they call in their class or in `utils`, as far as names tell."""
    from reasoning_gym.factory import DATASETS

    assert set(task_names()) >= IN_PROCESS
    assert set(task_names()).isdisjoint(REFUSED)
    dangerous = {"eval", "exec", "compile", "parse_expr", "sympify", "__import__", "solve", "simplify", "Fraction"}
    for task in IN_PROCESS:
        checker = DATASETS[task][0].score_answer
        tree = ast.parse(textwrap.dedent(inspect.getsource(checker)))
        called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
        names = {getattr(found, "id", getattr(found, "attr", "")) for found in called}
        assert names.isdisjoint(dangerous), f"{task} calls {names & dangerous}"
