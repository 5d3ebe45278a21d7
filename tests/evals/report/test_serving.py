"""The server of a page: whom it admits, what it answers, and news for those who wait."""

import http.client
import json
import socket
import threading
from contextlib import closing

import pytest

from evals.errors import DataError
from evals.report.serving import MAX_BODY, PageServer


def fails(**asked):
    raise DataError("a.jsonl:3: damaged")


@pytest.fixture
def server():
    routes = {"echo": lambda **asked: asked, "fails": fails, "stops": lambda: next(iter(()))}
    posts = {"keep": lambda a, b: [a, b]}
    with PageServer(lambda token: f"<p>{token}</p>", routes, posts) as one:
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


def ask(server, path, *, method="GET", body=None, token=None, **headers):
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as line:
        sign = "&" if "?" in path else "?"
        line.request(method, f"{path}{sign}token={server.token if token is None else token}", body, headers)
        answer = line.getresponse()
        return answer.status, answer.read().decode("utf-8"), answer.headers


def test_the_page_and_its_functions_are_there_for_who_has_the_token(server):
    assert ask(server, "/")[:2] == (200, f"<p>{server.token}</p>")
    status, text, headers = ask(server, "/echo?id=a%20b%26c")
    assert (status, json.loads(text)) == (200, {"id": "a b&c"})
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Frame-Options"] == "DENY"
    assert ask(server, "/nothing")[0] == 404
    assert ask(server, "/../../etc/passwd")[0] == 404


@pytest.mark.parametrize("path", ["/", "/echo", "/events", "/nothing"])
@pytest.mark.parametrize("token", ["", "x", "é", "A" * 5000])
def test_nobody_reads_without_the_token(server, path, token):
    from urllib.parse import quote

    status, text, _ = ask(server, path, token=quote(token))
    assert status == 403
    assert server.token not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
    ],
)
def test_a_page_of_another_site_is_refused(server, headers):
    for method, path in (("GET", "/"), ("GET", "/echo"), ("POST", "/keep")):
        assert ask(server, path, method=method, **headers)[0] == 403


def test_localhost_is_this_machine_too(server):
    name = f"localhost:{server.server_port}"
    assert ask(server, "/echo", Host=name, Origin=f"http://{name}")[0] == 200


def test_the_code_that_a_browser_is_started_with_is_good_for_one_page(server):
    code = server.opening.partition("token=")[2]
    assert ask(server, "/echo", token=code)[0] == 403  # and does not use it up
    assert ask(server, "/", token=code)[:2] == (200, f"<p>{server.token}</p>")
    assert ask(server, "/", token=code)[0] == 403


def test_what_is_posted_is_one_small_json_object(server):
    json_type = {"Content-Type": "application/json"}
    assert ask(server, "/keep", method="POST", body='{"a": 1, "b": 2}', **json_type)[:2] == (200, "[1, 2]")
    for body in ("[1]", "{", '{"a": 1}', '{"a": 1, "b": 2, "c": 3}', "[" * 60000, " " * (MAX_BODY + 1)):
        status, text, _ = ask(server, "/keep", method="POST", body=body, **json_type)
        assert (status, list(json.loads(text))) == (400, ["error"]), body[:30]
    assert ask(server, "/keep", method="POST", body='{"a": 1, "b": 2}')[0] == 400  # as a form of another site would
    assert ask(server, "/keep")[0] == 404
    assert ask(server, "/keep", method="POST", **{**json_type, "Content-Length": "-1"})[0] == 400


def test_what_is_refused_is_not_taken_for_the_next_request(server):
    with closing(socket.create_connection(("127.0.0.1", server.server_port), timeout=10)) as line:
        host = f"Host: 127.0.0.1:{server.server_port}\r\n"
        inner = f"GET /echo?token={server.token} HTTP/1.1\r\n{host}\r\n"
        line.sendall(f"POST /keep HTTP/1.1\r\n{host}Content-Length: {len(inner)}\r\n\r\n{inner}".encode("ascii"))
        answer = b"".join(iter(lambda: line.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 403")
    assert answer.count(b"HTTP/1.1") == 1


def test_an_error_is_told_to_the_page(server):
    assert json.loads(ask(server, "/fails")[1]) == {"error": "a.jsonl:3: damaged"}
    assert ask(server, "/stops")[:2] == (500, '{"error": "StopIteration: "}')


def test_news_wake_those_who_wait(server):
    with closing(http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)) as line:
        line.request("GET", f"/events?token={server.token}")
        stream = line.getresponse()
        assert stream.readline() == b"data: 0\n"  # whoever returns knows at once whether something is new
        stream.readline()
        server.tell()
        assert stream.readline() == b"data: 1\n"
