"""`--similarity embed:URL` with a server that answers as a test tells it to."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from evals.clustering import cluster
from evals.errors import DataError, MissingError, UsageError
from evals.similarity import meaning
from evals.similarity.measures import distinct, similarity_of_distinct
from tests.kit import quatro, says, write_rows

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


def test_results_by_two_models_are_not_mixed(serve, tmp_path):
    small, large = serve(), serve(model="large")
    small.answer = large.answer = lambda number, body: embedded(body)
    file = samples(tmp_path / "s.jsonl", ["a1", "a2", "b1"])
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for out, one in zip(files, (small, large, large), strict=True):
        how = ("--similarity", f"embed:{one.url}", "--threshold", "0.9", "--k", "3", "--label", out.stem)
        shown = quatro("eval", "ucc", file, *how, "-o", out)
    assert "embed:large@served >= 0.9, components" in shown.stdout
    quatro("table", *files[1:], "--metric", "ucc@k")
    for command in (["table", *files[:2], "--metric", "ucc@k"], ["plot", "ucc", *files[:2], "-o", tmp_path / "x.svg"]):
        says(quatro(*command, code=4), "embed:small@served", "embed:large@served")
