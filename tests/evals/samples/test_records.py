"""Samples files: what is read, what is refused with which line, and what a crash costs."""

import errno
import fcntl
import gzip
import json
import os
from pathlib import Path

import pytest

from evals.errors import DataError, LockedError, MissingError, UsageError
from evals.samples.reading import read_samples
from evals.samples.types import Sample
from evals.samples.writing import SampleWriter


def row(index=0, id="p0", **changes):
    values = {"benchmark": "aime24", "id": id, "sample_index": index, "completion": f"text {index}", "answer": "7"}
    return {**values, **changes}


def without(name):
    return {key: value for key, value in row(2).items() if key != name}


@pytest.fixture
def write(tmp_path):
    def write(*lines, name="s.jsonl", end=b"\n"):
        encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
        path = tmp_path / name
        path.write_bytes(b"\n".join(encoded) + end)
        return path

    return write


GOOD = [row(0), row(1)]

# What stands on line 3 after two good rows, and words that the message must hold.
BROKEN_LINES = {
    "two objects": (json.dumps(row(2)).encode() + json.dumps(row(3)).encode(), "one JSON object"),
    "string": (b'"text"', "object"),
    "null": (b"null", "object"),
    "list": (b"[1]", "object"),
    "python repr": (repr(row(2)).encode(), "not JSON"),
    "torn but followed by a newline": (json.dumps(row(2)).encode()[:30], "not JSON"),
    "huge integer": (json.dumps(row(2)).encode()[:-1] + b', "x": ' + b"9" * 5000 + b"}", "5000 digits"),
    "huge float": (json.dumps(row(2)).encode()[:-1] + b', "x": 1e999}', "too large"),
    "NaN": (json.dumps(row(2)).encode()[:-1] + b', "x": NaN}', "NaN"),
    "-Infinity": (json.dumps(row(2)).encode()[:-1] + b', "x": [-Infinity]}', "-Infinity"),
    "duplicate key": (json.dumps(row(2)).encode()[:-1] + b', "id": "p0"}', "'id'"),
    "duplicate nested key": (json.dumps(row(2)).encode()[:-1] + b', "x": {"a": 1, "a": 2}}', "'a'"),
    "deep nesting": (json.dumps(row(2)).encode()[:-1] + b', "x": ' + b"[" * 100 + b"]" * 100 + b"}", "nested"),
    "bottomless nesting": (b"[" * 200_000, "nested"),
    "latin-1": (json.dumps(row(2)).encode()[:-1] + b', "x": "\xe9t"}', "UTF-8"),
    "no benchmark": (without("benchmark"), "'benchmark'"),
    "no id": (without("id"), "'id'"),
    "no sample_index": (without("sample_index"), "'sample_index'"),
    "no completion": (without("completion"), "'completion'"),
    "no answer": (without("answer"), "'answer'"),
    "id is a number": (row(2, id=3), "id must be a string"),
    "id is a list": (row(2, id=["p0"]), "id must be a string"),
    "completion is null": (row(2, completion=None), "completion"),
    "index is a string": (row("2"), "sample_index"),
    "index is a float": (row(2.5), "sample_index"),
    "index is a bool": (row(True), "sample_index"),
    "index is negative": (row(-1), "sample_index"),
    "answer is a bool": (row(2, answer=True), "answer"),
    "answer is a list": (row(2, answer=["7"]), "answer"),
    "answer is null": (row(2, answer=None), "answer"),
    "prompt is a number": (row(2, prompt=1), "prompt"),
    "correct is a number": (row(2, correct=1), "correct"),
    "finish_reason is unknown": (row(2, finish_reason="eos"), "finish_reason"),
    "finish_reason is a list": (row(2, finish_reason=[]), "finish_reason"),
    "another answer": (row(2, answer="8"), ":1"),
    "answer of another type": (row(2, answer=7), ":1"),
    "same index, same row": (row(1), ":2"),
    "same index, other text": (row(1, completion="other"), ":2"),
    "benchmark in capitals": (row(2, benchmark="AIME24"), "'aime24'"),
    "empty id": (row(2, id=""), "id is empty"),
    "id with a trailing space": (row(2, id="p0 "), "white space"),
    "id with a no-break space": (row(2, id="\u00a0p0"), "white space"),
    "id with a zero-width space": (row(2, id="p\u200b0"), "zero-width"),
    "benchmark with a byte order mark": (row(2, benchmark="\ufeffaime24"), "benchmark"),
}


@pytest.mark.parametrize("name", BROKEN_LINES)
def test_a_broken_row_is_refused_with_its_file_and_line(write, name):
    line, words = BROKEN_LINES[name]
    path = write(*GOOD, line)
    with pytest.raises(DataError) as caught:
        read_samples([path])
    assert str(caught.value).startswith(f"{path}:3: ")
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1000 + 3 * len(str(path))


def test_two_prompts_for_one_problem_name_both_lines(write):
    path = write(row(0, prompt="a"), row(1), row(2, prompt="b"))
    with pytest.raises(DataError, match=r":3: prompt 'b' contradicts 'a' .*:1$"):
        read_samples([path])


@pytest.mark.parametrize(
    ("first", "second"), [("caf\u00e9", "cafe\u0301"), ("\u212b", "\u00c5"), ("\uac00", "\u1100\u1161")]
)
def test_one_id_in_two_unicode_forms_names_both_lines(write, first, second):
    path = write(row(id=first), row(id=second))
    with pytest.raises(DataError, match=r"s\.jsonl:2: id '.*' is '.*' at .*s\.jsonl:1 in another Unicode form"):
        read_samples([path])
    # Each alone is as good an id as any, and so are both in different benchmarks.
    assert [one.id for one in read_samples([write(row(id=second))]).rows] == [second]
    assert len(read_samples([write(row(id=first), row(id=second, benchmark="amc23"))]).rows) == 2
    with pytest.raises(DataError, match=r":2: benchmark '.*' differs only in Unicode form from '.*' at .*:1"):
        read_samples([write(row(benchmark=first), row(benchmark=second))])


@pytest.mark.parametrize("character", ["\u00ad", "\u202e", "\u200e", "\u061c", "\u2066", "\U000e0001"])
def test_ids_with_characters_that_cannot_be_seen_are_legal(write, character):
    samples = read_samples([write(row(0, id="p"), row(0, id=f"p{character}"), row(1, id=f"p{character}"))])
    assert [problem.id for problem in samples.problems()] == ["p", f"p{character}"]


def test_a_duplicate_across_files_names_both_files(write):
    first, second = write(row(0), name="a.jsonl"), write(row(0), name="b.jsonl")
    with pytest.raises(DataError) as caught:
        read_samples([first, second])
    assert f"{second}:1" in str(caught.value)
    assert f"{first}:1" in str(caught.value)


def test_one_file_named_twice_is_a_usage_error(write):
    path = write(*GOOD)
    with pytest.raises(UsageError, match="twice"):
        read_samples([path, path])


@pytest.mark.parametrize("content", [b"", b"\n \n", b'{"benchmark": "aime'])
def test_a_file_without_a_row_holds_no_samples(tmp_path, content):
    (tmp_path / "s.jsonl").write_bytes(content)
    with pytest.raises(DataError, match="no samples"):
        read_samples([tmp_path / "s.jsonl"])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_utf16_is_refused_at_line_1(tmp_path, encoding):
    (tmp_path / "s.jsonl").write_bytes((json.dumps(row()) + "\n").encode(encoding))
    with pytest.raises(DataError, match=r"s\.jsonl:1: "):
        read_samples([tmp_path / "s.jsonl"])


def test_gzip_is_read_and_what_is_not_gzip_is_refused(tmp_path, write):
    path = tmp_path / "s.jsonl.gz"
    data = gzip.compress(write(*GOOD).read_bytes())
    path.write_bytes(data)
    assert [sample.sample_index for sample in read_samples([path]).rows] == [0, 1]
    for broken in (b"this is not gzip", data[:-12], data[:20] + b"\xff\xff\xff\xff" + data[24:]):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=r"s\.jsonl\.gz"):
            read_samples([path])
    renamed = tmp_path / "plain.jsonl"
    renamed.write_bytes(data)
    with pytest.raises(DataError, match=r":1: the content is gzip"):
        read_samples([renamed])


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"nowhere\.jsonl"):
        read_samples([tmp_path / "nowhere.jsonl"])


def test_a_torn_last_line_is_dropped_with_a_warning_wherever_it_was_cut(write):
    last = json.dumps(row(2, completion="é≤\n")).encode()
    escaped_last = json.dumps(row(2, completion="é≤😀"), ensure_ascii=False).encode()
    for full in (last, escaped_last):
        for cut in range(1, len(full)):
            path = write(*GOOD, full[:cut], end=b"")
            samples = read_samples([path])
            assert len(samples.rows) == 2
            assert any(f"{path}:3" in warning for warning in samples.warnings)
        assert len(read_samples([write(*GOOD, full, end=b"")]).rows) == 3


def test_two_objects_on_an_unfinished_last_line_are_not_a_torn_line(write):
    both = json.dumps(row(2)).encode() + json.dumps(row(3)).encode()
    with pytest.raises(DataError, match=":3:"):
        read_samples([write(*GOOD, both, end=b"")])


def test_unusual_but_legal_files_read_the_same(write):
    expected = read_samples([write(*GOOD)]).rows
    assert read_samples([write(*GOOD, name="crlf.jsonl", end=b"\r\n")]).rows == expected
    assert read_samples([write(GOOD[0], b"", b"  \r", GOOD[1], name="blank.jsonl")]).rows == expected
    assert read_samples([write(GOOD[1], GOOD[0], name="shuffled.jsonl")]).rows == expected
    assert read_samples([write(b"\xef\xbb\xbf" + json.dumps(GOOD[0]).encode(), GOOD[1], name="bom.jsonl")]).rows == (
        expected
    )


@pytest.mark.parametrize("text", ["a\u2028b", "a\x85b\x0bc\x1cd", "\x00", "😀", "\x1b[2J", ""])
def test_any_text_is_a_legal_completion(write, text):
    line = json.dumps(row(0, completion=text), ensure_ascii=False)
    samples = read_samples([write(line.encode(), row(1))])
    assert samples.rows[0].completion == text


def test_half_a_surrogate_pair_becomes_a_replacement_character_everywhere(write):
    line = json.dumps(row(0, completion="x\ud800y", note={"\udfff": ["\ud800"]})).encode()
    sample = read_samples([write(line)]).rows[0]
    assert sample.completion == "x\ufffdy"
    assert sample.extra == {"note": {"\ufffd": ["\ufffd"]}}
    assert json.loads(sample.to_json_line())["completion"] == "x\ufffdy"


def test_a_sample_with_half_a_surrogate_pair_can_still_be_written():
    line = Sample("b", "p", 0, "x\ud800y", "1").to_json_line()
    assert json.loads(line)["completion"] == "x\ud800y"


def test_extra_keys_are_kept_and_written_back(write):
    given = row(0, prompt="q", finish_reason="length", correct=True, seed=3, note={"a": [1.5, None]})
    sample = read_samples([write(given)]).rows[0]
    assert json.loads(sample.to_json_line()) == given
    assert read_samples([write(given)], keep_extra=False).rows[0].extra == {}


def test_code_rows_may_lack_an_answer(write):
    samples = read_samples(
        [write(row(0, benchmark="humaneval", answer=None), row(0, id="q", answer=None, correct=True))]
    )
    assert [sample.answer for sample in samples.rows] == [None, None]


def test_problems_are_grouped_by_benchmark_and_id_in_natural_order(write):
    rows = [
        row(i, id=id, benchmark=b) for b in ("math", "aime") for id in ("p10", "p9", "p" + "1" * 5000) for i in (1, 0)
    ]
    problems = read_samples([write(*rows)]).problems()
    assert [(p.benchmark, len(p.id), len(p.samples)) for p in problems] == [
        ("aime", 2, 2),
        ("aime", 3, 2),
        ("aime", 5001, 2),
        ("math", 2, 2),
        ("math", 3, 2),
        ("math", 5001, 2),
    ]
    assert all([s.sample_index for s in p.samples] == [0, 1] for p in problems)


def test_missing_indices_and_unequal_counts_are_warned_of(write):
    samples = read_samples([write(row(0), row(2), row(0, id="q"), row(1, id="q"), row(2, id="q"))])
    gap, ragged = samples.warnings
    assert "p0" in gap
    assert "sample_index 1" in gap
    assert "smallest n = 2" in ragged
    assert "largest n = 3" in ragged


def test_a_benchmark_filter_keeps_it_and_refuses_files_without_it(write):
    mixed = write(row(0), row(0, benchmark="math500"), row(1, benchmark="math500"), name="mixed.jsonl")
    other = write(row(0, benchmark="math500", id="q"), name="other.jsonl")
    kept = read_samples([mixed], benchmarks=["aime24"])
    assert [sample.benchmark for sample in kept.rows] == ["aime24"]
    assert kept.warnings == []
    with pytest.raises(UsageError, match=r"other\.jsonl .*'math500'.*'aime24'"):
        read_samples([mixed, other], benchmarks=["aime24"])
    with pytest.raises(UsageError, match="AIME24"):
        read_samples([mixed], benchmarks=["math500", "AIME24"])


def test_a_run_directory_means_its_samples(tmp_path, write):
    (tmp_path / "run/samples/T1").mkdir(parents=True)
    (tmp_path / "run/metrics.jsonl").write_text('{"step": 1}\n', encoding="utf-8")
    write(*GOOD, name="run/samples/T1/aime24.jsonl")
    write(row(0, benchmark="math500"), name="run/samples/T1/math500.jsonl")
    (tmp_path / "run/samples/T1/sampling.json").write_text("{}", encoding="utf-8")
    assert len(read_samples([tmp_path / "run"]).rows) == 3
    assert len(read_samples([tmp_path / "run"], benchmarks=["aime24"]).rows) == 2
    assert len(read_samples([tmp_path / "run/samples/T1"]).rows) == 3
    with pytest.raises(UsageError, match="amc23"):
        read_samples([tmp_path / "run"], benchmarks=["amc23"])


def test_a_run_without_samples_says_so(tmp_path):
    (tmp_path / "config.yaml").write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="holds no samples"):
        read_samples([tmp_path])


def test_the_writer_continues_where_a_crash_stopped_it(tmp_path, write):
    torn = json.dumps(row(2)).encode()[:-5]
    path = write(*GOOD, torn, end=b"")
    with SampleWriter(path) as writer:
        assert writer.present == {("p0", 0), ("p0", 1)}
        assert f"{path}:3" in writer.warnings[0]
        writer.append([Sample("aime24", "p0", 2, "again", "7")])
        assert ("p0", 2) in writer.present
        with pytest.raises(ValueError, match="already"):
            writer.append([Sample("aime24", "p0", 2, "again", "7")])
    assert [sample.completion for sample in read_samples([path]).rows] == ["text 0", "text 1", "again"]


def test_the_writer_ends_a_complete_last_line_that_lacks_its_newline(write):
    path = write(*GOOD, end=b"")
    with SampleWriter(path) as writer:
        assert writer.warnings == []
        writer.append([Sample("aime24", "p0", 2, "c", "7")])
    assert len(read_samples([path]).rows) == 3


def test_the_writer_refuses_a_broken_file_and_leaves_it_alone(write):
    path = write(GOOD[0], b"garbage", GOOD[1])
    before = path.read_bytes()
    with pytest.raises(DataError, match=":2:"):
        SampleWriter(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_samples_on_a_file_system_without_locks_say_which_file_and_what_to_do(tmp_path, monkeypatch, code):
    def no_locks(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(MissingError, match=r"s\.jsonl cannot be locked .*local disk with -o DIR"):
        SampleWriter(tmp_path / "s.jsonl")


def test_a_second_writer_is_locked_out(tmp_path):
    with SampleWriter(tmp_path / "new" / "s.jsonl"), pytest.raises(LockedError):
        SampleWriter(tmp_path / "new" / "s.jsonl")
    SampleWriter(tmp_path / "new" / "s.jsonl").close()


def test_a_failed_write_names_the_file_and_leaves_whole_rows(tmp_path, monkeypatch):
    path = tmp_path / "s.jsonl"
    with SampleWriter(path) as writer:
        writer.append([Sample("aime24", "p0", 0, "a", "7")])
        before = path.read_bytes()
        with monkeypatch.context() as patch:

            def no_space(_):
                raise OSError(28, "No space left on device")

            patch.setattr(os, "fsync", no_space)
            with pytest.raises(OSError, match=r"s\.jsonl"):
                writer.append([Sample("aime24", "p0", 1, "b", "7")])
        assert path.read_bytes() == before
        writer.append([Sample("aime24", "p0", 1, "b", "7")])
    assert len(read_samples([path]).rows) == 2


def test_the_public_bad_inputs_behave_as_their_manifest_says():
    folder = os.environ.get("QUATRO_BAD_INPUTS")
    if not folder:
        pytest.skip("QUATRO_BAD_INPUTS is not set")
    cases = [
        json.loads(line) for line in Path(folder, "manifest.jsonl").read_text(encoding="utf-8").split("\n") if line
    ]
    assert cases
    for case in cases:
        path = Path(folder, case["file"])
        wanted = ["aime24"] if "-b aime24" in case["command"] else None
        if case["expect"] == "refuse" and wanted is None:
            continue  # a matter of k: test_passk_ucc
        if case["expect"] in ("ok", "warn_skip"):
            samples = read_samples([path], benchmarks=wanted)
            assert samples.rows, case
            if case["expect"] == "warn_skip":
                assert any(f"{path}:{case['line']}" in warning for warning in samples.warnings), case
            if "not contiguous" in case["note"]:
                assert any("not contiguous" in warning for warning in samples.warnings), case
            continue
        error = {"refuse": UsageError}.get(case["expect"], DataError)
        with pytest.raises(error) as caught:
            read_samples([path], benchmarks=wanted)
        message = str(caught.value)
        if case["expect"] == "error_file_line":
            assert message.startswith(f"{path}:{case['line']}: "), case
        assert all(word in message for word in case["must_mention"]), case
