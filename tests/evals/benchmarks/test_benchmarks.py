import gzip
import json
import os
from pathlib import Path

import pytest

from evals.benchmarks.catalogue import GRADERS, registry
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import Problem, content_hash
from evals.benchmarks.prompts import TEMPLATES
from evals.errors import DataError, UsageError
from quatro.tasks.countdown import count_solutions, solves


def write(path: Path, *rows: object) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def test_registry_entries_are_complete_and_refer_to_what_exists():
    assert list(registry()) == [
        "countdown",
        "codegrammar",
        "word-problems",
        "math500",
        "amc23",
        "aime24",
        "aime25",
        "minerva",
        "olympiad",
        "math_train",
        "svamp",
        "svamp_train",
        "gsm8k",
        "gsm8k_train",
        "humaneval",
        "humanevalplus",
        "mbpp",
        "mbppplus",
        "apps",
        "apps_train",
        "countdown-600",
        "palindrome",
        "shortest-path",
        "spell-backward",
    ]
    for name, entry in registry().items():
        assert entry.name == name
        assert entry.title
        assert entry.licence
        assert entry.count > 0
        assert entry.template in TEMPLATES
        assert entry.grader in GRADERS
        assert (entry.source == "built-in") == (not entry.hub)
        if entry.source == "hub" and entry.grader != "code":
            assert entry.problem_field
            assert bool(entry.answer_field) != bool(entry.solution_field)
        assert bool(entry.sha256) == entry.verified


def test_no_split_or_config_is_written_that_public_code_does_not_show():
    named = {source.id: (source.config, source.split) for entry in registry().values() for source in entry.hub}
    assert {id: found for id, found in named.items() if any(found)} == {
        "HuggingFaceH4/MATH-500": ("", "test"),
        "HuggingFaceH4/aime_2024": ("", "train"),
        "Hothan/OlympiadBench": ("OE_TO_maths_en_COMP", ""),
        "openai/openai_humaneval": ("", "test"),
        "evalplus/humanevalplus": ("", "test"),
        "google-research-datasets/mbpp": ("full", "train+test+validation+prompt"),
        "evalplus/mbppplus": ("", "test"),
        "codeparrot/apps": ("all", "train"),
        "DigitalLearningGmbH/MATH-lighteval": ("", "train"),
        "ChilleD/SVAMP": ("", "train"),
        "openai/gsm8k": ("main", "train"),
        "EleutherAI/hendrycks_math": ("", "train"),
    }


@pytest.mark.parametrize("name", [name for name, entry in registry().items() if entry.source == "hub"])
def test_verified_counts_and_hashes_are_those_of_the_data(name):
    folder = os.environ.get("QUATRO_DATA")
    file = Path(folder or "-") / f"{'gsm8k_test' if name == 'gsm8k' else name}.jsonl"
    if not file.exists():
        pytest.skip("QUATRO_DATA does not name a folder with this benchmark")
    problems = load_problems(str(file), name=name)
    dropped = 2 if name == "math_train" else 0
    assert len(problems) == registry()[name].count - dropped
    assert content_hash(problems) == registry()[name].sha256
    assert {problem.benchmark for problem in problems} == {name}


def test_countdown_answers_are_the_prompts_themselves():
    test, train = load_problems("countdown"), load_problems("countdown", split="train")
    assert len(test) == registry()["countdown"].count == 200
    assert len(train) == 3000
    assert content_hash(test) == registry()["countdown"].sha256
    assert test[0].answer == test[0].problem
    assert not solves(test[0].problem, "", None)
    *digits, _, target = test[0].problem.split()
    assert count_solutions([int(digit) for digit in digits], int(target)) > 0


def test_files_may_name_their_fields_in_several_ways(tmp_path):
    source = write(
        tmp_path / "mine.jsonl",
        {"id": "a", "problem": "1+1?", "answer": "2"},
        {"question": "2+2?", "answer": 4, "extra": [1]},
        {"id": 7, "prompt": "1/2?", "solution": r"First \boxed{1}, then \boxed{\frac{1}{2}}."},
        {"id": "code", "problem": "def f():", "answer": None},
    )
    assert load_problems(source) == [
        Problem("mine", "a", "1+1?", "2"),
        Problem("mine", "2", "2+2?", "4", {"extra": [1]}),
        Problem("mine", "7", "1/2?", r"\frac{1}{2}"),
        Problem("mine", "code", "def f():", None),
    ]


def test_gzip_files_are_read_and_named_after_their_stem(tmp_path):
    path = tmp_path / "mine.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.write('{"problem": "π?", "answer": "3.14"}\n')
    assert load_problems(str(path)) == [Problem("mine", "1", "π?", "3.14")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"answer": "1"}, "has no problem"),
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
def test_a_bad_row_is_named_by_file_and_line(tmp_path, row, reason):
    source = write(tmp_path / "mine.jsonl", {"id": "ok", "problem": "x", "answer": "1"}, row)
    with pytest.raises(DataError, match=reason) as caught:
        load_problems(source)
    assert str(caught.value).startswith(f"{source}:2: ")


def test_empty_and_missing_files_are_errors(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="no problems"):
        load_problems(str(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        load_problems(str(tmp_path / "gone.jsonl"))


def test_a_file_named_like_a_benchmark_gets_its_row_fixes(tmp_path):
    rows = [{"problem": "x", "solution": "no box"}, {"problem": "y", "solution": r"\boxed{2}"}]
    assert load_problems(write(tmp_path / "math_train.jsonl", *rows)) == [Problem("math_train", "2", "y", "2")]


def test_unknown_names_and_needless_splits_are_refused(tmp_path):
    with pytest.raises(UsageError, match="one of countdown, codegrammar, word-problems, math500"):
        load_problems("math501")
    with pytest.raises(UsageError, match="split"):
        load_problems("math500", split="train")


def own(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's TOML file, named by the environment."""
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(path))
    return path


def test_a_users_entry_needs_no_code(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    rows = [
        {"nr": 7, "question": "1+1?", "answer": "one and one #### 2"},
        {"nr": 8, "question": "2+2?", "answer": "#### no, #### 4 "},
        {"nr": 9, "question": "no answer", "answer": "nothing"},
    ]
    write(tmp_path / "data/sums.jsonl", *rows)
    own(
        tmp_path,
        """
        [sums]
        file = "data/sums.jsonl"
        count = 3
        problem_field = "question"
        answer_field = "answer"
        answer_after = "####"
        id_field = "nr"
        skip_empty_answer = true
        """,
        monkeypatch,
    )
    assert list(registry())[-1] == "sums"
    assert registry()["sums"].title == "sums"
    assert not registry()["sums"].verified
    assert load_problems("sums") == [Problem("sums", "7", "1+1?", "2"), Problem("sums", "8", "2+2?", "4")]


def test_the_file_in_the_working_directory_is_found_too(tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", {"problem": "x", "solution": r"so \boxed{3}"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("QUATRO_BENCHMARKS", raising=False)
    assert "mine" not in registry()
    (tmp_path / "quatro-benchmarks.toml").write_text('[mine]\nfile = "a.jsonl"\n', encoding="utf-8")
    assert load_problems("mine") == [Problem("mine", "1", "x", "3")]
    (tmp_path / "quatro-benchmarks.toml").write_text('[other]\nfile = "a.jsonl"\n\n', encoding="utf-8")
    assert "mine" not in registry()


def test_a_users_hash_and_count_are_held_against_the_file(tmp_path, monkeypatch):
    write(tmp_path / "a.jsonl", {"problem": "x", "answer": "3"})
    digest = content_hash([Problem("", "", "x", "3")])
    path = own(tmp_path, f'[mine]\nfile = "a.jsonl"\ncount = 1\nsha256 = "{digest}"\n', monkeypatch)
    assert registry()["mine"].verified
    assert load_problems("mine")[0].answer == "3"
    write(tmp_path / "a.jsonl", {"problem": "x", "answer": "4"})
    with pytest.raises(DataError, match=digest) as caught:
        load_problems("mine")
    assert content_hash([Problem("", "", "x", "4")]) in str(caught.value)
    path.write_text('[mine]\nfile = "a.jsonl"\ncount = 2\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"1 rows, but .* says 2"):
        load_problems("mine")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[mine]", r"\[mine\]: has no source"),
        ('[mine]\nfile = "a"\nhub = [{ id = "b" }]', "both `file` and `hub`"),
        ('[mine]\nfile = "a"\nanswer_field = "b"\nsolution_field = "c"', "both `answer_field`"),
        ('[mine]\nfile = "a"\nquestion = "b"', "unknown key 'question'.*problem_field"),
        ('[mine]\nfile = "a"\nverified = true', "unknown key 'verified'"),
        ('[mine]\nfile = "a"\ncount = "3"', r"\[mine\] count: .*found '3'"),
        ('[mine]\nfile = "a"\nsha256 = "abc"', r"\[mine\] sha256"),
        ('[mine]\nfile = "a"\ngrader = "physics"', r"\[mine\] grader"),
        ('[mine]\nfile = "a"\ntemplate = "nothing"', "qwen-boxed"),
        ('[mine]\nhub = [{ id = "a", revision = "b" }]', r"hub\.0\.revision"),
        ('["a,b"]\nfile = "a"', "not hold a comma"),
        ('["a.jsonl"]\nfile = "a"', "end in .jsonl"),
        ('[Math500]\nfile = "a"', "already a benchmark"),
        ("mine = 3", "expected a table"),
        ("[mine", "not readable as TOML"),
    ],
)
def test_a_wrong_entry_is_named_by_file_and_key(tmp_path, monkeypatch, text, reason):
    path = own(tmp_path, text, monkeypatch)
    with pytest.raises(UsageError, match=reason) as caught:
        registry()
    assert str(caught.value).startswith(str(path))


def test_a_users_file_that_is_not_there_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(tmp_path / "gone.toml"))
    with pytest.raises(UsageError, match=r"gone\.toml"):
        registry()


def test_the_hash_ignores_order_and_spacing_but_not_content():
    rows = [Problem("a", "1", "x  y", "1"), Problem("a", "2", "z", "2")]
    same = [Problem("b", "9", "z\n", " 2"), Problem("b", "8", "x y", "1")]
    assert content_hash(rows) == content_hash(same)
    assert content_hash(rows) != content_hash([rows[0], Problem("a", "2", "z", "3")])


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jsonl")
    with pytest.raises(DataError, match="not a regular file"):
        load_problems(str(tmp_path / "pipe.jsonl"))
