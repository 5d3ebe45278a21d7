"""`quatro eval passk RUN --step N|best`: which samples of a run are measured."""

import json

import pytest

from quatro.config import config_to_yaml, load_config
from tests.kit import quatro, says, write_rows


@pytest.fixture
def run(tmp_path):
    """A run of which step 2, its best, and step 4 were kept and sampled, and step 6 was only kept."""
    path = tmp_path / "run"
    config = load_config(
        "quickstart", overrides=["checkpoint.keep.best=eval/pass@1", "eval={every: 2, benchmark: countdown}"]
    )
    path.mkdir()
    (path / "config.yaml").write_text(config_to_yaml(config), encoding="utf-8")
    for step in (2, 4, 6):
        folder = path / f"checkpoints/step-{step:06d}"
        folder.mkdir(parents=True)
        state = {"carried": {"best_step/eval/pass@1": 2}}
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        (folder / "manifest.json").write_text("{}", encoding="utf-8")
    for step, num_correct in ((2, 3), (4, 1)):
        add_samples(path / f"samples/T1-p1-step{step:06d}", step, num_correct)
    return path


def add_samples(folder, step, num_correct):
    rows = [{"benchmark": "b", "id": "a", "sample_index": i, "completion": "x", "answer": "1"} for i in range(4)]
    write_rows(folder / "b.jsonl", ({**row, "correct": i < num_correct} for i, row in enumerate(rows)))
    document = {"checkpoint": f"step-{step:06d}", "benchmarks": {"b": {"n": 4}}}
    (folder / "sampling.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.mark.parametrize("command", ["passk", "ucc"])
@pytest.mark.parametrize(("step", "value"), [("2", 0.75), ("4", 0.25), ("best", 0.75)])
def test_only_the_samples_of_the_step_are_measured(run, command, step, value):
    rows = json.loads(quatro("eval", command, run, "--step", step, "--k", "1", "--json").stdout)["rows"]
    metric = {"passk": "pass@k", "ucc": "ucc@k"}[command]
    (found,) = (row for row in rows if (row["metric"], row["benchmark"]) == (metric, "b"))
    assert found["n"] == 4
    assert found["value"] == pytest.approx(value)


def test_a_step_without_samples_is_refused_with_the_command_that_draws_them(run):
    done = quatro("eval", "passk", run, "--step", "6", code=2)
    says(done, run, "step-000006", advice=f"quatro sample {run} --step 6 -b b")
    says(quatro("eval", "passk", run, "--step", "6", "-b", "c,d", code=2), advice=f"sample {run} --step 6 -b c,d")


def test_a_step_without_samples_or_checkpoint_is_refused_with_the_steps_that_there_are(run):
    says(quatro("eval", "ucc", run, "--step", "7", code=2), run, value=7, advice="2, 4, 6")
    says(quatro("eval", "ucc", run, "--step", "last", code=2), key="--step", value="last")


def test_two_folders_of_one_step_are_both_named(run):
    add_samples(run / "samples/T1-p0.7-step000002", 2, 1)
    done = quatro("eval", "passk", run, "--step", "best", code=2)
    says(done, run / "samples/T1-p0.7-step000002", run / "samples/T1-p1-step000002", key="--step", value="best")


def test_a_step_is_that_of_a_run(run):
    folder = run / "samples/T1-p1-step000002"
    says(quatro("eval", "passk", folder, "--step", "2", code=2), folder, key="--step", advice="leave it out")
