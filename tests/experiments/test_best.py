"""What best.md counts: who is higher, what is undecided, and what can tell nothing."""

from experiments.best import _sides
from experiments.replication.rules import Estimate


def test_comparisons_that_can_tell_nothing_are_not_undecided():
    ends = {"better": (0.1, 0.2), "worse": (-0.2, -0.1), "open": (-0.1, 0.2), "same": (-0.0002, 0.0003)}
    gaps = {(name, "a task"): Estimate(sum(each) / 2, *each, 3, 1) for name, each in ends.items()}
    gaps |= {("alone", "a task"): Estimate(0.3, None, None, 1, 1), ("never", "a task"): None}
    said, higher = _sides(gaps)
    assert higher == "worse"
    assert said.startswith(
        "higher in 1 comparisons (with worse). It is lower in 1 (with better on a task). 1 is undecided."
    )
    assert "2 have no interval" in said
    assert "In 1 both methods are equal" in said
    assert "undecided" not in _sides({("same", "a task"): gaps["same", "a task"]})[0].replace("0 are undecided", "")
