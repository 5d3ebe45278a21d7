"""Damaged and invented files: a reader gives values or one of our own errors, and never anything else.

corpus/ holds files that once did harm or might; each is read as it is, and damaged at random. A file that a run of the
fuzzer finds belongs there.
"""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from evals.benchmarks.loading import load_problems
from evals.errors import QuatroError
from evals.samples.reading import read_samples
from evals.servers import Unanswered, read_document, read_models, words
from quatro.config import config_to_yaml, load_config
from quatro.rollout.server import read_answer
from quatro.runs.metrics import last_metrics, read_metrics
from quatro.runs.views.doctor import examine
from quatro.runs.views.summary import describe_run
from quatro_cli.app import app

runner = CliRunner()
CORPUS = Path(__file__).with_name("corpus")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = {
    "samples": "benchmark id sample_index completion prompt answer correct outcome num_tokens extra tests",
    "metrics": "step loss reward/mean kl/new_old perf/step_s",
    "replies": "model choices usage error data text message finish_reason token_ids id",
}
in_one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def kept(area: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / area).iterdir())]


def damaged(whole: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    """Some bytes cut out, and others put in their place."""

    @st.composite
    def draw(pick: Callable[..., Any]) -> bytes:
        content = pick(whole)
        begin = pick(st.integers(0, len(content)))
        end = pick(st.integers(begin, min(len(content), begin + 8)))
        return content[:begin] + pick(st.binary(max_size=8)) + content[end:]

    return draw()


def lines(keys: list[str]) -> st.SearchStrategy[bytes]:
    """JSON lines with the keys that count, and any values."""
    row = st.dictionaries(st.sampled_from(keys) | st.text(max_size=4), JSON, max_size=len(keys))
    return st.lists(row.map(json.dumps), max_size=4).map(lambda rows: "".join(f"{row}\n" for row in rows).encode())


def documents(area: str) -> st.SearchStrategy[bytes]:
    invented = lines(KEYS[area].split()) if area in KEYS else st.binary(max_size=200)
    return st.sampled_from(kept(area)) | damaged(st.sampled_from(kept(area))) | damaged(invented) | invented


@contextlib.contextmanager
def only_our_errors(*more: type[Exception]) -> Iterator[None]:
    with contextlib.suppress(QuatroError, *more):
        yield


def read_as_samples(path: Path) -> None:
    with only_our_errors():
        for sample in read_samples([path]).rows:
            assert json.loads(sample.to_json_line())["completion"] == sample.completion


def read_as_problems(path: Path) -> None:
    with only_our_errors():
        for problem in load_problems(str(path)):
            assert problem.id
            assert problem.problem.strip()


def read_as_config(path: Path) -> None:
    with only_our_errors():
        config = load_config(path)
        path.write_text(config_to_yaml(config), encoding="utf-8")
        assert load_config(path) == config


def read_as_reply(path: Path) -> None:
    words(path.read_bytes())
    with only_our_errors(Unanswered):
        document = read_document(path.read_bytes())
        with only_our_errors(Unanswered):
            read_models(document)
        answer = read_answer(document, model="m", max_tokens=4, context=8)
        assert answer.finish_reason in ("stop", "length")
        assert answer.num_tokens is None or answer.num_tokens <= 4


READERS = [
    ("samples", "s.jsonl", read_as_samples),
    ("samples", "p.jsonl", read_as_problems),
    ("config", "c.yaml", read_as_config),
    ("replies", "r.json", read_as_reply),
]


@pytest.mark.parametrize(("area", "name", "read"), READERS)
@in_one_folder
@given(data=st.data())
def test_a_reader_gives_values_or_an_error_of_ours(area, name, read, tmp_path, data):
    path = tmp_path / name
    path.write_bytes(data.draw(documents(area)))
    read(path)


@pytest.mark.parametrize(("area", "name", "read"), READERS)
def test_what_is_kept_gives_values_or_an_error_of_ours(area, name, read, tmp_path):
    assert kept(area)
    for content in kept(area):
        (tmp_path / name).write_bytes(content)
        read(tmp_path / name)


@st.composite
def garbled(draw: Callable[..., Any]) -> bytes:
    """A result document with another value at one or two places, or without them."""
    document = json.loads(draw(st.sampled_from(kept("results"))))
    for _ in range(draw(st.integers(1, 2))):
        place = document
        while True:
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            inner = place[key]
            if not isinstance(inner, (dict, list)) or not inner or draw(st.booleans()):
                break
            place = inner
        numbers = st.sampled_from([0, -1, 1, 2**53, 2**63, 10**30, 0.5, -1e300, 1e308])
        place[key] = draw(JSON | numbers | st.text(max_size=8))
    document.update(draw(st.dictionaries(st.sampled_from(["label", "seed", "sampling"]), JSON, max_size=1)))
    return json.dumps(document).encode()


FIGURES = {"passk": b"pass@", "ucc": b"ucc@", "flips": b"flip", "similarity": b"histogram"}


def show_result(path: Path, *, with_figure: bool = True) -> None:
    """`quatro table` and `quatro plot` of it."""
    commands = [["table"], ["table", "--format", "csv"], ["table", "--format", "latex"]]
    figure = path.with_name("figure.svg")
    for kind, part in FIGURES.items() if with_figure else ():
        if part in path.read_bytes():
            commands.append(["plot", kind, "-o", str(figure)])
    for command in commands:
        result = runner.invoke(app, [*command, str(path)])
        assert "this is a bug" not in result.stderr, result.stderr
        assert result.exit_code in (0, 2, 3, 4), result.output


@in_one_folder
@given(content=garbled() | documents("results"))
def test_a_garbled_result_is_shown_or_refused(tmp_path, content):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    show_result(path, with_figure=len(content) % 8 == 0)


@pytest.mark.parametrize("path", sorted((CORPUS / "results").iterdir()), ids=lambda path: path.name)
def test_a_whole_result_is_shown(path, tmp_path):
    show_result(Path(shutil.copy(path, tmp_path)))


RUN_FILES = ("config.yaml", "status.json", "environment.json", "metrics.jsonl", "log.txt", "rollouts/step-000001.jsonl")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as a run has it before its first checkpoint."""
    run = tmp_path / "run"
    (run / "rollouts").mkdir(parents=True)
    (run / "checkpoints").mkdir()
    (run / "config.yaml").write_text(config_to_yaml(load_config("quickstart")), encoding="utf-8")
    status = {"status": "failed", "step": 1, "steps": 4, "reason": "no memory", "updated": "2026-01-01T00:00:00+00:00"}
    (run / "status.json").write_text(json.dumps(status), encoding="utf-8")
    (run / "environment.json").write_text(json.dumps({"python": "3.11", "packages": {"torch": "2"}}), encoding="utf-8")
    (run / "metrics.jsonl").write_text('{"step": 1, "reward/mean": 0.5, "perf/step_s": 1.0}\n', encoding="utf-8")
    (run / "log.txt").write_text("2026-01-01 00:00:00,000 ERROR quatro: no memory\n", encoding="utf-8")
    (run / "rollouts" / "step-000001.jsonl").write_text('{"id": "p", "reward": 0.5}\n', encoding="utf-8")
    return run


@pytest.mark.parametrize("name", RUN_FILES)
@in_one_folder
@given(data=st.data())
def test_a_damaged_run_is_described_or_refused(run, name, data):
    path = run / name
    whole = path.read_bytes()
    invented = documents("metrics") if name == "metrics.jsonl" else JSON.map(lambda value: json.dumps(value).encode())
    path.write_bytes(data.draw(damaged(st.just(whole)) | invented))
    try:
        for read in (describe_run, examine, last_metrics, lambda run: list(read_metrics(run))):
            with only_our_errors():
                read(run)
    finally:
        path.write_bytes(whole)


def test_the_undamaged_run_is_described(run):
    assert describe_run(run).status == "failed"
    assert [row["step"] for row in read_metrics(run)] == [1]
    assert examine(run).reason == "no memory"
    shutil.rmtree(run)
