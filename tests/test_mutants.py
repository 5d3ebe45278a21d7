"""Every mutant still has the place that it breaks; whether it is caught is for `make test-mutants` to say."""

from pathlib import Path

from tests.mutants import MUTANTS

ROOT = Path(__file__).parents[1]


def test_the_text_that_a_mutant_changes_is_in_its_file():
    assert len(MUTANTS) > 190
    lost = [one.name for one in MUTANTS if one.old not in (ROOT / one.file).read_text(encoding="utf-8")]
    assert not lost, f"write these anew: {lost}"
