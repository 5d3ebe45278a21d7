"""`quatro sample --base-url` with vLLM's own server: token ids both ways, and a server that is killed on the way."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

from evals.errors import MissingError, UsageError  # noqa: E402
from evals.samples.reading import read_samples  # noqa: E402
from quatro.sample.drawing import draw_samples  # noqa: E402
from tests.vllm.server import VllmServer  # noqa: E402


@pytest.fixture(scope="module")
def serve(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], VllmServer]]:
    """``serve()``: the server of the tiny policy, started again if it was killed."""
    servers: list[VllmServer] = []

    def start() -> VllmServer:
        if not servers or servers[-1].process.poll() is not None:
            servers.append(VllmServer(tiny_folder, tmp_path_factory.mktemp("server") / "log.txt"))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def completions(folder: Path) -> dict[tuple[str, int], tuple[str, str | None]]:
    rows = read_samples([folder / "countdown.jsonl"]).rows
    return {(row.id, row.sample_index): (row.completion, row.finish_reason) for row in rows}


def num_equal(one: dict, other: dict) -> int:
    assert one.keys() == other.keys()
    return sum(one[key] == other[key] for key in one)


def test_a_server_draws_what_an_engine_here_draws(serve, tiny_folder, tmp_path):
    """Of one token to choose from: the same tokens, texts and ends, with a stop string and without."""
    url = serve().url
    for name, stop in (("whole", None), ("stopped", ["8"])):
        here, there = tmp_path / f"{name}-here", tmp_path / f"{name}-there"
        draw_samples(tiny_folder, "countdown", n=1, top_k=1, stop=stop, out=here)
        draw_samples(tiny_folder, "countdown", n=1, top_k=1, stop=stop, out=there, base_url=url)
        reasons = {reason for _, reason in completions(there).values()}
        assert reasons == {"stop", "length"}
        assert not any("8" in text for text, _ in completions(there).values() if stop)
        assert num_equal(completions(here), completions(there)) >= 198  # two logits may be equal to the last digit
    document = json.loads((there / "sampling.json").read_text(encoding="utf-8"))
    server = document["server"]
    assert (document["engine"], server["id"], server["owned_by"]) == ("server", str(tiny_folder), "vllm")
    assert (server["max_model_len"], server["prompts"]) == (64, "ids")


def test_a_sample_is_its_seeds_however_many_requests_are_open(serve, tiny_folder, tmp_path):
    url = serve().url
    for concurrency in (2, 50):
        out = tmp_path / str(concurrency)
        draw_samples(tiny_folder, "countdown", n=2, top_k=9, out=out, base_url=url, concurrency=concurrency)
    assert num_equal(completions(tmp_path / "2"), completions(tmp_path / "50")) >= 396  # batches round differently
    by_problem = [completions(tmp_path / "2")[f"countdown/test/{i:04d}", j] for i in range(200) for j in (0, 1)]
    assert sum(a != b for a, b in zip(by_problem[::2], by_problem[1::2], strict=True)) > 100


def test_what_vllm_refuses_is_said_in_its_words(serve, tiny_folder, tmp_path):
    url = serve().url
    with pytest.raises(UsageError, match=r"status 400 and says: .*chat template"):
        draw_samples(tiny_folder, "countdown", n=1, out=tmp_path / "chat", base_url=url, chat=True)
    with pytest.raises(UsageError, match="status 400 and says: max_tokens=100 cannot be greater"):
        draw_samples(tiny_folder, "countdown", n=1, max_tokens=100, out=tmp_path / "t", base_url=url, text=True)
    with pytest.raises(UsageError, match="not 'another'"):
        draw_samples("another", "countdown", n=1, out=tmp_path / "name", base_url=url, text=True)


def test_fault_50_a_server_killed_in_mid_sampling_loses_nothing(serve, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setattr("evals.servers.FIRST_WAIT_S", 0.01)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    server = serve()
    draw_samples(tiny_folder, "countdown", n=2, out=whole, base_url=server.url)
    seen: list[int] = []

    def kill(benchmark, num_done, num_wanted, num_tokens):
        seen.append(num_done)
        if num_done >= 100:
            server.kill()

    with pytest.raises(MissingError, match=f"the server at {server.url} gave no response"):
        draw_samples(tiny_folder, "countdown", n=2, out=cut, base_url=server.url, progress=kill)
    kept = completions(cut)
    assert 100 <= len(kept) < 400
    assert len(kept) == seen[-1]

    [file] = draw_samples(tiny_folder, "countdown", n=2, out=cut, base_url=serve().url)
    assert (file.num_present, file.num_new) == (len(kept), 400 - len(kept))
    assert completions(cut).items() >= kept.items()
    assert list(completions(cut)) == list(completions(whole))
    assert num_equal(completions(cut), completions(whole)) >= 396
