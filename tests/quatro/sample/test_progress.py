"""How fast samples are drawn, in words."""

from quatro.sample.benchmark import Pace


def test_the_pace_counts_only_what_this_call_drew():
    clock = iter([100.0, 110.0, 120.0, 130.0]).__next__
    pace = Pace(1000, clock)
    assert pace.note(1000, 2000, 500) == "50 tokens/s"  # nothing finished yet: no guess at what is left
    assert pace.note(1100, 2000, 2000) == "100 tokens/s, 3:00 left"  # 900 samples at 5 a second
    assert pace.note(2000, 2000, 6000) == "200 tokens/s"
