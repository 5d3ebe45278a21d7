"""Takes docs/images/view.png and view-phone.png: `python -m tests.browser.pictures docs/images`."""

import base64
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.browser.conftest import started
from tests.browser.test_view import served, visit, wait_for

WINDOWS = {"view": (1280, 1000, False), "view-phone": (390, 844, True)}


def take(folder: Path) -> None:
    """Two models' answers to a problem, and why two of them are one solution or two, on a wide window and a phone."""
    with tempfile.TemporaryDirectory() as made, started(Path(made) / "profile") as browser:
        shutil.copytree(Path(__file__).with_name("smollm2"), Path(made) / "word-problems")
        with served(Path(made) / "word-problems") as (address, _):
            for name, (width, height, is_phone) in WINDOWS.items():
                window = {"width": width, "height": height, "deviceScaleFactor": 1 + is_phone, "mobile": is_phone}
                browser.call(
                    "POST",
                    "/goog/cdp/execute",
                    {"cmd": "Emulation.setDeviceMetricsOverride", "params": window},
                )
                visit(browser, address)
                browser.run("document.querySelector('#problems button.open').click()")
                wait_for(browser, "return document.querySelectorAll('#problems .card').length === 2")
                browser.run("document.querySelector('#problems .card').querySelectorAll('button.why')[2].click()")
                wait_for(browser, "return document.querySelector('.whybox')")
                browser.run("document.querySelector('#problems .answerbox').scrollIntoView({behavior: 'instant'})")
                time.sleep(1)  # until nothing moves
                picture = base64.b64decode(browser.call("GET", "/screenshot"))
                (folder / f"{name}.png").write_bytes(picture)


if __name__ == "__main__":
    take(Path(sys.argv[1]))
