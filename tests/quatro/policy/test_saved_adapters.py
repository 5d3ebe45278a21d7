"""Adapters on disk: what is saved, what peft reads, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from evals.errors import DataError, DivergedError, MissingError, UsageError
from quatro.config.blocks import LoraConfig
from quatro.policy import lora
from quatro.policy.loading import load_model, load_model_config, load_shape, load_tokenizer, save_folder
from quatro.policy.model_files import base_of
from tests.kit import read_json, says

LORA = "policy.lora.rank=4"


def loaded(folder):
    return load_model(str(folder), torch.float32, "cpu")


@pytest.fixture
def saved(adapted, tiny_folder, tmp_path):
    folder = tmp_path / "adapter"
    save_folder(adapted, folder, load_tokenizer(str(tiny_folder)), adapter_of=str(tiny_folder))
    return folder


def test_peft_reads_what_is_saved_and_so_do_we(saved, adapted, base, logits):
    from peft import PeftModel

    theirs = PeftModel.from_pretrained(base, saved)
    assert torch.equal(logits(theirs), logits(adapted))
    ours = loaded(saved)
    assert type(ours) is type(adapted)
    torch.testing.assert_close(logits(ours), logits(adapted), rtol=0, atol=1e-5)


def test_merged_in_bfloat16_it_is_a_model_like_any_other(saved, tiny_folder, logits):
    """Frequencies of the positions stay in float32, as they do in a model without an adapter."""
    merged, plain = (load_model(str(folder), torch.bfloat16, "cpu") for folder in (saved, tiny_folder))
    assert {p.dtype for p in merged.parameters()} == {torch.bfloat16}
    assert {n: b.dtype for n, b in merged.named_buffers()} == {n: b.dtype for n, b in plain.named_buffers()}
    file = saved / "adapter_model.safetensors"
    save_file({name: torch.zeros_like(value) for name, value in load_file(file).items()}, file)
    assert torch.equal(logits(load_model(str(saved), torch.bfloat16, "cpu")), logits(plain))


@pytest.fixture
def gpt2():
    """Its layers keep their weights transposed."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=32)).eval()


@pytest.mark.parametrize("targets", ["all-linear", ("c_attn", "c_fc")])
def test_transposed_layers_are_merged_as_they_are_stored(gpt2, tmp_path, targets, logits, stir):
    plain, before = gpt2, logits(gpt2)
    plain.save_pretrained(tmp_path / "base")
    model = loaded(tmp_path / "base")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lora.attach(model, LoraConfig(rank=4, target_modules=targets), seed=0)
    stir(model)
    merged = dict(lora.merged_weights(model))
    assert list(merged) == [name for name, _ in plain.named_parameters()]
    with torch.no_grad():
        for name, parameter in plain.named_parameters():
            parameter.copy_(merged[name])
    assert not torch.allclose(logits(plain), before, atol=0.01)
    torch.testing.assert_close(logits(plain), logits(model), rtol=0, atol=1e-5)
    lora.save(model, tmp_path / "adapter", base_model=str(tmp_path / "base"))
    torch.testing.assert_close(logits(loaded(tmp_path / "adapter")), logits(model), rtol=0, atol=1e-5)


def test_an_adapter_is_loaded_again_bit_by_bit(saved, adapted, base, logits):
    lora.attach(base, LoraConfig(rank=4), seed=99)
    lora.load(base, saved)
    assert torch.equal(logits(base), logits(adapted))


def test_an_adapter_upon_an_adapter_changes_what_that_one_makes(saved, tmp_path, logits, stir):
    model = loaded(saved)
    lora.attach(model, LoraConfig(rank=2), seed=3)
    stir(model)
    save_folder(model, tmp_path / "second", load_tokenizer(str(saved)), adapter_of=str(saved))
    found = loaded(tmp_path / "second")
    torch.testing.assert_close(logits(found), logits(model), rtol=0, atol=1e-5)


def test_an_adapters_folder_answers_like_its_model(saved, tiny_folder):
    assert base_of(str(saved)) == base_of(str(tiny_folder)) == str(tiny_folder)
    assert load_model_config(str(saved)).hidden_size == 32
    assert load_shape(str(saved)).config.num_hidden_layers == 2
    (saved / "tokenizer.json").unlink()
    assert load_tokenizer(str(saved)).get_vocab() == load_tokenizer(str(tiny_folder)).get_vocab()


SAVE = """
import sys, torch
from pathlib import Path
from quatro.config.blocks import LoraConfig
from quatro.policy import lora
from quatro.policy.loading import load_model
model = load_model(sys.argv[1], torch.float32, "cpu")
lora.attach(model, LoraConfig(rank=2), seed=0)
lora.save(model, Path(sys.argv[2]), base_model="b")
"""


@pytest.mark.slow
def test_two_processes_save_the_same_bytes(tiny_folder, tmp_path):
    """A set of names has another order in each."""
    for seed in ("1", "2"):
        command = [sys.executable, "-c", SAVE, str(tiny_folder), str(tmp_path / seed)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed})
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    targets = read_json(tmp_path / "1" / "adapter_config.json")["target_modules"]
    assert targets == ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


# ---- errors


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "target",
    ["query", "lm_head", "embed_tokens"],  # no layer; one that is tied to the embedding; the embedding
)
def test_a_layer_that_can_have_no_adapter_is_named_beside_those_that_can(base, target):
    with pytest.raises(UsageError) as caught:
        lora.attach(base, LoraConfig(target_modules=("q_proj", target)), seed=0)
    says(caught, ": down_proj, gate_proj, k_proj, o_proj,", key="policy.lora.target_modules", value=target)


def test_named_layers_are_adapted_and_no_others(base):
    lora.attach(base, LoraConfig(target_modules=("q_proj", "v_proj")), seed=0)
    assert {name.rpartition(".")[2] for name in lora.adapted_layers(base)} == {"q_proj", "v_proj"}


def test_an_adapter_of_another_rank_is_refused(saved, base):
    lora.attach(base, LoraConfig(rank=8), seed=0)
    before = [p.detach().clone() for p in base.parameters()]
    name = r"base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_A\.weight"
    with pytest.raises(DataError, match=rf"does not fit the model: {name} is \(4, 32\), expected \(8, 32\)"):
        lora.load(base, saved)
    assert all(torch.equal(old, new) for old, new in zip(before, base.parameters(), strict=True))
    (saved / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(DataError, match="cannot be read"):
        lora.load(base, saved)
    with pytest.raises(DataError, match="adapter in"):
        loaded(saved)


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_proj",), r"layers\.0\.mlp\.down_proj\.lora_A\.weight is \(4, 64\), expected no such weight"),
        (("q_proj", "v_proj"), r"layers\.1\.self_attn\.v_proj\.lora_B\.weight is absent, expected \(32, 4\)"),
    ],
)
def test_a_tensor_that_only_one_side_has_is_named(saved, base, targets, words):
    file = saved / "adapter_model.safetensors"
    tensors = load_file(file)
    del tensors["base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight"]
    save_file(tensors, file)
    lora.attach(base, LoraConfig(rank=4, target_modules=targets), seed=0)
    with pytest.raises(DataError, match=words):
        lora.load(base, saved)


def of_peft(model, folder, base, **settings):
    """An adapter that peft makes and saves; returns the model with it."""
    from peft import LoraConfig as PeftConfig
    from peft import get_peft_model

    torch.manual_seed(0)
    adapted = get_peft_model(model, PeftConfig(r=4, task_type="CAUSAL_LM", **settings)).eval()
    with torch.no_grad():
        for parameter in adapted.parameters():
            if parameter.requires_grad:
                parameter.add_(0.05 * torch.randn_like(parameter))
    adapted.save_pretrained(folder)
    renamed(folder, str(base))
    return adapted


def renamed(folder, base) -> None:
    file = folder / "adapter_config.json"
    document = read_json(file) | {"base_model_name_or_path": base}
    file.write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("target", ["lm_head", "embed_tokens"])
@pytest.mark.filterwarnings("ignore")  # peft says what it makes of tied weights
def test_an_adapter_of_tied_weights_cannot_be_merged(base, tiny_folder, tmp_path, target):
    of_peft(base, tmp_path, tiny_folder, target_modules=["q_proj", target])
    with pytest.raises(DataError, match=rf"{target}, whose weight is input embedding and head at once"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    "settings", [{"modules_to_save": ["lm_head"]}, {"trainable_token_indices": [3, 5]}, {"use_dora": True}]
)
@pytest.mark.filterwarnings("ignore")
def test_whatever_else_peft_saves_is_merged(base, tiny_folder, tmp_path, settings, logits):
    theirs = of_peft(base, tmp_path, tiny_folder, target_modules=["q_proj"], **settings)
    ours = loaded(tmp_path)
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_an_adapter_that_does_not_fit_its_model_is_refused(saved, tiny_folder):
    file = saved / "adapter_model.safetensors"
    whole = load_file(file)
    second = {name for name in whole if ".layers.1.self_attn.q_proj." in name}
    save_file({name: value for name, value in whole.items() if name not in second}, file)
    with pytest.raises(DataError, match=r"2 tensors absent from it \(.*layers\.1\.self_attn\.q_proj\.lora_A\.weight, "):
        loaded(saved)
    extra = {name.replace("layers.1.", "layers.7."): value.clone() for name, value in whole.items()}
    save_file(extra | whole, file)
    with pytest.raises(DataError, match=r"14 tensors unknown there \(.*layers\.7\.mlp.*, \.\.\.\)"):
        loaded(saved)


def test_a_base_is_looked_for_here_and_then_beside_its_adapter(saved, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.symlink(tiny_folder, tmp_path / "inner")
    renamed(saved, "inner")
    assert base_of("adapter") == "inner"
    monkeypatch.chdir("/")
    assert Path(base_of(str(saved))).samefile(tiny_folder)  # beside
    renamed(saved, "../inner")
    assert Path(base_of(str(saved))).samefile(tiny_folder)  # from within
    loaded(saved)


@pytest.mark.parametrize("load", [load_model_config, load_shape, loaded])
@pytest.mark.parametrize("gone", ["./gone", "models/gone", "gone"])
def test_an_adapter_is_named_beside_the_base_it_lacks(saved, monkeypatch, load, gone):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    renamed(saved, gone)
    adapter = f"(the adapter {saved}: |{saved} is an adapter of the model {gone})"
    with pytest.raises(MissingError, match=adapter) as caught:
        load(str(saved))
    assert gone in str(caught.value)
    assert str(saved / "adapter_config.json") in str(caught.value)


@pytest.mark.parametrize("load", [base_of, load_model_config, loaded])
def test_adapters_in_a_circle_are_named(saved, tmp_path, load):
    other = tmp_path / "other"
    shutil.copytree(saved, other)
    renamed(saved, str(other))
    renamed(other, str(saved))
    with pytest.raises(DataError, match=f"circle: {saved} -> {other} -> {saved};"):
        load(str(saved))
    renamed(saved, str(saved))
    with pytest.raises(DataError, match=f"circle: {saved} -> {saved};"):
        load(str(saved))


@pytest.mark.parametrize(
    ("base", "error", "words"),
    [
        ("/no/such/folder", MissingError, "adapter of the model /no/such/folder, which is neither here"),
        (None, DataError, "does not say which model it changes"),
        (7, DataError, "does not say which model it changes"),
    ],
)
def test_a_base_that_is_not_there_is_named(saved, base, error, words):
    renamed(saved, base)
    with pytest.raises(error, match=words):
        loaded(saved)
    (saved / "adapter_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"adapter_config\.json:1: not JSON"):
        load_model_config(str(saved))


def test_an_adapter_that_is_not_finite_is_not_saved(adapted, tmp_path):
    with torch.no_grad():
        next(iter(lora.adapted_layers(adapted).values())).lora_A["default"].weight[0, 0] = torch.nan
    with pytest.raises(DivergedError, match=r"q_proj.lora_A.default.weight holds NaN"):
        save_folder(adapted, tmp_path / "out", None, adapter_of="b")
    assert not (tmp_path / "out").exists()


def test_without_peft_it_is_said_what_to_install(tiny_config, saved, monkeypatch):
    from quatro.launch.begin import prepare
    from quatro.launch.describe import describe

    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install -e '.*\[lora\]'"):
        describe(prepare(tiny_config(LORA)))
    with pytest.raises(MissingError, match=r"is an adapter.*pip install -e '.*\[lora\]'"):
        loaded(saved)
