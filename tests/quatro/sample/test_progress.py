"""How fast samples are drawn, in words."""

from quatro.sample.benchmark import pace


def test_the_pace_says_what_is_left():
    assert pace(0, 1000, 500, 10) == "50 tokens/s"  # nothing finished yet: no guess at what is left
    assert pace(100, 900, 2000, 20) == "100 tokens/s, 3:00 left"  # 900 samples at 5 a second
    assert pace(1000, 0, 6000, 30) == "200 tokens/s"
    assert pace(0, 1000, 0, 0) == ""
