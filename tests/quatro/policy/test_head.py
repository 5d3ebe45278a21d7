"""The head in chunks: the values and gradients of the whole matrix, without the whole matrix."""

# Axes: C tokens, D hidden units, V vocabulary.
from __future__ import annotations

import pytest
import torch
from torch import Tensor

from quatro.policy.head import _by_linear, _by_module, chunk_rows, response_logp

C, D, V = 11, 6, 17
WAYS = {"linear": _by_linear, "module": _by_module}


def made(dtype: torch.dtype = torch.float32, *, bias: bool = True) -> tuple[torch.nn.Linear, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(D, V, bias=bias, dtype=dtype)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden_CD = torch.randn(C, D, generator=generator, dtype=dtype).requires_grad_()
    return head, hidden_CD, torch.randint(0, V, (C,), generator=generator)


def by_hand(head: torch.nn.Linear, hidden_CD: Tensor, target_C: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Softmax spelt out, in whatever the matrices are kept."""
    logits_CV = hidden_CD @ head.weight.T + (0 if head.bias is None else head.bias)
    hot_CV, one_CV = (logits_CV / temperature).exp(), logits_CV.exp()
    hot_CV, one_CV = hot_CV / hot_CV.sum(1, keepdim=True), one_CV / one_CV.sum(1, keepdim=True)
    return hot_CV[torch.arange(len(target_C)), target_C].log(), -(one_CV * one_CV.log()).sum(1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("max_rows", [1, 4, 10])
def test_values_and_gradients_equal_those_of_the_whole_matrix(way, temperature, bias, max_rows):
    head, hidden_CD, target_C = made(bias=bias)
    options = {"temperature": temperature, "need_entropy": True, "entropy_grad": True}
    weights = torch.randn(2, C, generator=torch.Generator().manual_seed(1))

    def gradients(logp_C: Tensor, entropy_C: Tensor) -> tuple[Tensor, ...]:
        loss = (weights[0] * logp_C).sum() + (weights[1] * entropy_C).sum()
        return torch.autograd.grad(loss, [hidden_CD, *head.parameters()])

    found = WAYS[way](head, hidden_CD, target_C, max_rows, options)
    expected = by_hand(head, hidden_CD, target_C, temperature)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradients(*found), gradients(*expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_gradients_are_those_of_finite_differences(temperature):
    head, hidden_CD, target_C = made(torch.float64)
    options = {"temperature": temperature, "need_entropy": True, "entropy_grad": True}

    def function(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor) -> tuple[Tensor, Tensor | None]:
        twin = torch.nn.Linear(D, V, dtype=torch.float64)
        del twin.weight, twin.bias
        twin.weight, twin.bias = weight_VD, bias_V  # plain tensors, so that gradcheck can move them
        return _by_linear(twin, hidden_CD, target_C, 4, options)

    assert torch.autograd.gradcheck(function, (hidden_CD, head.weight, head.bias))


def test_up_to_one_chunk_every_bit_is_that_of_the_plain_head():
    head, hidden_CD, target_C = made()
    logp_C, entropy_C = response_logp(
        head, hidden_CD, target_C, vocabulary=V, temperature=1.0, need_entropy=True, max_rows=C
    )
    logits_CV = head(hidden_CD)
    assert torch.equal(logp_C, logits_CV[torch.arange(C), target_C] - logits_CV.logsumexp(-1))
    assert entropy_C is not None
    assert not entropy_C.requires_grad
    assert logp_C.grad_fn.name() == "SubBackward0"  # no function of our own in between


@pytest.mark.parametrize("way", WAYS)
def test_an_entropy_that_is_only_looked_at_carries_no_gradient(way):
    head, hidden_CD, target_C = made()
    options = {"temperature": 1.0, "need_entropy": True, "entropy_grad": False}
    logp_C, entropy_C = WAYS[way](head, hidden_CD, target_C, 4, options)
    assert not entropy_C.requires_grad
    torch.testing.assert_close(entropy_C, by_hand(head, hidden_CD, target_C, 1.0)[1].detach())
    expected = torch.autograd.grad(by_hand(head, hidden_CD, target_C, 1.0)[0].sum(), head.weight)
    torch.testing.assert_close(torch.autograd.grad(logp_C.sum(), head.weight), expected, rtol=1e-5, atol=1e-5)


def test_without_a_gradient_the_same_bits_come_out_as_with_one():
    head, hidden_CD, target_C = made()
    options = {"vocabulary": V, "temperature": 1.0, "need_entropy": False, "max_rows": 4}
    with_gradient, none = response_logp(head, hidden_CD, target_C, **options)
    with torch.no_grad():
        without, _ = response_logp(head, hidden_CD, target_C, **options)
    assert none is None
    assert torch.equal(with_gradient, without)
    assert not without.requires_grad


def test_a_tied_head_adds_its_gradient_to_the_embedding():
    head, _, target_C = made(bias=False)
    ids_C = torch.arange(C) % V

    def gradient(max_rows: int) -> Tensor:
        head.weight.grad = None
        hidden_CD = torch.tanh(torch.nn.functional.embedding(ids_C, head.weight))
        logp_C, _ = response_logp(
            head, hidden_CD, target_C, vocabulary=V, temperature=1.0, need_entropy=False, max_rows=max_rows
        )
        logp_C.sum().backward()
        return head.weight.grad.clone()

    torch.testing.assert_close(gradient(3), gradient(C), rtol=1e-5, atol=1e-6)


def test_a_frozen_head_gets_no_gradient():
    head, hidden_CD, target_C = made()
    head.requires_grad_(False)
    logp_C, _ = response_logp(head, hidden_CD, target_C, vocabulary=V, temperature=1.0, need_entropy=False, max_rows=4)
    logp_C.sum().backward()
    assert head.weight.grad is None
    assert hidden_CD.grad is not None


def test_under_autocast_values_are_the_plain_ones_and_the_heads_gradient_adds_up_in_float32():
    """256 chunks whose gradients are 1 and then 2^-9 each: in bfloat16 the sum would stay at 1."""
    head = torch.nn.Linear(1, 2, bias=False)
    torch.nn.init.zeros_(head.weight)  # probabilities 1/2: d logp / d w = h / 2
    hidden_CD = torch.full((257, 1), 2.0**-8)
    hidden_CD[0] = 2.0
    target_C = torch.zeros(257, dtype=torch.long)
    options = {"vocabulary": 2, "temperature": 1.0, "need_entropy": False}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        plain, _ = response_logp(head, hidden_CD, target_C, **options)
        chunked, _ = response_logp(head, hidden_CD, target_C, max_rows=1, **options)
    assert chunked.dtype == torch.float32
    assert torch.equal(plain, chunked)
    chunked.sum().backward()
    assert head.weight.grad.dtype == torch.float32
    assert head.weight.grad[0].item() == pytest.approx(1 + 256 * 2.0**-9, rel=1e-6)


def test_the_backward_pass_never_holds_more_than_a_few_chunks():
    """The largest tensor that any operation makes, forward and backward, has max_rows x V entries or is the head."""
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                largest = max(largest, result.numel())
            return result

    head, vocabulary = torch.nn.Linear(4, 1000), 1000
    hidden_CD = torch.randn(64, 4, requires_grad=True)
    with Watch():
        logp_C, _ = response_logp(
            head,
            hidden_CD,
            torch.zeros(64, dtype=torch.long),
            vocabulary=vocabulary,
            temperature=1.0,
            need_entropy=True,
            max_rows=8,
        )
        logp_C.sum().backward()
    assert largest == 8 * vocabulary


def test_chunks_are_counted_in_bytes():
    assert chunk_rows(151_936, "cpu") == 64
    assert chunk_rows(232, "cpu") > 16_384  # one chunk for every embedded policy
    assert chunk_rows(10**12, "cpu") == 1
    assert chunk_rows(151_936, "cuda") == 883
