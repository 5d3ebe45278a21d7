"""What is shown of a run while it trains: its panel, its lines where there is no terminal, and a notebook."""

import json
import re
import sys
from types import SimpleNamespace

import pytest

import quatro
from evals.text import clock_text
from quatro.loop.position import PHASES
from quatro.runs.views.live import SPARKS, TrainingView, number, sparkline, stage_text
from quatro.types import Stage

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


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr("quatro.runs.views.live.time", made)
    return made


@pytest.fixture
def view_of(clock, tmp_path):
    """``view_of(delta=0.1, rows=[...])``: the view of a run of 10 steps, and the lines that it says."""

    def make(delta=0.01, rows=(), steps=10):
        (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        config = SimpleNamespace(steps=steps, method=SimpleNamespace(kl_radius=delta))
        lines = []
        return TrainingView(tmp_path, config, say=lines.append), lines

    return make


def rows_of(view):
    return dict(view.panel().rows)


def test_the_panel_shows_the_kl_against_the_radius_and_the_time_left(view_of, clock):
    view, lines = view_of()
    assert rows_of(view) == {"step": "0/10   elapsed 0:00   left -", "now": "preparing   0:00"}
    view(METRICS)
    rows, panel = rows_of(view), view.panel()
    assert (panel.done, panel.total) == (3, 10)
    assert "2 x delta 0.01" in rows["KL new‖old"]
    assert "left 0:14" in rows["step"]  # 7 steps of 2 s
    assert rows["lambda"] == "3.2"
    assert "50.0 %" in rows["accuracy"]
    assert "12,346 tokens/s" in rows["speed"]
    assert lines == ["step 3/10  reward 0.25  entropy 1.04  lambda 3.2  kl 0.02 (2 x delta)  2 s  left 0:14"]
    clock.now += 1
    assert "left 0:13" in rows_of(view)["step"]
    clock.now += 60  # a step that takes longer than others leaves the time of those after it
    assert "left 0:12" in rows_of(view)["step"]


def test_a_method_without_radius_shows_no_lambda_and_no_ratio(view_of):
    metrics = {name: value for name, value in METRICS.items() if not name.startswith(("dual/", "kl/ratio"))}
    view, _ = view_of(delta=None)
    view({**metrics, "clip_fraction": 0.12})
    rows = rows_of(view)
    assert "lambda" not in rows
    assert "delta" not in rows["KL new‖old"]
    assert rows["clipped"] == "12.0 %"


@pytest.mark.parametrize("unknown", [None, float("nan"), float("inf")])
def test_unknown_numbers_are_dashes(unknown, view_of):
    view, lines = view_of()
    view({**METRICS, "reward/mean": unknown, "entropy/token_mean": unknown})
    assert rows_of(view)["entropy"] == "- nats per token"
    assert "reward -" in lines[0]


def test_nothing_but_a_step_is_enough(view_of):
    view, _ = view_of()
    view({"step": 1})
    assert rows_of(view)["reward"].startswith("- ± -")


def test_a_sparkline_spans_lowest_to_highest():
    assert sparkline([0.0, 1.0]) == SPARKS[0] + SPARKS[-1]
    assert sparkline([]) == ""
    assert len(set(sparkline([0.3, 0.3, 0.3]))) == 1


@pytest.mark.parametrize(("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (3725, "1:02:05"), (-1, "0:00")])
def test_clock(seconds, shown):
    assert clock_text(seconds) == shown


def test_numbers_are_short():
    assert [number(value) for value in (0.123456, 1234.5, 1e-6, None)] == ["0.123", "1,234", "1e-06", "-"]
    assert number(0.1234, share=True) == "12.3 %"


def test_failures_of_the_reward_and_evaluations_have_rows_once_there_are_some(view_of):
    view, lines = view_of()
    view({**METRICS, "reward/errors": 0.0, "reward/timeouts": 0.0})
    assert "failures" not in rows_of(view)
    assert "evaluation" not in rows_of(view)
    view({**METRICS, "reward/errors": 2.0, "reward/timeouts": 1.0, "eval/pass@1": 0.5})
    assert rows_of(view)["failures"] == "of the reward: 2 errors, 1 timeouts"
    assert lines[-1].count("eval pass@1 0.5 in step 3   best 0.5 in step 3") == 1
    view({**METRICS, "step": 4.0, "eval/pass@1": 0.4})
    assert rows_of(view)["evaluation"] == "pass@1 0.4 in step 4   best 0.5 in step 3"
    view({**METRICS, "step": 5.0})
    assert rows_of(view)["evaluation"].startswith("pass@1 0.4 in step 4")
    several = {"eval/pass@1": 0.5, "eval/a/pass@1": 0.75, "eval/a/pass@4": 1.0, "eval/o/n:test/pass@1": 0.25}
    view({**METRICS, "step": 6.0, **several})
    assert rows_of(view)["evaluation"] == "pass@1 0.5 in step 6   best 0.5 in step 3   a 0.75   o/n:test 0.25"
    assert len(lines) == 4  # the first result and the evaluations: 10 s have not passed


@pytest.mark.parametrize(
    ("stage", "shown"),
    [
        (Stage("load"), "loading the model"),
        (
            Stage("generate", "", {"responses": (120, 256), "tokens": (3400, 0)}),
            "drawing 120/256 responses, 3,400 tokens",
        ),
        (Stage("reward"), "grading"),
        (Stage("old_logp", "", {"rows": (16, 64)}), "old log-probs 16/64 rows"),
        (
            Stage("update", "", {"passes": (2, 3), "minibatches": (1, 8), "rows": (16, 64)}),
            "learning pass 2 of 3, minibatch 1 of 8, 16/64 rows",
        ),
        (Stage("update", "", {"passes": (2, 0), "minibatches": (1, 1)}), "learning pass 2"),  # `auto`, one minibatch
        (Stage("audit"), "audit"),
        (Stage("generate", "eval", {"responses": (40, 200)}), "evaluation 40/200 responses"),
        (Stage("reward", "eval"), "evaluation, grading"),
        (Stage("checkpoint"), "saving"),
        (Stage("other"), ""),
    ],
)
def test_a_stage_in_words(stage, shown):
    assert stage_text(stage) == shown


def test_every_phase_has_words():
    assert [phase for phase in PHASES if not stage_text(Stage(phase))] == []


def test_the_count_of_a_stalled_engine_stands_still_beside_a_clock_that_goes_on(view_of, clock):
    view, _ = view_of()
    clock.now += 5
    view.doing(Stage("generate", "", {"responses": (0, 16)}))
    clock.now += 2
    view.doing(Stage("generate", "", {"responses": (7, 16)}))  # the phase goes on, and so does its clock
    before = rows_of(view)
    assert before == {"step": "0/10   elapsed 0:07   left -", "now": "drawing 7/16 responses   0:02"}
    clock.now += 3600
    assert rows_of(view) == {"step": "0/10   elapsed 1:00:07   left -", "now": "drawing 7/16 responses   1:00:02"}


def test_without_a_terminal_the_first_iteration_says_its_phases_and_later_ones_do_not(view_of, clock):
    view, lines = view_of()
    for step in range(1, 4):
        for phase in ("load", "generate", "reward", "update", "audit"):
            view.doing(Stage(phase))
            for at in range(100):
                view.doing(Stage(phase, "", {"responses": (at, 100)}))
                clock.now += 0.01
        view({**METRICS, "step": step})
    said = [line.partition(": ")[2] or line[:10] for line in lines]
    assert said == ["loading the model", "drawing", "learning", "step 1/10 "]


def test_a_long_first_phase_says_now_and_then_how_far_it_is(view_of, clock):
    view, lines = view_of()
    for at in range(101):
        view.doing(Stage("generate", "", {"responses": (at, 100)}))
        clock.now += 1
    assert lines == [f"step 1/10: drawing {number}/100 responses" for number in (0, 30, 60, 90)]


def test_a_fast_run_is_told_in_about_a_hundred_lines_and_ends_with_the_last(view_of, clock):
    view, lines = view_of(steps=1003)
    for step in range(1, 1004):
        clock.now += 1
        view({"step": step, **({"eval/pass@1": 0.5} if step in (7, 13) else {})})
    assert len(lines) < 150
    numbers = [int(re.match(r"step (\d+)/1003", line)[1]) for line in lines]
    assert {1, 7, 13} < set(numbers)
    assert 8 not in numbers
    assert numbers[-1] == 1003


def test_a_resumed_run_goes_on_with_its_history_and_its_time(view_of, clock, tmp_path):
    rows = [{"step": at, "reward/mean": at / 10, "perf/step_s": 60.0} for at in range(1, 6)]
    rows[0]["base/pass@1"] = 0.45
    rows[2]["eval/pass@1"] = 0.5
    view, lines = view_of(rows=rows)
    assert rows_of(view)["step"] == "5/10   elapsed 5:00   left 5:00"
    assert len(sparkline_in(view)) == 5
    view.doing(Stage("load"))
    # The checkpoint was that of step 4: what came after it is taken back.
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:4]), encoding="utf-8")
    clock.now += 20
    view.doing(Stage("generate"))
    assert rows_of(view)["step"] == "4/10   elapsed 4:20   left 6:00"
    assert lines[-1] == "step 5/10: drawing"
    view({"step": 5, "reward/mean": 0.9, "perf/step_s": 60.0})
    assert len(sparkline_in(view)) == 5
    assert rows_of(view)["evaluation"] == "pass@1 0.5 in step 3   best 0.5 in step 3   base 0.45"


def sparkline_in(view):
    return rows_of(view)["reward"].rpartition(" ")[2]


def test_a_notebook_has_the_panel_and_a_terminal_of_ipython_the_lines(view_of, tmp_path, monkeypatch, capsys):
    shown = []
    shell = type("ZMQInteractiveShell", (), {})()
    handle = SimpleNamespace(update=shown.append)
    display = SimpleNamespace(display=lambda panel, display_id: shown.append(panel) or handle)
    ipython = SimpleNamespace(get_ipython=lambda: shell, display=display)
    config = SimpleNamespace(steps=10, method=SimpleNamespace(kl_radius=0.01))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with quatro.show().of(tmp_path / "<run>", config) as observer:
        observer.doing(Stage("generate", "", {"responses": (7, 16)}))
    assert "drawing 7/16 responses" in repr(shown[-1])
    assert "&lt;run&gt;" in shown[-1]._repr_html_()
    assert "<run>" not in shown[-1]._repr_html_()
    assert capsys.readouterr() == ("", "")

    shell.__class__.__name__ = "TerminalInteractiveShell"
    del shown[:]
    with quatro.show().of(tmp_path / "run", config) as observer:
        observer.doing(Stage("generate", "", {"responses": (7, 16)}))
    assert (shown, capsys.readouterr().err) == ([], "step 1/10: drawing 7/16 responses\n")
