"""The rule for delta, and the ablation's predictions, on results made up for the purpose."""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest

from experiments import choosing
from experiments.ablation import page as ablation
from experiments.replication.cells import DELTAS


@dataclass(frozen=True)
class MadeUp:
    """Stands in for a run: values of metrics, and Pass@1 of each problem."""

    kl: float
    solved: float
    digest = None
    folder = "made-up"
    settings = MappingProxyType({})
    model = "embedded:made-up@1"

    def values(self, metric):
        return np.full(30, self.kl)

    def counts(self, tag):
        return self

    def passed(self, k):
        return np.full(5, self.solved)

    unique = passed


def regime(kls, solved):
    """Runs of three seeds for each delta, from the largest."""
    groups = {
        delta: {seed: MadeUp(kl * (1 + 0.01 * seed), one + 0.001 * seed) for seed in range(3)}
        for delta, kl, one in zip(DELTAS, kls, solved, strict=True)
    }
    return choosing.Regime("task", "S1: words", groups)


@pytest.mark.parametrize(
    ("kls", "chosen"),
    [
        ((0.05, 0.01, 0.004), "0.01"),  # 0.5, 1 and 4 times delta
        ((0.05, 0.005, 0.0005), "0.001"),
        ((0.04, 0.04, 0.04), "0.1"),
        ((1.0, 1.0, 1.0), "0.1"),  # none is followed
    ],
)
def test_the_rule_takes_the_smallest_delta_that_is_followed(kls, chosen):
    assert regime(kls, (0.3, 0.3, 0.3)).chosen == chosen


def test_a_line_says_what_the_rule_costs():
    def line_of(one):
        return " | ".join(["", *choosing._row(one, choosing._of_the_rule([one])[0].comparisons[0]), ""])

    line = line_of(regime((0.05, 0.01, 0.004), (0.4, 0.3, 0.2)))
    assert "| 0.50; 1.01; 4.04 |" in line
    assert "| 0.01 | 0.1 | ✗ −10.0 [−10.0, −10.0] points |" in line
    right = line_of(regime((0.05, 0.01, 0.004), (0.2, 0.3, 0.25)))
    assert "| 0.01 | 0.001 | ✓ +5.0 [+5.0, +5.0] points |" in right


def test_the_page_says_where_the_rule_lost_to_the_middle_delta():
    def outcome(*found):
        rivals, middles = choosing._of_the_rule(found)
        said, gaps = choosing._outcome(found, rivals.comparisons, middles.comparisons)
        return "\n".join([said, *gaps])

    middle, large = regime((0.05, 0.01, 0.004), (0.2, 0.3, 0.25)), (0.05, 0.05, 0.05)
    assert "In 1 of 1 ways of training, the Pass@1 of the rule's δ was at most 0.6 points" in outcome(middle)
    assert "chose δ 0.01 in all of them" in outcome(middle)
    lost = outcome(middle, regime(large, (0.2, 0.3, 0.2)))
    assert "In 1 of 2 ways of training" in lost
    assert "In 1 it fell further below, and 0 are undecided" in lost
    assert "it chose another δ, and Pass@1 was lower (undecided in 0 of them)" in lost
    assert "✗ S1" not in lost  # the rival is the middle delta, so the table has it
    assert "✗ S1: words: δ 0.1 − 0.01: −10.0" in outcome(middle, regime(large, (0.2, 0.3, 0.4)))
    assert "nothing here shows that its choice is better" in lost
    assert "nothing here shows" not in outcome(regime(large, (0.3, 0.2, 0.2)))


class Sweep:
    """Stands in for the results of a sweep: every arm of a cell with its Pass@1, by temperature."""

    def __init__(self, solved):
        self.solved = solved

    def group(self, cell, settings):
        return self.groups(cell)[-1][1]

    def groups(self, cell):
        rng = np.random.default_rng(0)
        return [
            (
                {"method.temperature": "dual", "method.log_ratio": "none"}
                if kind == "none"
                else {"method.temperature": kind, "method.log_ratio": "detached"},
                {seed: MadeUp(0.01, self.solved[kind] + 0.0005 * rng.normal()) for seed in range(8)},
            )
            for kind in reversed(ablation.WORDS)
            if not kind.endswith(ablation.WIDE)
        ]


@pytest.mark.parametrize(
    ("fixed", "verdicts"),
    [
        (0.3, {"t11": "holds", "t21": "negligible"}),
        (0.35, {"t11": "does not", "t21": "holds"}),
        (0.25, {"t11": "does not", "t21": "does not"}),
    ],
)
def test_predictions_are_judged_by_the_arms(fixed, verdicts, monkeypatch):
    monkeypatch.setattr(MadeUp, "settings", {}, raising=False)
    monkeypatch.setattr(
        ablation, "OUTCOMES", {name: outcome for name, outcome in ablation.OUTCOMES.items() if "Pass@1" in name}
    )
    monkeypatch.setattr(ablation, "GAINS", ("Pass@1, top_p 0.7",))
    sweep = Sweep({"dual": 0.3, "zscore": 0.3, "none": 0.2, "fixed": fixed, "batch": 0.3})
    found = ablation.findings_of(dict.fromkeys(("beyond-paper", "palindrome", "spell-backward"), sweep))
    judged = {finding.name: str(finding.verdict) for finding in found}
    assert {name: judged[name] for name in verdicts} == verdicts
    assert judged["t51"] == "holds"
    assert judged["t12"] == judged["t31"] == judged["t61"] == "holds"
    assert judged["t63"] == "negligible"
    assert judged["t64"] == judged["t21"]


def test_an_arm_that_was_not_run_leaves_its_prediction_undecided():
    assert {str(finding.verdict) for finding in ablation.findings_of({})} == {"undecided"}
