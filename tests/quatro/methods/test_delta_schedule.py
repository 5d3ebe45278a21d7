"""The radius over a run: what a controller does by hand, what is refused."""

import math

import pytest
import torch
from pydantic import ValidationError

from quatro.config import config_to_yaml, load_config
from quatro.methods.beyond_paper import ScheduledQuatro, steered_to_entropy, steered_to_kl
from quatro.registry import METHODS

BOUNDS = (1e-4, 1.0)


def test_the_controller_moves_log_delta_in_proportion_to_the_relative_error():
    def by_entropy(entropy):
        return steered_to_entropy(0.01, entropy=entropy, target=0.8, bounds=BOUNDS)

    def by_kl(kl):
        return steered_to_kl(0.01, kl=kl, target=0.02, bounds=BOUNDS)

    assert by_entropy(0.808) == pytest.approx(0.01 * math.exp(0.2))  # entropy to spend: a larger radius
    assert by_entropy(0.796) == pytest.approx(0.01 * math.exp(-0.1))
    assert by_entropy(0.8) == by_kl(0.02) == 0.01
    assert by_kl(0.04) == pytest.approx(0.01 * 2**-0.25)  # moved too far: a smaller radius
    assert by_kl(0.01) == pytest.approx(0.01 * 2**0.25)
    # One iteration proves little, however far off.
    assert by_entropy(0.0) == by_kl(1e9) == by_kl(math.inf) == pytest.approx(0.01 * math.exp(-0.5))
    assert by_entropy(8.0) == by_kl(0.0) == pytest.approx(0.01 * math.exp(0.5))
    assert by_entropy(math.nan) == by_kl(math.nan) == 0.01


def test_the_controller_stays_within_its_bounds():
    assert steered_to_kl(0.01, kl=1.0, target=0.001, bounds=(0.009, 0.1)) == 0.009
    assert steered_to_entropy(0.01, entropy=9.0, target=1.0, bounds=(0.001, 0.011)) == 0.011


def test_steering_settles_where_the_realised_kl_is_the_target_and_rests_on_its_bound_at_a_noise_floor():
    method = ScheduledQuatro(delta=0.1, delta_schedule="target-kl", delta_target=0.01)

    def last_delta(realised):
        carried = {}
        for _ in range(100):
            delta = method.at(carried).kl_radius
            carried = method.carry(carried, {"kl/new_old": realised(delta)})
        return carried["delta"]

    assert last_delta(lambda delta: 2.5 * delta) == pytest.approx(0.004, rel=1e-6)
    assert last_delta(lambda delta: max(delta, 0.03)) == 0.1 / 10_000


def test_the_method_in_force_differs_in_its_delta_alone_and_its_dual_obeys_it():
    method = ScheduledQuatro(delta=0.1, delta_schedule="target-kl", delta_target=0.1, log_ratio="attached")
    in_force = method.at({"delta": 0.0505})
    assert in_force.delta == in_force.kl_radius == pytest.approx(0.0505)
    assert in_force == method.model_copy(update={"delta": in_force.delta})
    reward_B = torch.tensor([1.0, 0, 0, 0, 1, 1, 0, 1], dtype=torch.float64)
    found = in_force.advantages(reward_B, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]))
    value_QN = found.value_B.view(2, 4)
    torch.testing.assert_close((value_QN * value_QN.exp()).mean(-1), torch.full((2,), 0.0505, dtype=torch.float64))
    assert found.metrics["dual/delta"] == in_force.delta
    assert method.delta == 0.1


@pytest.mark.parametrize("name", sorted(METHODS))
def test_by_default_the_method_in_force_is_the_one_configured_and_nothing_is_carried(name):
    method = METHODS[name]()
    assert method.at({}) is method
    assert method.carry({}, {}) == {}
    assert method.min_kl_radius == method.kl_radius
    assert not method.needs.realised_kl


def test_without_a_target_the_realised_kl_is_steered_to_delta():
    method, same = (ScheduledQuatro(delta_schedule="target-kl", delta_target=target) for target in (None, 0.01))
    for kl in (0.04, 0.01, 0.001):
        carried = method.carry({"delta": 0.005}, {"kl/new_old": kl})
        assert carried == same.carry({"delta": 0.005}, {"kl/new_old": kl})
    assert method.min_kl_radius == same.min_kl_radius == 1e-6
    assert method.needs.realised_kl


def test_what_is_carried_is_in_force_and_moves_on():
    method = ScheduledQuatro(delta_schedule="target-entropy", delta_target=1.0)
    carried = method.carry({}, {"entropy/token_mean": 0.99})
    assert carried == {"delta": pytest.approx(0.01 * math.exp(-0.2))}
    assert method.at(carried).delta == carried["delta"]
    assert method.carry(carried, {"entropy/token_mean": 0.99})["delta"] == pytest.approx(0.01 * math.exp(-0.4))
    assert method.carry(carried, {"entropy/token_mean": 2.0}) == {"delta": 0.01}  # never above the configured one
    assert method.carry(carried, {"entropy/token_mean": math.nan}) == carried


def test_needs_and_the_smallest_radius_follow_the_schedule():
    constant = ScheduledQuatro(delta=0.1)
    by_kl = ScheduledQuatro(delta_schedule="target-kl", delta_target=0.1, delta_bounds=(0.005, 0.5))
    by_entropy = ScheduledQuatro(delta_schedule="target-entropy", delta_target=0.1)
    methods = (constant, by_kl, by_entropy)
    assert [one.needs.realised_kl for one in methods] == [False, True, False]
    assert [one.min_kl_radius for one in methods] == [0.1, 0.005, 1e-6]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"delta_schedule": "target-entropy"}, "target-entropy needs delta_target"),
        ({"delta_target": 0.1}, "constant does not read delta_target"),
        ({"delta_bounds": (0.001, 1.0)}, "does not read delta_bounds"),
        ({"delta_end": 0.1}, "Extra inputs are not permitted"),
        ({"delta_schedule": "target-kl", "delta_target": 0.1, "delta_bounds": (0.1, 1.0)}, "must enclose delta"),
        ({"delta_schedule": "target-kl", "delta_target": 0.1, "delta_bounds": (0.0, 1.0)}, "greater than 0"),
        ({"delta_schedule": "target-kl", "delta_target": 0.0}, "greater than 0"),
        ({"delta_schedule": "linear"}, "target-entropy"),
    ],
)
def test_a_schedule_without_its_keys_or_with_those_of_another_is_refused(keys, words):
    with pytest.raises(ValidationError, match=words):
        ScheduledQuatro(**keys)


def test_a_steered_config_is_written_and_read_back(tmp_path):
    settings = ["method.delta_schedule=target-kl", "method.delta_target=0.01", "method.delta_bounds=[0.001, 0.2]"]
    config = load_config("quickstart", overrides=settings)
    path = tmp_path / "config.yaml"
    path.write_text(config_to_yaml(config), encoding="utf-8")
    assert load_config(path) == config
    assert config.method.delta_bounds == (0.001, 0.2)
