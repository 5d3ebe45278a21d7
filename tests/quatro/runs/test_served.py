"""What `quatro view` serves: as a report has it, kept up to date, and nothing from outside of what was named."""

import json
import os
import threading
import time

import numpy as np
import pytest

from evals.clustering import LINKAGES, cluster, cluster_sizes
from evals.errors import DataError, UsageError
from evals.report.answers import Opened
from evals.report.document import document
from evals.samples.reading import read_samples
from evals.similarity import Setting
from quatro.runs.identity import read_config
from quatro.runs.views import served
from quatro.runs.views.report import gather_report
from quatro.runs.views.served import View
from tests.kit import write_rows
from tests.quatro.runs.test_report import add_samples, add_to, make_run, make_sweep


def counted(view):
    """The view with all clusters counted, as its thread does."""
    view.refresh()
    view.count_waiting()
    return view.refresh()


def without_sources(values):
    for run in values["runs"]:
        run.pop("source", None)
    for one in (one for set in values["problems"] for one in set["runs"]):
        one.pop("source", None)
    return values


def source_of(values, place=0):
    return values["problems"][place]["runs"][0]["source"]


def test_it_shows_what_the_report_shows(tmp_path):
    sweep = make_sweep(tmp_path / "sweep")
    add_samples(sweep / "runs/S1-quatro-delta=0.1-seed=0")
    found = without_sources(json.loads(json.dumps(counted(View([tmp_path])))))
    report = document(gather_report([sweep]), num_problems=0)
    for part in ("runs", "groups", "charts", "config", "results", "problems"):
        assert found[part] == report[part], part
    assert [note for note in report["notes"] if "--problems" not in note] == found["notes"]


def test_new_runs_iterations_and_samples_appear(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "TICK_S", 0.01)
    (tmp_path / "runs").mkdir()
    view = View([tmp_path])
    assert view.refresh()["runs"] == []
    run = make_run(tmp_path / "runs/a", steps=2)
    deadline = time.monotonic() + 20
    while not (found := view.refresh()["runs"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (shown,) = found
    assert (shown["name"], shown["step"]) == ("a", 2)
    known = view.refresh()
    assert view.refresh() is known  # made once
    write_rows(run / "metrics.jsonl", [{"step": t, "reward/mean": 0.5} for t in range(1, 6)])
    assert view.refresh()["runs"][0]["step"] == 5
    add_samples(run, n=2)
    first = view.refresh()["problems"][0]["runs"][0]
    assert (first["c"], first["clusters"]) == ([1, 2, 2], [None, None, None])  # the counts are there at once
    assert counted(view)["problems"][0]["runs"][0]["clusters"] == [1, 2, 2]
    file = next(run.glob("samples/*/*.jsonl"))
    row = {"benchmark": "b", "id": "p9", "sample_index": 0, "completion": "x", "answer": "1", "correct": True}
    file.write_text(file.read_text(encoding="utf-8") + json.dumps(row) + "\n", encoding="utf-8")
    assert view.refresh()["problems"][0]["ids"][-1] == ["p9", 0]


def test_another_file_of_a_known_tag_is_seen_and_one_that_is_gone_stops_nothing(tmp_path):
    folder = make_run(tmp_path / "a") / "samples/T1"
    folder.mkdir(parents=True)
    row = {"id": "p", "sample_index": 0, "completion": "x", "answer": "1", "correct": True}
    view = View([tmp_path])
    write_rows(folder / "one.jsonl", [{"benchmark": "one", **row}])
    assert [found["benchmark"] for found in counted(view)["problems"]] == ["one"]
    write_rows(folder / "two.jsonl", [{"benchmark": "two", **row}])
    assert [found["benchmark"] for found in view.refresh()["problems"]] == ["one", "two"]
    (folder / "one.jsonl").unlink()
    (folder.parent / "broken").symlink_to(tmp_path / "nowhere")
    assert [found["benchmark"] for found in view.refresh()["problems"]] == ["two"]


def test_answers_without_a_grade_are_graded(tmp_path):
    add_to(tmp_path / "samples", benchmark="math500", correct=False, answer="3")
    view = View([tmp_path / "samples"])
    assert view.refresh()["problems"] == []
    assert "being graded" in view.refresh()["notes"][0]
    (found,) = counted(view)["problems"]
    assert found["runs"][0]["c"] == [0, 0, 0]


def test_a_damaged_run_is_left_out_and_said(tmp_path):
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b") / "metrics.jsonl").write_text("{\n{\n", encoding="utf-8")
    found = View([tmp_path]).refresh()
    assert [run["name"] for run in found["runs"]] == ["a"]
    assert any("metrics.jsonl" in note for note in found["notes"])


def test_the_last_warnings_of_a_run_are_told(tmp_path):
    run = make_run(tmp_path / "a")
    lines = [
        f"2026-11-28 08:04:{t:02},856 WARNING quatro.launch.health: iteration {t}: \x1b[2Jlost" for t in range(1, 6)
    ]
    (run / "log.txt").write_text("\n".join([*lines, "2026-11-28 08:05:12,752 INFO quatro: done"]), encoding="utf-8")
    notes = [note for note in View([tmp_path]).refresh()["notes"] if "iteration" in note]
    assert [note.partition("iteration ")[2][0] for note in notes] == ["3", "4", "5"]
    assert all(note.startswith("a: iteration") and "\x1b" not in note for note in notes)


def sampled(id="p", n=4, **more):
    row = {"benchmark": "m", "id": id, "answer": "1", "correct": True}
    return [{**row, "sample_index": i, "completion": f"x {i}", **more} for i in range(n)]


def test_samples_that_are_replaced_are_read_anew(tmp_path):
    file = tmp_path / "a.jsonl"
    write_rows(file, sampled("p1", 2))
    view = View([file])
    assert counted(view)["problems"][0]["ids"] == [["p1", 0]]
    for rows in (sampled("p2", 2), sampled("p3", 30), sampled("p4", 1)):  # as large, larger, smaller
        write_rows(tmp_path / "new", rows)
        (tmp_path / "new").replace(file)
        found = counted(view)["problems"][0]
        assert found["ids"] == [[rows[0]["id"], 0]]
        assert found["runs"][0]["n"] == [len(rows)]
        assert view.answers(source_of(view.refresh()), rows[0]["id"])["n"] == len(rows)


@pytest.mark.parametrize(
    "damage", [{"answer": None, "completion": 5}, {"sample_index": 0}, {"correct": "yes"}, {"benchmark": None}]
)
def test_damaged_samples_are_told_until_they_are_mended(tmp_path, damage):
    file = tmp_path / "a.jsonl"
    rows = [*sampled("p1"), *sampled("p2")]
    write_rows(file, [*rows[:-1], {**rows[-1], **damage}])
    view = View([file])
    for _ in range(2):
        found = counted(view)
        assert found["problems"] == []
        assert [note for note in found["notes"] if note.startswith("left out: ") and "a.jsonl" in note]
    write_rows(file, rows)
    assert counted(view)["problems"][0]["runs"][0]["n"] == [4, 4]


def test_what_is_asked_of_samples_that_were_damaged_is_answered_with_the_damage(tmp_path):
    file = tmp_path / "a.jsonl"
    write_rows(file, sampled())
    view = View([file])
    source = source_of(view.refresh())
    file.write_text("{\n", encoding="utf-8")
    view.refresh()
    with pytest.raises(DataError, match=r"a\.jsonl:1"):
        view.answers(source, "p")
    with pytest.raises(KeyError):
        View([tmp_path]).answers(source, "p")


def test_the_similarity_by_words_is_that_of_the_clusters(tmp_path):
    texts = ["one two three four"] * 20 + ["one two three five"] * 3 + ["six two three four", "seven eight"]
    rows = [{**row, "completion": text} for row, text in zip(sampled(n=len(texts)), texts, strict=True)]
    write_rows(tmp_path / "a.jsonl", rows)
    view = View([tmp_path / "a.jsonl"])
    source = source_of(view.refresh())
    keys = {text[1].text: text[2] for one in view.answers(source, "p")["clusters"] for text in one["texts"]}
    a, b = keys[texts[0]], keys[texts[20]]
    value = next(value for name, value, _ in view.why(source, "p", a, b)["measures"] if name == "tfidf")
    for threshold, together in ((value - 0.01, True), (value + 0.01, False)):
        found = view.why(source, "p", a, b, similarity="tfidf", threshold=str(threshold))
        assert (found["together"], found["is_chained"]) == (together, False)
        assert [cut for name, _, cut in found["measures"] if name == "tfidf"] == [threshold]


def test_answers_that_others_join_are_said_to_be_chained(tmp_path):
    texts = ["a b c d e f", "b c d e f g", "c d e f g h"]
    rows = [{**row, "completion": text} for row, text in zip(sampled(n=3), texts, strict=True)]
    write_rows(tmp_path / "a.jsonl", rows)
    view = View([tmp_path / "a.jsonl"])
    source = source_of(view.refresh())
    how = {"similarity": "rouge-l", "threshold": "0.8"}
    keys = {text[1].text: text[2] for one in view.answers(source, "p", **how)["clusters"] for text in one["texts"]}
    chained = [view.why(source, "p", keys[texts[0]], keys[other], **how)["is_chained"] for other in texts[1:]]
    assert chained == [False, True]


def test_a_base_that_is_named_beside_its_run_is_shown_once(tmp_path):
    run = make_run(tmp_path / "runs/a")
    model = read_config(run).model
    folder = tmp_path / "samples/base/T1-p1"
    folder.mkdir(parents=True)
    (folder / "sampling.json").write_text(json.dumps({"model": model}), encoding="utf-8")
    write_rows(folder / "m.jsonl", sampled())
    shown = View([tmp_path]).refresh()["runs"]
    assert [one["has_config"] for one in shown] == [False, True]


def test_imported_samples_in_a_folder_are_found(tmp_path):
    write_rows(tmp_path / "a.jsonl", sampled())
    assert [one["name"] for one in View([tmp_path]).refresh()["runs"]] == ["a"]


def test_samples_that_are_not_those_that_were_drawn_are_left_out(tmp_path):
    run = make_run(tmp_path / "a")
    add_samples(run)
    assert counted(View([run]))["problems"]
    file = next(run.glob("samples/*/*.jsonl"))
    said = {"schema": 1, "model": "m", "sampling": {"n": 2}, "benchmarks": {"b": {"sha256": "0" * 64}}}
    (file.parent / "sampling.json").write_text(json.dumps(said), encoding="utf-8")
    found = counted(View([run]))
    assert found["problems"] == []
    assert "other samples than were drawn" in "".join(found["notes"])


def test_clusters_that_are_counted_while_a_file_is_read_do_not_hide_it(tmp_path, monkeypatch):
    write_rows(tmp_path / "a.jsonl", sampled())
    view, first_views = View([tmp_path / "a.jsonl"]), served._first_views

    thread = threading.Thread(target=view.count_waiting)

    def slow(index):
        thread.start()
        thread.join(timeout=0.2)
        return first_views(index)

    monkeypatch.setattr(served, "_first_views", slow)
    view.refresh()
    thread.join()
    assert counted(view)["problems"][0]["runs"][0]["clusters"] == [4]


def test_a_run_that_breaks_the_program_does_not_stop_the_news_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "TICK_S", 0.01)
    make_run(tmp_path / "a", steps=1)
    view, news = View([tmp_path]), threading.Event()
    view.refresh()
    made, failures = view._made, [ZeroDivisionError("a fault of ours")]

    def failing(*given):
        if failures:
            raise failures.pop()
        return made(*given)

    monkeypatch.setattr(view, "_made", failing)
    make_run(tmp_path / "b", steps=1)
    threading.Thread(target=view.watch, args=(news.set,), daemon=True).start()
    while failures:
        time.sleep(0.01)
    make_run(tmp_path / "c", steps=1)
    assert news.wait(timeout=20)
    assert [run["name"] for run in view.refresh()["runs"]] == ["a", "b", "c"]


def test_a_file_that_goes_while_it_is_looked_at_and_one_that_breaks_the_program_stop_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(served, "TICK_S", 0.01)
    for name in ("a", "b"):
        write_rows(tmp_path / f"{name}.jsonl", sampled())
    view, clustered, walk, gone = View([tmp_path]), served._clustered, served._walk, [tmp_path / "gone"]
    view.refresh()
    monkeypatch.setattr(served, "_walk", lambda path: [*walk(path), *(gone.pop() for _ in gone[:])])
    threading.Thread(target=view.watch, args=(lambda: None,), daemon=True).start()

    def failing(index, one):
        return 1 / 0 if index.file.stem == "a" else clustered(index, one)

    monkeypatch.setattr(served, "_clustered", failing)
    deadline = time.monotonic() + 20
    while gone:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    found = counted(view)
    assert [run["name"] for run in found["runs"] if run["sampled"]] == ["b"]
    assert "a.jsonl: ZeroDivisionError" in "".join(found["notes"])


def test_samples_that_break_the_program_leave_the_other_runs(tmp_path, monkeypatch):
    make_run(tmp_path / "a")
    add_samples(make_run(tmp_path / "b"))
    monkeypatch.setattr(served, "graded_copy", lambda file: 1 / 0)
    found = View([tmp_path]).refresh()
    assert [run["name"] for run in found["runs"]] == ["a"]
    assert "left out: division by zero" in found["notes"]


def test_an_environment_with_a_digest_of_another_type_leaves_the_other_runs(tmp_path):
    make_run(tmp_path / "a")
    (make_run(tmp_path / "b") / "environment.json").write_text('{"model_digest": 5}', encoding="utf-8")
    assert [run["name"] for run in View([tmp_path]).refresh()["runs"]] == ["a", "b"]


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "status.json", "log.txt", "environment.json"])
def test_a_run_with_a_link_elsewhere_among_its_files_is_left_out(tmp_path, name):
    secret, run = make_run(tmp_path / "elsewhere/secret"), make_run(tmp_path / "runs/a")
    make_run(tmp_path / "runs/b")
    (secret / name).touch()
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(secret / name)
    found = View([tmp_path / "runs"]).refresh()
    assert [shown["name"] for shown in found["runs"]] == ["b"]
    assert [note for note in found["notes"] if name in note and "leads out of" in note]


def test_labels_are_not_read_through_a_link_elsewhere(tmp_path):
    (tmp_path / "in").mkdir()
    write_rows(tmp_path / "in/a.jsonl", sampled())
    (tmp_path / "in/a.labels").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text("secret", encoding="utf-8")
    view = View([tmp_path / "in/a.jsonl"])
    with pytest.raises(UsageError, match="lies outside"):
        view.pair(source_of(view.refresh()))


def test_samples_of_two_models_have_two_names(tmp_path):
    for model in ("m1", "m2"):
        (tmp_path / model / "T1-p1").mkdir(parents=True)
        (tmp_path / model / "T1-p1/sampling.json").write_text("{}", encoding="utf-8")
        write_rows(tmp_path / model / "T1-p1/m.jsonl", sampled())
    assert [run["name"] for run in View([tmp_path]).refresh()["runs"]] == ["m1", "m2"]


def test_links_that_lead_elsewhere_are_not_followed(tmp_path):
    secret = make_run(tmp_path / "elsewhere/secret")
    add_samples(secret)
    run = make_run(tmp_path / "runs/a")
    os.symlink(secret, tmp_path / "runs/link")
    os.symlink(secret / "samples", run / "samples")
    (secret / "rollouts").mkdir()
    write_rows(secret / "rollouts/step-000001.jsonl", [{"id": "p", "completion": "secret", "reward": 1.0}])
    os.symlink(secret / "rollouts", run / "rollouts")
    found = View([tmp_path / "runs"]).refresh()
    assert [shown["name"] for shown in found["runs"]] == ["a"]
    assert "source" not in found["runs"][0]
    assert found["problems"] == []
    assert "outside" in "".join(found["notes"])


def test_a_linked_file_of_responses_is_not_shown(tmp_path):
    run, secret = make_run(tmp_path / "runs/a"), tmp_path / "secret.jsonl"
    write_rows(secret, [{"id": "p", "completion": "secret", "reward": 1.0}])
    (run / "rollouts").mkdir()
    os.symlink(secret, run / "rollouts/step-000001.jsonl")
    view = View([tmp_path / "runs"])
    with pytest.raises(UsageError, match="outside"):
        view.rollouts(view.refresh()["runs"][0]["source"])


def test_samples_beside_the_runs_are_found(tmp_path):
    make_run(tmp_path / "run")
    row = {"benchmark": "m", "id": "p", "sample_index": 0, "completion": "x", "answer": "1", "correct": True}
    (tmp_path / "base").mkdir()
    (tmp_path / "base/sampling.json").write_text("{}", encoding="utf-8")
    write_rows(tmp_path / "base/m.jsonl", [row])
    assert [run["name"] for run in View([tmp_path]).refresh()["runs"]] == ["base", "run"]


def test_a_path_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="no such"):
        View([tmp_path / "x"])


def test_an_answer_is_clustered_as_asked_and_two_are_compared(tmp_path):
    texts = ["we add 2 and 3 \\boxed{5}", "we add 3 and 2 \\boxed{5}", "five, of course \\boxed{5}", "\\boxed{6}"]
    rows = [
        {
            "benchmark": "mine",
            "id": "a/é",
            "sample_index": i,
            "completion": text,
            "answer": "5",
            "correct": "6" not in text,
        }
        for i, text in enumerate([*texts, texts[0]])
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    view = View([tmp_path / "a.jsonl"])
    source = source_of(view.refresh())
    one = view.answers(source, "a/é", similarity="exact")
    assert (one["n"], one["correct"], one["sizes"], one["distinct_wrong"]) == (5, 4, [2, 1, 1], 1)
    assert one["clusters"][0]["texts"][0][:2] == [2, (texts[0], 0)]
    assert view.answers(source, "a/é", linkage="complete")["setting"].endswith("complete")  # of the usual similarity
    loose = view.answers(source, "a/é", similarity="jaccard", threshold="0.9")
    assert loose["sizes"] == [3, 1]
    assert loose["setting"].startswith("jaccard ≥ 0.9")
    (first, other), (third,) = ([text[2] for text in cluster["texts"]] for cluster in loose["clusters"])
    near = view.why(source, "a/é", first, other, similarity="jaccard", threshold="0.9")
    assert near["together"]
    assert near["shared"] == "we add "
    assert near["parts"][0][0] in "23"
    measures = {name: value for name, value, _ in near["measures"]}
    assert measures["exact"] == 0
    assert measures["jaccard"] == 1
    assert not view.why(source, "a/é", first, third)["together"]
    for name in ("none", "os:system", "judge:http://127.0.0.1:1/v1", "embed:x"):  # nothing that runs or asks others
        with pytest.raises(UsageError, match="unknown similarity"):
            view.answers(source, "a/é", similarity=name, threshold="0.9")
    with pytest.raises(UsageError, match="threshold"):
        view.answers(source, "a/é", similarity="edit", threshold="7")


def test_right_answers_with_a_false_derivation_are_marked(tmp_path):
    prompt = "A shop has 8 apples and gets 4 more. How many?"
    texts = ["8 + 4 = 12. So \\boxed{12}", "8 + 4 = 11. So \\boxed{12}", "\\boxed{12}"]
    rows = [
        {
            "benchmark": "word-problems",
            "id": "a",
            "sample_index": i,
            "completion": text,
            "answer": "12",
            "prompt": prompt,
            "correct": True,
        }
        for i, text in enumerate(texts)
    ]
    write_rows(tmp_path / "a.jsonl", rows)
    view = View([tmp_path / "a.jsonl"])
    found = view.answers(source_of(view.refresh()), "a", similarity="exact")
    marks = {cluster["texts"][0][1].text: cluster["texts"][0][3] for cluster in found["clusters"]}
    assert [marks[text] for text in texts] == [True, False, None]


def test_labels_are_the_only_file_that_is_written(tmp_path):
    write_rows(
        tmp_path / "a.jsonl",
        [
            {"benchmark": "m", "id": "p", "sample_index": i, "completion": f"x {i}", "answer": "1", "correct": True}
            for i in range(4)
        ],
    )
    view = View([tmp_path / "a.jsonl"], who="ann")
    source = source_of(counted(view))
    told = view.label(source, view.pair(source)["pair"], "same")
    assert told["labels"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "a.labels"]
    assert len(read_samples([tmp_path]).rows) == 4  # the labels are no samples


def test_rollouts_have_the_lambda_of_the_run(tmp_path, tiny_config, digits):
    pytest.importorskip("torch")
    from quatro.runs.directory import RunDir
    from quatro.train import train

    run = tmp_path / "run"
    config = tiny_config("steps=2", f"reward={digits}", "prompts_per_step=16", "minibatch_prompts=16")
    with RunDir.create(run, config) as made:
        train(config, made)
    view = View([run])
    (shown,) = view.refresh()["runs"]
    found = view.rollouts(shown["source"])
    assert found["step"] == found["steps"][-1]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()][-1]
    lams = [prompt["lam"] for prompt in found["prompts"] if prompt["lam"] is not None]
    assert sum(lams) / len(lams) == pytest.approx(metrics["dual/lam_mean"], rel=1e-4)
    rows = [row for prompt in found["prompts"] for row in prompt["rows"]]
    assert sum(row["reward"] for row in rows) / len(rows) == pytest.approx(metrics["reward/mean"], rel=1e-4)
    assert view.rollouts(shown["source"], "1")["step"] == 1
    with pytest.raises(UsageError, match="--step 99"):
        view.rollouts(shown["source"], "99")


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.8])
def test_edit_distances_that_are_kept_give_the_clusters_of_the_metric(tmp_path, linkage, threshold):
    rng = np.random.default_rng(5)
    texts = ["".join(rng.choice(list("abc "), size=rng.integers(1, 12))) for _ in range(30)]
    rows = [{"benchmark": "m", "id": "p", "sample_index": i, "completion": text} for i, text in enumerate(texts)]
    write_rows(tmp_path / "a.jsonl", [{**row, "answer": "1", "correct": True} for row in rows])
    view = View([tmp_path / "a.jsonl"])
    asked = {"similarity": "edit", "threshold": str(threshold), "linkage": linkage}
    sizes = list(cluster_sizes(cluster(texts, similarity="edit", threshold=threshold, linkage=linkage)))
    source = source_of(view.refresh())
    assert view.answers(source, "p", **asked)["sizes"] == sizes
    opened = Opened(read_samples([tmp_path / "a.jsonl"]).problems()[0], "math")
    opened.clusters(Setting("edit", 0.1, "average", "math"))  # after which all distances are known
    found = opened.clusters(Setting("edit", threshold, linkage, "math"))
    assert [one.total() for one in found] == sizes
    row = {**rows[0], "sample_index": 30, "completion": "z" * 40, "answer": "1", "correct": True}
    with (tmp_path / "a.jsonl").open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(row) + "\n")
    view.refresh()
    assert sorted(view.answers(source, "p", **asked)["sizes"]) == sorted([*sizes, 1])  # what was kept is read again
