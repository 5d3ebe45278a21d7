"""A browser to drive, in the few commands of the WebDriver protocol that a test needs (https://www.w3.org/TR/webdriver2).

Debian: `apt-get install chromium chromium-driver`.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the protocol's name for a reference to an element
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
START_S = 60


def missing() -> str:
    """What this machine lacks to drive a browser; empty where it lacks nothing."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(absent)} here; on Debian: apt-get install chromium chromium-driver" if absent else ""


class Browser:
    """One session; every command waits until the browser has done it."""

    def __init__(self, address: str) -> None:
        self.address = address

    def call(self, method: str, path: str, values: dict[str, Any] | None = None) -> Any:
        body = None if method != "POST" else json.dumps(values or {}).encode()
        head = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", body, head, method=method)
        try:
            with _OPENER.open(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error)["value"]["message"]) from error

    def open(self, page: Path) -> None:
        self.call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def find(self, selector: str) -> dict[str, str]:
        found: dict[str, str] = self.call("POST", "/element", {"using": "css selector", "value": selector})
        return found

    def click(self, selector: str) -> None:
        self.call("POST", f"/element/{self.find(selector)[ELEMENT]}/click")

    def type(self, selector: str, text: str) -> None:
        self.call("POST", f"/element/{self.find(selector)[ELEMENT]}/value", {"text": text})

    def point_at(self, selector: str) -> None:
        """Move the mouse to the middle of the element."""
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", self.find(selector))
        move = {"type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": self.find(selector)}
        self.call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def console(self) -> list[str]:
        """Messages of the console since the last call, errors and violations of the security policy among them."""
        return [entry["message"] for entry in self.call("POST", "/se/log", {"type": "browser"})]

    def resize(self, width: int, height: int) -> None:
        self.call("POST", "/window/rect", {"width": width, "height": height})

    def pdf(self) -> bytes:
        return base64.b64decode(self.call("POST", "/print"))


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the driver is on this machine


@contextmanager
def started(profile: Path, *flags: str) -> Iterator[Browser]:
    """A headless Chromium with the empty folder ``profile``, and its driver; both end with the block."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    driver = subprocess.Popen(["chromedriver", f"--port={port}", "--log-level=OFF"], stdout=subprocess.DEVNULL)
    try:
        root = Browser(f"http://127.0.0.1:{port}")
        _wait_for(root)
        options = {"args": [*FLAGS, f"--user-data-dir={profile}", *flags], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        session = root.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        one = Browser(f"{root.address}/session/{session['sessionId']}")
        try:
            yield one
        finally:
            one.call("DELETE", "")
    finally:
        driver.terminate()
        driver.wait(timeout=30)


def _wait_for(root: Browser) -> None:
    deadline = time.monotonic() + START_S
    while True:
        try:
            if root.call("GET", "/status")["ready"]:
                return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless browser; the test is skipped where there is none."""
    if reason := missing():
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("profile")) as one:
        yield one
