"""`says`, which most tests of errors rest on, can fail."""

import pytest

from tests.kit import quatro, says

SAID = "train.yaml:3: top_p is 0.75, but\n  at most 17 of [vllm] may be -2; type `quatro sample --n 4`"


@pytest.mark.parametrize("data", ["top_p", 0.75, 17, "[vllm]", -2, "--n 4", "but at most", "train.yaml"])
def test_what_an_error_names_is_found_across_its_lines(data):
    for error in (SAID, ValueError(SAID)):
        says(error, data)
        says(error, key=data, value=data, advice=data)
    with pytest.raises(ValueError, match="top_p") as caught:
        raise ValueError(SAID)
    says(caught, data)


@pytest.mark.parametrize("data", ["seed", "top", "p", 7, 1, 0.7, 75, 2, 0, "-n 4", "yaml", "sample --n 40", "train"])
def test_what_an_error_does_not_name_or_only_within_a_longer_word_fails(data):
    for words in ({"key": data}, {"value": data}, {"advice": data}):
        with pytest.raises(AssertionError, match="is not named in"):
            says(SAID, 17, **words)
    with pytest.raises(AssertionError, match="is not named in"):
        says(SAID, 17, data)


def test_a_command_ends_with_the_code_that_was_asked_for_and_says_why_on_stderr():
    assert quatro("--version").stdout.startswith("quatro ")
    says(quatro("sample", code=2), "MODEL")
    for words, code in ((["--version"], 2), (["sample"], 0)):
        with pytest.raises(AssertionError, match="ended with"):
            quatro(*words, code=code)
