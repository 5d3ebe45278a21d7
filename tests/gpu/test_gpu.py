"""The same code path on a CUDA device: `make test-gpu`."""

import json
import os

import pytest
import torch

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # CUDA reads it at its first product, whatever the test
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no CUDA device"),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_runs_and_keeps_near_its_radius(tiny_config, tmp_path, dtype):
    from quatro.runs.directory import RunDir
    from quatro.train import train

    config = tiny_config(f"dtype={dtype}", "device=cuda", "optimizer.lr=1e-4", "steps=3")
    with RunDir.create(tmp_path / "run", config) as run:
        train(config, run)
    with (tmp_path / "run" / "metrics.jsonl").open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    assert len(rows) == 3
    assert all(row["kl/new_old"] is not None and row["kl/new_old"] >= 0 for row in rows)
    assert all(row["log_ratio/before_max"] < (1e-3 if dtype == "float32" else 1.0) for row in rows)


def test_sampler_and_trainer_agree_in_float32(tiny_config, ragged_rows):
    from quatro.policy.facts import stop_ids
    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.policy.rows import collate
    from quatro.policy.torch_policy import LocalPolicy
    from quatro.rollout.transformers import TransformersEngine
    from quatro.types import Prompt, Sampling

    config = tiny_config("device=cuda")
    policy = LocalPolicy(load_model(config.model, torch.float32, "cuda"), config)
    tokenizer = load_tokenizer(config.model)
    engine = TransformersEngine(policy.model, tokenizer, eos_ids=stop_ids(tokenizer, policy.model))
    prompts = [Prompt("b", str(i), "", None, "", tuple(range(5, 9 + i))) for i in range(4)]
    groups = engine.generate(prompts, [[i * 8 + j for j in range(8)] for i in range(4)], Sampling(max_new_tokens=10))
    rows = collate(prompts, groups, torch.zeros(32), max_new_tokens=10, device="cuda")
    own_BT = policy.score(rows).logp_BT
    mask_BT = rows.batch.mask_BT
    torch.testing.assert_close(own_BT[mask_BT], rows.batch.old_logp_BT[mask_BT], atol=1e-4, rtol=0)


def test_a_device_is_used_without_cudnns_attention():
    from quatro.policy.device import find_device

    torch.backends.cuda.enable_cudnn_sdp(True)
    find_device("cuda")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


def test_grouped_queries_hold_no_scores_in_float32():
    from types import SimpleNamespace

    from quatro.policy.attention import attend

    torch.manual_seed(0)
    module, length = SimpleNamespace(num_key_value_groups=3), 2048
    query, key, value = (torch.randn(1, heads, length, 64, device="cuda") for heads in (6, 2, 2))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    found, _ = attend(module, query, key, value, None)
    assert torch.cuda.max_memory_allocated() - before < 4 * 6 * length**2 / 2
    plain, _ = attend(module, query.cpu(), key.cpu(), value.cpu(), None)
    torch.testing.assert_close(found.cpu(), plain, atol=1e-5, rtol=1e-4)


@pytest.fixture(scope="session")
def grouped_folder(tiny_folder, tmp_path_factory):
    """A million random weights, four query heads on two: responses so long that attention takes several blocks."""
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    folder, tokenizer = tmp_path_factory.mktemp("models") / "grouped", AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.save_pretrained(folder)
    sizes = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(tokenizer), num_key_value_heads=2, tie_word_embeddings=True, bos_token_id=None, **sizes
    )
    config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("shape", ["tiny", "grouped"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resume_inside_an_iteration_gives_the_same_bits(
    tiny_config, tiny_folder, grouped_folder, tmp_path, monkeypatch, dtype, shape
):
    from quatro.policy.torch_policy import LocalPolicy
    from quatro.processes.stop import StopRequest
    from quatro.runs.checkpoint import complete_checkpoints
    from quatro.runs.directory import RunDir
    from quatro.train import train

    folder, limit = (tiny_folder, 10) if shape == "tiny" else (grouped_folder, 200)
    config = tiny_config(
        *(f"model={folder}", f"rollout.max_new_tokens={limit}", f"dtype={dtype}", "device=cuda"),
        *("optimizer.lr=1e-3", "steps=3", "deterministic=true", "checkpoint.every=3"),
    )
    update, stop, calls = LocalPolicy.update, StopRequest(), iter(range(1, 1000))

    def stopped(self, *arguments, **options):
        if next(calls) == 4:
            stop.request()
        return update(self, *arguments, **options)

    def ended(name):
        with (tmp_path / name / "metrics.jsonl").open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        weights = (complete_checkpoints(tmp_path / name)[-1] / "model" / "model.safetensors").read_bytes()
        return [{key: row[key] for key in row if not key.startswith("perf/")} for row in rows], weights

    with RunDir.create(tmp_path / "whole", config) as run:
        train(config, run)
    with monkeypatch.context() as patched, RunDir.create(tmp_path / "cut", config) as run:
        patched.setattr(LocalPolicy, "update", stopped)
        train(config, run, stop=stop)
    assert next(calls) == 5, "it should have stopped there"
    with RunDir.open(tmp_path / "cut") as run:
        train(config, run)
    assert ended("cut") == ended("whole")
    assert not torch.are_deterministic_algorithms_enabled()
