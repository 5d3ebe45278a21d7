"""Which engine and which GPUs draw samples, and that several engines write the file of one."""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig

from evals.errors import MissingError, UsageError
from quatro.config.blocks import LoraConfig
from quatro.policy import lora
from quatro.policy.loading import load_model, load_tokenizer, save_folder
from quatro.rollout.engine import Recipe
from quatro.sample import engines
from quatro.sample.benchmark import sample_benchmark
from quatro.sample.drawing import plan_samples
from quatro.sample.request import SampleRequest
from quatro.sample.settings import SampleSettings, Source
from quatro.types import Prompt, Sampling


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.usefixtures("four_gpus")
def test_gpus_are_numbers_of_those_that_are_visible(monkeypatch):
    assert engines.gpu_list(None) == []
    assert engines.gpu_list("0,1") == ["0", "1"]
    assert engines.gpu_list("3") == ["3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6,7,MIG-aa,2")
    assert engines.gpu_list("1, 2") == ["7", "MIG-aa"]


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize("text", ["", "0,", "a", "-1", "0,4", "1,1", "0;1"])
def test_other_gpus_are_refused(text):
    with pytest.raises(UsageError, match="--gpus"):
        engines.gpu_list(text)


def test_without_a_gpu_none_can_be_chosen(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(MissingError, match="quatro doctor"):
        engines.gpu_list("0")


def test_an_unknown_engine_is_refused_with_those_that_there_are():
    with pytest.raises(UsageError, match="transformers, vllm"):
        plan_samples(SampleRequest("embedded:countdown", "countdown", engine="sglang"))
    with pytest.raises(UsageError, match="replay deals out recorded responses"):
        plan_samples(SampleRequest("embedded:countdown", "countdown", engine="replay"))


def test_vllm_has_bounds_for_the_temperature_and_transformers_has_none(monkeypatch):
    monkeypatch.setattr("evals.errors.find_spec", lambda name: name)  # vLLM is installed
    for temperature in (0.001, 2.5, float("nan")):
        with pytest.raises(UsageError, match=r"0\.01 to 2"):
            engines.ENGINES["vllm"].check(temperatures={"temperature": temperature})
        engines.ENGINES["transformers"].check(temperatures={"temperature": temperature})
    for temperature in (0.01, 1.0, 2.0):
        engines.ENGINES["vllm"].check(temperatures={"temperature": temperature})


@pytest.mark.slow
def test_two_processes_write_the_bytes_of_one_engine(tmp_path, tiny_folder):
    recipe = Recipe("transformers", str(tiny_folder), "float32", "cpu", 40)
    texts = ["7 2 7 6 2 8 -> 67", "9 3 8 2 8 5 -> 78", "1 1 2 3 5 8 -> 13"]
    for name, gpus in (("one", []), ("two", ["0", "1"])):
        with engines.open_sampler(recipe, gpus) as sampler:
            from quatro.policy.loading import load_tokenizer

            tokenizer = load_tokenizer(str(tiny_folder))
            prompts = [Prompt("toy", t[:3], t, t, t, tuple(tokenizer(t)["input_ids"])) for t in texts]
            drawn = sample_benchmark(
                sampler,
                prompts,
                SampleSettings(7, Sampling(max_new_tokens=8), seed=3, template="plain", source=Source("tiny")),
                tmp_path / name,
                num_rows=10,
            )
        assert drawn.num_new == 21
    assert (tmp_path / "one/toy.jsonl").read_bytes() == (tmp_path / "two/toy.jsonl").read_bytes()


@pytest.fixture
def adapter(tiny_folder, tmp_path):
    """The folder of an adapter that changes something, upon a model with a generation config of its own."""
    base = shutil.copytree(tiny_folder, tmp_path / "base")
    (base / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 7]}), encoding="utf-8")
    model = load_model(str(base), torch.float32, "cpu")
    lora.attach(model, LoraConfig(rank=4), seed=1)
    with torch.no_grad():
        for layer in lora.adapted_layers(model).values():
            layer.lora_B["default"].weight.fill_(0.05)
    save_folder(model, tmp_path / "adapter", load_tokenizer(str(base)), adapter_of=str(base))
    return tmp_path / "adapter"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("ending", [None, KeyboardInterrupt, UsageError])
def test_vllm_is_given_an_adapter_merged_in_a_folder_that_goes_away(adapter, tmp_path, monkeypatch, dtype, ending):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before, made = sorted(os.listdir(tmp_path)), []

    class Engine:
        is_open = True

        def close(self):
            assert Path(made[0].weights).is_dir()
            self.is_open = False

    engine = Engine()
    monkeypatch.setattr(engines, "make_sampling_engine", lambda recipe: made.append(recipe) or engine)
    recipe = Recipe("vllm", str(adapter), dtype, "cpu", 40)
    expected = contextlib.nullcontext() if ending is None else pytest.raises(ending)
    with expected, engines.open_sampler(recipe, []):
        folder = Path(made[0].weights)
        assert made == [dataclasses.replace(recipe, weights=str(folder))]
        assert not (folder / "adapter_config.json").exists()
        found = load_file(folder / "model.safetensors")
        wanted = dict(load_model(str(adapter), torch.float32, "cpu").named_parameters())
        plain = dict(load_model(str(tmp_path / "base"), torch.float32, "cpu").named_parameters())
        assert found.keys() == wanted.keys()
        assert all(torch.equal(found[name], wanted[name].to(getattr(torch, dtype))) for name in wanted)
        assert not all(torch.equal(wanted[name], plain[name]) for name in wanted)
        assert load_tokenizer(str(folder)).get_vocab() == load_tokenizer(str(adapter)).get_vocab()
        assert GenerationConfig.from_pretrained(folder).eos_token_id == [1, 7]
        if ending is not None:
            raise ending
    assert not engine.is_open
    assert sorted(os.listdir(tmp_path)) == before


def test_a_whole_model_and_transformers_need_no_merged_folder(adapter, tiny_folder, monkeypatch):
    made = []
    engine = SimpleNamespace(close=lambda: None)
    monkeypatch.setattr(engines, "make_sampling_engine", lambda recipe: made.append(recipe) or engine)
    recipes = [
        Recipe(name, str(folder), "float32", "cpu", 40)
        for name, folder in (("vllm", tiny_folder), ("transformers", adapter))
    ]
    for recipe in recipes:
        with engines.open_sampler(recipe, []):
            pass
    assert made == recipes
