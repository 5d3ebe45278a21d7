"""Draws from logits: frequencies, truncation, the edges of the unit interval."""

import itertools
import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from quatro.rollout.sampling import DrawnTokens, draw_tokens
from quatro.types import Sampling
from tests.pretend.watched import pretended_gpu

ALMOST_ONE = 1 - 2.0**-53


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """The CPU, and a GPU that is not there: the two have scans of their own."""
    with pretended_gpu() if request.param == "cuda" else nullcontext():
        yield request.param


@pytest.fixture
def draw(device):
    def drawn(logits, uniforms, sampling=None, slots=None):
        logits_SV = torch.tensor(logits, dtype=torch.float32, device=device)
        slot_B = torch.tensor([0] * len(uniforms) if slots is None else slots, device=device)
        uniform_B = torch.tensor(uniforms, dtype=torch.float64, device=device)
        found = draw_tokens(logits_SV, slot_B, uniform_B, sampling or Sampling(), with_entropy=True)
        return DrawnTokens(*(one.cpu() for one in found))

    return drawn


def exact_distribution(logits, sampling):
    """Brute force in float64: sort, keep, renormalise; ties by the lower token id."""
    weight = [math.exp(x / sampling.temperature) for x in logits]
    order = sorted(range(len(weight)), key=lambda v: (-weight[v], v))
    if sampling.top_k:
        order = order[: sampling.top_k]
    total, kept, mass = sum(weight[v] for v in order), [], 0.0
    for v in order:
        kept.append(v)
        mass += weight[v] / total
        if mass >= sampling.top_p:
            break
    left = sum(weight[v] for v in kept)
    return [weight[v] / left if v in kept else 0.0 for v in range(len(weight))]


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.6),
        Sampling(temperature=1.7, top_p=0.8),
        Sampling(top_p=0.7),
        Sampling(top_k=3),
        Sampling(top_k=4, top_p=0.6, temperature=1.3),
        Sampling(top_p=1e-9),
        Sampling(top_k=1),
    ],
)
def test_an_even_grid_of_uniforms_reproduces_the_exact_distribution(draw, sampling):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 9)) * 2
    n = 20_000
    grid = (np.arange(n) + 0.5) / n
    for slot in range(3):
        drawn = draw(logits, grid, sampling, slots=[slot] * n)
        frequency = np.bincount(drawn.token_B.numpy(), minlength=9) / n
        # Inverse CDF on an even grid: each count is off by at most one at either end of its interval.
        np.testing.assert_allclose(frequency, exact_distribution(logits[slot], sampling), atol=1.5 / n, rtol=1e-5)


def test_log_probs_are_those_before_truncation_and_entropy_is_at_temperature_one(draw):
    logits = np.array([[0.3, -1.0, 2.0, 0.0], [1.0, 1.0, -5.0, 0.5]])
    drawn = draw(logits, [0.1, 0.9, 0.5], Sampling(temperature=0.5, top_p=0.6), slots=[1, 0, 1])
    for row, slot in enumerate((1, 0, 1)):
        z = logits[slot] / 0.5
        expected = z[drawn.token_B[row]] - math.log(sum(map(math.exp, z)))
        assert drawn.logp_B[row].item() == pytest.approx(expected, abs=1e-6)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(drawn.entropy_S, -(p * np.log(p)).sum(1), atol=1e-6)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_k=4), Sampling(top_p=0.999), Sampling(temperature=0.3)])
@pytest.mark.parametrize("allowed", [(0,), (4,), (1, 3), (0, 4), (2,)])
def test_a_token_of_probability_zero_is_never_drawn(draw, sampling, allowed):
    """-inf and underflown logits at either end and in between, uniforms on and next to every boundary."""
    dead = itertools.cycle((-math.inf, -300.0))
    logits = [0.0 if v in allowed else next(dead) for v in range(5)]
    edges = [k / len(allowed) for k in range(len(allowed))]
    uniforms = [0.0, 5e-324, ALMOST_ONE, 0.5, *edges, *(math.nextafter(e, 0) for e in edges if e > 0)]
    # Neighbouring slots of other supports: a rounded point must not land in one of them.
    table = [logits, [0.0] * 5, logits, logits[::-1]]
    for slot in (0, 2):
        drawn = draw(table, uniforms, sampling, slots=[slot] * len(uniforms))
        assert set(drawn.token_B.tolist()) <= set(allowed)
    assert drawn.entropy_S[0].item() == pytest.approx(math.log(len(allowed)), abs=1e-6)
    assert drawn.is_finite


def test_the_last_uniform_below_one_draws_the_last_possible_token(draw):
    # 3,000 slots: partial sums near 3,000 where the spacing of float64 is far above 2^-53.
    logits = np.zeros((3000, 4))
    drawn = draw(logits, [ALMOST_ONE] * 3000, slots=list(range(3000)))
    assert set(drawn.token_B.tolist()) == {3}
    first = draw(logits, [0.0] * 3000, slots=list(range(3000)))
    assert set(first.token_B.tolist()) == {0}


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_are_reported(draw, bad, temperature):
    logits = [[0.0, 1.0], [0.0, bad], [0.0, 1.0]]
    assert not draw(logits, [0.5], Sampling(temperature=temperature)).is_finite


def test_temperature_zero_is_the_argmax_with_probability_one(draw):
    drawn = draw([[0.1, 3.0, 0.2], [5.0, 1.0, 1.0]], [0.99, 0.01], Sampling(temperature=0.0), slots=[0, 1])
    assert drawn.token_B.tolist() == [1, 0]
    assert drawn.logp_B.tolist() == [0.0, 0.0]
    assert drawn.entropy_S is not None
    assert (drawn.entropy_S > 0).all()
