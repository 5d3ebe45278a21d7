"""RELIABILITY fault 50: a server that dies, stalls or lies loses nothing, and is named."""

import json
import threading

import pytest

from evals.errors import DataError, MissingError
from evals.samples.reading import read_samples
from quatro.rollout.answers import Unanswered, read_answer, read_document
from quatro.sample import draw_samples

N = 5


def draw(stub, toy, out, **more):
    options = {"n": N, "template": "plain", "max_tokens": 8, "text": True, "concurrency": 4, **more}
    return draw_samples("small", toy, out=out, base_url=stub.url, **options)


def kept(out) -> dict[tuple[str, int], str]:
    return {(row.id, row.sample_index): row.completion for row in read_samples([out / "toy.jsonl"]).rows}


@pytest.fixture
def whole(serve, toy, tmp_path) -> bytes:
    """What a server without faults makes."""
    [file] = draw(serve(), toy, tmp_path / "whole")
    return file.path.read_bytes()


def assert_the_rest_is_drawn(serve, toy, out, whole, *, there):
    """The same command, once the server is well, draws only what is missing; the file is that of no fault."""
    stub = serve()
    [file] = draw(stub, toy, out)
    assert len(stub.posts) == file.num_new == 4 * N - there
    assert file.path.read_bytes() == whole


@pytest.mark.parametrize("num_answered", [1, 7, 19])
def test_fault_50_a_server_that_dies_loses_no_answer_and_is_named(serve, toy, tmp_path, whole, num_answered):
    stub, out, lock = serve(), tmp_path / "out", threading.Lock()
    left = [num_answered]

    def answer(number, body):
        with lock:
            left[0] -= 1
            return stub.right(body) if left[0] >= 0 else None

    stub.answer = answer
    with pytest.raises(
        MissingError, match=rf"the server at {stub.url} gave no response for 'p\d' of toy in 8 tries"
    ) as e:
        draw(stub, toy, out)
    assert "the same command draws the rest" in str(e.value)
    assert len(kept(out)) == num_answered
    retries = json.loads((out / "sampling.json").read_text(encoding="utf-8"))["server"]["retries"]
    assert retries.keys() == {"connection"}
    assert retries["connection"] >= 7
    assert_the_rest_is_drawn(serve, toy, out, whole, there=num_answered)


def test_fault_50_a_server_that_is_gone_is_named_at_once(serve, toy, tmp_path):
    stub = serve()
    stub.close()
    with pytest.raises(MissingError, match=rf"the server at {stub.url} gave no response in 3 tries; at last: Connect"):
        draw(stub, toy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fault_50_a_server_that_comes_back_in_time_is_forgiven(serve, toy, tmp_path, whole):
    stub, out = serve(), tmp_path / "out"
    stub.answer = lambda number, body: None if 3 <= number < 8 else stub.right(body)
    [file] = draw(stub, toy, out)
    assert file.path.read_bytes() == whole
    assert json.loads((out / "sampling.json").read_text(encoding="utf-8"))["server"]["retries"] == {"connection": 5}


@pytest.mark.parametrize("drips", [False, True])
def test_fault_50_a_server_that_stalls_is_not_waited_for(serve, toy, tmp_path, whole, monkeypatch, drips):
    """Nor one that sends a byte now and then."""
    stub, out, over = serve(), tmp_path / "out", threading.Event()

    def dripping():
        yield b"{"
        while not over.wait(0.02):
            yield b" "

    def answer(number, body):
        if number < 6:
            return stub.right(body)
        if drips:
            return dripping()
        over.wait(10)
        return None

    stub.answer = answer
    with monkeypatch.context() as hurry:
        hurry.setattr("quatro.rollout.server.LIMIT_S", 0.3)
        hurry.setattr("quatro.rollout.server.LIMIT_PER_TOKEN_S", 0.0)
        with pytest.raises(MissingError, match=r"in 2 tries; at last: no answer within 0\.3 s"):
            draw(stub, toy, out)
    over.set()
    assert len(kept(out)) == 6
    assert_the_rest_is_drawn(serve, toy, out, whole, there=6)


def short(stub, body):
    return stub.right(body, "a b c", finish_reason="length")


LIES = {
    "fewer tokens": (short, r"at most 8 tokens were asked for, and a response ended with 'length' after 3"),
    "another model": (lambda stub, body: {**stub.right(body), "model": "big"}, r"'small' was asked and 'big' answered"),
    "an error": (lambda stub, body: {"error": {"message": "no memory"}}, r"status 200 with an error: no memory"),
    "no end": (lambda stub, body: b" " * 9000, r"an answer of more than 8,000 bytes"),
}


@pytest.mark.parametrize("lie", LIES)
def test_fault_50_a_server_that_lies_is_named_and_its_lies_are_not_kept(serve, toy, tmp_path, whole, monkeypatch, lie):
    monkeypatch.setattr("quatro.rollout.server.MOST_BYTES", 8000)
    stub, out = serve(), tmp_path / "out"
    wrong, said = LIES[lie]
    stub.answer = lambda number, body: stub.right(body) if number < 4 else wrong(stub, body)
    with pytest.raises(DataError, match=said) as caught:
        draw(stub, toy, out, concurrency=1)
    assert f"the server at {stub.url}" in str(caught.value)
    assert "for 'p1' of toy" in str(caught.value)
    assert len(kept(out)) == 4
    assert_the_rest_is_drawn(serve, toy, out, whole, there=4)


RIGHT = {"model": "small", "choices": [{"text": "a b", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}


def changed(**choice):
    return {**RIGHT, "choices": [{**RIGHT["choices"][0], **choice}]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>proxy</html>", r"status 200 without a JSON object: <html>proxy</html>"),
        (b"[1]", r"without a JSON object"),
        (json.dumps(RIGHT).encode()[:-9], r"without a JSON object"),
        (b"[" * 100_000, r"without a JSON object"),
        ({"error": "busy"}, r"with an error: busy"),
        ({**RIGHT, "choices": []}, r"without exactly one response"),
        ({**RIGHT, "choices": [{}, {}]}, r"without exactly one response"),
        ({**RIGHT, "choices": "ab"}, r"without exactly one response"),
        (changed(text=None), r"has no text"),
        (changed(finish_reason="abort"), r"ended with 'abort', expected 'stop' or 'length'"),
        (changed(finish_reason=None), r"ended with 'None'"),
        (changed(token_ids=[1]), r"1 token ids in a response that is said to have 2"),
        (changed(token_ids=[1, True]), r"token ids that are none"),
        (changed(token_ids=[1, -1]), r"token ids that are none"),
        (changed(token_ids=[1, 2**31]), r"token ids that are none"),
    ],
)
def test_fault_50_an_answer_without_a_whole_response_is_asked_for_again(answer, said):
    with pytest.raises(Unanswered, match=said) as caught:
        read(answer)
    assert caught.value.kind == "answer"


def read(answer, *, max_tokens=8, context=None):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(read_document(body), model="small", max_tokens=max_tokens, context=context)


def test_fault_50_fewer_or_more_tokens_than_asked_for_are_no_response():
    length = {**changed(finish_reason="length"), "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    assert read(RIGHT).num_tokens == 2
    assert read(length, max_tokens=2).finish_reason == "length"
    assert read(length, context=7).finish_reason == "length"  # the context is full
    for answer, limits in (
        (length, {}),
        (length, {"context": 8}),
        (length, {"max_tokens": 1}),
        (RIGHT, {"max_tokens": 1}),
    ):
        with pytest.raises(DataError, match="the server has a limit of its own"):
            read(answer, **limits)


def test_fault_50_a_list_of_models_that_is_none_is_named(serve, toy, tmp_path):
    stub = serve()
    for models in ({}, {"data": [{"name": "small"}]}, {"error": "no"}, [], b""):
        stub.models = models
        with pytest.raises(
            DataError, match=rf"the server at {stub.url} gave no response in 3 tries; at last: status 200"
        ):
            draw(stub, toy, tmp_path / "out")


def test_an_interrupted_drawing_ends_at_once_and_keeps_what_came(serve, toy, tmp_path, whole):
    """Requests that are open are given up: nobody waits for them."""
    stub, out, over = serve(), tmp_path / "out", threading.Event()
    waited_out = []

    def answer(number, body):
        if number >= 6 and not over.wait(10):
            waited_out.append(number)
        return stub.right(body)

    def stop(benchmark, num_done, num_wanted, num_tokens):
        if num_done == 6:
            raise KeyboardInterrupt

    stub.answer = answer
    with pytest.raises(KeyboardInterrupt):
        draw(stub, toy, out, progress=stop)
    over.set()
    assert waited_out == []
    assert len(kept(out)) == 6
    assert_the_rest_is_drawn(serve, toy, out, whole, there=6)
