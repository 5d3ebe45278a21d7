"""`quatro view` in a real browser: growth, keyboard, narrow and dark windows, hostile text, and no other host."""

import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit import write_rows
from tests.quatro.runs.test_report import make_run

pytestmark = pytest.mark.browser

HOSTILE = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    "<svg onload=window.hacked=1>",
    "{{DATA}} {{SCRIPT}} ${window.hacked=1} `x`",
    "javascript:window.hacked=1",
    "\x1b[2J\x07\x00 \u202e\u2066 right to left",
    "\u2028window.hacked=1\u2029//",
    "'; window.hacked=1; '",
    '"><iframe srcdoc="<script>top.hacked=1</script>">',
    "&lt;b&gt; &#60;script&#62;",
    "<style>*{display:none}</style>",
    "<base href=http://evil.example/><form action=//evil.example>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "http://evil.example/x.png https://evil.example",
    "__proto__ constructor toString",
    "x" * 30_000,
    "\ufeff\u200b\u200d zero width",
    "😀" * 50 + "é́́́́",
    "# [click](javascript:alert(1)) ![](http://evil.example)",
]


def rollouts(run, step, texts=("2 + 3", "5")):
    rows = [
        {
            "benchmark": "b",
            "id": f"p{i % 4} {HOSTILE[1]}",
            "sample_index": i // 4,
            "completion": text,
            "answer": "1",
            "reward": float(i % 2),
            "advantage": 0.5 - i % 2,
            "num_tokens": 3,
            "finish_reason": "stop",
            "thought": HOSTILE[0],
            "correct": i % 2 == 1,
            "error": HOSTILE[2] if i == 0 else None,
        }
        for i, text in enumerate(texts)
    ]
    (run / "rollouts").mkdir(exist_ok=True)
    write_rows(run / f"rollouts/step-{step:06}.jsonl", rows)


def metrics(run, steps):
    write_rows(
        run / "metrics.jsonl", [{"step": t, "reward/mean": t / 10, HOSTILE[1]: 1.0} for t in range(1, steps + 1)]
    )


def samples(folder):
    folder.mkdir(parents=True)
    rows = [
        {"benchmark": "bench", "id": f"p{i}", "sample_index": j, "completion": f"{text} {j % 2}", "answer": HOSTILE[1]}
        | {"prompt": HOSTILE[0], "correct": j != 3}
        for i, text in enumerate(HOSTILE)
        for j in range(4)
    ]
    write_rows(folder / "bench.jsonl", rows)


@contextmanager
def served(*paths):
    command = [sys.executable, "-m", "quatro_cli", "view", *map(str, paths), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=5)


def wait_for(browser, script, *arguments):
    deadline = time.monotonic() + 20
    while not (found := browser.run(script, *arguments)):
        assert time.monotonic() < deadline, script
        time.sleep(0.1)
    return found


def visit(browser, address):
    browser.call("POST", "/url", {"url": address})
    wait_for(browser, "return document.documentElement.dataset.ready === 'yes'")
    wait_for(browser, "return document.querySelector('.live').textContent.startsWith('Live')")
    wait_for(browser, "return !document.querySelector('#problems').innerText.includes('…')")  # all is counted


def text_of(browser, selector):
    return browser.run("return document.querySelector(arguments[0])?.innerText ?? ''", selector)


@pytest.fixture
def folder(tmp_path):
    run = make_run(tmp_path / "runs/a", steps=2)
    metrics(run, 2)
    rollouts(run, 2, HOSTILE)
    samples(run / "samples/T1-p1")
    return tmp_path / "runs"


@pytest.fixture
def opened(browser, folder):
    browser.resize(1400, 1000)
    with served(folder) as (address, _):
        visit(browser, address)
        yield browser
        assert browser.console() == []
        assert browser.run("return window.hacked") is None
        browser.call("POST", "/url", {"url": "about:blank"})


def test_a_run_grows_and_a_new_one_appears_while_the_page_is_open(opened, folder):
    cells = "return [...document.querySelectorAll('#runs tbody tr')].map((row) => row.innerText)"
    assert "2/100" in opened.run(cells)[0]
    opened.run("window.first = document.querySelector('#training svg.plot')")
    opened.run("document.querySelectorAll('#runs th button')[1].focus()")
    metrics(folder / "a", 7)
    rollouts(folder / "a", 7)
    wait_for(opened, "return document.querySelector('#runs tbody').innerText.includes('7/100')")
    assert opened.run("return window.first.isConnected && window.first.querySelectorAll('.line').length") == 1
    assert opened.run("return document.activeElement.innerText") == "method"
    wait_for(opened, "return document.querySelector('#rollouts .note').innerText.includes('Iteration 7')")
    make_run(folder / "b", "method.delta=0.1", steps=3)
    wait_for(opened, "return document.querySelectorAll('#runs tbody tr').length === 2")
    assert opened.run("return document.querySelectorAll('.pick input:checked').length") == 2


def test_a_page_that_slept_is_up_to_date_when_its_server_is_back(browser, folder):
    with served(folder) as (address, _):
        visit(browser, address)
    wait_for(browser, "return document.querySelector('.live').textContent.startsWith('Not connected')")
    assert "2/100" in text_of(browser, "#runs tbody")  # what was seen stays
    browser.console()


def test_a_reader_that_was_away_is_up_to_date_on_return(opened, folder):
    def network(is_off):
        how = {"offline": is_off, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        opened.call("POST", "/goog/cdp/execute", {"cmd": "Network.emulateNetworkConditions", "params": how})

    opened.call("POST", "/goog/cdp/execute", {"cmd": "Network.enable", "params": {}})
    network(True)
    metrics(folder / "a", 9)
    time.sleep(3)  # some news is missed
    assert "2/100" in text_of(opened, "#runs tbody")
    network(False)
    opened.run("document.dispatchEvent(new Event('visibilitychange'))")
    wait_for(opened, "return document.querySelector('#runs tbody').innerText.includes('9/100')")
    opened.console()


def test_more_tabs_are_live_than_a_browser_has_connections_to_a_host(browser, folder):
    first = browser.call("GET", "/window")
    with served(folder) as (address, _):
        visit(browser, address)
        browser.call("POST", "/timeouts", {"pageLoad": 10_000})
        for _ in range(7):
            tab = browser.call("POST", "/window/new", {"type": "tab"})["handle"]
            browser.call("POST", "/window", {"handle": tab})
            visit(browser, address)
        metrics(folder / "a", 9)
        wait_for(browser, "return document.querySelector('#runs tbody').innerText.includes('9/100')")
        for tab in set(browser.call("GET", "/window/handles")) - {first}:
            browser.call("POST", "/window", {"handle": tab})
            browser.call("DELETE", "/window")
        browser.call("POST", "/window", {"handle": first})
        browser.call("POST", "/timeouts", {"pageLoad": 300_000})
        wait_for(browser, "return document.querySelector('#runs tbody').innerText.includes('9/100')")  # shown again
        browser.call("POST", "/url", {"url": "about:blank"})
    assert browser.console() == []


def test_a_page_opened_before_any_run_says_what_to_type(browser, tmp_path):
    (tmp_path / "runs").mkdir()
    with served(tmp_path / "runs") as (address, _):
        visit(browser, address)
        assert "Nothing is here yet; runs appear as they are made." in text_of(browser, "#runs")
        assert "quatro train quickstart" in text_of(browser, "#runs")
        assert "--resume" not in text_of(browser, "#training")
        make_run(tmp_path / "runs/a", steps=2)
        wait_for(browser, "return document.querySelectorAll('#runs tbody tr').length === 1")
        browser.call("POST", "/url", {"url": "about:blank"})
    assert browser.console() == []


def test_samples_that_come_later_can_be_labelled(browser, tmp_path):
    run = make_run(tmp_path / "runs/a", steps=2)
    with served(tmp_path / "runs") as (address, _):
        visit(browser, address)
        assert "no samples" in text_of(browser, "#labels")
        samples(run / "samples/T1-p1")
        wait_for(browser, "return document.querySelector('#startlabels')")
        browser.call("POST", "/url", {"url": "about:blank"})
    browser.console()


def test_responses_appear_in_a_page_that_was_opened_before_the_first_ones(browser, tmp_path):
    first = make_run(tmp_path / "runs/a", steps=1)
    with served(tmp_path / "runs") as (address, _):
        visit(browser, address)
        assert "No run here has written responses" in text_of(browser, "#rollouts")
        rollouts(first, 1)
        wait_for(browser, "return document.querySelector('#rollouts .note')?.innerText.includes('Iteration 1')")
        second = make_run(tmp_path / "runs/b", "method.delta=0.1", steps=1)
        wait_for(browser, "return document.querySelectorAll('#runs tbody tr').length === 2")
        browser.run("document.querySelector('#rollouts summary').click()")
        rollouts(second, 1)
        wait_for(browser, "return document.querySelectorAll('#rolloutrun option').length === 2")
        assert browser.run("return document.querySelectorAll('#rollouts details.rollout[open]').length") == 1
        browser.call("POST", "/url", {"url": "about:blank"})
    assert browser.console() == []


ASKED = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/answers?')).length"


def open_problem(browser, number):
    """Opens a problem and explains its first answer, with the second one marked and the search in use."""
    browser.type("#search", "p")
    browser.run("document.querySelectorAll('#problems button.open')[arguments[0]].click()", number)
    wait_for(browser, "return document.querySelectorAll('#problems .mark').length === 2")
    browser.run("document.querySelector('#problems .card details').open = true")
    browser.run("document.querySelectorAll('#problems .mark')[1].click()")
    browser.run("document.querySelectorAll('#problems .why')[0].click()")
    wait_for(browser, "return document.querySelector('.whybox')")
    browser.run("window.row = document.querySelector('#problems tr.answers')")
    browser.run("document.querySelector('#search').focus()")
    browser.run("scrollTo(0, document.querySelector('#problems tr.answers').getBoundingClientRect().top + scrollY)")


def what_is_open(browser):
    kept = "window.row.isConnected, document.activeElement.id, document.querySelector('#search').value"
    place = "Math.round(window.row.getBoundingClientRect().top)"
    marks = "[...document.querySelectorAll('#problems .mark')].findIndex((one) => one.ariaPressed === 'true')"
    unfolded = "document.querySelectorAll('#problems .card details[open]').length"
    return browser.run(f"return [{kept}, {place}, {marks}, document.querySelectorAll('.whybox').length, {unfolded}]")


def test_news_leaves_what_a_person_has_open(opened, folder):
    open_problem(opened, 3)
    opened.run("window.result = document.querySelector('#results svg.plot')")
    before, asked = what_is_open(opened), opened.run(ASKED)
    assert before[:3] == [True, "search", "p"]
    assert before[4:] == [1, 1, 1]
    for step in range(3, 6):
        metrics(folder / "a", step)
        rollouts(folder / "a", step, HOSTILE)
        wait_for(opened, f"return document.querySelector('#runs tbody').innerText.includes('{step}/100')")
        wait_for(opened, f"return document.querySelector('#rollouts .note').innerText.includes('Iteration {step}')")
        assert what_is_open(opened) == before
    assert opened.run(ASKED) == asked
    assert opened.run("return window.result.isConnected")


def test_samples_that_grow_leave_what_a_person_has_open(opened, folder):
    open_problem(opened, 3)
    before, asked = what_is_open(opened), opened.run(ASKED)
    file = folder / "a/samples/T1-p1/bench.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    write_rows(file, rows + [row | {"id": "p-late"} for row in rows[:4]])
    wait_for(opened, "return document.querySelector('#numproblems').innerText === '21 problems of 21'")
    wait_for(opened, "return !document.querySelector('#problems').innerText.includes('…')")
    assert what_is_open(opened) == before
    assert opened.run(ASKED) == asked
    write_rows(file, [*rows, rows[12] | {"sample_index": 4, "completion": "another"}])
    wait_for(opened, "return document.querySelector('#problems .card').innerText.includes('4 of 5 correct')")
    assert what_is_open(opened) == before
    assert opened.run("return document.querySelector('#problems li').contains(document.querySelector('.whybox'))")


def test_a_new_run_leaves_what_a_person_has_open(opened, folder):
    open_problem(opened, 3)
    opened.run("document.querySelector('.rest-of-config').open = true")
    make_run(folder / "b", "method.delta=0.1", steps=3)
    wait_for(opened, "return document.querySelectorAll('#runs tbody tr').length === 2")
    assert opened.run("return document.querySelector('.rest-of-config').open")
    assert opened.run("return window.row.isConnected")
    assert what_is_open(opened)[4:] == [1, 1, 1]
    opened.click(".pick input")
    assert "None of the runs shown" in text_of(opened, "#problems .empty")
    opened.click(".pick input")
    wait_for(opened, "return document.querySelectorAll('#problems .card li').length")


def test_an_iteration_of_which_a_rollout_is_open_stays_and_the_newest_is_offered(opened, folder):
    iteration = "return document.querySelector('#rollouts .note').innerText.includes('Iteration ' + arguments[0])"
    offer = "return [...document.querySelectorAll('#rollouts button')].find((one) => one.innerText === arguments[0])"
    opened_ones = "[...document.querySelectorAll('#rollouts details.rollout')].map((one) => one.open)"
    opened.run("document.querySelectorAll('#rollouts summary')[0].click()")
    opened.run("window.rollout = document.querySelector('#rollouts details.rollout')")
    opened.run("window.rollout.querySelector('details').open = true")
    for step in (3, 7):
        rollouts(folder / "a", step, HOSTILE)
        wait_for(opened, offer, f"newest: {step}")
        assert opened.run(iteration, 2)
        assert opened.run("return window.rollout.isConnected && window.rollout.querySelector('details').open")
    opened.run(f"{offer}.click()", "newest: 7")
    wait_for(opened, iteration, 7)
    assert opened.run(f"return {opened_ones}") == [True, False, False, False]
    wait_for(opened, offer, "newest")
    opened.run("document.querySelectorAll('#rollouts details.rollout')[0].querySelector('summary').click()")
    rollouts(folder / "a", 8, HOSTILE)
    wait_for(opened, iteration, 8)
    assert opened.run(f"return {opened_ones}") == [False] * 4


def test_news_leaves_an_iteration_that_is_being_typed(opened, folder):
    opened.type("#step", "1")
    rollouts(folder / "a", 7)
    wait_for(opened, "return document.querySelector('#rollouts .note').innerText.includes('Iteration 7')")
    assert opened.run("return document.querySelector('#step').value") == "21"
    opened.type("#step", "\ue003")  # taken back
    opened.run("document.querySelector('#step').blur()")
    rollouts(folder / "a", 8)
    wait_for(opened, "return document.querySelector('#step').value === '8'")


def test_responses_are_kept_by_reward_and_length(opened):
    def kept(key, value):
        fill = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))"
        opened.run(fill, opened.run(f"return [...document.querySelectorAll('#rollouts input')][{key}]"), value)
        return int(text_of(opened, "#rollouts .note").partition(": ")[2].partition(" ")[0])

    assert text_of(opened, "#rollouts .note").startswith("Iteration 2: 20 responses")
    assert kept(1, "0.5") == 10  # reward from
    assert kept(2, "0.9") == 0  # to
    assert kept(2, "") == 10
    assert kept(3, "4") == 0  # tokens from
    assert kept(3, "3") == 10
    assert kept(4, "2") == 0  # to


def test_hostile_texts_are_shown_as_texts(opened):
    opened.click("#rollouts summary")
    opened.click("#problems button.open")
    wait_for(opened, "return document.querySelectorAll('#problems .card li').length")
    opened.click("#startlabels")
    wait_for(opened, "return document.querySelectorAll('#labels .card').length === 2")
    assert opened.run("return document.images.length") == 0
    assert opened.run("return document.querySelectorAll('iframe, base, form, link[rel=stylesheet]').length") == 0
    assert opened.run("return document.scripts.length") == 2
    assert opened.run("return /[\\u202e\\u001b\\u0000]/.test(document.body.innerText)") is False
    hosts = "return performance.getEntriesByType('resource').map((one) => new URL(one.name).origin)"
    assert set(opened.run(hosts)) == {opened.run("return location.origin")}


def test_answers_are_clustered_as_chosen_and_two_are_compared(opened):
    opened.type("#search", "p5")
    opened.click("#problems button.open")
    wait_for(opened, "return document.querySelectorAll('#problems .card li').length")
    choose = "const node = arguments[0]; node.value = arguments[1]; node.dispatchEvent(new Event('change'))"
    opened.run(choose, opened.find("#similarity"), "exact")
    wait_for(opened, "return document.querySelector('#problems .card').innerText.includes('by exact')")
    assert "2 clusters" in text_of(opened, "#problems .card")
    opened.run("document.querySelectorAll('#problems button.why')[1].click()")
    wait_for(opened, "return document.querySelector('.whybox')")
    assert "two solutions by exact" in text_of(opened, ".whybox")
    assert opened.run("return [...document.querySelectorAll('.whybox mark')].map((one) => one.innerText)") == ["0", "1"]


def test_the_box_stands_behind_its_answer_and_the_clicked_button_stays(opened, folder):
    texts = ("a b ", "c d ", "e f ")
    row = {"benchmark": "bench", "id": "three", "answer": "1", "correct": True}
    rows = [row | {"sample_index": j, "completion": text * 9} for j, text in enumerate(texts)]
    with (folder / "a/samples/T1-p1/bench.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    wait_for(opened, "return document.querySelector('#numproblems').innerText === '21 problems of 21'")
    opened.type("#search", "three")
    opened.click("#problems button.open")
    wait_for(opened, "return document.querySelectorAll('#problems .card ul.right > li').length === 3")
    whys = opened.run("return [...document.querySelectorAll('#problems button.why')]")
    words = "return arguments[0].map((one) => one.innerText)"
    assert opened.run(words, whys) == ["", "why?", "why?"]  # the marked answer has none
    at = "return Math.round(arguments[0].getBoundingClientRect().top)"
    for number in (1, 2, 1):  # the box comes from nowhere, from above and from below
        opened.run("scrollBy(0, arguments[0].getBoundingClientRect().top - 200)", whys[number])
        top = opened.run(at, whys[number])
        opened.run("arguments[0].click()", whys[number])
        shown = "[...document.querySelectorAll('#problems li')[arguments[0]].querySelectorAll('.whybox mark')]"
        wait_for(opened, f"return {shown}.at(-1)?.innerText.startsWith(arguments[1])", number, texts[number])
        assert opened.run(at, whys[number]) == top
    opened.run("document.querySelectorAll('#problems .mark')[1].click()")
    assert opened.run("return document.querySelector('.whybox')") is None  # of an answer beside itself there is nothing
    assert opened.run(words, whys) == ["why?", "", "why?"]


def test_two_answers_of_one_cluster_that_are_not_alike_are_joined_by_others(opened):
    script = """
    const [real, said] = [window.fetch, arguments[0]];
    const changed = async (answer) => ({ ok: true, json: async () => ({ ...(await answer.json()), ...said }) });
    window.fetch = async (...asked) => (asked[0].startsWith("why") ? changed(await real(...asked)) : real(...asked));
    """
    opened.run(script, {"together": True, "is_chained": True})
    open_problem(opened, 3)
    assert "are one solution by " in text_of(opened, ".whybox p")
    assert text_of(opened, ".whybox p").endswith(", though not alike themselves: other answers join them.")


def test_pairs_are_labelled_with_the_keyboard(opened, folder):
    opened.click("#startlabels")
    for number, key in ((1, "s"), (2, "S")):
        press(opened, key)
        wait_for(opened, f"return document.querySelector('#labels .note[role]').innerText.startsWith('{number} label')")
    assert labels(folder) == ["same", "same"]
    opened.run("document.querySelector('#labelset').focus()")
    opened.run("document.querySelector('#labelset').dispatchEvent(new Event('change'))")
    assert opened.run("return document.activeElement === document.body")  # the next key is for the pair


def press(browser, key):
    """Presses a key for the pair that is shown, as soon as it is there."""
    wait_for(browser, "return document.querySelectorAll('#labels [data-key]:not(:disabled)').length === 3")
    browser.run("document.dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0], bubbles: true}))", key)


def labels(folder):
    rows = (folder / "a/samples/T1-p1/bench.labels").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["label"] for line in rows]


def test_a_pair_gets_one_label_and_only_while_it_is_seen(opened, folder):
    opened.click("#startlabels")
    wait_for(opened, "return document.querySelectorAll('#labels .card').length === 2")
    key = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 's', bubbles: true, repeat: i > 0}))"
    opened.run(f"for (let i = 0; i < 5; i++) {key}")  # held down
    wait_for(opened, "return document.querySelector('#labels .note[role]').innerText.startsWith('1 label')")
    opened.run(f"let i = 1; {key}")  # still held when the next pair is there
    wait_for(opened, "return document.querySelectorAll('#labels [data-key]:not(:disabled)').length === 3")
    opened.run("for (let i = 0; i < 2; i++) document.querySelector('#labels [data-key=d]').click()")  # a double click
    wait_for(opened, "return document.querySelector('#labels .note[role]').innerText.startsWith('2 label')")
    opened.run("scrollTo(0, 0)")
    press(opened, "s")  # for something else
    opened.run("document.querySelector('.labelbox').scrollIntoView()")
    press(opened, "d")
    wait_for(opened, "return document.querySelector('#labels .note[role]').innerText.startsWith('3 label')")
    assert labels(folder) == ["same", "different", "different"]


@pytest.mark.parametrize("width", [1400, 390])
def test_nothing_is_wider_than_the_window(opened, folder, width):
    opened.resize(width, 900)
    samples(make_run(folder / "a-run-whose-name-has-40-letters-or-signs", "method.delta=0.1") / "samples/T1-p1")
    wait_for(opened, "return document.querySelectorAll('#labelset option').length === 2")
    opened.click("#rollouts summary")
    opened.click("#problems button.open")
    wait_for(opened, "return document.querySelectorAll('#problems .card li').length")
    opened.click("#startlabels")
    wait_for(opened, "return document.querySelectorAll('#labels .card').length === 2")
    assert opened.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0


def test_a_dark_window_has_a_dark_page(opened):
    command = {
        "cmd": "Emulation.setEmulatedMedia",
        "params": {"features": [{"name": "prefers-color-scheme", "value": "dark"}]},
    }
    opened.call("POST", "/goog/cdp/execute", command)
    try:
        assert opened.run("return getComputedStyle(document.body).backgroundColor") == "rgb(19, 21, 25)"
    finally:
        command["params"]["features"][0]["value"] = ""
        opened.call("POST", "/goog/cdp/execute", command)


def test_ctrl_c_ends_it_at_once_while_a_page_is_open(browser, folder):
    with served(folder) as (address, process):
        visit(browser, address)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=5) == 130
    assert time.monotonic() - began < 5
    browser.console()


def test_a_run_of_a_real_model_grows_beside_its_base_and_derivations_are_marked(browser, tmp_path):
    """Five iterations of SmolLM2-135M on word problems, and 16 answers to each of 12 problems beside its base's."""
    shutil.copytree(Path(__file__).with_name("smollm2"), tmp_path, dirs_exist_ok=True)
    file, status = tmp_path / "run/metrics.jsonl", tmp_path / "run/status.json"
    rows, done = file.read_bytes().splitlines(keepends=True), status.read_bytes()
    file.write_bytes(b"".join(rows[:3]))
    status.write_text(json.dumps({"status": "interrupted", "step": 3, "steps": 5}), encoding="utf-8")
    browser.resize(1280, 1000)
    with served(tmp_path / "run", tmp_path / "base") as (address, _):
        visit(browser, address)
        wait_for(browser, "return document.querySelector('#rollouts').innerText.includes('train-')")
        assert "; interior" in text_of(browser, "#rollouts")
        wait_for(browser, "return document.querySelector('#runs tbody').innerText.includes('3/5')")
        file.write_bytes(b"".join(rows))
        status.write_bytes(done)
        wait_for(browser, "return document.querySelector('#runs tbody').innerText.includes('5/5')")
        browser.run("document.querySelector('#problems button.open').click()")
        wait_for(browser, "return document.querySelectorAll('#problems .card').length === 2")  # the run and its base
        answers = text_of(browser, "#problems")
        assert "valid derivation" in answers
        assert "false derivation" in answers
        assert "12 of 16 correct, 3 clusters" in answers
        assert "13 of 16 correct, 5 clusters" in answers
        browser.run(
            "[...document.querySelectorAll('#problems button')].find((one) => one.innerText === 'why?').click()"
        )
        wait_for(browser, "return document.querySelector('.whybox')?.innerText.includes('rouge-l')")
        assert browser.console() == []
