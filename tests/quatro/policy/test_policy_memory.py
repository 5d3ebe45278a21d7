"""What the policy does to fit into memory, and that none of it changes what is learnt."""

from __future__ import annotations

import copy
import logging
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evals.errors import DivergedError, MissingError, UsageError
from quatro.loop.learn import make_objective
from quatro.policy import base, device, head, torch_policy
from quatro.policy.device import footprint, free_bytes, release_freed
from quatro.policy.loading import load_model
from quatro.policy.torch_policy import LocalPolicy
from quatro.types import Prompt


def build(config: Any, model: Any = None) -> LocalPolicy:
    return LocalPolicy(load_model(config.model, torch.float32, "cpu") if model is None else model, config)


def step(policy: LocalPolicy, config: Any, rows: Any) -> Any:
    return policy.update(rows, make_objective(config), use_own_logp=False, need_entropy=True)


def weights(policy: LocalPolicy) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def prompts(count: int = 3) -> list[Prompt]:
    return [Prompt("b", str(i), "p", None, "p", tuple(range(5 + i, 12 + 2 * i))) for i in range(count)]


class Memory:
    """A base model that holds ``room`` tokens a pass; asked for more it fails as an allocator does."""

    def __init__(self, policy: LocalPolicy, room: int, error: type[Exception] = torch.OutOfMemoryError) -> None:
        self.sizes: list[int] = []
        inner = policy.model.base_model.forward

        def forward(input_ids: torch.Tensor, **options: Any) -> Any:
            self.sizes.append(input_ids.numel())
            if input_ids.numel() > room:
                raise error("DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
            return inner(input_ids=input_ids, **options)

        policy.model.base_model.forward = forward


@pytest.mark.parametrize("error", [torch.OutOfMemoryError, RuntimeError, MemoryError])
def test_out_of_memory_halves_the_budget_and_learns_as_if_it_had_been_so(tiny_config, ragged_rows, caplog, error):
    """Memory runs out in the third micro-batch, with the gradients of two already added up."""
    settings = ("kl.beta=0.1", "entropy_coefficient=0.01")
    config = tiny_config("microbatch_tokens=40", *settings)
    policy, expected = build(config), build(tiny_config("microbatch_tokens=20", *settings))
    losses: list[torch.Tensor] = []
    plain = policy._backward

    def backward(loss: torch.Tensor) -> None:
        losses.append(loss.detach())
        if len(losses) == 3:
            raise error("DefaultCPUAllocator: not enough memory")
        plain(loss)

    policy._backward = backward
    with caplog.at_level(logging.WARNING):
        update = step(policy, config, ragged_rows)
    assert policy.microbatch.tokens == 20
    assert "microbatch_tokens=40" in caplog.text
    assert "with 20" in caplog.text
    reference = step(expected, config, ragged_rows)
    assert torch.equal(weights(policy), weights(expected))
    assert torch.equal(update.forward.logp_BT, reference.forward.logp_BT)
    assert update.grad_norm == reference.grad_norm
    assert all(parameter.grad is None for parameter in policy.model.parameters())


@pytest.mark.parametrize("room", [11, 12, 20, 39])
def test_memory_that_runs_out_again_and_again_ends_with_single_rows(tiny_config, ragged_rows, caplog, room):
    """The longest row has 11 tokens, and all rows together fit into 16,384: no halving changes nothing."""
    config = tiny_config("microbatch_tokens=16384", "kl.beta=0.1")
    policy = build(config)
    assert int(ragged_rows.total_length_B.max()) == 11
    memory = Memory(policy, room=room)
    with caplog.at_level(logging.WARNING):
        step(policy, config, ragged_rows)
    tokens = policy.microbatch.tokens
    failed = [size for size in memory.sizes if size > room]
    assert len(caplog.records) == len(failed)  # each is said
    assert all(f"with {size} and begins" in caplog.text for size in (64, tokens))
    assert failed == sorted(set(failed), reverse=True)  # no pass was tried twice
    assert tokens in (8, 16, 32)
    expected = build(tiny_config(f"microbatch_tokens={tokens}", "kl.beta=0.1"))
    step(expected, config, ragged_rows)
    assert torch.equal(weights(policy), weights(expected))


def test_a_row_that_does_not_fit_is_an_error_that_says_what_to_type(tiny_config, ragged_rows):
    config = tiny_config("microbatch_tokens=80")
    policy = build(config)
    before = weights(policy)
    memory = Memory(policy, room=10)
    with pytest.raises(MissingError, match=r"single response of 11 tokens.*gradient_checkpointing=true") as caught:
        step(policy, config, ragged_rows)
    assert caught.value.exit_code == 3
    assert memory.sizes[-1] == 11  # nothing is tried after it
    assert memory.sizes.count(11) == 1
    assert torch.equal(weights(policy), before)


def test_memory_that_ran_out_outside_a_pass_is_not_tried_for_ever(tiny_config):
    policy = build(tiny_config("microbatch_tokens=80"))
    calls = []

    def work() -> None:
        calls.append(policy.microbatch.tokens)
        raise MemoryError

    with pytest.raises(MissingError, match="out of memory"):
        policy.microbatch.attempt(work, policy.device)
    assert calls == [80, 40, 20, 10, 5, 2, 1]


def test_scoring_halves_the_budget_too(tiny_config, ragged_rows):
    policy = build(tiny_config("microbatch_tokens=80"))
    expected = build(tiny_config("microbatch_tokens=40")).score(ragged_rows).logp_BT
    Memory(policy, room=40)
    assert torch.equal(policy.score(ragged_rows).logp_BT, expected)


def test_other_errors_of_the_forward_pass_are_not_tried_again(tiny_config, ragged_rows):
    config = tiny_config()
    policy = build(config)

    def forward(**options: Any) -> Any:
        raise RuntimeError("shapes do not match")

    policy.model.base_model.forward = forward
    with pytest.raises(RuntimeError, match="shapes do not match"):
        step(policy, config, ragged_rows)
    assert policy.microbatch.tokens == config.sizes.microbatch_tokens


def test_a_halved_budget_is_part_of_a_runs_state(tiny_config):
    policy = build(tiny_config("microbatch_tokens=80"))
    policy.microbatch.tokens = 40
    resumed, other = build(tiny_config("microbatch_tokens=80")), build(tiny_config("microbatch_tokens=64"))
    for twin in (resumed, other):
        twin.load_state(*policy.state())
    assert resumed.microbatch.tokens == 40
    assert other.microbatch.tokens == 64  # configured anew since: that is what counts


def test_gradient_checkpointing_keeps_less_and_learns_the_same(tiny_config, ragged_rows):
    kept = {}
    after = {}
    for choice in ("true", "false"):
        config = tiny_config(f"policy.gradient_checkpointing={choice}", "kl.beta=0.1")
        policy = build(config)
        numels: list[int] = []

        def pack(tensor: torch.Tensor, numels: list[int] = numels) -> torch.Tensor:
            numels.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            policy.forward(ragged_rows, need_entropy=False)
        kept[choice] = sum(numels)
        step(policy, config, ragged_rows)
        after[choice] = weights(policy)
        assert not any(module.training for module in policy.model.modules())
    assert kept["true"] < 0.5 * kept["false"]
    assert torch.equal(after["true"], after["false"])


def test_gradient_checkpointing_leaves_dropout_off(tiny_config, ragged_rows):
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = GPT2Config(vocab_size=232, n_positions=64, n_embd=32, n_layer=2, n_head=1, resid_pdrop=0.5, attn_pdrop=0.5)
    model = GPT2LMHeadModel(shape)
    plain = build(tiny_config(), copy.deepcopy(model)).forward(ragged_rows, need_entropy=False).logp_BT
    policy = build(tiny_config("policy.gradient_checkpointing=true"), model)
    assert torch.equal(policy.forward(ragged_rows, need_entropy=False).logp_BT, plain)
    policy.check_head(prompts())


def test_a_layer_with_dropout_of_its_own_is_refused_under_gradient_checkpointing(tiny_config):
    """OPT's layers ask their own `training`, which is what turns checkpointing on."""
    from transformers import OPTConfig, OPTForCausalLM

    shape = OPTConfig(
        vocab_size=232,
        hidden_size=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        max_position_embeddings=64,
        word_embed_proj_dim=32,
        dropout=0.5,
        init_std=0.5,
    )
    model = OPTForCausalLM(shape)
    build(tiny_config(), copy.deepcopy(model)).check_head(prompts())
    with pytest.raises(DivergedError, match="differ by"):
        build(tiny_config("policy.gradient_checkpointing=true"), model).check_head(prompts())


def test_a_model_that_cannot_compute_layers_again_is_refused(tiny_config):
    config = tiny_config("policy.gradient_checkpointing=true")
    model = load_model(config.model, torch.float32, "cpu")
    model.supports_gradient_checkpointing = False
    with pytest.raises(UsageError, match=r"policy\.gradient_checkpointing=false"):
        build(config, model)


def test_the_start_up_check_measures_rounding_only(tiny_config):
    assert build(tiny_config()).check_head(prompts()) < 1e-5
    assert build(tiny_config("dtype=bfloat16")).check_head(prompts()) < 0.5
    assert build(tiny_config()).check_head([Prompt("b", "0", "p", None, "p", (5,))]) == 0.0


def test_the_start_up_check_refuses_a_head_that_is_off(tiny_config, monkeypatch):
    """Off by 0.01 nats: nothing that a loss curve would show."""
    policy = build(tiny_config())
    plain = torch_policy.response_logp

    def off(*args: Any, **options: Any) -> Any:
        logp_C, entropy_C = plain(*args, **options)
        return logp_C - 0.01, entropy_C

    monkeypatch.setattr(torch_policy, "response_logp", off)
    with pytest.raises(DivergedError, match=r"differ by 0\.01 nats"):
        policy.check_head(prompts())


def test_a_log_probability_above_0_stops_before_the_step(tiny_config, ragged_rows, monkeypatch):
    config = tiny_config()
    policy = build(config)
    before = weights(policy)

    def too_large(head: Any, hidden_CD: torch.Tensor, target_C: torch.Tensor, **options: Any) -> Any:
        return hidden_CD.sum(-1) * 0 + 123.0, None

    monkeypatch.setattr(torch_policy, "response_logp", too_large)
    with pytest.raises(DivergedError, match="log-probability 123"):
        policy.update(ragged_rows, make_objective(config), use_own_logp=False, need_entropy=False)
    assert torch.equal(weights(policy), before)


def test_the_largest_log_probability_is_a_metric(tiny_config, ragged_rows):
    config = tiny_config()
    update = step(build(config), config, ragged_rows)
    real = update.forward.logp_BT[ragged_rows.batch.mask_BT]
    assert update.metrics["logp_max"].kind == "max"
    assert float(update.metrics["logp_max"].value) == float(real.max()) < 0


def test_a_chunked_head_learns_what_the_whole_one_does(tiny_config, ragged_rows, monkeypatch):
    after = []
    for num_bytes in (1 << 30, 4 * 232 * 3):
        monkeypatch.setitem(head.CHUNK_BYTES, "cpu", num_bytes)
        config = tiny_config("kl.beta=0.1", "entropy_coefficient=0.01", "optimizer.lr=1.0")
        policy = build(config)
        policy.optimizer = torch.optim.SGD(policy.model.parameters(), lr=1.0)
        before = weights(policy)
        step(policy, config, ragged_rows)
        after.append(weights(policy))
    moved = (after[0] - before).norm()
    assert moved > 1e-3
    assert 0 < (after[1] - after[0]).norm() < 1e-5 * moved


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_reference_in_bfloat16_takes_half_and_says_the_same_to_the_last_bit(tiny_config, ragged_rows, is_tied):
    """Autocast computes with the same weights either way; before the first step reference and policy are one model."""
    config = tiny_config("dtype=bfloat16", "kl.beta=0.1")
    model = load_model(config.model, torch.float32, "cpu")
    if not is_tied:
        head = torch.nn.Linear(*reversed(model.lm_head.weight.shape), bias=True)
        head.weight.data.copy_(model.lm_head.weight)
        model.lm_head, model.config.tie_word_embeddings = head, False
    policy = build(config, model)
    own, reference = (policy.score(ragged_rows, need_entropy=True, use_reference=which) for which in (False, True))
    assert torch.equal(own.logp_BT, reference.logp_BT)
    assert torch.equal(own.entropy_BT, reference.entropy_BT)
    dtypes = {name: parameter.dtype for name, parameter in policy.reference.named_parameters()}
    single = {name for name, dtype in dtypes.items() if dtype == torch.float32}
    assert single == {name for name in dtypes if "norm" in name or "embed" in name}
    assert ("lm_head.weight" in dtypes) != is_tied
    assert all(parameter.dtype == torch.float32 for parameter in policy.model.parameters())


def test_a_reference_in_float32_is_a_plain_copy(tiny_config):
    policy = build(tiny_config("kl.beta=0.1"))
    for one, other in zip(policy.model.parameters(), policy.reference.parameters(), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype == torch.float32


def test_what_fits_is_where_the_estimate_meets_the_memory(tiny_config):
    config = tiny_config()
    shape = load_model(config.model, torch.float32, "cpu").config
    found = footprint(config, shape, torch.device("cpu"))
    assert found.chunk is not None
    for tokens in (1, 1000, 123_456):
        needed = found.activations(tokens) + found.logits(tokens)
        assert found.fitting_tokens(needed) == tokens
        assert found.fitting_tokens(needed - 1) == tokens - 1
    assert found.fitting_tokens(0) == found.fitting_tokens(-5) == 0
    shape.final_logit_softcapping = 30.0  # such a model is scored through all of its logits
    whole = footprint(config, shape, torch.device("cpu"))
    assert whole.fitting_tokens(whole.activations(1000) + whole.logits(1000)) == 1000


def test_free_memory_is_less_than_there_is():
    free = free_bytes(torch.device("cpu"))
    assert free is None or 0 < free <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize("large", [1, 10**9])
def test_a_large_model_gives_freed_memory_back_around_each_pass(tiny_config, ragged_rows, monkeypatch, large):
    """And learns the same."""
    calls: list[str] = []
    monkeypatch.setattr(torch_policy, "LARGE", large)
    monkeypatch.setattr(torch_policy, "release_freed", lambda: calls.append("released"))
    config = tiny_config("microbatch_tokens=40")
    policy = build(config)
    num_passes = len(list(policy.microbatches(ragged_rows)))
    assert num_passes > 1
    policy.score(ragged_rows)
    step(policy, config, ragged_rows)
    assert len(calls) == (3 * num_passes if large == 1 else 0)  # a pass with gradients also between its halves
    monkeypatch.undo()
    plain = build(config)
    step(plain, config, ragged_rows)
    assert torch.equal(weights(policy), weights(plain))


def test_freed_memory_goes_back_where_the_c_library_can(monkeypatch):
    release_freed()
    monkeypatch.setattr(device.ctypes, "CDLL", lambda name: SimpleNamespace())  # as on macOS
    release_freed()


@pytest.mark.parametrize(("system", "num_bytes"), [("linux", 5 << 20), ("darwin", 5 << 10)])
def test_the_peak_of_this_process_is_in_bytes_on_each_system(monkeypatch, system, num_bytes):
    """The kernel gives kilobytes on Linux and bytes on macOS."""
    monkeypatch.setattr(base.sys, "platform", system)
    monkeypatch.setattr(base.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=5 << 10))
    assert base.Policy.peak_memory_bytes(SimpleNamespace(device=torch.device("cpu"))) == num_bytes


def test_a_cuda_device_is_used_without_cudnns_attention(monkeypatch):
    """It plans anew for each length: a decoding step on an H100 took 2 to 4 times as long."""
    from quatro.policy.device import find_device

    was_on = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        find_device("cpu")
        assert torch.backends.cuda.cudnn_sdp_enabled()
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        assert find_device("auto").type == "cuda"
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_on)
