"""Runs and sweeps gathered from disk into a report."""

import json
import subprocess
import sys

import pytest

from evals.errors import DataError, UsageError
from evals.report.document import document
from quatro.config import config_to_yaml, load_config
from quatro.runs.views.report import gather_report
from tests.kit import says, write_rows


def make_run(path, *settings, method=None, steps=3):
    path.mkdir(parents=True)
    config = load_config("quickstart", overrides=settings, method=method)
    (path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    status = {"status": "done", "step": steps, "updated": "2026-01-02T03:04:05+00:00"}
    (path / "status.json").write_text(json.dumps(status), encoding="utf-8")
    rows = [{"step": t, "reward/mean": t / 10} for t in range(1, steps + 1)]
    write_rows(path / "metrics.jsonl", rows)
    return path


def add_samples(run, tag="T1-p0.7", **how):
    add_to(run / "samples" / tag, **how)


def add_to(folder, *, benchmark="b", correct=True, sampling=True, n=4, answer="1", **said):
    folder.mkdir(parents=True)
    rows = []
    for i in range(3):
        for j in range(n):
            row = {"benchmark": benchmark, "id": f"p{i}", "sample_index": j, "completion": f"x{j}", "answer": answer}
            rows.append({**row, "correct": j <= i} if correct else row)
    write_rows(folder / f"{benchmark}.jsonl", rows)
    if sampling:
        how = {"n": n, "temperature": 1.0, "top_p": 1.0 if folder.name == "T1-p1" else 0.7}
        document = {"model": "m", "sampling": how | said.pop("how", {}), **said}
        (folder / "sampling.json").write_text(json.dumps(document), encoding="utf-8")


def make_sweep(path, *, cells=True):
    points = {f"S1-quatro-delta={d}-seed={s}": (d, s) for d in ("0.1", "0.01") for s in (0, 1)}
    lines = ["name: x\n", "points:\n"]
    (path / "configs").mkdir(parents=True)
    for name, (delta, seed) in points.items():
        lines.append(f'  "{name}": {{"method.name": "quatro", "method.delta": "{delta}", "seed": "{seed}"}}\n')
        config = load_config("quickstart", overrides=[f"method.delta={delta}", f"seed={seed}"])
        (path / "configs" / f"{name}.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    if cells:
        lines += ["cells:\n", *(f'  "{name}": "cell one"\n' for name in points)]
    (path / "sweep.yaml").write_text("".join(lines), encoding="utf-8")
    for name, (delta, seed) in list(points.items())[:3]:
        make_run(path / "runs" / name, f"method.delta={delta}", f"seed={seed}")
    add_samples(path / "base" / "base-model")
    return path


def test_a_sweep_has_its_points_in_order_after_its_base_and_those_not_begun(tmp_path):
    report = gather_report([make_sweep(tmp_path / "sweep")])
    assert [run.name for run in report.runs] == [
        "base-model",
        *(f"S1-quatro-delta={delta}-seed={seed}" for delta in ("0.1", "0.01") for seed in (0, 1)),
    ]
    assert [run.status for run in report.runs] == ["base", "done", "done", "done", "missing"]
    assert [run.group for run in report.runs[1:]] == ["S1-quatro-delta=0.1"] * 2 + ["S1-quatro-delta=0.01"] * 2
    assert {run.cell for run in report.runs[1:]} == {"cell one"}
    assert report.runs[1].settings == {"method.delta": "0.1"}
    assert report.runs[4].config["method.delta"] == "0.01"
    assert report.title == "sweep"


def test_runs_that_differ_in_their_seed_alone_are_one_group(tmp_path):
    paths = [make_run(tmp_path / f"demo-{seed}", f"seed={seed}") for seed in (0, 1)]
    paths.append(make_run(tmp_path / "wide-0", "method.delta=0.1"))
    report = gather_report(paths)
    assert [run.group for run in report.runs] == ["demo", "demo", "wide-0"]
    assert [run.settings for run in report.runs] == [{"method.delta": "0.01"}] * 2 + [{"method.delta": "0.1"}]


def test_keys_that_another_method_lacks_are_no_difference(tmp_path):
    report = gather_report([make_run(tmp_path / "a"), make_run(tmp_path / "b", method="gspo")])
    assert [run.settings for run in report.runs] == [{}, {}]
    assert [run.method for run in report.runs] == ["quatro", "gspo"]


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    paths = [make_run(tmp_path / "x" / "run"), make_run(tmp_path / "y" / "run", "method.delta=0.1")]
    assert [run.name for run in gather_report([*paths, paths[0]]).runs] == ["x", "y"]


def test_samples_carry_how_they_were_drawn_and_two_tags_alike_stay_apart(tmp_path):
    run = make_run(tmp_path / "a")
    add_samples(run, "T1-p0.7-step000002")
    add_samples(run, "T1-p0.7-step000003")
    add_samples(run, "mine", sampling=False)
    told = []
    (found,) = gather_report([run], progress=lambda *place: told.append(place)).runs
    expected = ["T 1, top_p 0.7", "T 1, top_p 0.7 (T1-p0.7-step000003)", "mine"]
    assert [samples.sampling for samples in found.samples] == expected
    assert told == [(1, 3), (2, 3), (3, 3)]
    (view,) = found.samples[0].views
    assert [problem.counts.correct for problem in view.problems] == [1, 2, 3]


def test_samples_name_the_step_of_the_checkpoint_that_drew_them(tmp_path):
    run = make_run(tmp_path / "a")
    add_samples(run, "T1-p1", checkpoint="step-000120")
    add_samples(run, "T1-p0.7", checkpoint="step-000002-inside")
    add_samples(run, "mine")
    report = gather_report([run])
    expected = {"T 1, top_p 0.7": "2, inside", "T 1, top_p 1": "120", "T 1, top_p 0.7 (mine)": ""}
    assert {one.sampling: one.step for one in report.runs[0].samples} == expected
    assert dict(document(report)["runs"][0]["sampled"]) == expected


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder to work in with a run in runs/, which began with a model of the digest d1."""
    monkeypatch.chdir(tmp_path)
    run = make_run(tmp_path / "runs/a", "rollout.max_new_tokens=10", f"model={tmp_path}/models/small")
    (run / "environment.json").write_text('{"model_digest": "d1"}', encoding="utf-8")
    return tmp_path


def bases_of(run):
    found = [one for one in gather_report([run]).runs if one.status == "base"]
    return [(one.name, [samples.tag for samples in one.samples]) for one in found]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_run_has_its_base_whose_samples_lie_under_samples_here_or_beside_it(project, elsewhere, monkeypatch):
    same = {"source_digest": "d1", "model": "models/small", "how": {"max_tokens": 10}}
    add_to(project / "samples/models-small/T1-p1", **same)
    add_to(project / "samples/models-small/T1-p0.7", **same)
    if elsewhere:
        monkeypatch.chdir("/")
    assert bases_of(project / "runs/a") == [("base-small", ["T1-p0.7", "T1-p1"])]


def test_a_run_has_the_base_of_its_sweep(project):
    sweep = project / "sweeps/x"
    (project / "runs/a").rename((sweep / "runs").mkdir(parents=True) or sweep / "runs/a")
    add_samples(sweep / "base/base-small", model=f"{project}/models/small", how={"max_tokens": 10})
    assert bases_of(sweep / "runs/a") == [("base-small", ["T1-p0.7"])]


@pytest.mark.parametrize(
    "other",
    [
        {"source_digest": "d2"},
        {"source_digest": "d1", "method": "gspo"},
        {"source_digest": "d1", "how": {"max_tokens": 20}},
        {"source_digest": 7, "benchmarks": [7]},
    ],
)
def test_samples_of_other_models_and_lengths_are_not_the_base_and_a_note_has_the_command_that_draws_them(
    project, other
):
    add_samples(project / "runs/a", benchmark="countdown", benchmarks={"countdown": {}}, how={"max_tokens": 10})
    add_to(project / "samples/b/T1-p0.7", **other)
    report = gather_report([project / "runs/a"])
    assert [run.status for run in report.runs] == ["done"]
    (note,) = report.notes
    model = f"{project}/models/small"
    says(note, "small", advice=f"quatro sample {model} -b countdown -n 4 --temperature 1.0 --top-p 0.7 --max-tokens 10")


def test_samples_that_nobody_judged_are_left_out_and_named(tmp_path):
    run = make_run(tmp_path / "a")
    add_samples(run, correct=False, answer="")
    report = gather_report([run])
    assert report.runs[0].samples == []
    assert any("empty reference answer" in note for note in report.notes)


@pytest.mark.parametrize("broken", ["T1-p0.7", "T1-p1"])
def test_samples_beside_a_broken_sampling_file_are_left_out_and_it_is_named_once(tmp_path, broken):
    run = make_run(tmp_path / "a")
    add_samples(run, "T1-p0.7")
    add_samples(run, "T1-p1")
    folder = run / "samples" / broken
    (folder / "more.jsonl").write_text((folder / "b.jsonl").read_text().replace('"b"', '"more"'), encoding="utf-8")
    (folder / "sampling.json").write_text("not json", encoding="utf-8")
    report = gather_report([run])
    assert [samples.tag for samples in report.runs[0].samples] == [tag for tag in ("T1-p0.7", "T1-p1") if tag != broken]
    _, note = report.notes  # the first is about the base
    assert note.startswith(f"left out: {folder / 'sampling.json'}:1: not JSON")


def test_a_run_says_on_how_many_of_all_responses_its_reward_failed(tmp_path):
    run = make_run(tmp_path / "run", "prompts_per_step=4", "minibatch_prompts=4", "rollouts_per_prompt=2", steps=1)
    row = {"step": 2, "reward/errors": 2.0, "reward/timeouts": 1.0}
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1}) + "\n" + json.dumps(row) + "\n", encoding="utf-8")
    found = gather_report([run, make_run(tmp_path / "other")])
    assert [one.reason for one in found.runs] == ["the reward failed on 3 of 16 responses", ""]


def test_what_is_neither_run_nor_sweep_is_refused(tmp_path):
    with pytest.raises(UsageError, match="neither a run directory"):
        gather_report([tmp_path])


def test_broken_metrics_and_a_broken_sweep_file_are_named(tmp_path):
    run = make_run(tmp_path / "a")
    (run / "metrics.jsonl").write_text('{"step": 1}\nnot json\n{"step": 2}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"metrics\.jsonl:2"):
        gather_report([run])
    sweep = make_sweep(tmp_path / "sweep")
    (sweep / "sweep.yaml").write_text("name: x\n", encoding="utf-8")
    with pytest.raises(DataError, match="no points"):
        gather_report([sweep])


def test_gathering_needs_no_torch(tmp_path):
    make_run(tmp_path / "a")
    code = (
        "import sys; from pathlib import Path; from quatro.runs.views.report import gather_report; "
        "from evals.report.document import document; from evals.report.document import report_page; "
        "report_page(document(gather_report([Path(sys.argv[1])]))); "
        "assert not {'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], check=True, timeout=120)
