"""What can be said of the vLLM engine without vLLM: who needs it learns what to install, before anything is loaded."""

import os
import random

import numpy as np
import pytest
import torch
from transformers import Qwen2Config

from evals.errors import MissingError, UsageError
from quatro.launch.begin import prepare
from quatro.launch.describe import describe
from quatro.rollout import vllm


def test_a_run_with_an_engine_that_is_not_installed_is_refused_before_it_starts(tiny_config, monkeypatch):
    monkeypatch.setattr("evals.errors.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"pip install -e '.*\[vllm\]'"):
        describe(prepare(tiny_config("rollout.engine=vllm")))


@pytest.mark.parametrize("key", ["rollout.temperature", "eval.temperature"])
def test_a_temperature_that_vllm_does_not_have_is_refused_with_its_key(tiny_config, key):
    with pytest.raises(UsageError, match=f"{key} 2.5"):
        describe(prepare(tiny_config("rollout.engine=vllm", f"{key}=2.5")))


def test_a_cpu_gets_room_for_many_sequences_but_not_all_memory():
    shape = Qwen2Config(hidden_size=64, num_attention_heads=2, num_hidden_layers=2, num_key_value_heads=1)
    token_bytes = 2 * 2 * 1 * 32 * 4
    assert vllm.cpu_cache_bytes(shape, 128, "float32") == 64 << 20
    assert vllm.cpu_cache_bytes(shape, 1000, "float32") == 256 * 1024 * token_bytes
    assert vllm.cpu_cache_bytes(shape, 4000, "bfloat16") == 256 * 4096 * token_bytes // 2
    wide = Qwen2Config(hidden_size=4096, num_attention_heads=32, num_hidden_layers=32, num_key_value_heads=32)
    assert vllm.cpu_cache_bytes(wide, 4096, "bfloat16") == 4 << 30
    assert vllm.cpu_cache_bytes(wide, 8192, "bfloat16") == 2 * 8192 * (2 * 32 * 32 * 128 * 2)  # two must fit


def test_a_guest_leaves_the_process_as_it_found_it(monkeypatch):
    monkeypatch.setenv("QUATRO_TEST_KEPT", "1")
    before = (torch.get_rng_state(), random.getstate(), torch.get_num_threads(), torch.set_num_threads)
    numpy_next = np.random.RandomState()
    numpy_next.set_state(np.random.get_state())  # noqa: NPY002
    with vllm.process_unchanged():
        torch.manual_seed(1)
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        torch.set_num_threads(before[2] + 1)
        torch.set_num_threads = lambda count: None
        os.environ["LD_PRELOAD"] = "libtcmalloc.so"
        os.environ["VLLM_TEST_LEFT"] = "1"
        del os.environ["QUATRO_TEST_KEPT"]
    try:
        assert os.environ["VLLM_TEST_LEFT"] == "1"
    finally:
        del os.environ["VLLM_TEST_LEFT"]
    assert "LD_PRELOAD" not in os.environ
    assert os.environ["QUATRO_TEST_KEPT"] == "1"
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.random() == numpy_next.random_sample()  # noqa: NPY002
    assert (torch.get_num_threads(), torch.set_num_threads) == before[2:]


def test_only_the_default_process_group_is_kept(monkeypatch):
    ended = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", ended.append)
    with vllm.keeping_process_group():
        torch.distributed.destroy_process_group()
        torch.distributed.destroy_process_group("theirs")
    torch.distributed.destroy_process_group("ours")
    assert ended == ["theirs", "ours"]
