"""What is shown of a run while it trains."""

import pytest

from evals.text import clock_text
from quatro_cli.training_view import SPARKS, TrainingView, number, percent, sparkline

METRICS = {
    "step": 3.0,
    "reward/mean": 0.25,
    "reward/std": 0.4,
    "accuracy/mean": 0.25,
    "groups/mixed_share": 0.5,
    "entropy/token_mean": 1.04,
    "dual/lam_mean": 3.2,
    "kl/new_old": 0.02,
    "kl/old_new": 0.019,
    "kl/ratio_to_delta": 2.0,
    "grad/norm": 0.5,
    "lr": 3e-4,
    "perf/step_s": 2.0,
    "perf/tokens_per_s": 12345.6,
    "length/mean": 8.2,
    "length/truncated_share": 0.01,
}


def test_the_panel_shows_the_kl_against_the_radius_and_the_time_left():
    panel = TrainingView("run", steps=10, delta=0.01).panel(METRICS)
    rows = dict(panel.rows)
    assert (panel.done, panel.total) == (3, 10)
    assert "2 x delta 0.01" in rows["KL new‖old"]
    assert "left 0:14" in rows["step"]  # 7 steps of 2 s
    assert rows["lambda"] == "3.2"
    assert "50.0 %" in rows["accuracy"]
    assert "12,346 tokens/s" in rows["speed"]
    assert panel.line.startswith("step 3/10  reward 0.25  entropy 1.04  lambda 3.2  kl 0.02 (2 x delta)")


def test_a_method_without_radius_shows_no_lambda_and_no_ratio():
    metrics = {name: value for name, value in METRICS.items() if not name.startswith(("dual/", "kl/ratio"))}
    panel = TrainingView("run", steps=10, delta=None).panel({**metrics, "clip_fraction": 0.12})
    rows = dict(panel.rows)
    assert "lambda" not in rows
    assert "delta" not in rows["KL new‖old"]
    assert rows["clipped"] == "12.0 %"


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf")])
def test_unknown_numbers_are_dashes(unknown):
    panel = TrainingView("run", steps=10, delta=0.1).panel(
        {**METRICS, "reward/mean": unknown, "entropy/token_mean": unknown}
    )
    assert dict(panel.rows)["entropy"] == "- nats per token"
    assert "reward -" in panel.line


def test_nothing_but_a_step_is_enough():
    panel = TrainingView("run", steps=10, delta=0.1).panel({"step": 1})
    assert dict(panel.rows)["reward"].startswith("- ± -")


def test_a_sparkline_spans_lowest_to_highest():
    assert sparkline([0.0, 1.0]) == SPARKS[0] + SPARKS[-1]
    assert sparkline([]) == ""
    assert len(set(sparkline([0.3, 0.3, 0.3]))) == 1


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (3725, "1:02:05"), (-1, "0:00")])
def test_clock(seconds, shown):
    assert clock_text(seconds) == shown


def test_numbers_are_short():
    assert [number(value) for value in (0.123456, 1234.5, 1e-6, None)] == ["0.123", "1,234", "1e-06", "-"]
    assert percent(0.1234) == "12.3 %"


def test_failures_of_the_reward_and_evaluations_have_rows_once_there_are_some():
    view = TrainingView("run", steps=10, delta=None)
    rows = dict(view.panel({**METRICS, "reward/errors": 0.0, "reward/timeouts": 0.0}).rows)
    assert "failures" not in rows
    assert "evaluation" not in rows
    panel = view.panel({**METRICS, "reward/errors": 2.0, "reward/timeouts": 1.0, "eval/pass@1": 0.5})
    assert dict(panel.rows)["failures"] == "of the reward: 2 errors, 1 timeouts"
    assert panel.line.count("eval pass@1 0.5 in step 3   best 0.5 in step 3") == 1
    later = view.panel({**METRICS, "step": 4.0, "eval/pass@1": 0.4})
    assert dict(later.rows)["evaluation"] == "pass@1 0.4 in step 4   best 0.5 in step 3"
    assert dict(view.panel({**METRICS, "step": 5.0}).rows)["evaluation"].startswith("pass@1 0.4 in step 4")
    resumed = TrainingView("run", steps=10, delta=None)
    resumed.recall([{"step": 1, "base/pass@1": 0.45}, {"step": 3, "eval/pass@1": 0.5}, {"step": 4}])
    panel = resumed.panel({**METRICS, "step": 6.0, "eval/pass@1": 0.4})
    assert panel.line.count("eval pass@1 0.4 in step 6   best 0.5 in step 3   base 0.45") == 1
    assert [one.is_said for one in (panel, resumed.panel({**METRICS, "step": 7.0}))] == [True, False]
