"""Every mutant still has the place that it breaks; whether it is caught is for `make test-mutants` to say."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_text_that_a_mutant_changes_is_in_its_file():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert len(module.MUTANTS) > 190
    lost = [one.name for one in module.MUTANTS if one.old not in (ROOT / one.file).read_text(encoding="utf-8")]
    assert not lost, f"write these anew: {lost}"
