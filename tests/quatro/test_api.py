"""What `import quatro` offers, and that every example in its documentation is true."""

from __future__ import annotations

import ast
import doctest
import importlib
import json
import os
import pkgutil
import re
import runpy
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import quatro
import quatro.api
from evals.errors import UsageError
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.results.training_metrics import metric_rows
from evals.samples.graded import read_graded
from evals.samples.reading import read_samples
from quatro.config import load_config
from quatro.config.blocks import CPU_SIZES
from quatro.policy import embedded
from quatro.runs.status import read_status
from tests.kit import quatro as typed

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "pandas", "sklearn", "pydantic", "numpy", "matplotlib", "yaml", "scipy")


@pytest.fixture(scope="module")
def workplace(tiny_folder, tmp_path_factory) -> Path:
    """A folder with a run of two iterations and samples of it, and a cache that holds a tiny `embedded:countdown`."""
    folder = tmp_path_factory.mktemp("workplace")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("QUATRO_CACHE", str(folder / "cache"))
        shutil.copytree(tiny_folder, embedded._folder("embedded:countdown"))
        run = quatro.fine_tune("quickstart", "runs/first", overrides={"steps": 2})
        samples = quatro.draw_samples(run, "countdown", n=2, grade=True)
        passk_result(read_graded(list(map(Path, samples)))[0], ks=[1, 2]).write("passk.json")
    return folder


@pytest.fixture
def here(workplace, tmp_path, monkeypatch) -> Path:
    """A copy of it, which is the working directory."""
    folder = shutil.copytree(workplace, tmp_path / "here")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("QUATRO_CACHE", str(folder / "cache"))
    return folder


@pytest.mark.parametrize(
    ("use", "unwanted"),
    [
        ("quatro.__version__", HEAVY),
        ("quatro.fine_tune, quatro.pass_at_k(4, 1, 2)", ("torch", "transformers", "pandas")),
    ],
)
def test_a_name_loads_no_more_than_it_needs(use, unwanted):
    code = f"import sys, quatro; {use}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()).isdisjoint(unwanted)


def test_every_name_works_after_every_submodule_was_imported():
    """A submodule of the same name would take the name's place once it is imported."""
    for module in pkgutil.walk_packages(quatro.__path__, "quatro."):
        if not module.name.startswith(("quatro.policy.deepspeed", "quatro.rollout.vllm", "quatro.integrations.")):
            # Those need packages of their own.
            importlib.import_module(module.name)
    submodules = {module.name for module in pkgutil.iter_modules(quatro.__path__)}
    assert submodules.isdisjoint(quatro.__all__)
    for name in quatro.__all__:
        assert getattr(quatro, name) is getattr(quatro.api, name)


def test_names_are_listed_once_for_people_and_type_checkers():
    tree = ast.parse((ROOT / "quatro/__init__.py").read_text(encoding="utf-8"))
    typed = [alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert typed == ["TYPE_CHECKING", "*", "api"]
    assert len(set(quatro.__all__)) == len(quatro.__all__)
    assert set(quatro.__all__) <= set(dir(quatro))
    with pytest.raises(AttributeError, match="no attribute 'pass_at_l'"):
        quatro.pass_at_l  # noqa: B018


@pytest.mark.parametrize("name", ["quatro.api", *quatro.__all__])
def test_the_examples_are_true(name, here):
    documented = quatro.api if name == "quatro.api" else getattr(quatro, name)
    globs = {"quatro": quatro}
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    [test] = doctest.DocTestFinder(recurse=False, exclude_empty=False).find(documented, name, globs=globs)
    assert test.examples or name in ("Config", "Result")
    report: list[str] = []
    result = doctest.DocTestRunner(optionflags=flags).run(test, out=report.append)
    assert result.failed == 0, "".join(report)


def test_every_example_of_the_page_is_one_of_these():
    documented = [quatro.api, *(getattr(quatro, name) for name in quatro.__all__)]
    found = doctest.DocTestFinder(recurse=False)
    run = {one.source.splitlines()[0] for each in documented for test in found.find(each, "x") for one in test.examples}
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert {line.removeprefix(">>> ") for line in page.splitlines() if line.startswith(">>> ")} == run


def test_a_run_keeps_its_status_and_tells_its_observer(here):
    told = []
    config = load_config("quickstart", overrides=["steps=2", "seed=1"])
    run = quatro.fine_tune(config, here / "runs/second", observer=told.append)
    assert [row["step"] for row in told] == [1, 2]
    assert read_status(run.path)["status"] == "done"
    assert run.config == config.with_sizes(CPU_SIZES)
    assert (run.path / "log.txt").exists()


def test_a_run_says_where_it_is_what_it_trains_and_its_last_numbers(here):
    run = quatro.load_run("runs/first")
    place, trained, numbers = repr(run).splitlines()
    assert place == "runs/first: done, 2 of 2 iterations"
    assert trained == "quatro, delta 0.01, on embedded:countdown"
    assert f"reward/mean {run.metrics['reward/mean']:.4g}" in numbers
    assert str(run) == repr(run)


def test_a_report_is_the_page_of_the_command(here):
    page = quatro.report(quatro.load_run("runs/first"), "python.html")
    typed("report", "runs/first", "-o", "typed.html")
    assert page.read_bytes() == Path("typed.html").read_bytes()
    with pytest.raises(UsageError, match=r"page.pdf.*\.html"):
        quatro.report("runs/first", "page.pdf")


def test_a_run_that_was_stopped_goes_on_where_it_was(here, contents):
    def stop(metrics):
        if metrics["step"] == 1:
            raise KeyboardInterrupt

    overrides = {"steps": 2, "checkpoint.every": 1}
    with pytest.raises(KeyboardInterrupt):
        quatro.fine_tune("quickstart", "runs/stopped", overrides=overrides, observer=stop)
    assert quatro.load_run("runs/stopped").status == "interrupted"
    run = quatro.fine_tune("quickstart", "runs/stopped", overrides=overrides, resume=True)
    assert (run.status, run.step) == ("done", 2)
    assert run.metrics["reward/mean"] == quatro.load_run("runs/first").metrics["reward/mean"]
    before = contents(run.path)
    assert quatro.fine_tune("quickstart", "runs/stopped", overrides=overrides, resume=True) == run
    assert contents(run.path) == before
    longer = quatro.fine_tune("quickstart", "runs/stopped", overrides=overrides | {"steps": 3}, resume=True)
    assert (longer.status, longer.step, longer.config.steps) == ("done", 3, 3)


def test_cells_of_a_notebook_can_be_run_again(here, contents):
    names = ("runs/base", "runs/base@1", "runs/base@best")
    small = {"prompts_per_step": 2, "minibatch_prompts": 2, "rollouts_per_prompt": 2, "checkpoint.every": 1}

    def first_cell(steps):
        overrides = {**small, "checkpoint.keep.best": "reward/mean", "steps": steps}
        quatro.fine_tune("quickstart", "runs/base", overrides=overrides, resume=True)

    def second_cell(names=names):
        return [
            quatro.fine_tune("quickstart", f"{name}-2", overrides={**small, "steps": 1, "model": name}, resume=True)
            for name in names
        ]

    first_cell(steps=1)
    begun = second_cell()
    before = [contents(run.path) for run in begun]
    first_cell(steps=1)
    assert second_cell() == begun
    first_cell(steps=2)
    assert second_cell() == begun
    with pytest.raises(UsageError, match="other settings: model"):
        quatro.fine_tune("quickstart", begun[1].path, overrides={**small, "model": "runs/base@2"}, resume=True)
    shutil.rmtree("runs/base")
    assert second_cell() == begun
    assert [contents(run.path) for run in begun] == before


def test_a_signal_saves_and_ends_the_program(here):
    def interrupt(metrics):
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        quatro.fine_tune("quickstart", "runs/stopped", overrides={"steps": 2}, observer=interrupt)
    run = quatro.load_run("runs/stopped")
    assert (run.status, run.reason, run.step, run.checkpoints) == ("interrupted", "SIGINT", 1, (1,))
    log = (run.path / "log.txt").read_text(encoding="utf-8")
    assert re.findall(r"(\w+) \S+ SIGINT", log) == ["INFO"], "what somebody asked for is no warning"


@pytest.mark.parametrize(
    ("arguments", "options", "said"),
    [
        (("quickstart", "runs/first"), {}, "already holds a run"),
        (("quickstart", "runs/first"), {"resume": True}, "other settings: steps is 2 there, not 100"),
        (("quickstart", "runs/x"), {"overrides": {"step": 2}}, "step"),
        (("quickstart", "runs/x"), {"overrides": {"eval.every": 1, "eval.benchmark": "nope"}}, "nope"),
        ((None, "runs/x"), {"overrides": {"steps": 2}}, "not a Config"),
    ],
)
def test_what_is_wrong_is_said_before_a_folder_is_made(here, arguments, options, said):
    config, out = arguments
    with pytest.raises(UsageError, match=said):
        quatro.fine_tune(config or load_config("quickstart"), out, **options)
    assert not Path("runs/x").exists()


def test_several_processes_are_told_what_to_start(here, monkeypatch):
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="torchrun"):
        quatro.fine_tune("quickstart", "runs/x")


def test_metrics_are_one_row_an_iteration(here):
    frame = quatro.read_metrics("runs/first")
    rows = [row for _, row in metric_rows(Path("runs/first/metrics.jsonl"))]
    assert str(frame["step"].dtype) == "int64"
    assert {str(dtype) for dtype in frame.drop(columns="step").dtypes} == {"float64"}
    assert list(frame) == list(dict.fromkeys(name for row in rows for name in row))
    for name in frame:
        assert frame[name].astype(object).where(frame[name].notna(), None).tolist() == [row.get(name) for row in rows]
    Path("runs/none").mkdir()
    Path("runs/none/config.yaml").write_bytes(Path("runs/first/config.yaml").read_bytes())
    Path("runs/none/metrics.jsonl").write_text("")
    assert list(quatro.read_metrics("runs/none")) == ["step"]
    with pytest.raises(UsageError, match="not a run directory"):
        quatro.read_metrics("runs")


def test_samples_are_graded_where_that_is_asked_for(here):
    ungraded = quatro.draw_samples("runs/first", "countdown", n=1, tag="ungraded")
    assert quatro.read_samples(ungraded)["correct"].isna().all()
    frame = quatro.read_samples(ungraded, grade=True)
    assert frame["correct"].notna().all()
    graded, _ = read_graded(list(map(Path, ungraded)))
    assert frame["correct"].tolist() == [row.correct for row in graded.rows]


def test_a_frame_gives_the_numbers_of_the_commands(tmp_path):
    """Pass@k and UCC@k from a frame are those of `quatro eval passk` and `ucc`."""
    lines = [
        f'{{"benchmark": "toy", "id": "{id}", "sample_index": {index}, "completion": "{text}", "answer": "1", '
        f'"correct": {"false" if text == "bad" else "true"}}}\n'
        for id, texts in {"a": ["x y", "x y", "z", "bad"], "b": ["bad", "bad", "q", "bad"]}.items()
        for index, text in enumerate(texts)
    ]
    (tmp_path / "toy.jsonl").write_text("".join(lines), encoding="utf-8")
    frame = quatro.read_samples(tmp_path / "toy.jsonl")
    counts = frame.groupby("id")["correct"].agg(n="size", c="sum")
    passed = quatro.pass_at_k(counts["n"], counts["c"], [1, 2, 4]).mean(axis=0)
    groups = [group for _, group in frame.groupby("id")]
    clusters = [quatro.ucc_at_k(one["completion"], one["correct"], [1, 2, 4]) for one in groups]
    samples = read_samples([tmp_path / "toy.jsonl"])
    results = (passk_result(samples, ks=[1, 2, 4]), ucc_result(samples, ks=[1, 2, 4]))
    expected = [
        [row.value for row in one.rows if row.benchmark == "toy" and row.metric == one.metric] for one in results
    ]
    assert passed.tolist() == expected[0]
    assert np.mean(clusters, axis=0).tolist() == expected[1]


def test_pass_at_k_takes_numbers_and_arrays_of_any_kind():
    assert quatro.pass_at_k(10, 3, 1) == pytest.approx(0.3, rel=1e-15)
    assert isinstance(quatro.pass_at_k(10, 3, 1), float)
    assert quatro.pass_at_k(4, [0, 2, 4], 1).tolist() == pytest.approx([0, 0.5, 1])
    assert str(quatro.pass_at_k(4, 0, 1)) == "0.0"
    assert quatro.pass_at_k(4, 2, [1, 4]).tolist() == pytest.approx([0.5, 1])
    n, c = pd.Series([4, 8]), pd.Series([2, 4], dtype="Int64")
    assert quatro.pass_at_k(n, c, np.array([1])).round(9).tolist() == [[0.5], [0.5]]
    with pytest.raises(ValueError, match="c lies between 0 and n"):
        quatro.pass_at_k([4, 4], [2, 5], 1)


def test_ucc_at_k_asks_for_grades():
    assert quatro.ucc_at_k(["a", "b"], [False, False], 2) == 0
    assert isinstance(quatro.ucc_at_k(["a"], np.array([True]), 1), float)
    for unknown in (None, pd.NA, 0.5, "yes"):
        with pytest.raises(UsageError, match=r"correct\[1\] is .*grade the samples"):
            quatro.ucc_at_k(["a", "b"], pd.Series([True, unknown], dtype=object), 1)
    with pytest.raises(ValueError):
        quatro.ucc_at_k(["a", "b"], [True], 1)


@pytest.mark.slow
def test_the_notebook_trains_samples_measures_and_plots(here, monkeypatch):
    pytest.importorskip("nbclient", reason="needs nbclient and ipykernel, of the extra dev")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = runpy.run_path(str(ROOT / "docs/notebook.py"))["executed"](here)
    outputs = [cell["outputs"] for cell in made["cells"] if cell["cell_type"] == "code"]
    install, _, train, _, measure, plot = outputs
    assert install == []
    assert '<progress value="60" max="60">' in "".join(train[0]["data"]["text/html"])
    printed = ["".join(output["text"]) for output in measure if output.get("name") == "stdout"]
    lines = "\n".join(printed).splitlines()
    assert [line for line in lines if line in ("base", "QUATRO")] == ["base", "QUATRO"]
    assert sum(line.startswith("Digit countdown") for line in lines) == 8
    assert len(plot[0]["data"]["image/png"]) > 10_000
    assert (here / "five-minutes.png").stat().st_size > 10_000
    assert quatro.load_run("runs/five-minutes").status == "done"


def test_the_script_of_the_notebook_is_short():
    assert len((ROOT / "examples/five_minutes.py").read_text(encoding="utf-8").splitlines()) <= 40


def test_stored_outputs_are_whole_and_name_no_path_of_a_machine():
    stored = (ROOT / "examples/quickstart.ipynb").read_text(encoding="utf-8")
    assert not re.search(r"/(home|root|tmp|work|usr|opt)/|site-packages", stored)
    code = [cell for cell in json.loads(stored)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} == {"stream", "display_data"}
    assert not any("\r" in line for output in outputs for line in output.get("text", []))  # bars end where they are


def test_the_first_cell_of_the_notebook_installs_what_is_missing(tmp_path, monkeypatch):
    cell = runpy.run_path(str(ROOT / "docs/notebook.py"))["INSTALL"]
    asked: list[list[str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "run", lambda words, check: asked.append(words))
    monkeypatch.delenv("PROJECT_URL", raising=False)
    with pytest.raises(RuntimeError, match=r"PROJECT_URL.*wheel"):
        exec(cell, {})
    (tmp_path / "quatro-0.2.0-py3-none-any.whl").touch()
    exec(cell, {})
    monkeypatch.setenv("PROJECT_URL", "https://forge.example/lab/quatro")
    exec(cell, {})
    assert [words[-1] for words in asked] == [
        f"{tmp_path / 'quatro-0.2.0-py3-none-any.whl'}[train,plot]",
        "quatro[train,plot] @ git+https://forge.example/lab/quatro",
    ]
    assert all(words[:4] == [sys.executable, "-m", "pip", "install"] for words in asked)
