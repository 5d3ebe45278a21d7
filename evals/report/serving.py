"""A page for one person on this machine: HTTP on 127.0.0.1, JSON by functions, and an event when there is news.

The standard library serves it: one reader needs no event loop, a thread that waits costs nothing, and all threads end
with the process. Whoever else uses this machine lacks the token that each request must carry. A page of another site
that a browser leads here has another Host or Origin, and is refused (DNS rebinding).
"""

import hmac
import json
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from evals.errors import QuatroError
from evals.files.strict_json import parse_row

MAX_BODY = 64 * 1024
_QUIET_S = 15.0  # after which a stream says that it lives
_WRONG = (QuatroError, OSError, TypeError, ValueError, KeyError)  # what routes raise, also for another page's requests
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}
logger = logging.getLogger(__name__)
Routes = Mapping[str, Callable[..., Any]]


class PageServer(ThreadingHTTPServer):
    """Serves ``page(token)`` at /, each of ``routes`` at its name with the query as keywords, and news at /events.

    ``posts`` are routes that get the JSON object of a POST. ``address`` holds the token, and ``opening`` a code that is
    good for one page, since other users can see the command line of a browser. Raises OSError if the port is taken; 0
    is a free one.
    """

    daemon_threads, block_on_close = True, False

    def __init__(self, page: Callable[[str], str], routes: Routes, posts: Routes, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.page, self.routes = page, {"GET": routes, "POST": posts}
        self.hosts = [f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost")]
        self.token, code = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
        self.address, self.opening = (f"http://{self.hosts[0]}/?token={one}" for one in (self.token, code))
        self._codes, self._news, self._number = {code}, threading.Condition(), 0

    def tell(self) -> None:
        """There is news."""
        with self._news:
            self._number += 1
            self._news.notify_all()

    def wait(self, known: int) -> int:
        """How often there was news, as soon as that is not ``known``, or after a while."""
        with self._news:
            self._news.wait_for(lambda: self._number != known, _QUIET_S)
            return self._number

    def admits(self, given: str, *, is_page: bool) -> bool:
        """Whether ``given`` is the token, or for the page the code, which is then used up."""
        if is_page and given in self._codes:
            self._codes.clear()
            return True
        return hmac.compare_digest(given.encode("utf-8"), self.token.encode("ascii"))


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "quatro", ""
    timeout = 120  # of a connection without requests

    def handle(self) -> None:
        with suppress(ConnectionError):  # a reader may go away in the middle
            super().handle()

    def do_GET(self) -> None:
        where = urlsplit(self.path)
        asked, host, name = dict(parse_qsl(where.query)), self.headers.get("Host"), where.path.removeprefix("/")
        is_page = not name and self.command == "GET"
        is_ours = host in self.server.hosts and self.headers.get("Origin") in (None, f"http://{host}")
        if not is_ours or not self.server.admits(asked.pop("token", ""), is_page=is_page):
            self._send(403, "text/plain", b"Open the address that `quatro view` printed: it holds a token.\n")
        elif is_page:
            self._send(200, "text/html", self.server.page(self.server.token).encode("utf-8"))
        elif name == "events":
            self._stream()
        elif route := self.server.routes[self.command].get(name):
            try:
                status, found = 200, route(**(asked if self.command == "GET" else self._body()))
            except _WRONG as error:
                gone = "this is not here any more; load the page again" if isinstance(error, KeyError) else ""
                status, found = 400, {"error": gone or str(error) or type(error).__name__}
            except Exception as error:  # a fault of ours: who asks is told, and the terminal, too
                logger.exception("%s", name)
                status, found = 500, {"error": f"{type(error).__name__}: {error}"}
            self._send(status, "application/json", json.dumps(found, allow_nan=False).encode("ascii"))
        else:
            self._send(404, "text/plain", b"There is no such page.\n")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """The address of a request holds the token, which is no business of a log."""

    def _body(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length") or 0)
        if not 0 <= size <= MAX_BODY or self.headers.get_content_type() != "application/json":
            raise ValueError(f"expected a JSON object of at most {MAX_BODY} bytes, found {size}")
        return parse_row(self.rfile.read(size), "the request") or {}

    def _send(self, status: int, kind: str, content: bytes | None) -> None:
        self.send_response(status)
        more = {} if content is None else {"Content-Length": str(len(content))}
        more |= {"Connection": "close"} if status >= 400 else {}  # what was posted may not be read, and is no request
        for name, value in {"Content-Type": f"{kind}; charset=utf-8", **more, **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content or b"")

    def _stream(self) -> None:
        """Server-sent events: the number of the news now, and whenever it is another one."""
        self.close_connection, known = True, -1
        self._send(200, "text/event-stream", None)
        while True:
            number = self.server.wait(known)
            self.wfile.write(f"data: {number}\n\n".encode("ascii") if number != known else b":\n\n")
            known = number
