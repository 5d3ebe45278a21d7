"""What a sweep measures, over which seeds it averages, and where it runs."""

import csv
import json
import sys
import textwrap
from contextlib import nullcontext

import pytest

from evals.errors import DataError, LockedError, UsageError
from quatro.runs.points import refuse_other_base
from quatro.runs.status import RunLock
from quatro.sample.folder import Tag, measure_samples
from quatro.sweep.children import make_slots
from quatro.sweep.measure import SweepEvaluation, base_points, measured, sample_arguments
from quatro.sweep.plan import Axis, plan_sweep
from quatro.sweep.run import run_sweep, status_of
from tests.kit import read_rows, write_rows

# `quatro train` and `quatro sample` in one: records what it was called with and finds in its environment.
QUATRO = textwrap.dedent(
    """
    import json, os, pathlib, sys
    here = pathlib.Path(__file__).parent
    command, *arguments = sys.argv[1:]
    seen = {name: os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS")}
    with open(here / "calls", "a") as calls:
        calls.write(json.dumps([command, arguments, seen]) + "\\n")
    if command == "train":
        resume = arguments[-1] == "--resume"
        run = pathlib.Path(arguments[0] if resume else arguments[2])
        run.mkdir(parents=True, exist_ok=True)
        if not resume:
            (run / "config.yaml").write_text(pathlib.Path(arguments[0]).read_text())
        seed = int(run.name.rpartition("seed=")[2] or 0) if "seed=" in run.name else 0
        (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "reward/mean": float(seed) ** 2}) + "\\n")
        (run / "status.json").write_text(json.dumps({"status": "done", "reason": None}, indent=2))
    else:
        folder = pathlib.Path(arguments[arguments.index("-o") + 1])
        if (here / "broken").exists() and (here / "broken").read_text() in str(folder):
            sys.exit("error: no memory left")
        n = int(arguments[arguments.index("-n") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        solved = 1 if "/base/" in str(folder) else n
        for number, benchmark in enumerate(arguments[arguments.index("-b") + 1].split(",")):
            rows = [dict(benchmark=benchmark, id=str(p), sample_index=i, answer="1", completion=f"it is {i}",
                         correct=p == 0 and i < solved) for p in range(2 + number) for i in range(n)]
            (folder / f"{benchmark}.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    """
)


@pytest.fixture
def quatro(tmp_path):
    script = tmp_path / "quatro.py"
    script.write_text(QUATRO, encoding="utf-8")
    command = [sys.executable, "-S", str(script)]

    def calls() -> list[list]:
        path = tmp_path / "calls"
        return read_rows(path) if path.exists() else []

    return {"train_command": [*command, "train"], "sample_command": [*command, "sample"]}, calls


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_points_and_the_base_are_sampled_and_measured(base, tmp_path, quatro):
    commands, calls = quatro
    plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.01"))])
    evaluation = SweepEvaluation(("toy",), n=4, top_ps=(1.0, 0.7))
    outcomes = run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)
    assert [(o.point.name, o.status) for o in outcomes] == [
        ("base-embedded-countdown", "done"),
        ("delta=0.1", "done"),
        ("delta=0.01", "done"),
    ]
    untrained, trained, _ = rows_of(tmp_path / "s/summary.csv")
    # Two problems. The base solves one of them once in four: pass@1 = (1/4 + 0) / 2, pass@4 = (1 + 0) / 2.
    assert [float(untrained[f"toy/p0.7/{m}"]) for m in ("pass@1", "pass@4", "ucc@4")] == pytest.approx(
        [0.125, 0.5, 0.5]
    )
    assert [float(trained[f"toy/p1/{m}"]) for m in ("pass@1", "pass@4")] == pytest.approx([0.5, 0.5])
    sampled = [arguments for command, arguments, _ in calls() if command == "sample"]
    assert len(sampled) == 3 * 2
    assert sum(arguments[0] == "embedded:countdown" for arguments in sampled) == 2

    run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)
    assert len(calls()) == 2 + 3 * 2
    run_sweep(plan, tmp_path / "s", evaluation=SweepEvaluation(("toy",), n=8), **commands)
    assert len(calls()) == 2 + 3 * 2 + 3  # more samples: drawn and measured again


def test_a_file_of_problems_is_measured_under_the_name_that_its_samples_have(tmp_path):
    tag = Tag()
    row = {"benchmark": "toy", "id": "0", "answer": "1", "correct": True}
    rows = [{**row, "sample_index": index, "completion": f"way {index}"} for index in range(2)]
    write_rows(tag.folder(tmp_path) / "toy.jsonl", rows)
    measure_samples(tag.folder(tmp_path), n=2, label="toy")
    found = measured(SweepEvaluation(("data/toy.jsonl.gz",), n=2), tmp_path, tag)
    assert found == {"toy/p1/pass@1": 1.0, "toy/p1/pass@2": 1.0, "toy/p1/ucc@2": 2.0}


def test_the_base_is_sampled_with_the_stop_strings_of_the_runs(base, tmp_path):
    config = base.read_text(encoding="utf-8") + 'rollout: {stop: ["\\ndef", "\\\\n"]}\n'
    base.write_text(config, encoding="utf-8")
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    for point in (*base_points(plan), *plan.points):
        arguments = sample_arguments(SweepEvaluation(("toy",)), point, tmp_path, Tag())
        assert [one for one in arguments if one.startswith("--stop")] == ["--stop=\ndef", r"--stop=\\n"]


def test_a_point_that_cannot_be_sampled_says_why_and_only_it_is_done_again(base, tmp_path, quatro):
    commands, calls = quatro
    plan = plan_sweep(base, [Axis("method.delta", ("0.1", "0.01"))])
    (tmp_path / "broken").write_text("delta=0.1", encoding="utf-8")
    evaluation = SweepEvaluation(("toy",), n=2)
    outcomes = run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)
    assert [(o.status, o.reason) for o in outcomes[1:]] == [
        ("unmeasured", "error: no memory left"),
        ("done", ""),
    ]
    (tmp_path / "broken").unlink()
    before = len(calls())
    assert run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)[1].status == "done"
    assert [call[0] for call in calls()[before:]] == ["sample"]


def test_a_base_in_a_folder_is_called_like_the_folder_and_two_of_a_name_are_told_apart(base, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x/m", "y/m", "z"):
        (tmp_path / name).mkdir(parents=True)

    def names_of(*models):
        return [point.name for point in base_points(plan_sweep(base, [Axis("model", models)]))]

    assert names_of("x/m", "org/m", "embedded:countdown") == ["base-m", "base-org-m", "base-embedded-countdown"]
    assert names_of("x/m", str(tmp_path / "x/m")) == ["base-m"]
    assert names_of("x/m", "y/m", "z") == ["base-m-x", "base-m-y", "base-z"]


@pytest.mark.parametrize(
    ("folder", "model", "is_its"),
    [
        ("base-m", "/x/m", True),
        ("base-m-y", "/y/m", True),
        ("base-x-m", "/x/m", True),  # as earlier versions called it
        ("base-x-m", "x/m", True),
        ("base-m", "/x/n", False),
    ],
)
def test_samples_of_another_base_are_refused(tmp_path, folder, model, is_its):
    file = tmp_path / folder / "samples/T1-p1/sampling.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"model": model, "method": None}), encoding="utf-8")
    with nullcontext() if is_its else pytest.raises(DataError, match=folder):
        refuse_other_base(tmp_path / folder)


def test_the_threads_of_the_machine_are_divided_and_each_gpu_has_one_point(base, tmp_path, quatro, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert [slot["OMP_NUM_THREADS"] for slot in make_slots(3)] == ["2"] * 3
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert make_slots(4)[0]["OMP_NUM_THREADS"] == "1"
    commands, calls = quatro
    plan = plan_sweep(base, [Axis("seed", ("0", "1", "2", "3"))])
    run_sweep(plan, tmp_path / "s", train_command=commands["train_command"], gpus=["0", "3"])
    assert {call[2]["CUDA_VISIBLE_DEVICES"] for call in calls()} == {"0", "3"}
    assert all(int(call[2]["OMP_NUM_THREADS"]) >= 1 for call in calls())


def test_a_point_of_two_processes_has_two_gpus_and_is_started_by_torchrun(base, tmp_path, quatro):
    commands, calls = quatro
    base.write_text(base.read_text(encoding="utf-8") + "processes: 2\n", encoding="utf-8")
    plan = plan_sweep(base, [Axis("seed", ("0", "1"))])
    # Stands in for torchrun: its arguments say what would be started.
    site = tmp_path / "torch" / "distributed"
    site.mkdir(parents=True)
    for folder in (site.parent, site):
        (folder / "__init__.py").touch()
    stand_in = "import runpy, sys\nat = sys.argv.index('600') + 1\nassert sys.argv[3] == '2', sys.argv\n"
    stand_in += "sys.argv = sys.argv[at + 1:]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"
    (site / "run.py").write_text(stand_in, encoding="utf-8")
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n', encoding="utf-8")
    interpreter.chmod(0o755)
    own = {name: [str(interpreter), *command[1:]] for name, command in commands.items()}
    evaluation = SweepEvaluation(("toy",), n=2)
    outcomes = run_sweep(plan, tmp_path / "s", evaluation=evaluation, gpus=["0", "1", "2", "3"], **own)
    assert {o.status for o in outcomes} == {"done"}
    assert {call[2]["CUDA_VISIBLE_DEVICES"] for call in calls()} == {"0,1", "2,3"}
    for command, arguments, _ in calls():
        assert command == "train" or arguments[arguments.index("--gpus") + 1] == "0,1"
    with pytest.raises(UsageError, match="name 2 of them, or a multiple"):
        run_sweep(plan, tmp_path / "t", gpus=["0", "1", "2"], **own)


def test_one_process_runs_a_sweep(base, tmp_path, quatro):
    commands, _ = quatro
    (tmp_path / "s").mkdir()
    lock = RunLock(tmp_path / "s")
    try:
        with pytest.raises(LockedError):
            run_sweep(plan_sweep(base, [Axis("seed", ("0",))]), tmp_path / "s", **commands)
    finally:
        lock.close()


def test_unreadable_results_stop_the_sweep_with_their_name(base, tmp_path, quatro):
    commands, _ = quatro
    plan = plan_sweep(base, [Axis("seed", ("0",))])
    evaluation = SweepEvaluation(("toy",), n=2)
    run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)
    (tmp_path / "s/runs/seed=0/samples/T1-p1/ucc.json").write_text("{", encoding="utf-8")
    with pytest.raises(DataError, match=r"ucc\.json"):
        status_of(plan.points[0], tmp_path / "s", evaluation)


@pytest.mark.parametrize(
    ("option", "wrong"),
    [
        ("--eval-n", {"n": 0}),
        *[("--eval-top-p", {"top_ps": values}) for values in ((), (0.0,), (1.5,), (1.0, 1.0))],
        *[("--eval-temperature", {"temperatures": values}) for values in ((), (0.0,), (0.6, 0.6))],
        *[("--eval ", {"benchmarks": values}) for values in ((), ("toy", "toy"))],
    ],
)
def test_an_evaluation_out_of_range_is_refused(option, wrong):
    with pytest.raises(UsageError, match=option):
        SweepEvaluation(**{"benchmarks": ("toy",), **wrong})


def test_every_benchmark_and_way_of_sampling_is_measured_on_its_own(base, tmp_path, quatro):
    commands, calls = quatro
    plan = plan_sweep(base, [Axis("method.delta", ("0.1",))])
    evaluation = SweepEvaluation(("toy", "other"), n=2, temperatures=(0.6, 1.0), top_ps=(0.7,))
    outcomes = run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)
    trained = outcomes[1].measured
    # `other` holds one more problem, which nobody solves.
    assert trained["toy/p0.7/pass@1"] == trained["toy/T0.6-p0.7/pass@1"] == pytest.approx(1 / 2)
    assert trained["other/p0.7/pass@1"] == trained["other/T0.6-p0.7/ucc@2"] / 2 == pytest.approx(1 / 3)
    sampled = [arguments for command, arguments, _ in calls() if command == "sample"]
    assert [arguments[arguments.index("--temperature") + 1] for arguments in sampled] == ["0.6", "1"] * 2
    assert {arguments[arguments.index("-b") + 1] for arguments in sampled} == {"toy,other"}
    # The folder of the other temperature lacks one benchmark: only it is sampled again.
    (tmp_path / "s/runs/delta=0.1/samples/T0.6-p0.7/passk.json").unlink()
    before = len(calls())
    assert [o.status for o in run_sweep(plan, tmp_path / "s", evaluation=evaluation, **commands)] == ["done"] * 2
    assert [call[1][call[1].index("--temperature") + 1] for call in calls()[before:]] == ["0.6"]


def test_the_base_is_asked_as_the_runs_are(tmp_path):
    plan = plan_sweep("math-1.5b", [Axis("data.template", ("qwen-boxed", "chat"))])
    with pytest.raises(UsageError, match="several templates"):
        base_points(plan_sweep("math-1.5b", [Axis("data.template", ("qwen-boxed", "chat", "plain"))]))
    for untrained, run in zip(base_points(plan), plan.points, strict=True):
        arguments = sample_arguments(SweepEvaluation(("toy",)), untrained, tmp_path, Tag())
        assert arguments[arguments.index("--template") + 1] == run.config.data.template
        assert arguments[arguments.index("--engine") + 1] == "transformers"
