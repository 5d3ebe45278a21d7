"""DeepSpeed ZeRO-2 with a pretrained model of 135M parameters: two ranks take the step of one process."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("started")]
pytest.importorskip("deepspeed")

from tests.real.smollm2 import trained  # noqa: E402

SHARDED = ("policy.kind=deepspeed", "policy.zero_stage=2")


def test_two_ranks_take_the_step_of_one(tmp_path, record_property):
    """Also that of the policy in one process without DeepSpeed: the same responses, rewards, gradient and KL."""
    plain = trained(tmp_path / "plain", "threads=1")
    one = trained(tmp_path / "one", "threads=1", *SHARDED)
    two = trained(tmp_path / "two", "threads=1", *SHARDED, num_ranks=2)
    for name in ("reward/mean", "kl/new_old", "grad/norm", "grad/norm_max", "loss"):
        record_property(name, (plain[name], one[name], two[name]))
        for other in (one, two):
            assert other[name] == pytest.approx(plain[name], rel=1e-4), name
    assert 0 < plain["reward/mean"] < 1
    assert plain["optimizer_steps"] == two["optimizer_steps"] == 4
