"""The loop on a pretended device: nothing lies on the wrong side, and the numbers are the CPU's."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
import torch

from evals.errors import UsageError
from quatro.loop.learn import make_objective
from quatro.policy import rows as rows_module
from quatro.policy.torch_policy import LocalPolicy
from quatro.registry import METHODS
from quatro.rehearse.device import is_on_device
from quatro.rehearse.kernels import Kernels
from quatro.rollout import decoding, sampling
from tests.pretend.watched import pretended_gpu

EVALUATED = ("eval.every=1", "eval.benchmark=countdown", "eval.n=1", "eval.at_start=true")
LORA = ("policy.lora.rank=4", "optimizer.lr=1e-2")
SETTINGS = {
    "inner_updates auto, audit and eval": ("inner_updates=auto", "audit.prompts=2", *EVALUATED),
    "one minibatch": ("minibatch_prompts=4", "inner_updates=1"),
    "LoRA": (*LORA, "inner_updates=auto", "audit.prompts=2"),
    "LoRA with checkpointing": (*LORA, "policy.gradient_checkpointing=true"),
    "checkpointing": ("policy.gradient_checkpointing=true",),
    "entropy bonus": ("entropy_coefficient=0.01", "kl.beta=0.01"),
    "beta 0 and a temperature": ("kl.beta=0", "rollout.temperature=0.7"),
    "top_p and top_k": ("rollout.top_p=0.9", "rollout.top_k=5"),
    "top_p": ("rollout.top_p=0.9",),
    "stop strings": ('rollout.stop=["="]',),
    "small caches": ("rollout.rows_at_once=5", "rollout.cache_tokens=120"),
    "small micro-batches": ("microbatch_tokens=40",),
    "a temperature of the batch": ("method.temperature=batch",),
}
BFLOAT16 = {
    "bfloat16": ("dtype=bfloat16",),
    "bfloat16 with checkpointing": ("dtype=bfloat16", "policy.gradient_checkpointing=true"),
    "bfloat16, LoRA and checkpointing": ("dtype=bfloat16", *LORA, "policy.gradient_checkpointing=true"),
    "bfloat16 in small micro-batches": ("dtype=bfloat16", "microbatch_tokens=40"),
}


# With these an AMD EPYC rounds a sum by where its numbers lie in memory; the other processors that were tried do not.
ROUNDED = ("stop strings", "small caches")


def same_on_both(trained, *settings: str, method: str | None = None, is_rounded: bool = False) -> None:
    with pretended_gpu() as gpu:
        found = trained("gpu", *settings, gpu=gpu, method=method)
    assert not gpu.total("faults")
    assert gpu.phases["update"].kernels > 100
    expected = trained("cpu", *settings, method=method)
    if is_rounded:
        assert [list(row) for row in found] == [list(row) for row in expected]
        for row, other in zip(found, expected, strict=True):
            assert row == pytest.approx(other, rel=1e-4, abs=2e-6, nan_ok=True)
    else:
        assert str(found) == str(expected)
    assert found[-1]["grad/norm"] > 0


def test_the_paper_s_method_learns_the_same(trained):
    same_on_both(trained, "steps=1")


def test_a_phase_ends_once_the_device_has_done_its_work(trained):
    with pretended_gpu() as gpu:
        trained("run", "steps=1", gpu=gpu)
    ended = {phase for phase, did in gpu.phases.items() if any(kind == "synchronize" for kind, _ in did.waits)}
    assert ended >= {"generate", "reward", "dual", "old_logp", "ref_logp", "update", "sync", "audit", "log"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_each_setting_learns_the_same(trained, name):
    same_on_both(trained, *SETTINGS[name], is_rounded=name in ROUNDED)


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name != "quatro"])
def test_each_method_learns_the_same(trained, method):
    same_on_both(trained, method=method)


@pytest.mark.slow
@pytest.mark.parametrize("name", BFLOAT16)
def test_bfloat16_learns(trained, name):
    """CUDA's autocast and the CPU's differ in what they leave in float32, and so do the numbers a little."""
    with pretended_gpu() as gpu:
        found = trained("gpu", *BFLOAT16[name], gpu=gpu)
    assert not gpu.total("faults")
    (first, _), (there, _) = found, trained("cpu", *BFLOAT16[name])
    assert first["reward/mean"] == pytest.approx(there["reward/mean"], abs=0.1)
    assert first["grad/norm"] == pytest.approx(there["grad/norm"], rel=0.5)


# --- a fixed order ----------------------------------------------------------------------------------------------------

# What CUDA refuses under deterministic algorithms, by the documentation of torch.use_deterministic_algorithms: of what
# a language model may call, and sums of floats.
REFUSED = {"put", "put_", "histc", "bincount", "median", "nanmedian", "kthvalue", "nll_loss2d_forward", "cumsum"}
REFUSED |= {"scatter_reduce", "scatter_reduce_", "cumprod", "logcumsumexp", "_ctc_loss", "_embedding_bag"}


@pytest.fixture
def in_order(monkeypatch):
    """Refuses what CUDA would; the phases that computed on the device, and whether in a fixed order."""
    run, seen = Kernels.run, set()

    def watched(self, call):
        if any(map(is_on_device, call.tensors)):
            is_on = torch.are_deterministic_algorithms_enabled()
            seen.update((name, is_on) for name, phase in self.device.phases.items() if phase is self.device.now)
            dtype = call.kwargs.get("dtype") or call.tensors[0].dtype
            if is_on and call.name in REFUSED and dtype.is_floating_point:
                raise RuntimeError(f"{call.name} does not have a deterministic implementation")
        return run(self, call)

    monkeypatch.setattr(Kernels, "run", watched)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "to be put back")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    return seen


ORDERED = {
    "plain": (),
    "top_p, auto, audit and eval": ("rollout.top_p=0.9", "inner_updates=auto", "audit.prompts=2", *EVALUATED),
    "bfloat16, LoRA and checkpointing": BFLOAT16["bfloat16, LoRA and checkpointing"],
}


@pytest.mark.parametrize("name", ["plain", *(pytest.param(one, marks=pytest.mark.slow) for one in list(ORDERED)[1:])])
def test_every_phase_keeps_a_fixed_order(trained, in_order, name):
    with pretended_gpu() as gpu:
        trained("run", "steps=1", "deterministic=true", *ORDERED[name], gpu=gpu)
    assert {phase for phase, is_on in in_order if is_on} >= {"generate", "old_logp", "ref_logp", "update", "audit"}
    assert not {phase for phase, is_on in in_order if not is_on}
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_sum_in_any_order_would_be_refused(trained, in_order, monkeypatch):
    monkeypatch.setattr(sampling, "_with_sums", lambda weight: (weight, weight.cumsum(-1, dtype=torch.float64)))
    with pretended_gpu() as gpu, pytest.raises(UsageError, match=r"found true, .* here: cumsum does not have"):
        trained("run", "deterministic=true", gpu=gpu)
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_cpu_keeps_its_order_without_being_told(trained, monkeypatch):
    before, modes = os.environ.get("CUBLAS_WORKSPACE_CONFIG"), []
    monkeypatch.setattr(torch, "set_deterministic_debug_mode", modes.append)
    assert str(trained("told", "steps=1", "deterministic=true")) == str(trained("not told", "steps=1"))
    assert os.environ.get("CUBLAS_WORKSPACE_CONFIG") == before
    assert set(modes) <= {0}


# --- planted faults ---------------------------------------------------------------------------------------------------


def update(tiny_config, ragged_rows) -> None:
    """One optimiser step on the device."""
    from quatro.policy.loading import load_model

    config = tiny_config("device=cuda")
    policy = LocalPolicy(load_model(config.model, torch.float32, "cuda"), config)
    batch = {
        field.name: value.to("cuda") if isinstance(value, torch.Tensor) else value
        for field in dataclasses.fields(ragged_rows.batch)
        for value in [getattr(ragged_rows.batch, field.name)]
    }
    moved = rows_module.Rows(
        ragged_rows.ids_BL.to("cuda"),
        ragged_rows.prompt_length_B.to("cuda"),
        dataclasses.replace(ragged_rows.batch, **batch),
    )
    policy.update(moved, make_objective(config), use_own_logp=False, need_entropy=True)


def test_an_update_without_a_fault(tiny_config, ragged_rows):
    with pretended_gpu() as gpu:
        update(tiny_config, ragged_rows)
    assert not gpu.total("faults")


def mask_on_the_cpu(monkeypatch):
    with_batch = rows_module.Rows.select

    def select(self, index):
        found = with_batch(self, index)
        return found.with_batch(mask_BT=found.batch.mask_BT.cpu())

    monkeypatch.setattr(rows_module.Rows, "select", select)


def numpy_of_a_device_tensor(monkeypatch):
    forward = LocalPolicy.forward

    def with_numpy(self, rows, **options):
        found = forward(self, rows, **options)
        assert np.isfinite(found.logp_BT.detach().numpy()).all()
        return found

    monkeypatch.setattr(LocalPolicy, "forward", with_numpy)


def zeros_without_a_device(monkeypatch):
    empty_forward = LocalPolicy._empty_forward

    def without(self, rows, need_entropy):
        found = empty_forward(self, rows, need_entropy)
        return dataclasses.replace(found, logp_BT=torch.zeros(found.logp_BT.shape))

    monkeypatch.setattr(LocalPolicy, "_empty_forward", without)


def zeros_without_a_device_in_backward(monkeypatch):
    from quatro.policy import head

    gradient = head._logp_gradient

    def without(*args):
        found = gradient(*args)
        return found + torch.zeros(found.shape)

    monkeypatch.setattr(head, "_logp_gradient", without)
    monkeypatch.setattr(head, "chunk_rows", lambda vocabulary, device: 2)


def an_operand_on_the_cpu(monkeypatch):
    loss = METHODS["quatro"].loss

    def shifted(self, logp_BT, batch):
        return loss(self, logp_BT + torch.zeros(logp_BT.shape[1]), batch)

    monkeypatch.setattr(METHODS["quatro"], "loss", shifted)


def a_sum_of_the_host(monkeypatch):
    take_step = LocalPolicy.take_step
    monkeypatch.setattr(LocalPolicy, "take_step", lambda self, loss: take_step(self, loss + torch.ones(1)))


def moments_on_the_cpu(monkeypatch):
    take_step = LocalPolicy.take_step

    def stepped(self, loss_sum):
        for weight in self.trained:
            moments = {name: torch.zeros(weight.shape) for name in ("exp_avg", "exp_avg_sq")}
            self.optimizer.state[weight] = {"step": torch.zeros((), device="cuda"), **moments}
        return take_step(self, loss_sum)

    monkeypatch.setattr(LocalPolicy, "take_step", stepped)


PLANTED = [
    mask_on_the_cpu,
    numpy_of_a_device_tensor,
    zeros_without_a_device,
    zeros_without_a_device_in_backward,
    an_operand_on_the_cpu,
    a_sum_of_the_host,
    moments_on_the_cpu,
]


@pytest.mark.parametrize("fault", PLANTED, ids=lambda one: one.__name__)
def test_a_fault_planted_in_an_update_is_caught(tiny_config, ragged_rows, monkeypatch, fault):
    fault(monkeypatch)
    with pretended_gpu() as gpu, pytest.raises((RuntimeError, TypeError), match=r"pretended|to numpy"):
        update(tiny_config, ragged_rows)
    assert sum(gpu.total("faults").values()) == 1


def uniform_on_the_cpu(monkeypatch):
    draw = sampling.draw_tokens
    monkeypatch.setattr(
        sampling,
        "draw_tokens",
        lambda logits, slot, uniform, *more, **options: draw(logits, slot, uniform.cpu(), *more, **options),
    )


def drawn_without_cpu(monkeypatch):
    draw = sampling.draw_tokens

    def drawn(*arguments, **options):
        found = draw(*arguments, **options)
        found.token_B.numpy()
        return found

    monkeypatch.setattr(sampling, "draw_tokens", drawn)


def position_on_the_cpu(monkeypatch):
    forward = decoding.SlotModel._forward

    def on_the_cpu(self, *arguments):
        before, self.device = self.device, torch.device("cpu")
        try:
            return forward(self, *arguments)
        finally:
            self.device = before

    monkeypatch.setattr(decoding.SlotModel, "_forward", on_the_cpu)


@pytest.mark.parametrize(
    "fault", [uniform_on_the_cpu, drawn_without_cpu, position_on_the_cpu], ids=lambda one: one.__name__
)
def test_a_fault_planted_in_sampling_is_caught(trained, monkeypatch, fault):
    fault(monkeypatch)
    with pretended_gpu() as gpu, pytest.raises((RuntimeError, TypeError), match=r"pretended|to numpy"):
        trained("gpu", gpu=gpu)
    (((_, site), _),) = gpu.phases["generate"].faults.items()
    assert site.startswith(("quatro/", "test_training"))
