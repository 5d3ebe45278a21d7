"""How a setting of the clustering is said."""

import pytest

from evals.results.document import Row
from evals.similarity import Setting


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (Setting("exact", None, "components", "math"), "exact"),
        (Setting("edit", 0.8, "greedy", "math"), "edit >= 0.8, greedy"),
        (Setting("tfidf", 0.9, "components", "math"), "tfidf >= 0.9, components, math tokens"),
        (Setting("exact", None, "components", "code"), "exact, code tokens"),
        (Setting("edit", 0.8, "greedy", "code"), "edit >= 0.8, greedy, code tokens"),
    ],
)
def test_only_what_matters_is_said(setting, words):
    assert str(setting) == words
    assert setting.words("≥") == words.replace(">=", "≥")


def test_a_row_names_its_setting_or_none():
    row = {"metric": "m", "benchmark": "a", "k": 1, "value": 0.5, "num_problems": 1, "n": 2}
    assert Setting.of(Row(**row)) is None
    setting = Setting("jaccard", 0.5, "complete", "whitespace")
    assert Setting.of(Row(**row, **setting._asdict())) == setting
    # A study of pairs has no threshold and no linkage.
    assert str(Setting.of(Row(**row, similarity="tfidf", tokens="math"))) == "tfidf, math tokens"
