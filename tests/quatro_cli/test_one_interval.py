"""One number has one 95 % interval, wherever it is shown, and its kind stands beside it."""

import json
import random

import pytest

from evals.figures.curves import curve_panels
from evals.report.document import document, rounded
from evals.results.document import Result, Row, read_result
from evals.results.entries import own_entries
from evals.results.reading import read_sources
from quatro.runs.views.report import gather_report
from quatro.sample.folder import PASSK, UCC, measure_samples
from quatro.sweep.measure import SweepEvaluation
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.results import labelled_results
from quatro.sweep.run import all_points, status_of, write_plan, write_summary
from tests.kit import quatro, read_json, read_rows, says, write_rows

BOTH, N = "seeds and problems", 4


def draw(folder, seed, names=("toy", "toz"), num_problems=9):
    """Graded samples in which problems differ most, and their results."""
    own, common = random.Random(seed), random.Random(0)
    for name in names:
        rows = []
        for problem in range(num_problems):
            chance = min(0.95, common.random() + 0.08 * seed)
            for index in range(N):
                row = {"benchmark": name, "id": str(problem), "sample_index": index, "answer": "1"}
                rows.append(row | {"completion": f"text {own.randrange(3)}", "correct": own.random() < chance})
        write_rows(folder / f"{name}.jsonl", rows)
    measure_samples(folder, n=N, label="point")
    for name in (PASSK, UCC):  # as of samples that `quatro sample` drew
        result = read_result(folder / name)
        head = {"model": "embedded:countdown", "sampling": result.sampling.model_copy(update={"max_tokens": 10})}
        result.model_copy(update=head).write(folder / name)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one") / "s"
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo",))], seeds=[0, 1, 2])
    evaluation = SweepEvaluation(("toy", "toz"), n=N)
    write_plan(plan, folder, evaluation)
    for seed, point in enumerate(plan.points):
        run = folder / "runs" / point.name
        run.mkdir()
        (run / "config.yaml").write_bytes((folder / "configs" / f"{point.name}.yaml").read_bytes())
        (run / "status.json").write_text('{"status": "done", "reason": null}', encoding="utf-8")
        write_rows(run / "metrics.jsonl", [{"step": 1, "reward/mean": 0.5 + seed / 10}])
        draw(run / "samples/T1-p1", seed)
    draw(folder / "base/base-embedded-countdown/samples/T1-p1", 7)
    write_summary([status_of(point, folder, evaluation) for point in all_points(plan, evaluation)], folder)
    return folder


def shown_in_table(sweep, metric, name):
    (table, *others) = json.loads(
        quatro("table", sweep, "--ci", "--metric", metric, "--k", N, "--format", "json").stdout
    )["tables"]
    tables = {one["name"]: one for one in (table, *others)}
    lines = (tables[name] if metric == "pass@k" else table)["sections"][0]["rows"]
    cell = next(line for line in lines if line["label"] in ("GSPO", name))["cells"][-1]
    scale = 100 if metric == "pass@k" else 1
    return cell["value"] / scale, cell["ci_low"] / scale, cell["ci_high"] / scale, cell["ci_over"]


def shown_by_eval(sweep, metric, name):
    runs = sorted((sweep / "runs").iterdir())
    command = "passk" if metric == "pass@k" else "ucc"
    found = json.loads(quatro("eval", command, *runs, "--over-seeds", "--ci", "--k", N, "--json").stdout)
    row = next(row for row in found["rows"] if (row["metric"], row["benchmark"]) == (metric, name))
    assert row["num_seeds"] == 3
    return row["value"], row["ci_low"], row["ci_high"], row["ci_over"]


def shown_in_report(sweep, metric, name):
    results = document(gather_report([sweep]))["results"]
    (mean,) = next(one for one in results if (one["metric"], one["benchmark"]) == (metric, name))["seeds"]
    at = mean["k"].index(N)
    return mean["v"][at], mean["low"][at], mean["high"][at], mean["over"].removeprefix("95 %, over ")


def shown_in_figure(sweep, metric, name):
    entries, _ = own_entries(read_sources([sweep], expand=labelled_results), metric)
    panel = next(one for one in curve_panels(entries, metric) if one.title == name)
    assert "95 %, over" in panel.note
    point = panel.curves["GSPO"][N]
    return point.value, point.low, point.high, point.over


@pytest.mark.parametrize("metric", ["pass@k", "ucc@k"])
def test_one_sweep_shows_the_same_numbers_everywhere(sweep, metric):
    expected = shown_by_eval(sweep, metric, "toy")
    value, low, high, over = expected
    assert 0 < low < value < high < (1 if metric == "pass@k" else N)
    assert over == BOTH
    for shown in (shown_in_table, shown_in_figure):
        *numbers, kind = shown(sweep, metric, "toy")
        assert numbers == pytest.approx(expected[:3], abs=1e-12), shown
        assert kind == BOTH
    assert shown_in_report(sweep, metric, "toy") == (*map(rounded, expected[:3]), BOTH)


def test_the_mean_over_benchmarks_has_one_too(sweep):
    *numbers, kind = shown_by_eval(sweep, "pass@k", "average")
    assert shown_in_report(sweep, "pass@k", "Average") == (*map(rounded, numbers), kind)
    text = " ".join(quatro("table", sweep, "--average", "--ci", "--k", N).stdout.split())
    assert "[{:.2f}, {:.2f}]".format(*(100 * end for end in numbers[1:])) in text.replace("\\", "")


def test_a_single_run_says_that_its_interval_is_over_problems_only(sweep):
    assert "95 %, over seeds and problems (Base: over problems only)" in quatro("table", sweep, "--ci").stdout
    run = sweep / "runs/gspo-seed=0"
    for command in ("passk", "ucc"):
        assert "95 %, over problems only" in quatro("eval", command, run, "--ci").stdout
    assert "95 %, over problems only" in quatro("eval", "compare", run, sweep / "runs/gspo-seed=1").stdout


def test_differences_of_several_seeds_are_over_seeds_and_problems(sweep, tmp_path):
    runs = sorted((sweep / "runs").iterdir())
    out = tmp_path / "difference.json"
    shown = quatro("eval", "compare", *runs[:2], runs[1], runs[2], "--over-seeds", "--k", 1, "-o", out).stdout
    assert "95 %, over seeds and problems" in shown
    row = read_json(out)["rows"][0]
    assert row["ci_over"] == BOTH
    assert row["ci_low"] < row["difference"] < row["ci_high"]
    assert (row["p"] < 0.05) == (row["ci_low"] > 0 or row["ci_high"] < 0)
    assert "over seeds and problems" in quatro("table", out, "--ci").stdout
    says(quatro("eval", "compare", *runs, "--over-seeds", code=2), 3, advice="--over-seeds")


def test_seeds_with_other_problems_are_refused_or_their_interval_is_over_seeds_only(sweep, tmp_path):
    for seed in range(3):
        draw(tmp_path / f"{seed}", seed, names=["toy"], num_problems=9 + seed // 2)
    folders = [tmp_path / f"{seed}" for seed in range(3)]
    says(quatro("eval", "passk", *folders, "--over-seeds", code=4), "seed 3", "'9' (toy)", advice="-b")
    for seed, folder in enumerate(folders):
        quatro("eval", "passk", folder, "--ci", "--label", "M", "-o", tmp_path / f"{seed}.json")
    files = [tmp_path / f"{seed}.json" for seed in range(3)]
    assert "95 %, over seeds only" in quatro("table", *files, "--ci").stdout
    assert "95 %, over seeds and problems" in quatro("table", *files[:2], "--ci").stdout


def test_every_seed_is_checked_and_its_warnings_are_told(tmp_path):
    for seed in range(3):
        draw(tmp_path / f"{seed}", seed, names=["toy"])
    file = tmp_path / "2/toy.jsonl"
    rows = read_rows(file)
    with file.open("a", encoding="utf-8") as end:
        end.write('{"benchmark": "toy", "id"')  # cut off
    for command in ("passk", "ucc"):
        shown = quatro("eval", command, *(tmp_path / f"{seed}" for seed in range(3)), "--over-seeds", "--k", 1)
        says(shown.stderr, file)
    sides = [tmp_path / f"{seed}" for seed in (0, 1, 0, 2)]
    says(quatro("eval", "compare", *sides, "--over-seeds", "--k", 1).stderr, file)
    write_rows(file, [row | {"answer": "2"} for row in rows])
    says(quatro("eval", "compare", *sides, "--over-seeds", "--k", 1, code=4), "'0' of toy")


def test_a_file_whose_problems_contradict_its_rows_is_named(tmp_path):
    for seed in range(2):
        draw(tmp_path / f"{seed}", seed, names=["toy"])
        quatro("eval", "passk", tmp_path / f"{seed}", "--ci", "--label", "M", "-o", tmp_path / f"{seed}.json")
    result = read_json(tmp_path / "1.json")
    result["problems"][0]["correct"] = (result["problems"][0]["correct"] + 1) % N
    (tmp_path / "1.json").write_text(json.dumps(result), encoding="utf-8")
    says(quatro("table", tmp_path / "0.json", tmp_path / "1.json", code=4), tmp_path / "1.json", "pass@1", "measure")
    result["problems"][0]["correct"] = N + 1
    (tmp_path / "1.json").write_text(json.dumps(result), encoding="utf-8")
    says(quatro("table", tmp_path / "0.json", tmp_path / "1.json", code=4), tmp_path / "1.json", value=N + 1)


def test_the_kinds_of_intervals_in_one_table_are_told_apart(tmp_path):
    row = Row(metric="pass@k", benchmark="toy", k=1, value=0.5, num_problems=9, n=8, ci_low=0.4, ci_high=0.6)
    paths = [tmp_path / f"{name}.json" for name in ("base", "one", "two", "three")]
    for path, label, value in zip(paths, ("Base", *["GRPO"] * 3), (0.5, 0.5, 0.6, 0.7), strict=True):
        Result(metric="pass@k", rows=[row.model_copy(update={"value": value})], label=label).write(path)
    assert "95 %, over problems only (GRPO: over seeds only)" in quatro("table", *paths, "--ci").stdout
    assert "95 %" not in quatro("table", *paths).stdout
