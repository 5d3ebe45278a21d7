"""The study of a real model: its verdicts and the share of false derivations, on made-up numbers."""

import numpy as np
import pytest

from evals.intervals import PairedDifference
from experiments.real_model import page
from experiments.real_model.trade_off import Point, trade_off_figure


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (4.0, 8.0, page.HOLDS),
        (-8.0, -4.0, page.FAILS),
        (-2.0, 2.5, page.SMALL),  # whole within the margin of 3 points
        (1.0, 4.0, page.SMALL),  # a difference for sure, of less than the margin
        (-2.0, 9.0, page.OPEN),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_claim_is_judged_by_its_interval_and_margin(low, high, expected, sign):
    ends = sorted((sign * low, sign * high))
    claim = page.Claim("it", "pass@1", "base", "grpo", sign)
    assert claim.verdict(PairedDifference(sum(ends) / 2, *ends, 0.5)) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(-2.0, 9.0, page.HOLDS), (-9.0, -3.5, page.FAILS), (-9.0, 2.0, page.OPEN)],
)
def test_not_less_looks_at_the_lower_end_alone(low, high, expected):
    claim = page.Claim("it", "pass@1", "base", "grpo", 1, is_not_less=True)
    assert claim.verdict(PairedDifference((low + high) / 2, low, high, 0.5)) == expected


def test_the_linearised_share_of_false_derivations_has_the_share_as_its_mean():
    true, false = "8 + 7 = 15. \\boxed{15}", "8 + 7 = 16, so it is 15. \\boxed{15}"
    answers = page.Answers.of(8, {"a": [true] * 3 + [false], "b": [true], "c": []})
    share = page.OUTCOMES["false"].of(answers)
    assert share.shape == (1, 3, 1)
    assert np.mean(share) == pytest.approx(100 * 1 / 5)
    assert np.ptp(share) > 0
    assert page.Answers.of(1, {"p": []}).false_shares == 0


def test_answers_count_strategies_of_valid_ones_alone():
    right = ["3 + 15 = 18. \\boxed{18}", "15 plus 3 is 18. \\boxed{18}", "3 * 5 = 14. 3 + 15 = 18. \\boxed{18}"]
    found = page.Answers.of(4, {"p": right, "q": []})
    np.testing.assert_allclose(found.pass_at(1), [[[0.75], [0.0]]])
    np.testing.assert_allclose(found.ways_at(2), [[[1 - 1 / 6], [0.0]]])  # 1 - C(2, 2) / C(4, 2)


def test_a_trade_off_has_a_star_for_the_base_and_joins_the_deltas_in_their_order():
    points = [
        Point("base", 30.0, 1.5, (25.0, 35.0), (1.4, 1.6)),
        Point("QUATRO delta=0.1", 42.0, 1.0),
        Point("QUATRO delta=0.001", 35.0, 1.4),
        Point("QUATRO delta=0.01", 44.0, 1.2),
        Point("GSPO", 43.0, 0.9),
    ]
    figure = trade_off_figure(points, accuracy="Pass@1, %", diversity="ways", note="one seed")
    (axis,) = figure.axes
    path, *marks = axis.lines
    assert path.get_xydata().tolist() == [[35.0, 1.4], [44.0, 1.2], [42.0, 1.0]]
    assert [tuple(mark.get_xydata()[0]) for mark in marks] == [point[1:3] for point in points]
    assert [mark.get_marker() == "*" for mark in marks] == [True, False, False, False, False]
    assert len(axis.collections) == 2  # the intervals that are known
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("Pass@1, %", "ways")
