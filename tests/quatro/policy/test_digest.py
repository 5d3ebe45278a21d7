"""Two versions of a model are told apart: files, adapters and what is below them, commits of the Hub."""

import contextlib
import json
from types import SimpleNamespace

import pytest

from evals.errors import DataError, UsageError
from quatro.launch.saving import refuse_other_inputs
from quatro.policy.model_files import model_digest
from quatro.sample.settings import SampleSettings, Source, claim_folder
from quatro.types import Sampling
from tests.kit import read_json


def test_a_digest_sees_a_changed_weight(tmp_path):
    weights = tmp_path / "model.safetensors"
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    weights.write_bytes(bytes(100))
    before = model_digest(str(tmp_path))
    assert model_digest(str(tmp_path)) == before
    weights.write_bytes(bytes(99) + b"\x01")
    assert model_digest(str(tmp_path)) != before


def make_adapter(folder, changed):
    folder.mkdir(exist_ok=True)
    document = json.dumps({"base_model_name_or_path": str(changed)})
    (folder / "adapter_config.json").write_text(document, encoding="utf-8")
    (folder / "adapter_model.safetensors").write_bytes(bytes(50))
    return folder


def test_the_digest_of_an_adapter_sees_a_change_anywhere_below_it(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(bytes(100))
    first = make_adapter(tmp_path / "first", base)
    second = make_adapter(tmp_path / "second", first)
    seen = {model_digest(str(folder)) for folder in (base, first, second)}
    assert len(seen) == 3
    for changed in (base / "model.safetensors", first / "adapter_model.safetensors"):
        changed.write_bytes(b"\x01" + changed.read_bytes()[1:])
        now = model_digest(str(second))
        assert now not in seen
        assert model_digest(str(second)) == now
        seen.add(now)


@pytest.fixture
def cached_model(tmp_path, monkeypatch):
    """``cached_model(commit)``: the Hub id of a model of which the cache has that commit."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))

    def cache(commit):
        folder = tmp_path / "hub" / "models--some--model"
        (folder / "snapshots" / commit).mkdir(parents=True)
        (folder / "snapshots" / commit / "config.json").write_text("{}", encoding="utf-8")
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit, encoding="utf-8")
        return "some/model"

    return cache


def test_the_digest_of_a_hub_id_is_its_commit(cached_model, tmp_path):
    assert model_digest("some/model") == "some/model"
    assert model_digest(cached_model("aa1")) == "some/model@aa1"
    adapter = make_adapter(tmp_path / "adapter", "some/model")
    before = model_digest(str(adapter))
    cached_model("bb2")
    assert model_digest(str(adapter)) != before


@pytest.mark.parametrize(("then", "is_same"), [("some/model@aa1", True), ("some/model@bb2", False)])
def test_a_run_goes_on_with_the_commit_it_began_with(cached_model, then, is_same):
    parts = SimpleNamespace(fingerprints={"reference model": model_digest(cached_model("aa1"))})
    state = {"inputs": {"reference model": then}}
    with contextlib.nullcontext() if is_same else pytest.raises(DataError, match="the reference model changed"):
        refuse_other_inputs(parts, state, "step-000001")


def test_samples_go_on_with_the_commit_they_began_with(cached_model, tmp_path):
    def claim(fingerprint):
        source = Source(model="some/model", fingerprint=fingerprint)
        claim_folder(tmp_path / "s", "toy", SampleSettings(1, Sampling(), seed=0, template="plain", source=source))

    claim(model_digest(cached_model("aa1")))
    assert read_json(tmp_path / "s" / "sampling.json")["fingerprint"] == "some/model@aa1"
    with pytest.raises(UsageError, match="fingerprint: some/model@aa1 there, some/model@bb2 here"):
        claim(model_digest(cached_model("bb2")))
