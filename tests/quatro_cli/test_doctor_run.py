"""`quatro doctor RUN` says how a run stands and finds every damaged part of it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from quatro.runs.status import RunLock
from quatro.runs.views.doctor import examine
from tests.kit import quatro, read_json, says, settings

pytest.importorskip("torch")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """Three iterations of three, with a checkpoint of each."""
    run = tmp_path_factory.mktemp("runs") / "run"
    chosen = [f"model={tiny_folder}", "steps=3", "threads=1", "prompts_per_step=2", "minibatch_prompts=2"]
    chosen += ["rollouts_per_prompt=2", "rollout.max_new_tokens=4", "checkpoint.every=1", "checkpoint.keep=3"]
    words = settings(*chosen)
    quatro("train", "quickstart", "-m", "quatro", "-o", run, *words)
    return run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def set_status(run: Path, status: str, step: int) -> None:
    path = run / "status.json"
    path.write_text(json.dumps({**read_json(path), "status": status, "step": step}), encoding="utf-8")


def go_back_to(run: Path, step: int) -> None:
    """As if the run had been killed after the checkpoint of ``step``."""
    for folder in run.glob("checkpoints/step-*"):
        if int(folder.name[5:]) > step:
            shutil.rmtree(folder)
    latest = run / "checkpoints" / "latest"
    latest.write_text(f"step-{step:06}\n", encoding="utf-8") if step else latest.unlink()
    set_status(run, "running", step)


def damaged(run: Path) -> list[str]:
    return [part.name for part in examine(run).damaged]


def test_a_finished_run_is_whole(run):
    found = json.loads(quatro("doctor", run, "--json").stdout)
    assert (found["is_finished"], found["is_resumable"], found["is_whole"]) == (True, False, True)
    names = [part["name"] for part in found["parts"]]
    assert {"config.yaml", "metrics.jsonl", "rollouts", "checkpoints/step-000002"} <= set(names)


def test_what_doctor_says_of_a_killed_run_is_what_a_resume_does(run):
    go_back_to(run, 2)
    found = examine(run)
    assert (found.status, found.is_finished, found.is_resumable) == ("killed", False, True)
    assert "from step-000002, with 1 iterations left" in found.resume
    assert found.damaged == []
    quatro("train", run, "--resume")
    assert examine(run).is_finished


def test_a_run_without_a_checkpoint_begins_again(run):
    go_back_to(run, 0)
    found = examine(run)
    assert found.is_resumable
    assert "from the beginning" in found.resume


def test_a_finished_run_that_has_lost_its_checkpoints_is_not_whole(run):
    shutil.rmtree(run / "checkpoints")
    assert damaged(run) == ["checkpoints/latest"]


@pytest.mark.parametrize("what", ["checkpoints/step-000003", "checkpoints/step-000003/manifest.json"])
@pytest.mark.parametrize("with_latest", [True, False])
def test_fault_08_a_run_that_has_lost_its_newest_checkpoint_is_not_whole_and_not_sampled(
    run, tmp_path, what, with_latest
):
    gone = run / what
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    if not with_latest:
        (run / "checkpoints" / "latest").unlink()
    assert "checkpoints/latest" in damaged(run)
    quatro("doctor", run, code=6)
    if with_latest:
        for command in (["sample", str(run), "-b", "countdown", "--dry-run"], ["export", str(run)]):
            result = quatro(*command, "-o", tmp_path / "out", code=4)
            assert "names step-000003, which is gone or incomplete" in " ".join(result.stderr.split())
            assert "--step (step-000002 is the newest" in " ".join(result.stderr.split())
    result = quatro("export", run, "--step", "2", "-o", tmp_path / "out")
    quatro("train", run, "--resume")
    assert damaged(run) == []


def test_a_finished_run_whose_steps_were_raised_can_go_on(run):
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("steps: 3", "steps: 4"), encoding="utf-8")
    found = examine(run)
    assert found.is_resumable
    assert "from step-000003, with 1 iterations left" in found.resume


def test_files_that_are_gone_are_named(run):
    for name in ("rollouts/step-000002.jsonl", "environment.json"):
        (run / name).unlink()
    parts = {part.name: part.detail for part in examine(run).damaged}
    assert parts.keys() == {"checkpoints/step-000003: the run's files", "environment.json"}
    assert "rollouts/step-000002.jsonl" in parts["checkpoints/step-000003: the run's files"]
    assert parts["environment.json"] == f"{run / 'environment.json'}: No such file or directory"


def test_a_run_that_is_trained_now_is_not_resumed(run):
    set_status(run, "running", 2)
    held = RunLock(run)
    try:
        assert examine(run).resume.startswith("no: a process")
    finally:
        held.close()


@pytest.mark.parametrize(
    "name",
    ["checkpoints/step-000003/model/model.safetensors", "checkpoints/step-000003/state.json", "metrics.jsonl"],
)
def test_a_flipped_bit_stands_in_the_way_of_a_resume(run, name):
    set_status(run, "interrupted", 3)
    content = bytearray((run / name).read_bytes())
    content[len(content) // 2] ^= 1
    (run / name).write_bytes(bytes(content))
    found = examine(run)
    assert not found.is_resumable
    assert name.split("/")[-1] in found.resume
    assert found.damaged
    quatro("doctor", run, code=6)
    quatro("train", run, "--resume", "-s", "steps=4", code=4)


def test_a_run_goes_on_without_its_damaged_checkpoint(run):
    set_status(run, "interrupted", 3)
    (run / "checkpoints/step-000003/tensors.safetensors").unlink()
    assert damaged(run) == ["checkpoints/step-000003"]
    shutil.rmtree(run / "checkpoints/step-000003")
    quatro("train", run, "--resume")


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("config.yaml", "steps: x\n", "config.yaml"),
        ("status.json", "{", "status.json"),
        ("environment.json", "[]", "environment.json"),
        ("rollouts/step-000002.jsonl", "{}\n{\n", "rollouts"),
        ("samples/s.jsonl", "no\n", "samples/s.jsonl"),
        ("graded/s.jsonl", "no\n", "graded/s.jsonl"),
        ("samples/T1/passk.json", '{"a": NaN}', "samples/T1/passk.json"),
        ("checkpoints/step-000001/model/extra", "", "checkpoints/step-000001"),
    ],
)
def test_every_damaged_file_is_named(run, name, content, part):
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text(content, encoding="utf-8")
    assert part in damaged(run)


def test_rows_that_are_missing_in_the_middle_are_named(run):
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0] + lines[2], encoding="utf-8")
    part = next(part for part in examine(run).damaged if part.name == "metrics.jsonl")
    assert "the row of iteration 3 follows that of 1" in part.detail


def test_why_a_run_failed_is_said(run):
    assert examine(run).reason is None
    status = read_json(run / "status.json") | {"status": "failed", "reason": "No space left on device"}
    (run / "status.json").write_text(json.dumps(status), encoding="utf-8")
    assert json.loads(quatro("doctor", run, "--json").stdout)["reason"] == "No space left on device"
    says(quatro("doctor", run).stdout, "failed", "No space left on device")


def test_no_run_is_refused(tmp_path):
    assert "is not a run directory" in quatro("doctor", tmp_path, code=2).stderr


@pytest.mark.parametrize("name", ["status.json", "checkpoints/latest", "rollouts/step-000001.jsonl"])
def test_a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for(name, run):
    (run / name).unlink(missing_ok=True)
    (run / name).parent.mkdir(exist_ok=True)
    os.mkfifo(run / name)
    result = quatro("doctor", run, code=4)
    assert f"{name} is a pipe" in " ".join(result.stderr.split()), result.stderr


def test_of_a_sweep_it_says_how_to_look_at_each_run(tmp_path):
    (tmp_path / "sweep.yaml").write_text("points:\n  a: {seed: '0'}\n", encoding="utf-8")
    says(quatro("doctor", tmp_path, code=2), "is a sweep", advice=f"for run in {tmp_path}/runs/*; do quatro doctor")
