"""What `quatro train RUN --resume` finds in the directory: files of the run that were changed, lost or left behind."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quatro import fine_tune
from quatro.config import load_config, resolve_config
from quatro.runs.directory import RunDir
from quatro.sample.request import find_model
from tests.kit import quatro, read_json, says, settings

STEPS = 3


@pytest.fixture(scope="module")
def arguments(tiny_folder: Path) -> list[str]:
    small = ["prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "inner_updates=1", f"steps={STEPS}"]
    keep = ["checkpoint.every=1", f"checkpoint.keep={STEPS}", "save_rollouts=true"]
    chosen = [f"model={tiny_folder}", *small, *keep]
    return ["train", "quickstart", *settings(*chosen)]


@pytest.fixture(scope="module")
def finished(arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    quatro(*arguments, "-o", run)
    return run


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A run of its own that has finished."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def resume(run: Path, code: int = 0) -> Any:
    return quatro("train", run, "--resume", code=code)


def status(run: Path) -> tuple[str, int]:
    document = read_json(run / "status.json")
    return document["status"], document["step"]


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    return lambda text: "".join(change(text.splitlines(keepends=True)))


@pytest.mark.parametrize("how", ["retyped", "resumed", "fine_tune"])
def test_what_was_drawn_before_the_first_checkpoint_is_kept(run, arguments, contents, how):
    shutil.rmtree(run / "checkpoints")
    before = contents(run)
    drawn = {name: before[name] for name in before if name.startswith("rollouts/") or name == "metrics.jsonl"}
    assert len(drawn) == STEPS + 1
    words = ["train", str(run), "--resume"] if how == "resumed" else [*arguments, "-o", str(run)]
    told = quatro(*words, "--dry-run")
    assert str(run / "previous-1") in told.stderr
    assert contents(run) == before
    if how == "fine_tune":
        fine_tune(run, run)
    else:
        told = quatro(*words)
        assert str(run / "previous-1") in told.stderr
    assert status(run) == ("done", STEPS)
    after = contents(run / "previous-1")
    assert {name: after[name] for name in drawn} == drawn


METRICS, ROLLOUTS = "metrics.jsonl", "rollouts/step-000002.jsonl"
CHANGES = {
    "an edited reward": (METRICS, lambda text: text.replace('"reward/mean": 0', '"reward/mean": 9', 1)),
    "a row less and a longer one": (METRICS, lines(lambda rows: [rows[0][:-2] + " " * len(rows[1]) + "}\n", rows[2]])),
    "a row less": (METRICS, lines(lambda rows: rows[1:])),
    "an edited reward of a rollout": (ROLLOUTS, lambda text: text.replace('"reward": 0', '"reward": 1', 1)),
    "a rollout less": (ROLLOUTS, lines(lambda rows: rows[1:])),
}


@pytest.mark.parametrize("then", ["done", "interrupted"])
def test_fault_52_what_the_run_wrote_and_somebody_changed_is_refused(run, contents, then):
    document = read_json(run / "status.json")
    (run / "status.json").write_text(json.dumps({**document, "status": then}, indent=2) + "\n", encoding="utf-8")
    # What a resume cuts back or removes, once nothing can refuse any more.
    with (run / METRICS).open("a", encoding="utf-8") as stream:
        stream.write('{"step": 4}\n')
    (run / "rollouts/step-000004.jsonl").write_text("{}\n", encoding="utf-8")
    (run / "checkpoints/.step-000004.99.tmp").mkdir()
    (run / "checkpoints/.step-000004.99.tmp/state.json").write_text("{", encoding="utf-8")
    (run / "checkpoints/step-000001/manifest.json").unlink()
    for file, change in CHANGES.values():
        text = (run / file).read_text(encoding="utf-8")
        (run / file).write_text(change(text), encoding="utf-8")
        before = contents(run)
        assert f"{file} " in resume(run, 4).stderr
        after = {**contents(run), "log.txt": before["log.txt"], "environment.json": before["environment.json"]}
        assert after == before
        (run / file).write_text(text, encoding="utf-8")
    resume(run)
    assert len((run / METRICS).read_text(encoding="utf-8").splitlines()) == STEPS
    assert not (run / "rollouts/step-000004.jsonl").exists()


def test_rollouts_that_were_removed_are_named_and_not_missed(run):
    for step in (1, 2):
        (run / f"rollouts/step-{step:06d}.jsonl").unlink()
    result = resume(run)
    assert "the rollouts of 2 finished iterations are gone, the first are step-000001.jsonl" in result.stderr
    assert status(run) == ("done", STEPS)


def test_a_run_whose_checkpoints_hold_no_hashes_goes_on(arguments, tmp_path, monkeypatch):
    """As an earlier version left it; what is written from then on is hashed."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "written", property(lambda self: {"metrics_bytes": self.metrics_bytes}), raising=False)
        quatro(*arguments, "-s", "steps=2", "-o", run)
    config = run / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("\nsteps: 2\n", "\nsteps: 3\n"), encoding="utf-8")
    result = resume(run)
    assert "changed" not in result.stderr
    assert "gone" not in result.stderr
    state = read_json(run / "checkpoints/step-000003/state.json")
    assert state["metrics_sha256"] == hashlib.sha256((run / METRICS).read_bytes()).hexdigest()
    last = (run / "rollouts/step-000003.jsonl").read_bytes()
    assert state["rollouts_sha256"] == {"step-000003.jsonl": hashlib.sha256(last).hexdigest()}


def test_a_run_that_was_killed_after_its_last_checkpoint_is_done_after_all_its_steps(run):
    document = read_json(run / "status.json")
    (run / "status.json").write_text(json.dumps({**document, "status": "running", "step": 0}), encoding="utf-8")
    resume(run)
    assert status(run) == ("done", STEPS)


def test_a_run_with_more_iterations_than_steps_is_not_done(run):
    config = run / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("\nsteps: 3\n", "\nsteps: 2\n"), encoding="utf-8")
    says(resume(run, 4), "3 iterations", "steps is 2")


def test_a_checkpoint_that_has_lost_its_manifest_is_made_again(run):
    newest = run / "checkpoints/step-000003"
    (newest / "manifest.json").unlink()
    says(resume(run), "the newest checkpoint, step-000003, is gone or incomplete")
    assert (newest / "manifest.json").exists()
    assert status(run) == ("done", STEPS)


def test_a_resume_may_go_further_and_changes_only_what_no_iteration_computes(run):
    quatro("train", run, "--resume", "--steps", "5", "-s", "checkpoint.keep=2")
    assert status(run) == ("done", 5)
    assert len((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    assert "\nsteps: 5\n" in (run / "config.yaml").read_text(encoding="utf-8")
    before = (run / "config.yaml").read_bytes()
    refused = quatro("train", run, "--resume", "-s", "optimizer.lr=1", "-s", "steps=6", code=2)
    said = " ".join(refused.stderr.split())
    assert "optimizer.lr would be another; what may change is steps, checkpoint, early_stop, save_rollouts" in said
    assert (run / "config.yaml").read_bytes() == before


def test_steps_of_a_falling_rate_stay_as_they_are(arguments, tmp_path):
    run = tmp_path / "run"
    quatro(*arguments, "-s", "optimizer.schedule=cosine", "-o", run)
    assert "steps was 3, is 5" in quatro("train", run, "--resume", "--steps", "5", code=4).stderr


def test_new_takes_the_next_free_name_and_a_dry_run_needs_no_free_one(arguments, run):
    quatro(*arguments, "-o", run, "--dry-run")
    quatro(*arguments, "-o", run, code=2)
    quatro(*arguments, "-o", run, "--new", "--steps", "1")
    assert status(run.with_name("run-2")) == ("done", 1)
    quatro("train", run, "--resume", "--new", code=2)


def test_the_same_method_keeps_its_other_keys(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("model: m\nmethod: {name: quatro, delta: 0.3}\n", encoding="utf-8")
    kept = load_config(file, method="quatro")
    assert kept.method.delta == 0.3
    assert load_config(file, method="gspo").method.name == "gspo"


def test_a_pruned_run_is_exported_and_goes_further(run, tmp_path):
    quatro("runs", "prune", run, "--yes")
    assert [path.name for path in (run / "checkpoints").glob("step-*")] == [f"step-{STEPS:06d}"]
    quatro("export", run, "-o", tmp_path / "model")
    quatro("train", run, "--resume", "--steps", STEPS + 1)
    assert status(run) == ("done", STEPS + 1)


def test_a_run_begins_with_the_weights_of_another(arguments, run, tmp_path):
    chosen = ["-s", f"model={run}", "-s", "optimizer.lr=1e-4"]
    done = quatro(*arguments, *chosen, "-o", tmp_path / "second")
    checkpoint = run / f"checkpoints/step-{STEPS:06}"
    assert load_config(tmp_path / "second").model == str(checkpoint / "model")
    said = " ".join(done.stderr.split())
    assert f"begins with the weights of {checkpoint}; the optimiser and the warm-up begin anew" in said
    # Its name is that of the run, not of the file config.yaml.
    assert resolve_config(str(run / "config.yaml")).stem == run.name
    # Another seed, another order; a checkpoint may be named as well.
    earlier = [*arguments, "-s", f"model={checkpoint.with_name('step-000001')}", "-s", "seed=1", "--dry-run"]
    other = quatro(*earlier)
    assert "same order" not in other.stderr
    assert str(checkpoint.with_name("step-000001") / "model") in other.stdout


def test_a_second_stage_keeps_the_reference_of_the_first_where_it_is_asked_to(arguments, run, tmp_path):
    from safetensors.torch import load_file, save_file

    began, first = tmp_path / "began", run / "checkpoints/step-000001"
    shutil.copytree(load_config(run).model, began)
    weights = {name: 1.1 * value for name, value in load_file(began / "model.safetensors").items()}
    save_file(weights, began / "model.safetensors", {"format": "pt"})
    moved = {}
    for name, setting in (("own", "kl.beta=0.001"), ("kept", f"kl.reference={began}")):
        chosen = ["-s", f"model={run}@1", "-s", setting, "--steps", "1"]
        done = quatro(*arguments, *chosen, "-o", tmp_path / name)
        assert f"begins with the weights of {first};" in done.stderr
        assert ("the reference of the KL penalty is that model" in done.stderr) == (name == "own")
        assert (f"the KL penalty is towards {began}" in done.stderr) == (name == "kept")
        moved[name] = read_json(tmp_path / name / "metrics.jsonl")["kl/reference"]
    assert moved["own"] < 1e-9 < 1e-6 < moved["kept"]
    quatro("train", tmp_path / "kept", "--resume", "--steps", "2")


def test_a_model_to_sample_is_named_like_one_to_train(run):
    assert find_model(f"{run}@1") == find_model(str(run), 1)


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (["model={run}@9"], "has no checkpoint of step 9; it has 1"),
        (["model={run}@best"], "keeps no best checkpoint (checkpoint.keep.best is null)"),
        (["model={run}@last"], "found 'last' behind @, expected an iteration or best, such as {run}@best"),
        (["kl.reference={run}", "kl.beta=0"], "kl.reference: found '{run}', expected null: kl.beta is 0"),
        (["kl.reference={run}", "policy.lora={{}}"], "expected null: with an adapter (policy.lora) the reference is"),
        (["kl.reference={other}"], "is of another architecture than the model: "),
    ],
)
def test_weights_that_cannot_be_taken_are_refused(arguments, run, model, tmp_path, chosen, says):
    words = settings(*(setting.format(run=run, other=model) for setting in chosen))
    refused = quatro(*arguments, *words, "-o", tmp_path / "second", code=2)
    assert says.format(run=run) in " ".join(refused.stderr.split())


@pytest.mark.parametrize("words", [["--resume"], []])
def test_a_run_with_other_settings_is_told_how_to_begin_with_its_weights(run, words):
    refused = quatro("train", run, *words, "-s", "optimizer.lr=1e-4", code=2)
    assert f"`quatro train {run}/config.yaml -s model={run} -s optimizer.lr=1e-4 -s seed=1`" in refused.stderr
    assert "RUN@best" in refused.stderr
