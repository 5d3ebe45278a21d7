"""`--similarity embed:URL` and `--partition judge:URL` with a server that answers as a test tells it to."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.clustering import cluster
from evals.errors import DataError, MissingError, UsageError
from evals.files.whole import key_of
from evals.similarity import meaning
from evals.similarity.measures import distinct, similarity_of_distinct
from tests.kit import quatro, read_rows, says, write_rows

JUDGE = f"judge:small@{key_of(meaning.QUESTION.read_text(encoding='utf-8'))[:8]}"
TEXTS = ["aa", "bbb bb", "c" * 40, "aaa", *(f"d{i}" for i in range(40))]


@pytest.fixture(autouse=True)
def empty(tmp_path, monkeypatch):
    """No answer is in the cache, and no model is opened."""
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(meaning, "_opened", {})


def vector(text: str) -> list[float]:
    return [text.count("a"), text.count("b") - text.count("c"), 1.0]


def embedded(body: dict[str, Any]) -> dict[str, Any]:
    rows = [{"index": place, "embedding": vector(text)} for place, text in enumerate(body["input"])]
    return {"model": body["model"], "data": rows[::-1]}  # the order is in the index


def replied(body: dict[str, Any], text: str | None) -> dict[str, Any]:
    return {"model": body["model"], "choices": [{"message": {"role": "assistant", "content": text}}]}


def shown_to(body: dict[str, Any]) -> dict[str, Any]:
    shown: list[str] = json.loads(body["messages"][1]["content"])
    return {"first": shown[0], "second": shown[1]}


def by_first_letter(number: int, body: dict[str, Any]) -> dict[str, Any]:
    pair = shown_to(body)
    return replied(body, f"Let me see.\n**{'SAME' if pair['first'][0] == pair['second'][0] else 'different'}.**\n")


def again(monkeypatch):
    """As in another process."""
    monkeypatch.setattr(meaning, "_opened", {})


def test_cosines_are_those_of_the_vectors_and_negative_ones_are_zero(serve, monkeypatch):
    stub = serve()
    stub.answer = lambda number, body: embedded(body)
    unique, name = distinct(TEXTS), f"embed:{stub.url}"
    found = similarity_of_distinct(name, unique)
    unit = np.array([vector(text) for text in unique.texts])
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    np.testing.assert_allclose(found, np.clip(unit @ unit.T, 0, 1), atol=1e-12)
    assert (found == 0).any()
    sent = sorted((body["input"] for _, body in stub.posts), key=lambda batch: len(batch[0]))
    assert [len(batch) for batch in sent] == [32, 12]
    lengths = [len(text) for batch in sent for text in batch]
    assert all(one <= other for one, other in pairwise(lengths))
    again(monkeypatch)
    assert (
        similarity_of_distinct(name, distinct([*TEXTS, "e"])) == similarity_of_distinct(name, distinct([*TEXTS, "e"]))
    ).all()
    assert [body["input"] for _, body in stub.posts[2:]] == [["e"]]
    assert cluster(["aa", "aaa", "b"], similarity=name, threshold=0.9) == [0, 0, 1]


FIRST = {"index": 0, "embedding": [1.0, 0.0]}


@pytest.mark.parametrize(
    "wrong",
    [
        *([], {"index": 0}, ["embedding"], [FIRST], [FIRST, FIRST, FIRST]),
        *([FIRST, {"index": 1, "embedding": one}] for one in ([1.0], [1.0, "x"], [float("nan"), 0], [10**400, 0], 1.0)),
        [FIRST, {"index": [], "embedding": [1.0, 0.0]}],
    ],
)
def test_an_answer_without_an_embedding_of_each_text_is_asked_for_again_and_then_refused(serve, wrong):
    stub, unique = serve(), distinct(["a", "b"])
    stub.answer = lambda number, body: {"data": wrong} if number == 0 else embedded(body)
    assert similarity_of_distinct(f"embed:{stub.url}#m", unique)[0, 1] == pytest.approx(0.5)
    assert len(stub.posts) == 2
    stub.answer = lambda number, body: {"data": wrong}
    with pytest.raises(DataError, match="an embedding, in finite numbers, of each of 2 texts"):
        similarity_of_distinct(f"embed:{stub.url}#m", distinct(["c", "d"]))


def test_a_damaged_entry_of_the_cache_is_asked_for_again(serve, tmp_path, monkeypatch):
    stub = serve()
    stub.answer = lambda number, body: embedded(body)
    unique, name = distinct(["a", "b"]), f"embed:{stub.url}"
    before = similarity_of_distinct(name, unique)
    one, other = (path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    one.write_bytes(one.read_bytes().replace(b"1.0", b"7.0"))
    other.write_bytes(b"")
    assert (similarity_of_distinct(name, unique) == before).all()
    assert len(stub.posts[1][1]["input"]) == 2


def test_vectors_of_another_length_than_before_are_refused(serve, tmp_path, monkeypatch):
    stub = serve()
    stub.answer = lambda number, body: embedded(body)
    similarity_of_distinct(f"embed:{stub.url}", distinct(["a", "b"]))
    stub.answer = lambda number, body: {"data": [{"index": 0, "embedding": [1.0]}]}
    with pytest.raises(DataError, match="two lengths"):
        similarity_of_distinct(f"embed:{stub.url}", distinct(["a", "c"]))


@pytest.mark.parametrize(
    ("name", "kind", "named"),
    [
        ("embed:http://", UsageError, "embed:URL"),
        ("judge:no-address", UsageError, "judge:URL"),
        ("embed:no/such/folder/at/all", MissingError, "no/such/folder"),
        ("embed:", MissingError, "folder"),
    ],
)
def test_what_cannot_be_opened_is_named(name, kind, named):
    pytest.importorskip("torch")
    with pytest.raises(kind, match=named):
        similarity_of_distinct(name, distinct(["a"]))


def samples(path, *problems: list[str]) -> str:
    rows = [
        {"benchmark": "toy", "id": f"p{number}", "sample_index": i, "completion": text, "answer": "1", "correct": True}
        for number, texts in enumerate(problems) for i, text in enumerate(texts)
    ]  # fmt: skip
    return str(write_rows(path, rows))


def test_a_judge_sees_each_pair_in_both_orders_and_nothing_else(serve, tmp_path, monkeypatch):
    stub, out = serve(), tmp_path / "ucc.json"
    stub.answer = by_first_letter
    file = samples(tmp_path / "s.jsonl", ["a1", "a2", "b1"], ["c1", "c1", "d1"])
    command = ("eval", "ucc", file, "--partition", f"judge:{stub.url}", "--k", "3", "-o", out)
    done = quatro(*command)
    pairs = sorted((shown_to(body)["first"], shown_to(body)["second"]) for _, body in stub.posts)
    expected = [("a1", "a2"), ("a1", "b1"), ("a2", "b1"), ("c1", "d1")]
    assert pairs == sorted([*expected, *((other, one) for one, other in expected)])
    assert all(body["temperature"] == 0 and file not in json.dumps(body) for _, body in stub.posts)
    document = json.loads(out.read_text(encoding="utf-8"))
    name = JUDGE
    told = {"judge": name, "calls": 8, "pairs": 4, "disagreements": 0, "unclear": 0}
    assert document["judge"] == told
    row = next(row for row in document["rows"] if row["metric"] == "ucc@k")
    assert (row["value"], row["similarity"], row["threshold"]) == (2.0, name, 0.5)
    transcript = read_rows(tmp_path / "ucc.judge.jsonl")
    assert len(transcript) == 8
    assert [row["shown"] for row in transcript] == sorted(row["shown"] for row in transcript)
    assert {row["verdict"] for row in transcript if row["shown"][0][0] == row["shown"][1][0]} == {"same"}
    says(done.stderr, name, "of 4 pairs 0")
    again(monkeypatch)
    quatro(*command)
    assert len(stub.posts) == 8
    assert read_rows(tmp_path / "ucc.judge.jsonl") == transcript
    taken = Path(file).rename(tmp_path / "t.judge.jsonl")
    says(quatro("eval", "ucc", taken, *command[3:-1], tmp_path / "t.json", code=2), "t.judge.jsonl", "name another")
    assert len(read_rows(taken)) == 6


def test_more_calls_than_allowed_are_refused_before_the_first_one(serve, tmp_path, monkeypatch):
    stub = serve()
    stub.answer = by_first_letter
    file = samples(tmp_path / "s.jsonl", ["a1", "a2", "b1"], ["c1", "d1"])
    command = ("eval", "ucc", file, "--partition", f"judge:{stub.url}", "--k", "2", "--max-calls")
    says(quatro(*command, 7, code=2), "8 more calls", "--max-calls 7")
    other = samples(tmp_path / "t.jsonl", ["a1", "a2", "b1"], ["c1", "d2"])
    of_two = ("compare", file, other, "--metric", "ucc@k", *command[3:])
    says(quatro("eval", *of_two, 9, code=2), "10 more calls", "--max-calls 9")
    assert stub.posts == []
    quatro(*command, 8, "--n", 2)
    again(monkeypatch)
    says(quatro(*command, 3, code=2), "4 more calls")
    quatro(*command, 4)
    assert len(stub.posts) == 8


def test_pairs_that_differ_by_their_order_are_different_and_counted(serve):
    stub = serve()
    stub.answer = lambda number, body: replied(
        body, "SAME" if shown_to(body)["first"] < shown_to(body)["second"] else "DIFFERENT"
    )
    unique = distinct(["a", "b", "c"])
    assert (similarity_of_distinct(f"judge:{stub.url}", unique) == np.eye(3)).all()
    counts = meaning.opened(f"judge:{stub.url}").counts()
    assert (counts["pairs"], counts["disagreements"], counts["unclear"]) == (3, 3, 0)


@pytest.mark.parametrize(
    "reply", ["", "SAME or DIFFERENT", "the same", "SAME\nbut", "\n" * 50_000 + "?", "\ud83d", "SAMEDIFFERENT"]
)
def test_a_reply_without_a_verdict_is_none_and_is_not_asked_for_again(serve, reply):
    stub = serve()
    stub.answer = lambda number, body: replied(body, reply)
    assert (similarity_of_distinct(f"judge:{stub.url}", distinct(["a", "b"])) == np.eye(2)).all()
    assert len(stub.posts) == 2
    assert meaning.opened(f"judge:{stub.url}").counts()["unclear"] == 2


@pytest.mark.parametrize(
    "document", [{"choices": []}, {"choices": [{"message": {"content": None}}]}, {"choices": {"a": 1}}, {}]
)
def test_an_answer_without_a_reply_is_asked_for_again_and_what_came_is_kept(serve, document):
    stub = serve()
    stub.answer = lambda number, body: by_first_letter(0, body) if shown_to(body)["first"] == "a" else document
    with pytest.raises(DataError, match="without a reply"):
        similarity_of_distinct(f"judge:{stub.url}", distinct(["a", "b"]))
    asked = len(stub.posts)
    stub.answer = by_first_letter
    similarity_of_distinct(f"judge:{stub.url}", distinct(["a", "b"]))
    assert len(stub.posts) <= asked + 1 + (asked == 1)


def test_results_by_two_models_are_not_mixed(serve, tmp_path, monkeypatch):
    stub, other = serve(), serve(model="large")
    file = samples(tmp_path / "s.jsonl", ["a1", "a2", "b1"])
    for number, one in enumerate((stub, other, other)):
        one.answer = by_first_letter
        quatro(
            "eval",
            "ucc",
            file,
            "--partition",
            f"judge:{one.url}",
            "--k",
            "3",
            "--label",
            f"L{number}",
            "-o",
            tmp_path / f"{number}.json",
        )
    quatro("table", tmp_path / "1.json", tmp_path / "2.json", "--metric", "ucc@k")
    for command in (("table", "--metric", "ucc@k"), ("plot", "ucc", "-o", tmp_path / "x.svg")):
        files = (tmp_path / "0.json", tmp_path / "1.json")
        says(
            quatro(*command[:1], *command[1:], *files, code=4)
            if command[0] == "table"
            else quatro("plot", "ucc", *files, *command[2:], code=4),
            JUDGE,
            JUDGE.replace("small", "large"),
        )


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--partition", "tfidf"), ("--partition tfidf", "judge:URL")),
        (("--partition", "judge:http://h/v1#m", "--similarity", "edit"), ("--similarity", "--partition")),
        (("--max-calls", "3"), ("--partition", "judge:URL")),
        (("--partition", "judge:http://h/v1#m", "--preset", "paper"), ("--partition", "--preset")),
    ],
)
def test_options_without_effect_are_refused(tmp_path, options, named):
    file = samples(tmp_path / "s.jsonl", ["a1", "a2"])
    says(quatro("eval", "ucc", file, "--k", "1", *options, code=2), *named)
