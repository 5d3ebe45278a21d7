"""What of a response is the thought, and what the answer."""

import pytest

from evals.benchmarks.prompts import check_markers, split_thought
from evals.errors import UsageError

BOTH = "<think> </think>"


@pytest.mark.parametrize(
    ("text", "markers", "prompt", "answer"),
    [
        ("so 4</think>\n5", "</think>", None, "\n5"),
        ("<think>so 4</think>5", BOTH, None, "5"),
        ("4</think>5</think>6", "</think>", None, "6"),
        ("so 4", "</think>", None, ""),
        ("<think>so 4", BOTH, None, ""),
        ("so 4", BOTH, "2+2?<think>\n", ""),  # the chat template began the thought
        ("4</think>5<think>6", BOTH, None, ""),  # a second thought is unfinished
        ("4", BOTH, "2+2?", "4"),  # there never was a thought
        ("4</think>", "</think>", None, ""),
        ("", "</think>", None, ""),
    ],
)
def test_the_answer_is_what_follows_the_end_of_the_thought(text, markers, prompt, answer):
    thought, found = split_thought(text, markers, prompt)
    assert found == answer
    assert thought + found == text


@pytest.mark.parametrize("markers", ["", " ", "<a> <b> <c>", "<t> <t>"])
def test_markers_are_an_end_or_a_start_and_an_end(markers):
    with pytest.raises(UsageError, match="expected the end marker, such as `</think>`, or both"):
        check_markers(markers)
    assert check_markers(BOTH) == BOTH
