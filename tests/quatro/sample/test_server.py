"""`quatro sample --base-url`: what is asked of a server, what its answers become, and what is recorded of it."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evals.benchmarks.prompts import messages
from evals.errors import MissingError, UsageError
from evals.samples.reading import read_samples
from evals.servers import api_key
from quatro.rollout.engine import sample_seed
from quatro.sample.drawing import draw_samples
from tests.kit import quatro, read_json, says

TEXT = ("--text", "--template", "plain", "--max-tokens", "8")


def ask(stub, toy, out, *more, n=1, code=0):
    """``stub``'s samples, from text."""
    return sample("small", toy, out, "--base-url", stub.url, *TEXT, *more, n=n, code=code)


def sample(model, toy, out, *more, n=1, code=0):
    return quatro("sample", model, "-b", toy, "-n", n, "-o", out, *more, code=code)


def rows(out: Path) -> dict[tuple[str, int], str]:
    return {(row.id, row.sample_index): row.completion for row in read_samples([out / "toy.jsonl"]).rows}


def record(out: Path) -> dict:
    return read_json(out / "sampling.json")


def server_seed(id: str, index: int, seed: int = 0) -> int:
    return sample_seed(seed, "toy", id, index) >> 11


def test_each_sample_is_a_request_of_its_own_text_and_seed(serve, toy, tmp_path):
    stub, out = serve(), tmp_path / "out"
    done = ask(stub, toy, out, "--top-p", 0.7, "--stop", "##", n=3)
    assert done.stdout == f"{out / 'toy.jsonl'}\n"
    assert "does not say that it is vLLM" in done.stderr
    assert list(rows(out)) == [(f"p{i}", j) for i in range(1, 5) for j in range(3)]
    assert rows(out) == {key: str(server_seed(*key)) for key in rows(out)}
    assert {path for path, _ in stub.posts} == {"/v1/completions"}
    first = next(body for _, body in stub.posts if body["seed"] == server_seed("p1", 0))
    assert first == {
        "model": "small",
        "prompt": "1 2 7 6 2 8 -> 67",
        "max_tokens": 8,
        "temperature": 1.0,
        "top_p": 0.7,
        "seed": server_seed("p1", 0),
        "stop": ["##"],
    }
    document = record(out)
    assert (document["engine"], document["model"], document["sampling"]["top_p"]) == ("server", "small", 0.7)
    assert document["server"] == {
        "id": "small",
        "owned_by": None,
        "root": None,
        "max_model_len": None,
        "prompts": "text",
        "seed_bits": 53,
    }
    assert "127.0.0.1" not in "".join(path.read_text(encoding="utf-8") for path in out.iterdir())


def test_messages_are_left_to_the_servers_own_chat_template(serve, toy, tmp_path):
    stub, out = serve(), tmp_path / "out"
    sample("small", toy, out, "--base-url", stub.url, "--chat", "--template", "qwen-boxed")
    assert {path for path, _ in stub.posts} == {"/v1/chat/completions"}
    body = next(body for _, body in stub.posts if body["seed"] == server_seed("p1", 0))
    assert body["messages"] == messages("qwen-boxed", "1 2 7 6 2 8 -> 67")
    assert "prompt" not in body
    first = read_samples([out / "toy.jsonl"]).rows[0]
    assert json.loads(first.prompt) == body["messages"]
    assert first.completion == str(server_seed("p1", 0))
    assert record(out)["server"]["prompts"] == "chat"


def test_token_ids_go_out_and_come_back(serve, toy, tmp_path, request):
    pytest.importorskip("transformers")
    folder = request.getfixturevalue("tiny_folder")
    from quatro.policy.loading import load_tokenizer

    tokenizer = load_tokenizer(str(folder))
    stub, out = serve(model="tiny", owned_by="vllm", root=str(folder), max_model_len=24), tmp_path / "out"
    ids = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in ("7 2 9 3", "7 2")]

    def answer(number, body):
        said = tokenizer.decode(ids[number % 2], skip_special_tokens=True)
        # vLLM's text ends before a stop string, and may begin with the white space that a decoder leaves out.
        prompt_ids = {"prompt_token_ids": body["prompt"]}
        return stub.right(body, " " + said.split("9")[0], token_ids=ids[number % 2], **prompt_ids)

    stub.answer = answer
    arguments = ("--base-url", stub.url, "--template", "plain", "--max-tokens", 20, "--stop", "9", "--top-k", 7)
    done = sample(folder, toy, out, *arguments)
    assert "vLLM" not in done.stderr
    says(done, "max_new_tokens=20")
    body = next(body for _, body in stub.posts if body["seed"] == server_seed("p1", 0))
    prompt = tokenizer("1 2 7 6 2 8 -> 67")["input_ids"]
    assert body["prompt"] == prompt
    assert body["max_tokens"] == 24 - len(prompt) < 20
    assert (body["return_token_ids"], body["top_k"]) == (True, 7)
    assert (body["min_p"], body["repetition_penalty"]) == (0.0, 1.0)
    assert tokenizer.eos_token_id in body["stop_token_ids"]
    assert set(rows(out).values()) == {"7 2 ", "7 2"}
    assert record(out)["model"] == str(folder)
    stub.models["data"][0]["max_model_len"] = 7
    says(sample(folder, toy, tmp_path / "short", *arguments, code=4), 7, key="context")
    assert len(stub.posts) == 4


@pytest.mark.slow
def test_token_ids_are_sent_without_torch(serve, toy, tmp_path, tiny_folder):
    stub = serve(model=str(tiny_folder))
    code = "import sys; sys.modules['torch'] = None; from quatro_cli.app import main; sys.argv[0] = 'quatro'; main()"
    arguments = ("sample", tiny_folder, "-b", toy, "-n", 1, "-o", tmp_path / "out", "--base-url", stub.url)
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments), "--template", "plain", "--max-tokens", "8"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert all(isinstance(body["prompt"][0], int) for _, body in stub.posts)
    assert len(stub.posts) == 4


def test_without_top_k_vllm_is_told_so(serve, toy, tmp_path):
    """It would take that of the model's generation_config.json."""
    stub = serve(owned_by="vllm")
    ask(stub, toy, tmp_path / "out")
    body = stub.posts[0][1]
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)
    assert "return_token_ids" not in body


def test_a_text_ends_before_a_stop_string_whatever_the_server_makes_of_it(serve, toy, tmp_path):
    stub, out = serve(), tmp_path / "out"
    stub.answer = lambda number, body: stub.right(body, "a b##c d e f g", finish_reason="length")
    ask(stub, toy, out, "--max-tokens", 6, "--stop", "##")
    found = read_samples([out / "toy.jsonl"]).rows
    assert {(row.completion, row.finish_reason) for row in found} == {("a b", "stop")}


def test_the_same_command_draws_what_is_missing(serve, toy, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    stub = serve()
    ask(stub, toy, whole, n=3)
    ask(stub, toy, cut, n=2)
    lines = (cut / "toy.jsonl").read_bytes().splitlines(keepends=True)
    # A crash: rows that never came, a torn one, and nothing yet of what the complete file holds.
    (cut / "toy.jsonl").write_bytes(b"".join(lines[2:])[:-9])
    document = record(cut)
    del document["benchmarks"]["toy"]["sha256"]
    (cut / "sampling.json").write_text(json.dumps(document), encoding="utf-8")
    before = len(stub.posts)
    done = ask(stub, toy, cut, n=3)
    says(done, 7, 5)
    assert len(stub.posts) - before == 7
    assert (cut / "toy.jsonl").read_bytes() == (whole / "toy.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("card", "more", "said"),
    [
        ({"root": "elsewhere"}, TEXT, ("root", "None", "elsewhere")),
        ({}, ("--chat", *TEXT[1:]), ("prompts", "text", "chat")),
    ],
)
def test_samples_of_another_model_or_form_are_not_mixed_in(serve, toy, tmp_path, card, more, said):
    out, stub, other = tmp_path / "out", serve(), serve(**card)
    ask(stub, toy, out)
    before = (out / "toy.jsonl").read_bytes(), record(out)
    says(sample("small", toy, out, "--base-url", other.url, *more, n=2, code=2), *said)
    assert ((out / "toy.jsonl").read_bytes(), record(out)) == before
    assert other.posts == []


def test_no_more_requests_are_open_than_allowed_and_no_fewer(serve, toy, tmp_path):
    stub, together = serve(), threading.Barrier(3)

    def answer(number, body):
        together.wait(10)  # for two others
        return stub.right(body)

    stub.answer = answer
    ask(stub, toy, tmp_path / "out", "--concurrency", 3, n=3)
    assert stub.most_open == 3


def test_a_busy_server_is_asked_again_and_each_cause_is_told_once(serve, toy, tmp_path):
    stub, out = serve(), tmp_path / "out"
    busy = [429, 503, 408, 429, 500]

    def answer(number, body):
        if number >= len(busy):
            return stub.right(body)
        return busy[number], {"error": {"message": "wait\x1b[31m"}}, {"Retry-After": "0"}

    stub.answer = answer
    done = ask(stub, toy, out)
    assert [done.stderr.count(f"status {status}") for status in (408, 429, 500, 503)] == [1, 1, 1, 1]
    assert done.stderr.count("status 429: wait\\x1b[31m; it is asked again") == 1
    assert rows(out) == {key: str(server_seed(*key)) for key in rows(out)}


def test_waits_double_up_to_a_bound_and_are_never_shorter_than_the_server_asks():
    from evals.servers import retry_after, wait_before

    assert [wait_before(number, 0.0, 0.0) for number in (2, 3, 4, 9, 30)] == [1, 2, 4, 60, 60]
    assert wait_before(4, 0.999, 0.0) == pytest.approx(2, abs=0.01)
    assert wait_before(2, 0.5, 17.0) == 17
    assert retry_after({"Retry-After": " 17 "}) == 17
    unusable = ("", "soon", "-5", "1e9", "Wed, 21 Oct 2015 07:28:00 GMT")
    assert [retry_after({"Retry-After": text}) for text in unusable] == [0] * len(unusable)


def test_a_server_that_asks_for_a_long_wait_is_left(serve, toy, tmp_path):
    stub = serve()
    stub.answer = lambda number, body: (429, {"error": "tomorrow"}, {"Retry-After": "90000"})
    says(ask(stub, toy, tmp_path / "out", code=3), 90000, "the same command")


SECRET = "sk-do-not-tell-0123456789"


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_the_key_is_sent_and_stands_nowhere_else(serve, toy, tmp_path, monkeypatch, caplog, status):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    monkeypatch.setenv("QUATRO_API_KEY", f"{SECRET}\n")
    stub, out = serve(), tmp_path / "out"
    if status != 200:
        stub.answer = lambda number, body: (status, {"error": {"message": f"no such key: {SECRET}, sorry"}}, {})
    done = ask(stub, toy, out, code={200: 0, 400: 2, 401: 3, 500: 3}[status])
    dry = ask(stub, toy, out, "--dry-run")
    assert set(stub.keys) == {f"Bearer {SECRET}"}
    assert "the key in QUATRO_API_KEY" in dry.stdout
    written = "".join(path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file())
    for text in (done.output, done.stderr, dry.output, written, caplog.text):
        assert "sk-" not in text
    if status != 200:
        assert "no such key: ***, sorry" in done.stderr


def test_the_key_is_the_first_that_is_set():
    assert api_key({}) is None
    assert api_key({"QUATRO_API_KEY": " ", "OPENAI_API_KEY": "b"}) == "b"
    assert api_key({"QUATRO_API_KEY": "a", "OPENAI_API_KEY": "b"}) == "a"
    with pytest.raises(UsageError, match="QUATRO_API_KEY") as caught:
        api_key({"QUATRO_API_KEY": "sk-1\nsk-2"})
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--served-model", "x"), ("--served-model", "--base-url")),
        (("--chat",), ("--chat", "--base-url")),
        (("--text",), ("--text", "--base-url")),
        (("--concurrency", 4), ("--concurrency", "--base-url")),
        (("--engine", "server"), ("server", "--base-url")),
        (("--base-url", "http://h/v1", "--chat", "--text"), ("--chat", "--text")),
        (("--base-url", "http://h/v1", "--chat", "--engine", "vllm"), ("--engine", "--base-url")),
        (("--base-url", "http://h/v1", "--chat", "--gpus", "0"), ("--gpus", "--base-url")),
        (("--base-url", "http://h/v1", "--text", "--template", "qwen-boxed"), ("qwen-boxed", "--template plain")),
        *(
            (("--base-url", url, "--chat"), (url, "http://localhost:8000/v1"))
            for url in ("localhost:8000", "http://h:x/v1", "http://h:0x1/v1", "http://a..b/v1", "http://[::1/v1")
        ),
        (("--base-url", "http:///v1", "--chat"), ("http:///v1", "http://localhost:8000/v1")),
        (("--base-url", "ftp://h/v1", "--chat"), ("ftp://h/v1", "http://localhost:8000/v1")),
        (("--base-url", "http://me:sk-1@h/v1", "--chat"), ("--base-url", "QUATRO_API_KEY")),
        (("--base-url", "http://h/v1?key=sk-1", "--chat"), ("--base-url", "QUATRO_API_KEY")),
    ],
)
def test_what_makes_no_request_is_refused(toy, tmp_path, options, said):
    done = sample("small", toy, tmp_path / "out", *options, code=2)
    says(done, *said)
    assert "sk-1" not in done.output + done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("host", "proxy"), [("xn--", ""), ("999.1.1.1", ""), ("h", "socks5://127.0.0.1:1")])
def test_a_host_or_proxy_that_cannot_be_is_no_bug(toy, tmp_path, monkeypatch, host, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    url = f"http://{host}/v1"
    says(sample("small", toy, tmp_path / "out", "--base-url", url, *TEXT, code=2), url, "--base-url", "ALL_PROXY")


def test_token_ids_need_a_tokenizer_here(toy, tmp_path):
    pytest.importorskip("transformers")
    done = sample("no/such/folder", toy, tmp_path / "out", "--base-url", "http://h/v1", code=3)
    says(done, "no/such/folder", "--chat", "--text")


def test_another_model_than_asked_for_is_refused_before_anything_is_drawn(serve, toy, tmp_path):
    stub = serve(model="served/name", root="folder/of/it")
    says(ask(stub, toy, tmp_path / "a", code=2), "served/name", value="small", advice="--served-model")
    assert stub.posts == []
    sample("folder/of/it", toy, tmp_path / "b", "--base-url", stub.url, *TEXT)
    ask(stub, toy, tmp_path / "c", "--served-model", "served/name")
    assert {body["model"] for _, body in stub.posts} == {"served/name"}
    assert record(tmp_path / "c")["model"] == "small"


def test_a_server_without_top_k_says_so(serve, toy, tmp_path):
    stub = serve()
    stub.answer = lambda number, body: (400, {"error": {"message": f"Unrecognized argument: {[*body][-1]}"}}, {})
    said = ask(stub, toy, tmp_path / "out", "--top-k", 50, code=2)
    says(said, "toy", "400", "Unrecognized argument: top_k", advice="leave it out")
    assert len(stub.posts) <= 4  # it is not asked again


def test_an_address_without_the_v1_is_explained(serve, toy, tmp_path):
    stub = serve()
    stub.models = (404, {"detail": "Not Found"}, {})
    says(ask(stub, toy, tmp_path / "out", code=2), "404", advice="/v1")


def test_samples_are_graded_as_they_come(serve, toy, tmp_path):
    stub, out = serve(), tmp_path / "out"
    stub.answer = lambda number, body: stub.right(body, r"\boxed{67}" if body["prompt"][0] in "12" else r"\boxed{68}")
    ask(stub, toy, out, "--grade", n=2)
    grades = {(row.id, row.correct) for row in read_samples([out / "toy.jsonl"]).rows}
    assert grades == {("p1", True), ("p2", True), ("p3", False), ("p4", False)}


def test_a_dry_run_asks_nothing(toy, tmp_path):
    url = "http://127.0.0.1:9/v1"  # nobody is there
    more = ("--base-url", url, *TEXT, "--served-model", "name", "--dry-run")
    said = sample("small", toy, tmp_path / "out", *more, n=2).stdout
    says(said, "4 problems x 2 samples = 8", f"POST {url}/completions", "name", "text", 32, "without a key")


def test_samples_can_be_drawn_from_a_notebook(serve, toy, tmp_path):
    """Whose thread has an event loop that runs."""
    stub = serve()

    async def cell():
        return draw_samples("small", toy, n=1, template="plain", out=tmp_path / "out", base_url=stub.url, text=True)

    [file] = asyncio.run(cell())
    assert file.num_new == 4


def test_sending_token_ids_names_what_is_missing_in_the_base_install(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install .*\[train\]'.*--chat or --text"):
        draw_samples("small", toy, n=1, out=tmp_path / "out", base_url="http://h/v1")
