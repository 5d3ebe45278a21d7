"""A method whose fields change over the run, such as docs/relatives.py's with a steered radius."""

import math

import pytest
import torch

from quatro.registry import METHODS
from tests.kit import relatives

Steered = relatives()["Steered"]


def steered(**fields):
    return Steered(name="relatives:Steered", **fields)


def test_the_controller_moves_log_delta_in_proportion_to_the_relative_error():
    by_kl, by_entropy = (
        steered(delta=1.0, steers=what, delta_target=target) for what, target in (("kl", 0.02), ("entropy", 0.8))
    )

    def next_delta(method, value):
        metrics = {"entropy/token_mean": value, "kl/new_old": value}
        return method.carry({"delta": 0.01}, metrics)["delta"]

    assert next_delta(by_entropy, 0.808) == pytest.approx(0.01 * math.exp(0.2))  # entropy to spend: a larger radius
    assert next_delta(by_entropy, 0.796) == pytest.approx(0.01 * math.exp(-0.1))
    assert next_delta(by_entropy, 0.8) == next_delta(by_kl, 0.02) == 0.01
    assert next_delta(by_kl, 0.04) == pytest.approx(0.01 * 2**-0.25)  # moved too far: a smaller radius
    # One iteration proves little, however far off.
    assert next_delta(by_kl, math.inf) == next_delta(by_entropy, 0.0) == pytest.approx(0.01 * math.exp(-0.5))
    assert next_delta(by_kl, 0.0) == next_delta(by_entropy, 8.0) == pytest.approx(0.01 * math.exp(0.5))
    assert next_delta(by_kl, math.nan) == next_delta(by_entropy, math.nan) == 0.01


def test_steering_settles_where_the_realised_kl_is_the_target_and_rests_on_its_bounds():
    method = steered(delta=0.1, delta_target=0.01)

    def last_delta(realised):
        carried = {}
        for _ in range(100):
            metrics = {"kl/new_old": realised(method.at(carried).kl_radius), "entropy/token_mean": 1.0}
            carried = method.carry(carried, metrics)
        return carried["delta"]

    assert last_delta(lambda delta: 2.5 * delta) == pytest.approx(0.004, rel=1e-6)
    assert last_delta(lambda delta: max(delta, 0.03)) == method.min_kl_radius == 0.1 / 10_000
    assert last_delta(lambda delta: 0.001) == 0.1  # never above the configured one


def test_the_method_in_force_differs_in_its_delta_alone_and_its_dual_obeys_it():
    method = steered(delta=0.1, delta_target=0.1, log_ratio="attached")
    in_force = method.at({"delta": 0.0505})
    assert in_force == method.model_copy(update={"delta": 0.0505})
    reward_B = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.float64)
    found = in_force.advantages(reward_B, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    value_QN = found.value_B.view(2, 4)
    torch.testing.assert_close((value_QN * value_QN.exp()).mean(-1), torch.full((2,), 0.0505, dtype=torch.float64))
    assert found.metrics["dual/delta"] == in_force.kl_radius == 0.0505


@pytest.mark.parametrize("name", sorted(METHODS))
def test_by_default_the_method_in_force_is_the_one_configured_and_nothing_is_carried(name):
    method = METHODS[name]()
    assert method.at({}) is method
    assert method.carry({}, {}) == {}
    assert method.min_kl_radius == method.kl_radius
