"""`quatro plot` and `quatro sweep` from the outside."""

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro.config import config_to_yaml, load_config, pinned
from quatro.processes.launcher import torchrun_options
from quatro.runs.identity import planned_differences
from quatro.sweep.file import find_sweep, load_sweep
from quatro.sweep.run import write_plan
from quatro_cli.app import app
from tests.kit import quatro, settings

runner = CliRunner()


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "runs/a"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(config_to_yaml(load_config("quickstart")), encoding="utf-8")
    rows = [{"step": t, "reward/mean": t / 10, "kl/new_old": 0.01 * t} for t in range(1, 6)]
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_figure_goes_into_the_run_and_its_path_to_stdout(run):
    pytest.importorskip("matplotlib")
    result = quatro("plot", "training", run)
    path = run / "figures/training.png"
    assert result.stdout == f"{path}\n"
    assert path.read_bytes().startswith(b"\x89PNG")


def test_several_runs_need_a_place(run):
    assert "-o" in quatro("plot", "training", run, run, code=2).stderr


def test_a_figure_of_an_unknown_kind_and_of_a_run_without_steps_are_refused(run, tmp_path):
    pytest.importorskip("matplotlib")
    quatro("plot", "training", run, "-o", tmp_path / "x.bmp", code=2)
    (run / "metrics.jsonl").unlink()
    assert "no metrics yet" in quatro("plot", "training", run, code=4).stderr


def test_a_dry_run_lists_points_and_writes_nothing(tmp_path):
    arguments = [
        "sweep",
        "quickstart",
        "-g",
        "method.name=quatro,gspo",
        "-g",
        "method.delta=0.1,0.01",
        "--dry-run",
        "-o",
        str(tmp_path / "sweep"),
    ]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "3 runs" in result.stdout
    assert "(1 more collapsed" in result.stdout
    document = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
    assert document["num_collapsed"] == 1
    assert [point["name"] for point in document["points"]] == ["quatro-delta=0.1", "quatro-delta=0.01", "gspo"]
    assert list(tmp_path.iterdir()) == []


def test_fault_18_a_sweep_whose_run_fails_ends_with_6_and_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path / "cache"))
    # A model that is not there: the run fails in its child process, before any training.
    missing = settings("steps=1", "model=./no-such-model")
    result = quatro("sweep", "quickstart", "-g", "seed=0", *missing, "-o", tmp_path / "sweep", code=6)
    assert "seed=0" in result.stdout
    assert "1 of 1 runs" in result.stderr
    assert (tmp_path / "sweep/summary.csv").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["quickstart"], "-g method.delta"),
        (["paper-small", "-g", "seed=0,1"], "is a sweep file; leave out -g"),
        (["paper-small", "--cell", "S1,F1"], "--cell F1: paper-small has the cells S1, S2, S3, S4,"),
        (["paper-small", "--cell", "S9", "--seeds", "0,7"], "--seeds 7: paper-small has the seeds 0, 1, 2, 3, 4;"),
        (["quickstart", "-g", "seed=0,1", "--cell", "S1"], "quickstart has no cells"),
        (["quickstart", "-g", "seed=0,1", "--eval-n", "4"], "add --eval countdown"),
        (["quickstart", "-g", "seed=0,1", "--gpus", "0,1", "--jobs", "2"], "--jobs would be ignored"),
        (["quickstart", "-g", "seed=0,1", "--gpus", "0,0"], "a GPU is named twice"),
        (["quickstart", "-g", "seed=0,1", "--eval", "countdown", "--eval-top-p", "2"], "numbers in (0, 1]"),
    ],
)
def test_options_that_would_be_ignored_or_mean_nothing_are_refused(tmp_path, arguments, message):
    assert message in quatro("sweep", *arguments, "--dry-run", "-o", tmp_path / "s", code=2).stderr
    assert list(tmp_path.iterdir()) == []


def test_options_win_over_what_the_sweep_file_measures(tmp_path):
    def cost(*arguments: str) -> dict:
        command = ["sweep", "paper-math", *arguments, "--dry-run", "--json", "-o", str(tmp_path / "s")]
        return json.loads(runner.invoke(app, command).stdout)["cost"]

    problems = 500 + 40 + 30 + 30 + 272 + 675
    assert cost()["samples"] == 10 * problems * 256
    assert cost("--eval", "aime24,amc23", "--eval-n", "4", "--eval-top-p", "1,0.7")["samples"] == 10 * 70 * 4 * 2


def test_a_shipped_sweep_is_planned_by_name(tmp_path):
    arguments = ["sweep", "paper-small", "--eval", "countdown", "--dry-run", "--json", "-o", str(tmp_path / "s")]
    document = json.loads(runner.invoke(app, arguments).stdout)
    names = [point["name"] for point in document["points"]]
    bases = [f"base-embedded-countdown{kind}-{seed}" for kind in ("", "-hard") for seed in (1, 2, 3)]
    assert names[:6] == bases
    assert len(names) == 6 + 261
    assert {point["cell"] for point in document["points"]} == {"base", *(f"S{number}" for number in range(1, 11))}


def test_a_part_of_a_sweep_file_is_planned(tmp_path):
    command = ["sweep", "paper-small", "--dry-run", "--json", "-o", str(tmp_path / "s")]

    def points(*options):
        return {point["name"] for point in json.loads(runner.invoke(app, [*command, *options]).stdout)["points"]}

    everything = points()
    some = {name for name in everything if name.startswith(("S1-", "S3-")) and name.endswith(("seed=0", "seed=2"))}
    assert points("--cell", "S3,S1", "--seeds", "0,2") == some
    assert 0 < len(some) < len(points("--cell", "S1,S3")) < len(everything)


@pytest.fixture
def only_planned(monkeypatch):
    """`quatro sweep` writes its plan and trains nothing."""

    def plan_only(plan, folder, *, evaluation, **_):
        write_plan(plan, folder, evaluation)
        return []

    monkeypatch.setattr("quatro.sweep.run.run_sweep", plan_only)
    monkeypatch.setattr("quatro_cli.warm_start.ensure_model", lambda model: None)


def test_the_folder_of_a_sweep_goes_on_as_it_was_planned(tmp_path, only_planned):
    grid = ["-g", "method.name=quatro,gspo", "-g", "method.delta=0.1,0.01", "-s", "steps=3"]
    measure = ["--eval", "countdown", "--eval-n", "4", "--eval-top-p", "1,0.7"]
    command, folder = ["sweep", "quickstart", *grid, *measure], tmp_path / "s"
    quatro(*command, "-o", folder)
    begun = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    for name in (folder, folder / "sweep.yaml"):
        quatro("sweep", name)
        assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == begun
    planned, goes_on = (
        runner.invoke(app, [*words, "--dry-run", "--json"]).stdout
        for words in ([*command, "-o", str(folder)], ["sweep", str(folder)])
    )
    assert json.loads(goes_on) == json.loads(planned)
    # The command that began it, without what it measures: that is recorded.
    quatro("sweep", "quickstart", *grid, "-o", folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == begun

    quatro("sweep", folder, "--eval-n", "8")
    assert '"n": 8, "temperature": [1.0], "top_p": [1.0, 0.7]' in (folder / "sweep.yaml").read_text(encoding="utf-8")


def test_what_would_change_a_sweep_that_goes_on_is_refused(tmp_path, only_planned):
    folder = tmp_path / "s"
    quatro("sweep", "quickstart", "--seeds", "0,1", "-o", folder)

    def refused(*words: str, code: int = 2) -> str:
        return quatro("sweep", folder, *words, "--dry-run", code=code).stderr

    said = refused("-g", "method.delta=0.1", "-o", str(tmp_path / "t"))
    assert "goes on as it was planned; leave out -g and -o" in said
    assert "leave out -s" in refused("-s", "steps=3")
    assert f"repeat the command that began it with more values and -o {folder}" in said
    assert "leave out --seeds and -m" in refused("--seeds", "2", "-m", "gspo")
    (folder / "configs/seed=1.yaml").unlink()
    assert "configs/seed=1.yaml is missing" in refused("--eval", "countdown", code=4)


def test_the_array_script_of_the_docs_trains_the_points_of_the_sweep(tmp_path):
    page = (Path(__file__).parents[3] / "docs/paper.md").read_text(encoding="utf-8")
    script = textwrap.dedent(re.search(r"    #!/bin/bash\n(?:    .*\n)+", page)[0])
    assert "--array=0-8" in script
    plan = load_sweep(find_sweep("paper-math"))
    for number, point in enumerate(plan.points):
        shown = "torchrun() { echo $*; }\n" + script
        environment = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number)}
        words = subprocess.run(["bash", "-c", shown], cwd=tmp_path, env=environment, capture_output=True, text=True)
        options, asked = words.stdout.split(" -m quatro_cli train ")
        assert options.split() == ["--standalone", *torchrun_options(point.config.processes)]
        base, _, method, _, run, *settings = asked.split()
        assert run == f"sweeps/paper-math/runs/{point.name}"
        config = load_config(base, method=method, overrides=settings[1:])
        assert not planned_differences(point.config, pinned(config))
    (tmp_path / run).mkdir(parents=True)
    (tmp_path / run / "config.yaml").touch()
    again = subprocess.run(["bash", "-c", shown], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert again.stdout.endswith(f" train {run} --resume\n")
