"""Metrics of parts make the metrics of the whole, whatever the parts are."""

import itertools

import pytest
import torch

from quatro.processes.world import World, merge
from quatro.types import Metric

ROWS = [(3.0, 1.0), (-2.0, 4.0), (7.0, 2.0), (0.5, 3.0), (11.0, 5.0)]  # value and weight


def metrics(rows):
    value, weight = torch.tensor(rows, dtype=torch.float64).T
    return {
        "mean": Metric("mean", (value * weight).sum(), weight.sum()),
        "sum": Metric("sum", value.sum()),
        "max": Metric("max", value.max()),
    }


@pytest.mark.parametrize("cuts", itertools.combinations(range(1, 5), 2))
def test_any_split_of_rows_gives_the_metrics_of_the_whole(cuts):
    merged = {}
    for start, end in itertools.pairwise((0, *cuts, 5)):
        merged = merge(merged, metrics(ROWS[start:end]))
    assert World().reduce(merged) == pytest.approx({"mean": 65.5 / 15, "sum": 19.5, "max": 11.0})


class Rank(World):
    """One of two ranks, whose numbers are added to what the other one brings."""

    def sums(self, values):
        other = metrics(ROWS[1:])
        found = {"mean/value": other["mean"].value, "mean/count": other["mean"].count, "sum/value": other["sum"].value}
        return {name: value + found[name] for name, value in values.items()}

    def largest(self, value):
        return max(value, metrics(ROWS[1:])["max"].value.item())


def test_two_ranks_with_unequal_shares_have_the_metrics_of_all_rows():
    found = Rank(0, 2).reduce(metrics(ROWS[:1]))
    assert found == pytest.approx({"mean": 65.5 / 15, "sum": 19.5, "max": 11.0})


def test_a_mean_over_nothing_is_unknown():
    found = World().reduce({"mean": Metric("mean", 0.0, 0.0)})["mean"]
    assert found != found


@pytest.mark.parametrize(("count", "size"), [(7, 2), (7, 3), (2, 4)])
def test_ranks_share_everything_and_nothing_twice(count, size):
    shares = [World(rank, size).share(count) for rank in range(size)]
    assert sorted(number for share in shares for number in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
