"""RELIABILITY fault 50: a server that dies, stalls or lies loses nothing, and is named."""

import base64
import gzip
import html
import json
import os
import re
import threading
import time
from urllib.parse import quote

import pytest

from evals.errors import DataError, MissingError, QuatroError, UsageError
from evals.samples.reading import read_samples
from evals.servers import Unanswered, read_document
from quatro.rollout.server import read_answer
from quatro.sample.drawing import draw_samples
from tests.kit import read_json, says, write_rows

N = 5


def draw(stub, toy, out, **more):
    options = {"n": N, "template": "plain", "max_tokens": 8, "text": True, "concurrency": 4, **more}
    return draw_samples("small", toy, out=out, base_url=stub.url, **options)


def kept(out) -> dict[tuple[str, int], str]:
    return {(row.id, row.sample_index): row.completion for row in read_samples([out / "toy.jsonl"]).rows}


def recorded(out) -> dict:
    """What sampling.json says of the server."""
    return read_json(out / "sampling.json")["server"]


@pytest.fixture(scope="module")
def drawn() -> list[bytes]:
    """What `whole` has drawn, once for all tests."""
    return []


@pytest.fixture
def whole(drawn, serve, toy, tmp_path) -> bytes:
    """What a server without faults makes."""
    if not drawn:
        [file] = draw(serve(), toy, tmp_path / "whole")
        drawn.append(file.path.read_bytes())
    return drawn[0]


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
    with pytest.raises(MissingError, match=r"'p\d' of toy") as caught:
        draw(stub, toy, out)
    says(caught, stub.url, 8, "the same command")
    assert len(kept(out)) == num_answered
    assert_the_rest_is_drawn(serve, toy, out, whole, there=num_answered)


def test_fault_50_a_server_that_is_gone_is_named_at_once(serve, toy, tmp_path):
    stub = serve()
    stub.close()
    with pytest.raises(MissingError) as caught:
        draw(stub, toy, tmp_path / "out")
    says(caught, stub.url, 3, "ConnectError")
    assert not (tmp_path / "out").exists()


def test_fault_50_a_server_that_comes_back_in_time_is_forgiven(serve, toy, tmp_path, whole):
    stub, out = serve(), tmp_path / "out"
    stub.answer = lambda number, body: None if 3 <= number < 8 else stub.right(body)
    [file] = draw(stub, toy, out)
    assert file.path.read_bytes() == whole


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
        hurry.setattr("evals.servers.LIMIT_S", 0.3)
        hurry.setattr("evals.servers.LIMIT_PER_TOKEN_S", 0.0)
        with pytest.raises(MissingError) as caught:
            draw(stub, toy, out)
    over.set()
    says(caught, stub.url, "2 tries", "0.3 s")
    assert len(kept(out)) == 6
    assert_the_rest_is_drawn(serve, toy, out, whole, there=6)


LIES = {
    "fewer tokens": (lambda stub, body: stub.right(body, "a b c", finish_reason="length"), (8, "length", 3)),
    "another model": (lambda stub, body: {**stub.right(body), "model": "big"}, ("small", "--served-model 'big'")),
    "a filter": (lambda stub, body: stub.right(body, finish_reason="content_filter"), ("content_filter",)),
    "an error": (lambda stub, body: {"error": {"message": "no memory"}}, (200, "no memory")),
    "no end": (lambda stub, body: b" " * 9000, ("8,000 bytes",)),
}


@pytest.mark.parametrize("lie", LIES)
def test_fault_50_a_server_that_lies_is_named_and_its_lies_are_not_kept(serve, toy, tmp_path, whole, monkeypatch, lie):
    monkeypatch.setattr("evals.servers.MOST_BYTES", 8000)
    stub, out = serve(), tmp_path / "out"
    wrong, said = LIES[lie]
    stub.answer = lambda number, body: stub.right(body) if number < 4 else wrong(stub, body)
    with pytest.raises(DataError) as caught:
        draw(stub, toy, out, concurrency=1)
    says(caught, stub.url, "'p1' of toy", *said)
    assert len(kept(out)) == 4
    assert_the_rest_is_drawn(serve, toy, out, whole, there=4)


RIGHT = {"model": "small", "choices": [{"text": "a b", "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}


def changed(**choice):
    return {**RIGHT, "choices": [{**RIGHT["choices"][0], **choice}]}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"<html>proxy</html>", r"<html>proxy</html>"),
        (b"[1]", r"without a JSON object"),
        (json.dumps(RIGHT).encode()[:-9], r"without a JSON object"),
        (b"[" * 100_000, r"without a JSON object"),
        ({"error": "busy"}, r"with an error: busy"),
        ({**RIGHT, "choices": []}, r"without exactly one response"),
        ({**RIGHT, "choices": [{}, {}]}, r"without exactly one response"),
        ({**RIGHT, "choices": "ab"}, r"without exactly one response"),
        (changed(text=None), r"has no text"),
        (changed(text=[{"type": "text", "text": "a b"}]), r"has no text"),
        (changed(index=1), r"without exactly one response"),
        (changed(finish_reason="abort"), r"ended with 'abort', expected 'stop' or 'length'"),
        (changed(finish_reason=None), r"ended with None, expected"),
        (changed(token_ids=[1]), r"1 token ids in a response that is said to have 2"),
        (changed(token_ids=[1, True]), r"token ids that are not whole numbers"),
        (changed(token_ids=[1, -1]), r"token ids that are not whole numbers"),
        (changed(token_ids=[1, 2**31]), r"token ids that are not whole numbers"),
    ],
)
def test_fault_50_an_answer_without_a_whole_response_is_asked_for_again(answer, said):
    with pytest.raises(Unanswered, match=said) as caught:
        read(answer)
    assert caught.value.kind == "answer"


@pytest.mark.parametrize("content", [{"content": None, "refusal": "no"}, {"reasoning_content": "let me see"}])
def test_a_chat_that_only_refuses_or_reasons_is_an_empty_response(content):
    assert read(changed(message=content), is_chat=True).text == ""


def read(answer, *, max_tokens=8, context=None, **more):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return read_answer(read_document(body), model="small", max_tokens=max_tokens, context=context, **more)


@pytest.mark.parametrize("message", ["a b", None, {"content": [{"type": "text", "text": "a b"}]}])
def test_fault_50_a_chat_without_a_message_is_asked_for_again(message):
    with pytest.raises(Unanswered, match="has no text"):
        read(changed(message=message), is_chat=True)


@pytest.mark.parametrize("role", ["user", "system", "tool", "", 7])
def test_fault_50_only_what_the_assistant_says_is_a_response(role):
    with pytest.raises(DataError, match=rf"{role!r}.*'assistant'"):
        read(changed(message={"role": role, "content": "a b"}), is_chat=True)
    assert read(changed(message={"role": "assistant", "content": "a b"}), is_chat=True).text == "a b"


@pytest.mark.parametrize(
    ("usage", "choice", "found"),
    [
        ({"prompt_tokens": 4}, {}, "4"),  # one more at the beginning
        ({"prompt_tokens": 2}, {}, "2"),
        ({}, {"prompt_token_ids": [1, 5, 6]}, "other tokens"),
        ({"prompt_tokens": 3}, {"prompt_token_ids": [5, 6]}, "other tokens"),
    ],
)
def test_fault_50_a_prompt_that_the_server_changed_has_no_response(usage, choice, found):
    answer = {**changed(**choice), "usage": {**RIGHT["usage"], **usage}}
    with pytest.raises(DataError, match=rf"3 token ids.*{found}.*--chat or --text"):
        read(answer, prompt_ids=[5, 6, 7])
    assert read(answer).text == "a b"  # sent as text: its ids are the server's affair


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": 3}, {"prompt_tokens": 0}])
def test_a_prompt_that_was_read_as_it_was_sent_has_one(usage):
    answer = {**changed(prompt_token_ids=[5, 6, 7]), "usage": {**RIGHT["usage"], **usage}}
    assert read(answer, prompt_ids=[5, 6, 7]).text == "a b"


def test_fault_50_a_text_of_other_length_than_its_tokens_is_no_response():
    """A server that does not count, or counts wrongly, is judged by the text."""
    uncounted = {**changed(text="ab", finish_reason="length"), "usage": None}
    zero = {**uncounted, "usage": {"completion_tokens": 0}}
    for answer in (uncounted, zero):
        with pytest.raises(DataError, match="2 bytes"):
            read(answer, max_tokens=8)
        assert read(answer, max_tokens=2).num_tokens is None
        assert read(answer, context=9).text == "ab"  # a long prompt may leave no more room
        with pytest.raises(DataError, match="2 bytes"):
            read(answer, context=9, prompt_ids=[1] * 5)
    chat = {**changed(message={"content": "ab"}, finish_reason="length"), "usage": None}
    assert read(chat, is_chat=True).text == "ab"  # what it thought is not there
    for answer in (changed(text="ab" * 300), {**changed(text="ab" * 3000), "usage": None}):
        with pytest.raises(DataError, match="--max-tokens"):
            read(answer, max_tokens=8)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "identity, gzip", "x"])
def test_fault_50_an_encoding_that_was_not_asked_for_is_not_unfolded(serve, toy, tmp_path, encoding):
    """A few kB of it may fill all memory; even an honest one is refused."""
    stub = serve()
    stub.answer = lambda number, body: (
        200,
        gzip.compress(json.dumps(stub.right(body)).encode()),
        {"Content-Encoding": encoding},
    )
    with pytest.raises(DataError, match=rf"{re.escape(repr(encoding))}.*'identity'"):
        draw(stub, toy, tmp_path / "out", n=1, concurrency=1)
    assert set(stub.encodings) == {"identity"}
    assert (tmp_path / "out" / "toy.jsonl").read_bytes() == b""


def ids_and_text(stub, body, ids, text, **more):
    return {**stub.right(body, text, token_ids=ids, **more), "usage": None}


@pytest.mark.parametrize(("is_right", "ids", "text"), [
    (True, "12", "12"),
    (True, "12", " 12\ufffd"),
    (False, "12", "1"),
    (False, "12", ""),
    (False, "12", "something else"),
    (False, [], "12"),
    (False, [3, 10**6], "1"),
])  # fmt: skip
def test_fault_50_ids_are_those_of_the_text_and_of_the_model(serve, toy, tmp_path, tiny_folder, is_right, ids, text):
    from quatro.policy.loading import load_tokenizer

    tokenizer = load_tokenizer(str(tiny_folder))
    stub, out = serve(model=str(tiny_folder), owned_by="vllm"), tmp_path / "out"
    found = [*tokenizer(ids)["input_ids"], tokenizer.eos_token_id] if isinstance(ids, str) else ids
    stub.answer = lambda number, body: ids_and_text(stub, body, found, text)
    arguments = {"n": 1, "template": "plain", "max_tokens": 8, "concurrency": 1, "base_url": stub.url, "out": out}
    if is_right:
        draw_samples(str(tiny_folder), toy, **arguments)
        assert set(kept(out).values()) == {"12"}
        return
    with pytest.raises(DataError, match="id 1000000 .* has 2.. ids" if 10**6 in found else "--chat or --text"):
        draw_samples(str(tiny_folder), toy, **arguments)
    assert (out / "toy.jsonl").read_bytes() == b""


@pytest.mark.parametrize("num_alike", [2, 3])
def test_fault_50_equal_samples_of_most_problems_are_told(serve, toy, tmp_path, caplog, num_alike):
    """Of four problems; of one sample each there is nothing to tell."""
    stub = serve()
    alike = [f"{i} 2 7 6 2 8 -> 67" for i in range(1, num_alike + 1)]
    stub.answer = lambda number, body: stub.right(body, "7" if body["prompt"] in alike else None)
    draw(stub, toy, tmp_path / "one", n=1)
    assert "equal" not in caplog.text
    draw(stub, toy, tmp_path / "out", n=3, temperature=0.7)
    assert ("3 of 4 problems" in caplog.text and "0.7" in caplog.text) == (num_alike == 3)


def test_fault_50_a_server_that_may_cut_prompts_or_responses_is_told_once(serve, tmp_path, caplog):
    rows = [{"id": str(i), "problem": "word " * 100, "answer": "1"} for i in range(3)]
    toy, stub = str(write_rows(tmp_path / "toy.jsonl", rows)), serve()
    draw(stub, toy, tmp_path / "counted", n=1)
    assert caplog.text.count("5 tokens") == 1
    assert "400" in caplog.text
    stub.answer = lambda number, body: {**stub.right(body), "usage": None}
    caplog.clear()
    draw(stub, toy, tmp_path / "uncounted", n=1)
    assert caplog.text.count("how many tokens") == 1


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
        with pytest.raises(DataError) as caught:
            draw(stub, toy, tmp_path / "out")
        says(caught, stub.url, 3, 200)
    stub.models = b"<!doctype html>"  # of an address without the /v1
    with pytest.raises(DataError) as caught:
        draw(stub, toy, tmp_path / "out")
    says(caught, "<!doctype html>", advice="/v1")


def test_fault_50_a_busy_server_is_asked_longer_than_a_broken_one(serve, toy, tmp_path):
    stub = serve()
    page = b"<html>\n<h1>502 Bad Gateway</h1>\n</html>"
    for status, num_tries in ((429, 32), (502, 8), (408, 8)):
        stub.posts.clear()
        stub.answer = lambda number, body, status=status: (status, page, {})
        with pytest.raises(MissingError) as caught:
            draw(stub, toy, tmp_path / str(status), n=1, concurrency=1)
        says(caught, num_tries, status, "<html> <h1>502 Bad Gateway</h1> </html>")
        assert len(stub.posts) == num_tries
        assert len({body["seed"] for _, body in stub.posts}) == 1


def test_an_answer_has_the_longer_time_the_more_tokens_were_asked_for(serve, toy, tmp_path, monkeypatch):
    monkeypatch.setattr("evals.servers.LIMIT_S", 0.0)
    monkeypatch.setattr("evals.servers.LIMIT_PER_TOKEN_S", 10.0)
    [file] = draw(serve(), toy, tmp_path / "out", n=1)
    assert file.num_new == 4


@pytest.mark.parametrize("status", [301, 303, 308])
def test_a_redirect_is_not_followed_and_the_key_stays(serve, toy, tmp_path, monkeypatch, status):
    monkeypatch.setenv("QUATRO_API_KEY", KEY)
    stub, other = serve(), serve()
    stub.models = (status, b"", {"Location": f"{other.url}/models"})
    with pytest.raises(UsageError) as caught:
        draw(stub, toy, tmp_path / "out")
    says(caught, status, f"{other.url}/models", advice="--base-url")
    assert other.keys == []


KEY = "sk-do-not-tell-0123456789"


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("where", [365, 380])
def test_no_part_of_a_key_is_left_where_a_long_message_is_cut(serve, toy, tmp_path, monkeypatch, status, where):
    monkeypatch.setenv("QUATRO_API_KEY", KEY)
    stub = serve()
    stub.answer = lambda number, body: (status, {"error": {"message": "-" * where + KEY + "-" * 500}}, {})
    with pytest.raises(QuatroError) as caught:
        draw(stub, toy, tmp_path / "out", n=1, concurrency=1)
    assert "sk" not in str(caught.value)
    assert len(str(caught.value)) < 900


def spellings(key):
    """As a server, or what lies before it, may write it."""
    basic = base64.b64encode(f"Bearer {key}".encode()).decode()
    return [key, quote(key, safe=""), json.dumps(key), html.escape(key), basic, base64.b64encode(key.encode()).decode()]


@pytest.mark.parametrize("end", ["0123456789", '"<\\+/?&', "-" * 99])
def test_the_key_is_written_nowhere_however_a_server_spells_it(serve, toy, tmp_path, monkeypatch, caplog, end):
    key = f"sk-do-not-tell-{end}"
    monkeypatch.setenv("QUATRO_API_KEY", key)
    echo = " | ".join(spellings(key))
    stub, out = serve(owned_by=key, root=f"/{key}/"), tmp_path / "out"
    stub.answer = lambda number, body: {**stub.right(body, echo), "usage": None}
    draw(stub, toy, out, max_tokens=400, n=1)
    assert kept(out)["p1", 0].count("***") == len(spellings(key))
    written = caplog.text + "".join(path.read_text(encoding="utf-8") for path in out.iterdir())
    wrong = [
        lambda body: {**stub.right(body), "model": echo},
        lambda body: (500, {"error": {"message": echo}}, {}),
        lambda body: (301, b"", {"Location": f"http://h/{quote(key, safe='')}"}),
        lambda body: stub.right(body, finish_reason=echo),
    ]
    for one in wrong:
        stub.answer = lambda number, body, one=one: one(body)
        with pytest.raises(QuatroError) as caught:
            draw(stub, toy, tmp_path / "refused", n=1, concurrency=1)
        assert "***" in str(caught.value)
        written += str(caught.value)
    secret = {one[5:25] for one in spellings(key)}
    assert not [part for part in secret if part in written]


def test_a_word_that_serves_as_key_stays_a_word(serve, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_API_KEY", "EMPTY")
    stub, out = serve(), tmp_path / "out"
    stub.answer = lambda number, body: stub.right(body, "the set is EMPTY")
    draw(stub, toy, out, n=1)
    assert kept(out)["p1", 0] == "the set is EMPTY"


@pytest.mark.parametrize("end", ["/", "//"])
def test_a_slash_behind_the_address_changes_nothing(serve, toy, tmp_path, whole, end):
    stub, out = serve(), tmp_path / "out"
    stub.url += end
    [file] = draw(stub, toy, out)
    assert {path for path, _ in stub.posts} == {"/v1/completions"}
    assert file.path.read_bytes() == whole


def test_a_proxy_in_the_environment_is_named_without_its_password(serve, toy, tmp_path, monkeypatch):
    stub, proxy = serve(), serve()
    proxy.models = (503, b"no route", {})
    address = proxy.url.removesuffix("/v1").replace("http://", "http://me:secret@")
    monkeypatch.setenv("HTTP_PROXY", address)
    with pytest.raises(MissingError) as caught:
        draw(stub, toy, tmp_path / "out")
    says(caught, stub.url, "HTTP_PROXY", "NO_PROXY=127.0.0.1")
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    [file] = draw(stub, toy, tmp_path / "out")
    assert file.num_new == 4 * N


def test_certificates_that_are_missing_are_named(serve, toy, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(UsageError, match=r"look at .* SSL_CERT_FILE"):
        draw(serve(), toy, tmp_path / "out")


def test_vllm_is_not_asked_for_a_temperature_that_it_does_not_have(serve, toy, tmp_path):
    stub = serve(owned_by="vllm")
    with pytest.raises(UsageError, match="temperature"):
        draw(stub, toy, tmp_path / "out", temperature=2.5)
    assert stub.posts == []


def test_any_text_reaches_the_file(serve, toy, tmp_path):
    """Half of a surrogate pair and control characters are no UTF-8, or no lines, to everybody."""
    stub, out = serve(owned_by="\ud800"), tmp_path / "out"
    text = "a\ud83d \x00\x1b[31m\u2028\r\n\udc80b"
    stub.answer = lambda number, body: stub.right(body, text)
    draw(stub, toy, out, max_tokens=20)
    assert set(kept(out).values()) == {"a\ufffd \x00\x1b[31m\u2028\r\n\ufffdb"}
    server = recorded(out)
    assert server["owned_by"] == "?"
    [file] = draw(stub, toy, out, n=N + 1, max_tokens=20)
    assert (file.num_present, file.num_new) == (4 * N, 4)


def test_many_calls_leave_no_descriptor_open(serve, toy, tmp_path, monkeypatch):
    monkeypatch.setattr("quatro.sample.served.CALL_LENGTH", 1)
    stub = serve()
    draw(stub, toy, tmp_path / "first")  # what is loaded and opened once
    before = open_descriptors()
    draw(stub, toy, tmp_path / "second", n=10)
    deadline = time.monotonic() + 60  # the stub's threads close their ends soon
    while open_descriptors() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert open_descriptors() <= before


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


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
