"""How long the rest of the samples takes."""

from quatro.sample.benchmark import pace


def test_the_pace_says_what_is_left():
    assert pace(0, 1000, 500, 10, 100) == "50 tokens/s, 33:10 left"  # none has finished: 1000 samples of 100 tokens
    assert pace(100, 900, 2000, 20, 100) == "100 tokens/s, 3:00 left"  # 900 samples of 20 tokens
    assert pace(1000, 0, 6000, 30, 100) == "200 tokens/s"
    assert pace(0, 1000, 0, 0, 100) == ""


def test_long_samples_that_finish_together_leave_no_more_than_their_tokens():
    # 64 at once, of at most 512 tokens; after 500 tokens each one has finished: by finished samples 1:45:00 were left.
    assert pace(1, 63, 64 * 500, 100, 512) == "320 tokens/s, 0:02 left"
