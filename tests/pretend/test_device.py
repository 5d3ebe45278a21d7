"""What the pretended device lets pass, refuses and counts, operation by operation."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest
import torch
from torch.nn.functional import embedding, linear, scaled_dot_product_attention

from quatro.rehearse.device import Card
from tests.pretend.watched import pretended_gpu

SMALL = Card("small", 1 << 20)


def on_gpu(*shape: int, **options: object) -> torch.Tensor:
    return torch.ones(shape, device="cuda", **options)


def grad_on_the_cpu() -> object:
    weight = on_gpu(3).requires_grad_()

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return 2 * value

        @staticmethod
        def backward(ctx, grad):
            return grad + torch.zeros(3)

    return Doubled.apply(weight).sum().backward()


REFUSED = {
    "an operand": lambda: on_gpu(3) + torch.ones(3),
    "an operand in place": lambda: on_gpu(3).add_(torch.ones(3)),
    "a number of the device on the CPU": lambda: torch.ones(3) * on_gpu(3).sum(),
    "zeros without a device": lambda: torch.cat((on_gpu(3), torch.zeros(3))),
    "arange without a device": lambda: on_gpu(3, dtype=torch.int64) + torch.arange(3),
    "a mask": lambda: on_gpu(3).masked_fill(torch.ones(3, dtype=torch.bool), 0.0),
    "a condition": lambda: torch.where(torch.ones(3, dtype=torch.bool), on_gpu(3), on_gpu(3)),
    "isin": lambda: torch.isin(on_gpu(3), torch.ones(3)),
    "an index to gather": lambda: on_gpu(3).gather(0, torch.zeros(1, dtype=torch.int64)),
    "an index to select": lambda: on_gpu(3).index_select(0, torch.zeros(1, dtype=torch.int64)),
    "values to put": lambda: on_gpu(3).index_put((torch.tensor([1], device="cuda"),), torch.ones(1)),
    "values to set": lambda: on_gpu(3).__setitem__(torch.tensor([1, 2], device="cuda"), torch.ones(2)),
    "an index of the device on the CPU": lambda: torch.ones(3)[torch.tensor([1], device="cuda")],
    "token ids": lambda: embedding(torch.zeros(3, dtype=torch.int64), on_gpu(4, 4)),
    "a weight": lambda: linear(on_gpu(2, 3), torch.ones(3, 3)),
    "a product": lambda: on_gpu(2, 3) @ torch.ones(3, 2),
    "keys": lambda: scaled_dot_product_attention(on_gpu(1, 1, 2, 4), torch.ones(1, 1, 2, 4), on_gpu(1, 1, 2, 4)),
    "an attention mask": lambda: scaled_dot_product_attention(*[on_gpu(1, 1, 2, 4)] * 3, attn_mask=torch.ones(2, 2)),
    "from numpy": lambda: on_gpu(3) * torch.from_numpy(np.ones(3, dtype=np.float32)),
    "a search": lambda: torch.searchsorted(on_gpu(3), torch.ones(3)),
    "a stack": lambda: torch.stack([on_gpu(3), torch.ones(3)]),
    "a gradient": grad_on_the_cpu,
    "a generator": lambda: on_gpu(3).uniform_(generator=torch.Generator()),
    "a generator of what is made": lambda: torch.rand(3, device="cuda", generator=torch.Generator()),
    "multinomial": lambda: torch.multinomial(on_gpu(3), 1, generator=torch.Generator()),
    "a list of tensors": lambda: torch._foreach_add([on_gpu(3)], [torch.ones(3)]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_cuda_would_refuse(what):
    with pretended_gpu() as gpu, pytest.raises(RuntimeError, match="same device"):
        REFUSED[what]()
    assert sum(gpu.total("faults").values()) == 1
    with pretended_gpu(strict=False) as gpu:
        REFUSED[what]()
    (((_, site), count),) = gpu.total("faults").items()
    assert count == 1
    assert site.startswith("test_device.py:")


NUMPY = {
    "numpy()": lambda tensor: tensor.numpy(),
    "numpy() of a view": lambda tensor: tensor[:2].numpy(),
    "asarray": np.asarray,
}


@pytest.mark.parametrize("what", NUMPY)
@pytest.mark.parametrize("strict", [False, True])
def test_no_array_can_be_made_of_what_is_on_the_device(what, strict):
    with pretended_gpu(strict=strict) as gpu:
        with pytest.raises(TypeError, match="to numpy"):
            NUMPY[what](on_gpu(3))
        assert on_gpu(3).cpu().numpy().sum() == 3
    assert sum(gpu.total("faults").values()) == 1


ALLOWED = {
    "a number of the CPU": lambda: on_gpu(3) * torch.tensor(2.0) + 1,
    "an index of the CPU": lambda: on_gpu(3)[torch.arange(2)],
    "a mask of the CPU as index": lambda: on_gpu(3)[torch.ones(3, dtype=torch.bool)],
    "a slice to fill": lambda: on_gpu(3)[:2].copy_(torch.ones(2)),
    "a number to set": lambda: on_gpu(3).__setitem__(torch.tensor([1], device="cuda"), torch.tensor(2.0)),
    "made beside": lambda: on_gpu(3) + torch.zeros_like(on_gpu(3)) + on_gpu(3).new_zeros(3),
    "the same device": lambda: (
        on_gpu(3) + torch.ones(3).to("cuda") + torch.ones(3).cuda() + torch.ones(3).to(on_gpu(1))
    ),
    "quantiles": lambda: torch.quantile(on_gpu(3), 0.5),  # PyTorch makes numbers for itself
    "a default device": lambda: on_gpu(3) + _made_under(torch.device("cuda")),
}


def _made_under(device: torch.device) -> torch.Tensor:
    with device:
        return torch.zeros(3)


@pytest.mark.parametrize("what", ALLOWED)
def test_cuda_would_allow(what):
    with pretended_gpu() as gpu:
        ALLOWED[what]()
    assert not gpu.total("faults")


WAITS = {
    "item": lambda one: one.sum().item(),
    "download": lambda one: one.cpu(),
    "upload": lambda one: torch.ones(3).to(one.device),
    "nonzero": torch.nonzero,
    "mask as index": lambda one: one[one > 0],
    "unique": torch.unique,
    "synchronize": lambda one: torch.cuda.synchronize(),
}


@pytest.mark.parametrize("kind", WAITS)
def test_the_host_waits(kind):
    with pretended_gpu() as gpu:
        one = on_gpu(3)
        gpu.begin("waiting")
        WAITS[kind](one)
        gpu.begin("after")
        one.add_(1).mul(2).sum()
        assert torch.ones(3).pin_memory().to("cuda", non_blocking=True).is_cuda
        one.to("cpu", non_blocking=True)
    assert {waits: count for (waits, _), count in gpu.phases["waiting"].waits.items()} == {kind: 1}
    assert not gpu.phases["after"].waits
    assert gpu.phases["after"].kernels >= 3


def test_memory_is_what_lives_and_runs_out_at_the_cards_size():
    with pretended_gpu(SMALL) as gpu:
        half = on_gpu(1 << 17)
        assert gpu.held == 1 << 19
        view = half[:10]
        with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 0\.50 MiB"):
            _ = half * 2, half * 3
        del half
        gc.collect()
        assert gpu.held == 1 << 19  # the view keeps it
        del view
        gc.collect()
        assert torch.cuda.mem_get_info() == (1 << 20, 1 << 20)
        assert gpu.peak == 1 << 20


def test_python_sees_a_device_and_afterwards_none():
    before = dict(vars(torch.cuda)), dict(vars(torch.Tensor))
    with pretended_gpu() as gpu:
        one = on_gpu(3)
        assert one.device == torch.device("cuda", 0)
        assert one.is_cuda
        assert not one.is_cpu
        assert torch.zeros(3).device.type == "cpu"
        assert torch.cuda.is_available()
        twin = copy.deepcopy(one)
        assert twin.is_cuda
        assert twin.data_ptr() != one.data_ptr()
    assert gpu.card.name.startswith("NVIDIA H100")
    assert one.device.type == "cpu"
    assert before == (dict(vars(torch.cuda)), dict(vars(torch.Tensor)))


def test_autocast_is_cudas_and_casts_a_weight_once():
    with pretended_gpu() as gpu, torch.autocast("cuda", torch.bfloat16):
        weight, one = torch.nn.Parameter(on_gpu(4, 4)), on_gpu(2, 4)
        first = one @ weight
        gpu.begin("again")
        second = linear(one, weight)
        assert (first.dtype, second.dtype) == (torch.bfloat16, torch.bfloat16)
        assert gpu.now.kernels == 2  # the input's cast and the product
        assert first.softmax(-1).dtype == first.exp().dtype == torch.float32
        assert (first + first).dtype == torch.bfloat16
        (first.float().sum() + second.float().sum()).backward()
        assert weight.grad.dtype == torch.float32
        assert weight.grad.is_cuda


@pytest.mark.parametrize(
    ("dtype", "options", "kernel"),
    [
        (torch.bfloat16, {"is_causal": True}, "flash"),
        (torch.bfloat16, {"is_causal": True, "enable_gqa": True}, "flash"),
        (torch.float32, {"is_causal": True}, "efficient"),
        (torch.float32, {"is_causal": True, "enable_gqa": True}, "math"),
    ],
)
@pytest.mark.parametrize("hollow", [False, True])
def test_attention_says_which_kernel_it_takes(dtype, options, kernel, hollow):
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    heads = 2 if options.get("enable_gqa") else 4
    try:
        with pretended_gpu(hollow=hollow) as gpu:
            query, key = (on_gpu(1, n, 128, 256, dtype=dtype).requires_grad_() for n in (4, heads))
            scaled_dot_product_attention(query, key, key, **options).float().sum().backward()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(cudnn)
    assert dict(gpu.total("attention")) == {kernel: 1}
    assert query.is_meta == hollow
    assert gpu.now.flops >= 4 * 4 * 128 * 128 * 256 // 2


def test_products_are_counted():
    with pretended_gpu() as gpu:
        _ = on_gpu(2, 3) @ on_gpu(3, 5)
    assert gpu.now.flops == 2 * 2 * 3 * 5
    assert gpu.now.bytes >= 4 * (2 * 3 + 3 * 5 + 2 * 5)
    assert (2, 5) in gpu.now.shapes
