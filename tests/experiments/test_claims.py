"""Verdicts about the paper's numbers and orders, from made counts."""

import numpy as np

from evals.results.paper import BENCHMARKS
from experiments import claims
from experiments.claims import Interval, NumberClaim, OrderClaim, claims_page, number_claims, order_claims
from experiments.counts import Counts


def made(correct: int) -> list[dict[str, Counts]]:
    """One seed with 30 problems of each benchmark, of whose 16 samples ``correct`` are right."""
    shared = {"ids": tuple("abc"), "n": 16, "correct": np.full(3, correct), "clusters": ((correct,),) * 3}
    return [{name: Counts(name, **shared) for name in BENCHMARKS}]


def test_a_number_agrees_if_the_interval_holds_it_and_an_order_is_decided_by_the_side_of_zero():
    number = NumberClaim("pass@k", "math500", "GSPO", 1, 0.5, Interval(0.45, 0.4, 0.50001))
    assert number.verdict == claims.AGREES
    assert number._replace(found=Interval(0.4, 0.3, 0.49)).verdict == claims.LOWER
    order = OrderClaim("a", "b", 1, 0.1, Interval(0.2, -0.1, 0.5))
    assert order.verdict == claims.UNDECIDED
    assert order._replace(found=Interval(0.2, 0.1, 0.3)).verdict == claims.CONFIRMED
    assert order._replace(found=Interval(-0.2, -0.3, -0.1)).verdict == claims.CONTRADICTED


def test_the_page_counts_every_claim():
    measured = {"GSPO": made(1), "Ours delta=0.1": made(16)}
    numbers, orders = number_claims(measured, "Qwen2.5-Math-1.5B"), order_claims(measured, "Qwen2.5-Math-1.5B")
    assert {one.k for one in orders} == {1, 16}  # 256 needs as many samples
    assert all(one.found.mean == 1 for one in numbers if (one.label, one.metric) == ("Ours delta=0.1", "pass@k"))
    page = claims_page(numbers, orders)
    assert sum(line.startswith("| ") for line in page.splitlines()) > len(numbers) + len(orders)
