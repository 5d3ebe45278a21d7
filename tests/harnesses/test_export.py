"""Logs of `quatro eval export --to inspect` in inspect-ai itself: read, listed, viewed, and written again."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evals.samples.reading import read_samples
from evals.samples.types import FIELDS
from tests.kit import quatro, read_rows, write_rows

pytestmark = pytest.mark.harness
pytest.importorskip("inspect_ai")

from inspect_ai.log import (  # noqa: E402
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    write_eval_log,
)
from inspect_ai.scorer import value_to_float  # noqa: E402

SECONDS = 120  # a server that takes longer to start is stuck
GRADES = {"p1": (1, 0, 1), "a/b": (0, 0, 0), "ü 2": (1, 1, 0)}
TEXTS = ("add both, then halve \\boxed{5}", "multiply \\boxed{4}", "guess and check: \\boxed{5.0}\u2028")


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    return write_rows(
        tmp_path / "toy.jsonl",
        (
            {
                "benchmark": "toy",
                "id": id,
                "sample_index": index,
                "completion": TEXTS[index],
                "answer": 5,
                "correct": bool(grade),
                **({"prompt": f"{id}?", "finish_reason": "length"} if id != "p1" else {}),
            }
            for id, grades in GRADES.items()
            for index, grade in enumerate(grades)
        ),
    )


@pytest.fixture
def log(samples: Path, tmp_path: Path) -> Path:
    words = ("--to", "inspect", "--date", "2026-01-31", "--model", "me/toy", "-o", tmp_path / "logs")
    return Path(quatro("eval", "export", samples, *words).stdout.strip())


def test_inspect_reads_every_sample_with_its_grade_and_all_numbers(samples, log):
    found = read_eval_log(str(log))
    assert (found.status, found.eval.task, found.eval.model) == ("success", "toy", "me/toy")
    assert (found.eval.config.epochs, found.eval.dataset.samples) == (3, 3)
    assert str(found.eval.created).startswith("2026-01-31")
    rows = {(row["id"], row["sample_index"] + 1): row for row in read_rows(samples)}
    assert len(found.samples) == len(rows)
    for sample in found.samples:
        row = rows.pop((sample.id, sample.epoch))
        assert (sample.input, sample.target) == (row.get("prompt", ""), "5")
        assert (sample.output.completion, sample.messages[-1].text) == (row["completion"], row["completion"])
        assert sample.output.stop_reason == ("max_tokens" if "finish_reason" in row else "unknown")
        assert value_to_float()(sample.scores["quatro"].value) == row["correct"]
        assert sample.events[0].output.completion == row["completion"]
    metrics = found.results.scores[0].metrics
    for command in ("passk", "ucc"):
        document = json.loads(quatro("eval", command, samples, "--json").stdout)
        for row in document["rows"]:
            if row["benchmark"] == "toy":
                assert metrics[row["metric"].replace("@k", f"@{row['k']}")].value == row["value"]


def test_inspect_lists_it_and_opens_a_sample_without_the_rest(log):
    (listed,) = list_eval_logs(str(log.parent))
    assert listed.task == "toy"
    assert read_eval_log(str(log), header_only=True).results.total_samples == 9
    summaries = read_eval_log_sample_summaries(str(log))
    assert {(one.id, one.epoch): value_to_float()(one.scores["quatro"].value) for one in summaries} == {
        (id, index + 1): grade for id, grades in GRADES.items() for index, grade in enumerate(grades)
    }
    assert all(one.completed for one in summaries)
    assert read_eval_log_sample(str(log), "a/b", 2).output.completion == TEXTS[1]


@pytest.mark.parametrize("ending", ["eval", "json"])
def test_what_inspect_writes_of_it_is_imported_as_the_same_samples(samples, log, tmp_path, ending):
    """Its `.eval` is packed with zstandard; Pass@k and UCC@k are the same to the last digit."""
    again, back = tmp_path / f"again.{ending}", tmp_path / "back.jsonl"
    write_eval_log(read_eval_log(str(log)), str(again))
    quatro("eval", "import", again, "--from", "inspect", "-o", back)
    before, after = (
        [{name: getattr(row, name) for name in FIELDS} for row in read_samples([file]).rows] for file in (samples, back)
    )
    assert after == before
    for command in ("passk", "ucc"):
        one, other = (json.loads(quatro("eval", command, file, "--json").stdout)["rows"] for file in (samples, back))
        assert one == other


def test_inspect_view_serves_it(log, tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "inspect_ai", "view", "start", "--log-dir", str(log.parent), "--port", str(port)]
    with open(tmp_path / "view.txt", "wb") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        try:
            get = _getter(f"http://127.0.0.1:{port}/api")
            (listed,) = get("/logs")["files"]
            assert listed["task"] == "toy"
            (header,) = get(f"/log-headers?file={urllib.parse.quote(listed['name'], safe='')}")
            assert header["results"]["scores"][0]["metrics"]["pass@1"]["value"] == pytest.approx(4 / 9)
        finally:
            server.terminate()


def _getter(address: str) -> Callable[[str], Any]:
    """A function that gets a document of the server, which may still be starting."""

    def get(path: str) -> Any:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"{address}{path}", timeout=30) as answer:
                    return json.load(answer)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    return get
