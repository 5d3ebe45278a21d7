"""A server that answers as an OpenAI-compatible one does, or as a test tells it to."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Stub:
    """``answer(number, body)`` is the answer to POST request ``number``, from 0, and may take its time.

    An answer is a document, its bytes, an iterator over them, (status, document, headers), or None: to hang up.
    """

    def __init__(self, *, model: str = "small", **card: Any) -> None:
        self.models: Any = {"object": "list", "data": [{"id": model, "object": "model", "created": 1, **card}]}
        self.answer: Callable[[int, dict[str, Any]], Any] = lambda number, body: self.right(body)
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str | None] = []
        self.encodings: list[str | None] = []
        self.num_open = self.most_open = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def right(self, body: dict[str, Any], text: str | None = None, **choice: Any) -> dict[str, Any]:
        """A right answer, whose text is the request's seed."""
        said = str(body["seed"]) if text is None else text
        content = {"message": {"role": "assistant", "content": said}} if "messages" in body else {"text": said}
        prompt = len(body["prompt"]) if isinstance(body.get("prompt"), list) else 5
        return {
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", **content, **choice}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": len(choice.get("token_ids") or said.split())},
        }

    def post(self, path: str, body: dict[str, Any]) -> Any:
        with self._lock:
            number = len(self.posts)
            self.posts.append((path, body))
            self.num_open += 1
            self.most_open = max(self.most_open, self.num_open)
        try:
            return self.answer(number, body)
        finally:
            with self._lock:
                self.num_open -= 1

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # clients connect all at once


def _handler(stub: Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            stub.keys.append(self.headers["Authorization"])
            self._send(stub.models)

        def do_POST(self) -> None:
            stub.keys.append(self.headers["Authorization"])
            stub.encodings.append(self.headers["Accept-Encoding"])
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(stub.post(self.path, body))

        def _send(self, answer: Any) -> None:
            status, document, headers = answer if isinstance(answer, tuple) else (200, answer, {})
            pieces = document
            if not isinstance(document, Iterator):
                pieces = [document if isinstance(document, bytes) else json.dumps(document).encode()]
                headers = {"Content-Length": str(len(pieces[0])), **headers}
            self.close_connection = document is None or isinstance(document, Iterator)
            if document is None:
                return
            with contextlib.suppress(OSError):  # the other side has gone
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                for piece in pieces:
                    self.wfile.write(piece)

        def log_message(self, *_: Any) -> None:
            return None

    return Handler
