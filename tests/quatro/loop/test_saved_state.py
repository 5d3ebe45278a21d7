"""What a stop saves inside an iteration comes back field by field, each away from its default and from the others."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import torch

from quatro.loop.progress import InnerProgress
from quatro.loop.trust_region import BudgetState
from quatro.types import Metric

CPU = torch.device("cpu")


def assert_all_fields_come_back(value: Any) -> None:
    tensors, plain = value.state()
    found = type(value).from_state(tensors, json.loads(json.dumps(plain)), CPU)
    for field in fields(value):
        one, other = getattr(value, field.name), getattr(found, field.name)
        if field.name in ("old_logp_BT", "entropy_BT"):
            assert torch.equal(one.nan_to_num(9.0), other.nan_to_num(9.0)), field.name
        elif field.name == "before" and isinstance(one, list):
            assert list(map(torch.equal, one, other)) == [True, True]
        else:
            assert repr(one) == repr(other), field.name  # NaN is NaN, and 1 is not 1.0


def test_the_progress_of_an_iteration():
    values = {
        "old_logp_BT": torch.tensor([[-0.1, torch.nan], [-3.0, -0.7]]),
        "entropy_BT": torch.tensor([[0.3, 0.9], [torch.nan, 1.7]]),
        **{name: number for number, name in enumerate(("num_passes", "num_minibatches", "num_applied"), start=2)},
        "num_applied_before": 7,
        "num_skipped": 11,
        "is_done": True,
        "merged": {"a": Metric("mean", 0.1, 3.0), "b": Metric("max", -0.3, 1.0)},
        "before": {"log_ratio/before_mean": 1e-9, "x": float("nan")},
        "grad_norms": [0.1, float("inf"), float("nan")],
        "ess_shares": [0.7, 0.3],
    }
    assert values.keys() == {field.name for field in fields(InnerProgress)}
    assert_all_fields_come_back(InnerProgress(**values))


def test_the_state_of_a_budget():
    values = {
        "before": [torch.tensor([0.1, -2.0]), torch.tensor([[3.0]])],
        "kl_before": 0.3,
        "num_checks": 4,
        "kept_share": 0.7,
        "is_reached": True,
    }
    assert values.keys() == {field.name for field in fields(BudgetState)}
    assert_all_fields_come_back(BudgetState(**values))
