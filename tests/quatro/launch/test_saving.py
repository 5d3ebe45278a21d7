"""The shards of an optimiser belong to the ranks that saved them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from evals.errors import DataError
from quatro.launch.saving import tensors_of
from quatro.runs.checkpoint import Checkpoint


@pytest.mark.parametrize(("then", "now", "words"), [(2, 1, "shards of 2 ranks, and now there is 1"), (1, 2, "1 rank,")])
def test_fault_45_shards_of_another_number_of_ranks_are_refused(then, now, words):
    policy: Any = SimpleNamespace(world=SimpleNamespace(size=now, rank=0, is_first=True), is_sharded=True)
    found = Checkpoint(path=Path("run/checkpoints/step-000003"), step=3, state={"ranks": then})
    with pytest.raises(DataError, match=words) as refused:
        tensors_of(found, policy)
    assert f"start {then} processes" in str(refused.value)
    assert "quatro export run" in str(refused.value)
