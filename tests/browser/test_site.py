"""The site of the documentation, as `make site` built it, in a browser: at the width of a phone, and its search."""

from __future__ import annotations

import functools
import http.server
import re
import threading
import time
from pathlib import Path

import pytest

from quatro import __version__

ROOT = Path(__file__).parents[2]
SITE = ROOT / "site"
pytestmark = pytest.mark.browser


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def address():
    """Of a server of the site on this machine; a search reads its index over HTTP only."""
    if not (SITE / "index.html").exists():
        pytest.skip("there is no site/ here; type `make site` first")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def visit(browser, address):
    def go(page: str, width: int = 1300) -> None:
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 2, "mobile": width < 600}
        browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})
        browser.call("POST", "/url", {"url": f"{address}/{page}"})

    browser.console()
    yield go
    browser.call("POST", "/goog/cdp/execute", {"cmd": "Emulation.clearDeviceMetricsOverride", "params": {}})
    assert browser.console() == []


def wait_for(browser, script: str) -> None:
    deadline = time.monotonic() + 30
    while not browser.run(script):
        assert time.monotonic() < deadline, script
        time.sleep(0.1)


def test_no_page_is_wider_than_a_phone(browser, visit):
    wide = {}
    for path in sorted(SITE.glob("*.html")):
        if path.name == "404.html":
            continue
        visit(path.name, 390)
        excess = browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth")
        wide |= {path.name: excess} if excess else {}
    assert wide == {}


def test_the_header_has_the_version_and_code_can_be_copied(browser, visit):
    visit("index.html")
    assert browser.run("return document.querySelector('.md-header__title').innerText").startswith(
        f"quatro {__version__}"
    )
    wait_for(browser, "return document.querySelectorAll('pre button[data-md-type=copy]').length > 0")


def test_pictures_are_there_and_sharp(browser, visit):
    for page in ("index.html", "quickstart.html", "replication.html"):
        visit(page)
        ratios = browser.run(
            "return [...document.querySelectorAll('article img')].filter((one) => !one.src.endsWith('.svg'))"
            ".map((one) => one.naturalWidth / one.clientWidth)"
        )
        assert ratios
        assert min(ratios) >= 1.5, page


def test_search_finds_a_heading(browser, visit):
    visit("index.html")
    browser.click(".md-search__input")
    browser.type(".md-search__input", "choosing delta")
    wait_for(browser, "return document.querySelectorAll('.md-search-result__link').length > 0")
    links = browser.run("return [...document.querySelectorAll('.md-search-result__link')].map((one) => one.href)")
    assert any("choosing-delta.html" in link for link in links[:3])


def test_nothing_is_fetched_from_elsewhere(browser, visit, address):
    for page in ("index.html", "quickstart.html"):
        visit(page)
        fetched = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
        assert all(one.startswith(address) or re.match("data:|blob:", one) for one in fetched)
