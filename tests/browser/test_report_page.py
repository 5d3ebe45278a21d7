"""The page of `quatro report` in a real browser: every section, values under the pointer, filters, hostile text."""

from dataclasses import replace
from functools import cache

import pytest

from evals.report import Report, ReportRun, ReportSamples, result_rows, view_samples
from evals.report.document import document, report_page
from evals.samples.types import Sample, Samples

pytestmark = pytest.mark.browser

HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2> \x1b[2J \u202e {{DATA}}"
SECTIONS = ("overview", "runs", "configuration", "training", "results", "problems")


@cache
def sampled(num_right):
    rows = []
    for i in range(60):
        answers = [HOSTILE if (index + i) % 8 < num_right else f"{HOSTILE} {index}" for index in range(8)]
        rows += [Sample("bench", f"p{i}", j, answer, "7", prompt=HOSTILE) for j, answer in enumerate(answers)]
    rows = [replace(row, correct=row.completion == HOSTILE) for row in rows]
    huge = [Sample("bench", "huge", 0, "x" * 200_000, "7", correct=False)]
    views = view_samples(Samples([*rows, *(replace(huge[0], sample_index=i) for i in range(8))], []), num_answers=3)
    return ReportSamples("T 1", "tag", result_rows(views), views)


def make_runs(num_settings=2):
    runs = []
    for setting in range(num_settings):
        for seed in (0, 1):
            metrics = [
                {"step": t, "reward/mean": 0.1 * setting + t / 100, "kl/new_old": 0.01 * t, "grad/norm": 1.0}
                for t in range(1, 31)
            ]
            config = {"method.name": "quatro", "method.delta": str(setting), "seed": str(seed), "text": HOSTILE}
            runs.append(
                ReportRun(
                    *(f"set{setting}-{seed} {HOSTILE}", f"set{setting} {HOSTILE}"),
                    cell=f"cell {setting % 3}",
                    seed=seed,
                    method="quatro",
                    delta=0.01,
                    status="failed",
                    reason=HOSTILE,
                    step=30,
                    steps=30,
                    settings={"text": HOSTILE},
                    config=config,
                    metrics=metrics,
                    samples=[sampled(setting % 4 + 1)],
                )
            )
    return runs


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    report = Report(HOSTILE, [HOSTILE], make_runs(), notes=[HOSTILE])
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(document(report)), encoding="utf-8")
    return path


@pytest.fixture
def opened(browser, page):
    """The page, freshly loaded in a wide window; nothing may reach the console while the test uses it."""
    browser.resize(1400, 1000)
    browser.open(page)
    assert browser.run("return document.documentElement.dataset.ready") == "yes"
    yield browser
    assert browser.console() == []
    assert browser.run("return window.hacked") is None


def texts(browser, selector):
    return browser.run("return [...document.querySelectorAll(arguments[0])].map((node) => node.innerText)", selector)


def test_every_section_is_there_and_filled(opened):
    for section in SECTIONS:
        box = opened.run("return document.getElementById(arguments[0]).getBoundingClientRect().height", section)
        assert box > 60, section
    assert len(texts(opened, "#runs tbody tr")) == 4
    assert len(texts(opened, "#configuration tbody tr")) >= 2
    assert opened.run("return document.querySelectorAll('#training svg.plot').length") == 3
    assert opened.run("return document.querySelectorAll('#results svg.plot').length") == 2


def test_hostile_text_is_shown_as_text(opened):
    assert "<img src=x onerror=window.hacked=2>" in texts(opened, "h1")[0]
    assert opened.run("return document.images.length") == 0
    assert opened.run("return document.scripts.length") == 2
    assert opened.run("return /[\\u202e\\u001b]/.test(document.body.innerText)") is False
    # Even a page script could not turn text into elements.
    refused = "try { document.body.innerHTML = '<b>x</b>'; return false } catch (error) { return error.name }"
    assert opened.run(refused) == "TypeError"
    assert "TrustedHTML" in "".join(opened.console())


def test_the_pointer_and_the_arrow_keys_read_values(opened):
    opened.point_at("#training svg.plot")
    assert opened.run("return document.getElementById('tip').hidden") is False
    tip = opened.run("return document.getElementById('tip').innerText")
    step = int(tip.split()[1])
    assert f"{0.1 + step / 100:.4g}" in tip
    opened.point_at("h1")
    assert opened.run("return document.getElementById('tip').hidden") is True
    opened.run("document.querySelector('#training svg.plot').focus()")
    opened.type("#training svg.plot", "\ue012")  # arrow left
    opened.type("#training svg.plot", "\ue010")  # end
    spoken = opened.run("return document.getElementById('spoken').textContent")
    assert spoken.startswith("step 30: set1")
    assert "0.4" in spoken


def test_the_list_of_runs_toggles_curves_columns_and_seeds(opened):
    count = "return document.querySelectorAll('#training figure:first-of-type .curve').length"
    assert opened.run(count) == 2
    opened.click(".pick input")
    assert opened.run(count) == 1
    assert len(texts(opened, "#results tbody tr")) == 2  # Pass@k and UCC@k of one setting
    opened.click(".toggle input")  # each seed on its own
    assert opened.run(count) == 2
    opened.click("#shownone")
    assert opened.run(count) == 0
    assert "None of the runs shown" in texts(opened, "#problems .empty")[0]
    opened.click("#showall")
    assert opened.run(count) == 4


def test_tables_sort_by_their_heads(opened):
    column = "return [...document.querySelectorAll('#runs tbody tr')].map((row) => row.cells[0].innerText.slice(0, 6))"
    assert opened.run(column)[0] == "set0-0"
    opened.click("#runs th button")
    opened.click("#runs th button")
    assert opened.run(column)[0] == "set1-1"
    assert opened.run("return document.querySelector('#runs th').getAttribute('aria-sort')") == "descending"


def test_problems_are_found_sorted_and_opened(opened):
    assert texts(opened, "#numproblems") == ["61 problems of 61"]
    assert len(texts(opened, "#problems tbody tr")) == 50
    opened.click("#problems button.more")
    assert len(texts(opened, "#problems tbody tr")) == 61
    opened.type("#search", "hug")
    assert texts(opened, "#numproblems") == ["1 problem of 61"]
    opened.click("#problems button.open")
    assert opened.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert len(texts(opened, ".card")) == 4
    assert "199,400 more characters not in this page" in texts(opened, ".card pre")[0]
    choose = "const node = arguments[0]; node.value = arguments[1]; node.dispatchEvent(new Event('change'))"
    opened.run(choose, opened.find("#keep"), "some")
    assert texts(opened, "#numproblems") == ["0 problems of 61"]


@pytest.mark.parametrize("width", [1400, 420])
def test_nothing_is_wider_than_the_window(opened, width):
    opened.resize(width, 900)
    opened.click("#problems button.open")
    assert opened.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_it_prints(opened):
    assert opened.pdf().startswith(b"%PDF")


def test_many_runs_begin_with_few_of_them_shown(browser, tmp_path):
    path = tmp_path / "many.html"
    path.write_text(report_page(document(Report("many", ["x"], make_runs(38)))), encoding="utf-8")
    browser.open(path)
    assert browser.run("return document.querySelectorAll('#runs tbody tr').length") == 76
    assert browser.run("return document.querySelectorAll('.pick').length") == 38
    assert texts(browser, "#numshown") == ["7 of 38"]
    browser.click("#showall")
    assert browser.run("return document.querySelectorAll('#training figure:first-of-type .curve').length") == 38
    assert browser.console() == []


def test_a_report_without_samples_or_metrics_says_what_to_type(browser, tmp_path):
    report = Report("empty", ["x"], [ReportRun("a", "a", config={"seed": "0"})])
    path = tmp_path / "empty.html"
    path.write_text(report_page(document(report)), encoding="utf-8")
    browser.open(path)
    assert "quatro train RUN --resume" in texts(browser, "#training")[0]
    assert "quatro sample RUN" in texts(browser, "#results")[0]
    assert "quatro sample RUN" in texts(browser, "#problems")[0]
    assert browser.console() == []
