"""Loading models and tokenizers: what is saved comes back, and what is missing is named."""

import json
import os
import shutil
import socket

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from evals.errors import DataError, MissingError, UsageError
from quatro.policy.facts import cast_weights, context_limit, stop_ids
from quatro.policy.loading import load_model, load_model_config, load_shape, load_tokenizer
from quatro.policy.model_files import require_model
from tests.kit import read_json, says

LOADS = {
    "files": require_model,
    "tokenizer": load_tokenizer,
    "config": load_model_config,
    "weights": lambda name: load_model(name, torch.float32, "cpu"),
}
WORDS = ("<pad>", "<eos>", "ab", "a", "b", " ", "<|im_end|>")


def make_tokenizer(**special):
    """Knows the word "ab" only where nothing splits it into characters first, as Qwen's own pre-tokeniser would not."""
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return PreTrainedTokenizerFast(tokenizer_object=core, **({"eos_token": "<eos>"} | special))


def make_model(**changes):
    torch.manual_seed(0)
    shape = {"vocab_size": 8, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape |= {"num_key_value_heads": 2, "intermediate_size": 8, "max_position_embeddings": 48, "eos_token_id": 1}
    return Qwen2ForCausalLM(Qwen2Config(**(shape | changes)))


@pytest.fixture
def folder(tmp_path):
    make_model().save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)


def test_a_home_made_tokenizer_survives_a_qwen_config(folder):
    original = make_tokenizer().encode("ab ba")
    assert original == [3, 4, 5, 4, 3]
    assert load_tokenizer(str(folder)).encode("ab ba") == original


def test_weights_come_back_in_the_dtype_asked_for_and_in_eval_mode(folder):
    model = load_model(str(folder), torch.float32, "cpu")
    for name, value in make_model().state_dict().items():
        torch.testing.assert_close(model.state_dict()[name], value, rtol=0, atol=0)
    assert not model.training
    assert {p.dtype for p in load_model(str(folder), torch.bfloat16, "cpu").parameters()} == {torch.bfloat16}


@torch.no_grad()
def test_weights_that_are_cast_make_the_model_that_is_loaded_in_that_dtype(folder):
    make_model(tie_word_embeddings=True).save_pretrained(folder)
    cast = cast_weights(load_model(str(folder), torch.float32, "cpu"), torch.bfloat16)
    loaded = load_model(str(folder), torch.bfloat16, "cpu")
    ids = torch.arange(8)[None]
    assert {p.dtype for p in cast.parameters()} == {torch.bfloat16}
    assert {n: b.dtype for n, b in cast.named_buffers()} == {n: b.dtype for n, b in loaded.named_buffers()}
    assert torch.equal(cast(input_ids=ids).logits, loaded(input_ids=ids).logits)
    assert cast.lm_head.weight is cast.model.embed_tokens.weight


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
@pytest.mark.parametrize("name", ["/no/such/folder", "./models/mine", "a/b/c", "~/model"])
def test_a_folder_that_does_not_exist_is_named(load, name):
    with pytest.raises(MissingError, match=f"no folder {name} here"):
        load(name)


def test_a_name_that_no_file_system_takes_is_no_folder():
    for name in ("x" * 5000, "a\0b"):
        with pytest.raises(MissingError, match="no folder"):
            require_model(name)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_a_hub_id_without_network_or_cache_says_what_to_do(load):
    with pytest.raises(MissingError) as caught:
        load("nobody/nothing-at-all")
    says(caught, "nobody/nothing-at-all", advice="hf download nobody/nothing-at-all")


def test_a_file_in_place_of_a_folder_is_refused(folder):
    with pytest.raises(MissingError) as caught:
        load_model_config(str(folder / "model.safetensors"))
    says(caught, folder / "model.safetensors", "Hub")


@pytest.mark.parametrize(
    ("file", "content", "load"),
    [
        ("config.json", None, "config"),
        ("tokenizer.json", None, "tokenizer"),
        ("model.safetensors", None, "weights"),
        ("config.json", b"{", "config"),
        ("config.json", b'{"model_type": "no-such-type"}', "config"),
        ("tokenizer.json", b"{}", "tokenizer"),
        ("tokenizer_config.json", b"{", "tokenizer"),
        ("model.safetensors", b"torn", "weights"),
    ],
)
def test_a_file_that_is_missing_or_unreadable_is_an_error_of_its_folder(folder, file, content, load):
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    with pytest.raises(MissingError if content is None else DataError) as caught:
        LOADS[load](str(folder))
    says(caught, folder)


def test_absent_tensors_are_an_error_and_not_random_numbers(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"lack 1 of the model's tensors \(model.norm.weight\)"):
        load_model(str(folder), torch.float32, "cpu")


def test_tied_weights_are_not_absent(tmp_path):
    make_model(tie_word_embeddings=True).save_pretrained(tmp_path)
    assert "lm_head.weight" not in load_file(tmp_path / "model.safetensors")
    model = load_model(str(tmp_path), torch.float32, "cpu")
    assert model.lm_head.weight is model.model.embed_tokens.weight


def test_a_tokenizer_without_eos_is_refused(folder):
    make_tokenizer(eos_token=None).save_pretrained(folder)
    with pytest.raises(DataError) as caught:
        load_tokenizer(str(folder))
    says(caught, folder, "eos_token", "tokenizer_config.json")


def test_stop_ids_are_every_eos_the_model_can_draw():
    tokenizer = make_tokenizer()
    model = make_model(eos_token_id=1)
    assert stop_ids(tokenizer, model) == (1, 6)
    model.generation_config = GenerationConfig(eos_token_id=[2, 7])
    assert stop_ids(tokenizer, model) == (1, 2, 6, 7)
    small = make_model(vocab_size=5)
    small.generation_config = GenerationConfig(eos_token_id=99)
    assert stop_ids(tokenizer, small) == (1,)


def test_context_limit_reads_the_names_in_use():
    from transformers import GPT2Config, MambaConfig

    assert context_limit(make_model()) == 48
    assert context_limit(make_model().config) == 48
    assert context_limit(GPT2Config(n_positions=77)) == 77
    assert context_limit(MambaConfig()) is None


def test_what_was_saved_is_plain_json_for_other_tools(folder):
    # The loader's rule hangs on this name: if a transformers release writes another one, this says so.
    settings = read_json(folder / "tokenizer_config.json")
    assert settings["tokenizer_class"] in ("PreTrainedTokenizerFast", "TokenizersBackend")


@pytest.mark.parametrize("load", [load_tokenizer, load_model_config])
def test_a_hub_that_cannot_be_reached_is_said_at_once(load, monkeypatch, tmp_path):
    """The Hub's own library would try for a minute."""
    from huggingface_hub import constants

    def no_network(*_):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", no_network)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(MissingError, match=r"huggingface\.co cannot be reached.*hf download org/model"):
        load("org/model")


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_an_adapter_on_the_hub_is_to_be_made_a_folder_first(load, monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--org--adapter" / "snapshots" / "abc"
    (tmp_path / "models--org--adapter" / "refs").mkdir(parents=True)
    (tmp_path / "models--org--adapter" / "refs" / "main").write_text("abc")
    snapshot.mkdir(parents=True)
    (snapshot / "adapter_config.json").write_text("{}")
    with pytest.raises(UsageError, match="org/adapter on the Hub is an adapter; run hf download org/adapter --local"):
        load("org/adapter")


READ = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "model.safetensors")
READ = (*READ, "model.safetensors.index.json", "chat_template.jinja", "adapter_config.json", "pytorch_model.bin")


def listen(path):
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(path))


@pytest.mark.parametrize("make", [os.mkfifo, listen, lambda path: path.symlink_to("/dev/zero")])
@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_fault_40_a_pipe_a_socket_or_a_device_in_a_folder_is_named_and_not_waited_for(folder, monkeypatch, make, load):
    monkeypatch.chdir(folder)  # the path of a socket is short
    for name in READ:
        kept = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).unlink(missing_ok=True)
        make(type(folder)(name))
        with pytest.raises(DataError, match=f"{name} is a pipe, a device or a socket"):
            load(str(folder))
        (folder / name).unlink()
        if kept is not None:
            (folder / name).write_bytes(kept)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "adapter_config.json", "chat_template.jinja"])
def test_fault_40_a_text_without_end_is_not_read(folder, name):
    with (folder / name).open("wb") as file:
        file.truncate(2**40)
    for load in LOADS.values():
        with pytest.raises(DataError, match=rf"{name} has 1,099,511,627,776 bytes"):
            load(str(folder))


def test_fault_40_a_header_of_more_than_ten_million_bytes_is_not_read(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    for length in (10**7 + 1, 2**63):
        file.write_bytes(length.to_bytes(8, "little") + content[8:])
        with pytest.raises(DataError, match=rf"model.safetensors.* {length:,} bytes, expected 10,000,000"):
            require_model(str(folder))
    file.write_bytes((100_000).to_bytes(8, "little") + b"[" * 100_000)
    with pytest.raises(DataError, match=r"model\.safetensors is no safetensors file.*\(100,008 bytes\).*copy it again"):
        require_model(str(folder))


def name_in_index(folder, name):
    weights = dict.fromkeys(load_file(folder / "model.safetensors"), name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))


@pytest.mark.parametrize("name", ["../other/model.safetensors", "{}/other/model.safetensors", "a/../../other/x"])
def test_fault_40_an_index_does_not_leave_its_folder(folder, name):
    (folder / "model").mkdir()
    other = shutil.copytree(folder, folder / "other")
    name_in_index(folder, name.format(folder))
    shutil.move(folder / "model.safetensors.index.json", folder / "model")
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(other / file, folder / "model")
    with pytest.raises(DataError, match=r"index\.json names .*not in its folder"):
        require_model(str(folder / "model"))


def test_weights_may_be_links_as_in_the_hubs_cache(folder):
    blobs = folder / "blobs"
    blobs.mkdir()
    name_in_index(folder, "part.safetensors")
    (folder / "model.safetensors").rename(blobs / "abc")
    (folder / "part.safetensors").symlink_to("blobs/abc")
    require_model(str(folder))
    assert load_model(str(folder), torch.float32, "cpu").config.vocab_size == 8


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["stranger/kernel", "flex_attention", "eager", ["x"]])
def test_fault_40_a_configuration_does_not_choose_how_attention_is_computed(folder, key, value):
    plain = load_model(str(folder), torch.float32, "cpu").config._attn_implementation
    file = folder / "config.json"
    file.write_text(json.dumps({**read_json(file), key: value}), encoding="utf-8")
    for load in (load_shape, LOADS["weights"]):
        assert load(str(folder)).config._attn_implementation == plain == "sdpa"
