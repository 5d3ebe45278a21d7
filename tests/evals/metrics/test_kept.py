"""Counts kept in the user's cache: the same documents without reading, and never the counts of anything else."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from evals.errors import DataError
from evals.metrics import counting
from evals.metrics.counting import Clustering, Counted, count_samples
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.samples.graded import Asked, grade_file
from evals.samples.graders import GradingSettings

FOUR = ["tfidf", "rouge-l", "jaccard", "edit"]
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path) -> Path:
    """Where counts are kept, also of small files."""
    monkeypatch.setattr(counting, "LEAST_BYTES", 1)
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "counts"


@pytest.fixture
def samples(tmp_path) -> Path:
    return write(tmp_path / "toy.jsonl")


def write(path: Path, *, seed: int = 0, benchmarks: tuple[str, ...] = ("toy",), **more: object) -> Path:
    """Six problems of eight samples, of which about half are correct and some equal; line ends in no newline."""
    rng = random.Random(seed)
    rows = [
        {"benchmark": name, "id": f"p{problem}", "sample_index": index, "answer": "7", "correct": rng.random() < 0.5,
         "completion": " ".join(rng.choices(WORDS, k=6)) + f" \\boxed{{{rng.randint(6, 8)}}}", **more}
        for name in benchmarks for problem in range(6) for index in range(8)
    ]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def ucc(*files: Path, asked: Asked | None = None, benchmarks=None, **options) -> str:
    options = {"clustering": Clustering(FOUR), "per_problem": True, **options}
    found = count_samples(files, asked=asked, benchmarks=benchmarks)
    result = ucc_result(found, grader=found.grader, **options)
    return result.to_json() + json.dumps(result.warnings)


def passk(*files: Path, asked: Asked | None = None, **options) -> str:
    found = count_samples(files, asked=asked)
    result = passk_result(found, grader=found.grader, **options)
    return result.to_json() + json.dumps(result.warnings)


@pytest.fixture
def reads(monkeypatch) -> list:
    """What was read of samples so far."""
    told: list = []
    real = counting.grade_planned

    def grade_planned(plan, **options):
        told.append(plan.files)
        return real(plan, **options)

    monkeypatch.setattr(counting, "grade_planned", grade_planned)
    return told


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.exists() else {}


def test_the_second_command_reads_no_samples_and_says_the_same(samples, reads, cache):
    cases = [(ucc, {}), (ucc, {"also": ["vendi", "distinct"], "ks": [2, 4], "ci": True}), (passk, {"also": ["maj"]})]
    first = [command(samples, **options) for command, options in cases]
    num_reads = len(reads)
    assert [command(samples, **options) for command, options in cases] == first
    assert (num_reads, len(reads)) == (3, 3)
    assert sorted(path.name for path in samples.parent.iterdir()) == ["cache", samples.name]  # nothing beside them
    assert cache.is_dir()


def ucc_without_keeping(samples: Path, **options) -> str:
    plan = counting.plan_reading([samples], Asked())
    found = Counted(lambda: counting.grade_planned(plan, benchmarks=None, asked=Asked()))
    result = ucc_result(found, grader=found.grader, per_problem=True, **options)
    return result.to_json() + json.dumps(result.warnings)


def test_every_part_of_a_setting_makes_other_clusters(samples):
    cases = [
        {"similarities": ["tfidf"]},
        {"similarities": ["tfidf"], "thresholds": [0.5]},
        {"similarities": ["tfidf"], "linkage": "greedy"},
        {"similarities": ["tfidf"], "tokens": "whitespace"},
        {"similarities": ["jaccard"], "thresholds": [0.3, 0.5, 0.9]},
        {"similarities": ["exact"]},
    ]
    for case in cases * 2:
        how = Clustering(**case)
        assert ucc(samples, clustering=how) == ucc_without_keeping(samples, clustering=how)


def test_the_content_decides_whatever_size_and_time_say(samples, reads):
    before, status = passk(samples), samples.stat()
    content = samples.read_text(encoding="utf-8")
    flipped = content.replace('"correct": true', '"correct": TRUE').replace('"correct": false', '"correct": true ')
    flipped = flipped.replace('"correct": TRUE', '"correct":false')
    assert len(flipped) == len(content)
    samples.write_text(flipped, encoding="utf-8")
    os.utime(samples, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert passk(samples) != before
    samples.write_text(content, encoding="utf-8")  # another time: the same content
    assert passk(samples) == before
    assert passk(samples) == before
    assert len(reads) == 2  # once for each content


def test_code_graders_and_benchmarks_are_part_of_the_key(tmp_path, reads, monkeypatch):
    path = write(tmp_path / "two.jsonl", benchmarks=("toy", "other"))
    whole = passk(path)
    assert passk_of(path, ["toy"]) != whole
    assert passk(path) == whole
    assert len(reads) == 2
    monkeypatch.setattr(counting, "_code", lambda: "another version")
    assert passk(path) == whole
    assert len(reads) == 3
    table = tmp_path / "quatro-benchmarks.toml"
    (tmp_path / "toy-problems.jsonl").write_text('{"id": "p0", "problem": "?", "answer": "7"}\n', encoding="utf-8")
    table.write_text('[toy]\nfile = "toy-problems.jsonl"\nhas_short_answers = true\n', encoding="utf-8")
    monkeypatch.setenv("QUATRO_BENCHMARKS", str(table))
    assert passk(path) == whole
    assert len(reads) == 4


def passk_of(path: Path, benchmarks: list[str]) -> str:
    found = count_samples([path], benchmarks=benchmarks)
    return passk_result(found).to_json()


def test_the_code_of_every_room_of_evals_is_in_the_key(monkeypatch, tmp_path):
    (tmp_path / "metrics").mkdir()
    (tmp_path / "text.py").write_text("a = 1\n", encoding="utf-8")
    monkeypatch.setattr(counting, "__file__", str(tmp_path / "metrics" / "counting.py"))
    before = counting._code.__wrapped__()
    assert counting._code.__wrapped__() == before
    (tmp_path / "text.py").write_text("a = 2\n", encoding="utf-8")
    assert counting._code.__wrapped__() != before


def test_grades_made_here_are_kept_with_how_they_were_made(tmp_path, reads):
    path = write(tmp_path / "raw.jsonl", correct=None)
    strict, last = passk(path), passk(path, asked=Asked({"extraction": "last-number"}))
    assert (passk(path), passk(path, asked=Asked({"extraction": "last-number"}))) == (strict, last)
    assert '"extraction": "last-number"' in last
    assert len(reads) == 2


def test_grades_that_may_differ_next_time_are_not_kept(samples, monkeypatch, cache):
    real = counting.grade_planned
    monkeypatch.setattr(counting, "grade_planned", lambda plan, **how: real(plan, **how)._replace(is_lasting=False))
    passk(samples)
    assert not held(cache)


def test_a_graded_file_graded_anew_is_counted_anew(tmp_path, reads):
    source = write(tmp_path / "raw.jsonl", correct=None)
    target = tmp_path / "graded" / "raw.jsonl"
    grade_file(source, target, GradingSettings())
    strict = passk(target)
    assert passk(target) == strict
    grade_file(source, target, GradingSettings(policy="simko"))
    assert '"policy": "simko"' in passk(target)
    (tmp_path / "graded" / "raw.grading.json").write_text("torn", encoding="utf-8")
    assert '"policy": null' in passk(target)
    assert len(reads) == 3


def test_warnings_name_the_files_as_they_are_called_now(samples, monkeypatch):
    content = samples.read_text(encoding="utf-8")
    samples.write_text(content + '\n{"torn', encoding="utf-8")
    assert str(samples) in passk(samples)
    monkeypatch.chdir(samples.parent)
    assert f'["{samples.name}:49' in passk(Path(samples.name))


def test_a_forged_file_beside_the_samples_means_nothing(samples, cache):
    expected = ucc(samples)
    for name, content in held(cache).items():
        for forged in (f"toy.{name[:8]}.counts", name, "toy.counts"):
            (samples.parent / forged).write_bytes(content.replace(b"1", b"2"))
    assert ucc(samples) == expected
    shutil.rmtree(cache)
    assert ucc(samples) == expected


def test_files_that_change_while_they_are_read_are_not_kept(samples, monkeypatch, cache):
    real = counting.grade_planned

    def grade_planned(plan, **options):
        found = real(plan, **options)
        write(samples, seed=1)
        return found

    monkeypatch.setattr(counting, "grade_planned", grade_planned)
    passk(samples)
    assert not held(cache)


def test_nothing_is_kept_of_small_files(samples, monkeypatch, cache):
    monkeypatch.setattr(counting, "LEAST_BYTES", samples.stat().st_size + 1)
    assert ucc(samples, clustering=Clustering(["edit"])) == ucc(samples, clustering=Clustering(["edit"]))
    assert not held(cache)


@pytest.mark.parametrize("damaged", [b"", b"[[[", b"\xff", b"null", b"abc\nnull"])
def test_a_damaged_entry_is_counted_again_and_replaced(samples, cache, damaged):
    expected = ucc(samples)
    content = held(cache)
    for name in content:
        (cache / name).write_bytes(damaged)
    assert ucc(samples) == expected
    assert held(cache) == content


def test_an_entry_that_was_edited_is_counted_again(samples, cache):
    expected, content = passk(samples), held(cache)
    (name,) = content
    (cache / name).write_bytes(content[name].replace(b"1", b"2"))
    assert passk(samples) == expected
    assert held(cache) == content


def test_a_folder_that_cannot_be_written_keeps_nothing(samples, cache):
    cache.parent.write_text("a file in its place", encoding="utf-8")
    assert passk(samples) == passk(samples)


def test_a_user_without_a_home_keeps_nothing(samples, monkeypatch):
    monkeypatch.delenv("QUATRO_CACHE")

    def refuse():
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", refuse)
    assert passk(samples) == passk(samples)


def test_a_broken_row_is_refused_as_ever(samples):
    passk(samples)
    samples.write_text(samples.read_text(encoding="utf-8").replace('"p0"', "7", 1), encoding="utf-8")
    with pytest.raises(DataError, match="id must be a string"):
        passk(samples)
