"""The values and the page of a report."""

import json
import math
import re
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import tree_sitter_javascript
from tree_sitter import Language, Node, Parser

from evals.report import Report, ReportRun, ReportSamples, result_rows, view_samples
from evals.report import document as values_of
from evals.report.document import MOST_POINTS, document, embedded, report_page, rounded
from evals.report.problems import spread
from evals.samples.types import Sample, Samples

CSS = Path(values_of.__file__).with_name("assets") / "report.css"
HOSTILE = "</script><img src=x onerror=alert(1)> \x1b[31m \u202e \u2028 {{SCRIPT}} <!-- & "


def sampled(num_right, *, num_problems=4, text="right"):
    """Four samples a problem; problem i has (num_right + i) % 5 correct ones."""
    rows = [
        Sample(
            "b", f"p{i}", index, text if index < (num_right + i) % 5 else f"wrong {index}", "7", prompt=f"{HOSTILE} {i}"
        )
        for i in range(num_problems)
        for index in range(4)
    ]
    rows = [replace(row, correct=row.completion == text) for row in rows]
    views = view_samples(Samples(rows, []), num_answers=2)
    return ReportSamples("T 1", "tag", result_rows(views), views)


def run(name="a-0", group="a", seed=0, *, steps=10, **changes):
    metrics = [{"step": t, "reward/mean": t / 10, "kl/new_old": math.nan} for t in range(1, steps + 1)]
    config = {"method.name": "quatro", "seed": str(seed), "lr": "1.0e-6"}
    values = {"config": config, "metrics": metrics, "status": "done", "delta": 0.01, "samples": [sampled(seed)]}
    return ReportRun(name, group, seed=seed, **{**values, **changes})


def values_of(*runs, **options):
    return document(Report("title", ["x"], runs), **options)


def embedded_in(page):
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL).group(1))


def test_the_same_report_gives_the_same_bytes():
    pages = [report_page(document(Report("t", ["x"], [run(), run("a-1", seed=1)]))) for _ in range(2)]
    assert pages[0] == pages[1]


def test_hostile_text_stays_data():
    hostile = run(HOSTILE, HOSTILE, reason=HOSTILE, config={"key": HOSTILE}, samples=[sampled(2, text=HOSTILE)])
    made = document(Report(HOSTILE, [HOSTILE], [hostile], notes=[HOSTILE]))
    page = report_page(made)
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "<img" not in page
    assert not set("\x1b\u202e\u2028") & set(page)
    assert embedded_in(page) == json.loads(json.dumps(made))


def test_embedded_json_cannot_end_its_element():
    text = embedded({"key": "</script> & \u2028\u2029 é \ud800"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert text.isascii()
    assert json.loads(text)["key"] == "</script> & \u2028\u2029 é \ud800"


def test_the_page_may_load_and_send_nothing():
    page = report_page(document(Report("t", [], [run()])))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page).group(1)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http:" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https:" not in page
    assert "innerHTML" not in page


def test_only_keys_that_differ_are_compared():
    config = values_of(run(), run("a-1", seed=1, config={"method.name": "quatro", "seed": "1", "lr": "1.0e-6"}))[
        "config"
    ]
    assert config["keys"] == ["seed"]
    assert config["columns"] == [["0", "1"]]
    assert config["shared"] == [["method.name", "quatro"], ["lr", "1.0e-6"]]


def test_a_key_that_a_method_lacks_is_none():
    config = values_of(run(), run("b", "b", config={"method.name": "quatro", "lr": "1.0e-6", "seed": "0", "clip": "1"}))
    assert config["config"]["keys"] == ["clip"]
    assert config["config"]["columns"] == [[None, "1"]]


def test_long_curves_are_means_of_bins_and_say_so():
    made = document(Report("t", [], [run(steps=4 * MOST_POINTS)]))
    (curve,) = next(chart for chart in made["charts"] if chart["metric"] == "reward/mean")["curves"]
    assert len(curve["x"]) == MOST_POINTS
    assert (curve["x"][0], curve["y"][0]) == (2.5, 0.25)  # steps 1 to 4, rewards .1 to .4
    assert any("mean of 4 steps" in note for note in made["notes"])


def test_the_curve_of_an_evaluation_begins_before_training():
    rows = [{"step": 1, "base/pass@1": 0.1}, {"step": 2, "eval/pass@1": 0.2}]
    made = document(Report("t", [], [replace(run(), metrics=rows)]))
    (chart,) = (chart for chart in made["charts"] if chart["metric"] == "eval/pass@1")
    assert (chart["curves"][0]["x"], chart["curves"][0]["y"]) == ([0, 2], [0.1, 0.2])


def test_every_benchmark_of_an_evaluation_has_a_chart():
    each = {f"eval/{name}/{metric}": 0.5 for name in "abcde" for metric in ("pass@1", "pass@4", "problems", "n")}
    rows = [{"step": step, "eval/pass@1": 0.5, "eval/pass@1_se": 0.1, **each} for step in (1, 2)]
    charts = [chart["metric"] for chart in values_of(run(metrics=rows))["charts"]]
    found = [name for name in charts if name.startswith("eval/")]
    assert found == ["eval/pass@1", *(f"eval/{name}/pass@1" for name in "abcde")]
    alone = {f"eval/{name}": 0.5 for name in ("pass@1", "pass@4", "distinct_correct", "problems", "n")}
    charts = values_of(run(metrics=[{"step": step, **alone} for step in (1, 2)]))["charts"]
    found = [chart["metric"] for chart in charts if chart["metric"].startswith("eval/")]
    assert found == ["eval/pass@1", "eval/pass@4", "eval/distinct_correct"]


def test_a_metric_without_a_finite_number_is_no_chart():
    assert "kl/new_old" not in [chart["metric"] for chart in values_of(run())["charts"]]


def test_a_null_among_the_last_steps_leaves_their_mean_unknown():
    rows = [{"step": t, "reward/mean": 0.5, "kl/new_old": None if t == 7 else 0.1} for t in range(10)]
    values = values_of(run(metrics=rows))
    last = dict(zip(values["last_metrics"], values["runs"][0]["last"], strict=True))
    assert last["reward"] == 0.5
    assert last["KL new‖old"] is None


def test_seeds_are_averaged_with_an_interval_and_a_single_run_is_not():
    alone = values_of(run())["results"]
    assert [one["seeds"] for one in alone] == [[], []]
    passk = values_of(run(), run("a-1", seed=1))["results"][0]
    (mean,) = passk["seeds"]
    first, second = (curve["v"][0] for curve in passk["curves"])
    assert mean["v"][0] == pytest.approx((first + second) / 2, rel=1e-4)
    assert mean["low"][0] < mean["v"][0] < mean["high"][0]
    assert (mean["num_seeds"], mean["over"]) == (2, "95 %, over seeds and problems")
    assert {curve["over"] for curve in passk["curves"]} == {"95 %, over problems only"}


def test_seeds_sampled_on_other_problems_have_an_interval_over_seeds_only():
    passk = values_of(run(), run("a-1", seed=1, samples=[sampled(1, num_problems=3)]))["results"][0]
    assert (passk["seeds"][0]["over"], passk["seeds"][0]["low"][0]) == ("", None)
    several = [run(f"a-{i}", seed=i, samples=[sampled(i, num_problems=4 - i // 2)]) for i in range(3)]
    assert values_of(*several)["results"][0]["seeds"][0]["over"] == "95 %, over seeds only"


def test_counts_of_all_problems_and_answers_of_those_asked_for():
    (found,) = values_of(run(), num_problems=2)["problems"]
    assert found["runs"][0]["c"] == [0, 1, 2, 3]
    assert found["runs"][0]["n"] == [4] * 4
    assert len(found["answers"]) == 2
    assert values_of(run(), num_problems=0)["problems"][0]["answers"] == {}


def test_what_was_left_out_is_said():
    assert any("2 of 4 problems" in note for note in document(Report("t", [], [run()]), num_problems=2)["notes"])
    assert document(Report("t", [], [run()]), num_problems=4)["notes"] == []


def test_answers_fit_their_budget(monkeypatch):
    whole = values_of(run())["problems"][0]
    monkeypatch.setattr("evals.report.problems.ANSWER_BYTES", len(json.dumps([whole["answers"], whole["texts"]])) // 2)
    less = values_of(run())["problems"][0]
    assert 0 < len(less["answers"]) < len(whole["answers"])
    entries = less["answers"].values()
    answers = [run for entry in entries for run in entry["runs"]]
    rows = [
        row
        for one in answers
        for row in [*one["wrong"], *(text for group in one["clusters"] for text in group["texts"])]
    ]
    used = {row[1] for row in rows} | {entry[key] for entry in entries for key in ("prompt", "answer")}
    assert used == set(range(len(less["texts"])))  # nothing of the entry that no longer fitted


@pytest.mark.parametrize("size", [1, 2, 7, 64, 100])
def test_every_beginning_of_a_spread_covers_the_whole_range(size):
    order = spread([float(value) for value in reversed(range(size))])
    assert sorted(order) == list(range(size))
    ranks = [size - 1 - position for position in order]
    for count in (2, 4, 8, 16):
        taken = sorted([*ranks[:count], size])
        assert max(b - a for a, b in pairwise(taken)) <= 2 * math.ceil(size / min(count, size)) + 1


def test_samples_under_different_settings_are_kept_apart_and_absent_problems_are_null():
    other = replace(sampled(1, num_problems=2), sampling="T 2")
    sets = values_of(run(), run("b", "b", samples=[sampled(1, num_problems=2), other]))["problems"]
    assert [one["sampling"] for one in sets] == ["T 1", "T 2"]
    assert sets[0]["runs"][1]["c"] == [1, 2, None, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.123456789, 0.12346), (100.0, 100), (math.inf, None), (math.nan, None), (True, None), ("1", None), (None, None)],
)
def test_numbers_are_short_and_finite(value, expected):
    assert rounded(value) == expected


def test_a_page_without_anything_is_still_a_page():
    made = document(Report("t", [], [ReportRun("a", "a", config={"seed": "0"})]))
    assert "<main>" in report_page(made)


def script_of(page: str) -> str:
    return re.findall(r"<script>(.*?)</script>", page, re.DOTALL)[-1]


def syntax_errors(script: str) -> list[str]:
    """Where a parser of JavaScript had to guess, as `line:column`."""
    parser, found = Parser(Language(tree_sitter_javascript.language())), []

    def visit(node: Node) -> None:
        if node.is_error or node.is_missing:
            found.append(f"{node.start_point.row + 1}:{node.start_point.column + 1}")
        for child in node.children:
            if child.has_error or child.is_missing:
                visit(child)

    visit(parser.parse(script.encode("utf-8")).root_node)
    return found


def test_the_script_of_the_page_is_javascript():
    script = script_of(report_page(document(Report("t", [], [run()]))))
    assert len(script) > 10_000
    assert syntax_errors(script) == []
    for old, new in [("})();", "}();"), ("const ", "cnst "), ("=>", "= >"), ("if (", "if ")]:
        assert old in script
        assert syntax_errors(script.replace(old, new, 1)) != []


def test_node_takes_the_script_of_the_page(tmp_path):
    """What a parser cannot see: names declared twice, assignments to what is none."""
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    file = tmp_path / "page.js"
    file.write_text(script_of(report_page(document(Report("t", [], [run()])))), encoding="utf-8")
    checked = subprocess.run(["node", "--check", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_the_page_has_the_colours_of_figures_but_where_they_would_vanish_on_a_dark_ground():
    on_dark = re.search(r"@media screen and \(prefers-color-scheme: dark\) \{.*?\n\}", CSS.read_text(), re.DOTALL)
    assert on_dark is not None
    assert re.findall(r"--c\d:", CSS.read_text()) == re.findall(r"--c\d:", on_dark[0])
