"""A sweep as rows of tables and curves: the paper's labels, means over seeds, one cell and one top_p at a time."""

import json

import pytest

from evals.errors import DataError, UsageError
from evals.results.document import ProblemEntry, Result, Row, SamplingInfo
from evals.results.entries import own_entries
from evals.results.reading import read_sources
from quatro.sample.folder import Tag
from quatro.sweep.plan import Axis, Cell, SweepPlan, plan_cell, plan_sweep
from quatro.sweep.results import (
    chosen_tag,
    fitting_tags,
    flips_by_label,
    label_of,
    labelled_results,
    problems_in,
    read_sweep,
    temperatures_by_label,
)
from quatro.sweep.run import write_plan
from tests.kit import quatro, read_json, says

N = 8
# Correct samples of three problems; the second has two solutions.
BASE = [0, 1, 8]


def clusters(correct, most):
    """The sizes of as many clusters, of one sample each but for the first."""
    return [correct - min(correct, most) + 1, *[1] * (min(correct, most) - 1)] if correct else []


def write_samples(folder, tag, correct):
    target = folder / "samples" / tag
    target.mkdir(parents=True)
    head = {"model": "embedded:countdown", "sampling": SamplingInfo(n=N, max_tokens=10)}
    passed = Row(metric="pass@k", benchmark="countdown", k=1, value=sum(correct) / N / 3, num_problems=3, n=N)
    Result(metric="pass@k", rows=[passed], label="point", **head).write(target / "passk.json")
    problems = [
        ProblemEntry(benchmark="countdown", id=str(i), n=N, correct=c, clusters=clusters(c, 1 + i), similarity="exact")
        for i, c in enumerate(correct)
    ]
    unique = passed.model_copy(update={"metric": "ucc@k", "similarity": "exact"})
    Result(metric="ucc@k", rows=[unique], problems=problems, **head).write(target / "ucc.json")


def make_sweep(folder, plan, tags=("T1-p1",)):
    write_plan(plan, folder)
    for point in plan.points:
        run = folder / "runs" / point.name
        run.mkdir()
        (run / "config.yaml").write_bytes((folder / "configs" / f"{point.name}.yaml").read_bytes())
        (run / "status.json").write_text('{"status": "done", "reason": null}', encoding="utf-8")
        entropy = 1.0 + point.config.seed
        (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "entropy/token_mean": entropy}), encoding="utf-8")
        for tag in tags:
            write_samples(run, tag, [point.config.seed, 2, 8])
    for tag in tags:
        write_samples(folder / "base/base-embedded-countdown", tag, BASE)
    return folder


@pytest.fixture
def sweep(tmp_path):
    plan = plan_sweep(
        "quickstart", [Axis("method.name", ("quatro", "gspo")), Axis("method.delta", ("0.1", "0.01"))], seeds=[0, 2]
    )
    return make_sweep(tmp_path / "s", plan)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"method.name": "quatro", "method.delta": "0.01"}, "Ours delta=0.01"),
        ({"method.name": "gspo", "method.preset": "paper"}, "GSPO"),
        ({"method.name": "gspo", "method.preset": "official", "inner_updates": "2"}, "GSPO inner_updates=2 (official)"),
        ({"method.log_ratio": "none"}, "Ours log_ratio=none"),
        ({"method.name": "my_method:BatchMean", "method.floor": "2"}, "my_method:BatchMean floor=2"),
    ],
)
def test_settings_are_called_what_the_paper_calls_them(settings, label):
    assert label_of(settings, method="quatro") == label


def test_seeds_of_a_setting_become_one_row_with_an_interval(sweep):
    sources = read_sources([sweep], expand=labelled_results)
    entries, _ = own_entries(sources, "pass@k")
    assert [(entry.label, entry.num_results, entry.is_ours) for entry in entries] == [
        ("Base", 1, False),
        ("Ours delta=0.1", 2, True),
        ("Ours delta=0.01", 2, True),
        ("GSPO", 2, False),
    ]
    number = entries[1].number("pass@k", "countdown", 1)
    assert number.value == pytest.approx((10 / 24 + 12 / 24) / 2)
    # Shares 0, 2, 8 and 2, 2, 8 of 8: MS_S = 1/96, MS_P = 0.5208, MS_E = 1/96, so SE^2 = MS_P / 6 with 2 degrees.
    assert number.over == "seeds and problems"
    assert 0 < number.low < 0.1
    assert 0.9 < number.high < 1
    entropies, _ = own_entries(sources, "entropy")
    assert [entry.number("entropy", None, None).value for entry in entropies] == [2.0] * 3  # seeds 0 and 2: 1 and 3


def test_the_base_is_known_by_its_digest_where_the_model_was_named_otherwise(sweep, caplog):
    for run in (sweep / "runs").iterdir():
        (run / "environment.json").write_text('{"model_digest": "d1"}', encoding="utf-8")
    for file in (sweep / "base").glob("*/samples/*/*.json"):
        document = read_json(file)
        file.write_text(json.dumps({**document, "model": "../models/m", "source_digest": "d1"}), encoding="utf-8")
    entries, _ = own_entries(read_sources([sweep], expand=labelled_results), "pass@k")
    assert [(entry.label, entry.model) for entry in entries[:2]] == [
        ("Base", "embedded:countdown"),
        ("Ours delta=0.1", "embedded:countdown"),
    ]
    assert not caplog.records


def test_models_that_a_sweep_varies_are_called_by_their_folders(tmp_path):
    models = ("/x/m", "/y/m", "/x/other")
    plan = plan_sweep("quickstart", [Axis("model", models)])
    folder = make_sweep(tmp_path / "s", plan)
    labels = ["Ours model=m (x)", "Ours model=m (y)", "Ours model=other"]
    assert [run.label for run in read_sweep(folder)[0]] == labels
    entries, _ = own_entries(read_sources([folder], expand=labelled_results), "pass@k")
    assert [(one.label, one.model) for one in entries] == list(zip(labels, ("m (x)", "m (y)", "other"), strict=True))


def test_a_base_without_samples_is_missed_with_the_command_that_draws_them(sweep):
    for file in (sweep / "base").glob("*/samples/*/*.json"):
        file.unlink()
    done = quatro("table", sweep)
    says(done, "embedded:countdown", advice=f"quatro sweep {sweep} --eval NAME")
    assert "Base" not in done.stdout


def test_a_run_that_is_not_done_is_left_out(sweep):
    point = sweep / "runs/quatro-delta=0.1-seed=2"
    (point / "status.json").write_text('{"status": "running", "reason": null}', encoding="utf-8")
    runs, num_points = read_sweep(sweep)
    assert (len(runs), num_points) == (5, 6)
    assert point.name not in [run.name for run in runs]


def test_cells_are_headings_and_can_be_chosen(tmp_path):
    cells = [Cell("quickstart", (Axis("method.delta", ("0.1",)),), name=name) for name in ("A", "B")]
    points = tuple(point for cell in cells for point in plan_cell(cell)[0])
    folder = make_sweep(tmp_path / "s", SweepPlan("s", points, 0), tags=("T1-p1", "T1-p0.7"))
    found = labelled_results(folder, top_p=0.7)
    assert {result.model for result, _ in found} == {"embedded:countdown, A", "embedded:countdown, B"}
    assert {result.model for result, _ in labelled_results(folder, top_p=1, cell="B")} == {"embedded:countdown"}
    with pytest.raises(UsageError, match="known: A, B"):
        labelled_results(folder, top_p=1, cell="C")
    with pytest.raises(UsageError, match=r"measured at T 1, top_p 0\.7 \| T 1, top_p 1; choose one with --top-p"):
        labelled_results(folder)
    with pytest.raises(UsageError, match=r"--top-p 0\.5"):
        labelled_results(folder, top_p=0.5)
    with pytest.raises(UsageError, match="choose with --cell"):
        flips_by_label(read_sweep(folder)[0], Tag())


def test_a_lone_cell_is_no_heading(tmp_path):
    cell = Cell("quickstart", (Axis("method.delta", ("0.1",)),), name="main")
    folder = make_sweep(tmp_path / "s", SweepPlan("s", tuple(plan_cell(cell)[0]), 0))
    assert {result.model for result, _ in labelled_results(folder)} == {"embedded:countdown"}


def test_a_sweep_has_its_base_as_a_row_in_every_layout_of_samples(sweep):
    for options in ([], ["--average"], ["--metric", "ucc@k"]):
        assert "Base" in quatro("table", sweep, *options, "--format", "csv").stdout


def test_flips_and_unique_ratios_are_means_over_seeds_and_problems(sweep):
    runs, _ = read_sweep(sweep)
    first = flips_by_label(runs, Tag())["Ours delta=0.1"][0]
    # One problem has no correct sample of the base; after training none with seed 0, two with seed 2.
    assert (first.metric, first.value, first.num_problems) == ("flip", 0.5, 1)
    rows = {row.metric: row for row in next(iter(temperatures_by_label(runs, [Tag()]).values()))}
    # Clusters of the three problems: 0, 2, 3 with seed 0 and 1, 2, 3 with seed 2, of 8 samples each.
    assert rows["ucr"].value == pytest.approx((5 + 6) / 2 / 3 / N)
    assert rows["pass@k"].value == pytest.approx((10 + 12) / 2 / 24)


def test_a_sweep_of_one_way_of_sampling_needs_no_choice_whatever_its_temperature(tmp_path, sweep):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo",))])
    warm = make_sweep(tmp_path / "warm", plan, tags=("T0.6-p0.7",))
    for sampled in (labelled_results(warm), labelled_results(warm, top_p=0.7), labelled_results(warm, temperature=0.6)):
        assert {file.parent.name for result, file in sampled if result.metric == "pass@k"} == {"T0.6-p0.7"}
    runs, _ = read_sweep(warm)
    assert [*flips_by_label(runs, chosen_tag(warm, runs, None, None))] == ["GSPO"]
    assert [*temperatures_by_label(runs, fitting_tags(warm, runs, None, None))] == ["GSPO"]
    with pytest.raises(UsageError, match=r"--temperature 1: .* was measured at T 0\.6, top_p 0\.7; "):
        labelled_results(warm, temperature=1)


def test_of_several_ways_of_sampling_the_error_names_them_and_the_option_that_chooses(tmp_path):
    plan = plan_sweep("quickstart", [Axis("method.name", ("gspo",))])
    folder = make_sweep(tmp_path / "s", plan, tags=("T0.6-p0.7", "T1.5-p0.7", "T1.5-p1"))
    listed = r"T 0\.6, top_p 0\.7 \| T 1\.5, top_p 0\.7"
    with pytest.raises(UsageError, match=rf"{listed} \| T 1\.5, top_p 1; choose one with --temperature and --top-p$"):
        labelled_results(folder)
    with pytest.raises(UsageError, match=rf"{listed}; choose one with --temperature$"):
        labelled_results(folder, top_p=0.7)
    with pytest.raises(UsageError, match=r"choose one with --top-p$"):
        labelled_results(folder, temperature=1.5)
    assert labelled_results(folder, top_p=0.7, temperature=1.5)
    runs, _ = read_sweep(folder)
    assert [*temperatures_by_label(runs, fitting_tags(folder, runs, 0.7, None))] == ["GSPO, T 0.6", "GSPO, T 1.5"]
    assert [*temperatures_by_label(runs, fitting_tags(folder, runs, 0.7, 1.5))] == ["GSPO"]
    quatro("table", folder, "--top-p", "1", "--format", "csv")
    says(quatro("table", folder, "--temperature", 1.5, code=2), advice="--top-p")


def test_the_interval_of_a_share_stays_between_0_and_1(sweep):
    rows = [row for some in temperatures_by_label(read_sweep(sweep)[0], [Tag()]).values() for row in some]
    assert {row.ci_over for row in rows} == {"seeds and problems"}
    assert all(0 < row.ci_low < row.value < row.ci_high < 1 for row in rows)


def test_counts_that_were_not_kept_are_an_error_that_says_what_to_do(sweep):
    file = sweep / "runs/gspo-seed=0/samples/T1-p1/ucc.json"
    document = read_json(file)
    del document["problems"]
    file.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DataError, match="repeat the sweep"):
        problems_in(sweep / "runs/gspo-seed=0", Tag())


def test_commands_take_a_sweep(sweep, tmp_path):
    result = quatro("table", sweep, "--format", "csv")
    assert "Ours delta=0.01" in result.stdout
    for metric in ("ucc@k", "entropy"):
        result = quatro("table", sweep, "--metric", metric, "--format", "latex")
    pytest.importorskip("matplotlib")
    for name in ("passk", "ucc"):
        out = tmp_path / f"{name}.svg"
        result = quatro("plot", name, sweep, "-o", out)
        assert out.is_file()


def test_an_entropy_that_one_seed_lacks_is_averaged_over_no_other(sweep):
    file = sweep / "runs/quatro-delta=0.1-seed=2/metrics.jsonl"
    file.write_text('{"step": 1, "entropy/token_mean": 1.0}\n{"step": 2, "entropy/token_mean": null}\n')
    result = quatro("table", sweep, "--metric", "entropy", "--format", "csv")
    assert str(file) in result.stderr
    assert result.stdout.splitlines()[0] == "Metric,Baselines GSPO,Ours delta=0.01"
    assert "Ours delta=0.1" in quatro("table", sweep, "--metric", "ucc@k", "--format", "csv").stdout


def test_options_of_sweeps_are_refused_without_one(sweep):
    file = sweep / "runs/gspo-seed=0/samples/T1-p1/passk.json"
    assert "none of the paths is a sweep" in quatro("table", file, "--cell", "S1", code=2).stderr
