"""Work that is moved between two checkpoints: what goes on elsewhere ends with the bytes that it had had."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

import quatro as api
from evals.errors import UsageError
from quatro.config import load_config
from tests.kit import quatro, read_json, read_rows, says, settings, write_rows

SMALL = settings(
    *("data.prompts=data/p.jsonl", "data.template=plain", "reward=brief:short", "steps=2"),
    *("eval.benchmark=data/p.jsonl", "prompts_per_step=4", "minibatch_prompts=2", "rollouts_per_prompt=2"),
    *("rollout.max_new_tokens=8", "optimizer.lr=1e-2", "optimizer.warmup_steps=0", "checkpoint.every=1", "threads=1"),
)


@pytest.fixture
def work(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a model, a reward and data."""
    folder = tmp_path / "a b" / "ü"
    shutil.copytree(tiny_folder, folder / "model")
    (folder / "brief.py").write_text("def short(num_tokens): return max(0.0, 1 - num_tokens / 8)\n", encoding="utf-8")
    write_rows(folder / "data/p.jsonl", [{"id": str(i), "problem": f"1 2 3 {i} = 6", "answer": "6"} for i in range(4)])
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def move(tmp_path, monkeypatch):
    def moved(folder: Path) -> Path:
        monkeypatch.chdir(tmp_path)
        shutil.move(folder, there := tmp_path / "there")
        monkeypatch.chdir(there)
        return there

    return moved


def train(run: str, *more: str) -> Path:
    quatro("train", "quickstart", "-o", run, *settings("model=model"), *SMALL, *more)
    return Path(run)


def killed(run: Path) -> Path:
    """``run`` as a kill after its second iteration leaves it: the checkpoint is that of the first."""
    shutil.rmtree(run / "checkpoints/step-000002")
    (run / "checkpoints/latest").write_text("step-000001\n", encoding="utf-8")
    status = {key: value for key, value in read_json(run / "status.json").items() if not key.startswith("metrics_")}
    (run / "status.json").write_text(json.dumps({**status, "status": "running"}), encoding="utf-8")
    return run


def outcome(run: Path) -> tuple[object, ...]:
    rows = [{k: v for k, v in row.items() if not k.startswith("perf/")} for row in read_rows(run / "metrics.jsonl")]
    weights = {path.name: path.read_bytes() for path in (run / "checkpoints/step-000002/model").glob("*.safetensors")}
    return rows, weights, read_json(run / "status.json")["run_digest"]


def absolute_paths(run: Path) -> list[str]:
    text = (run / "config.yaml").read_text(encoding="utf-8") + (run / "checkpoints/step-000001/state.json").read_text()
    return re.findall(r'"/[^"]*"', text)


def test_fault_54_a_run_that_was_moved_goes_on_bit_by_bit(work, move):
    run = train("runs/t1", *settings("eval.every=2", "eval.n=1"))
    whole = outcome(run)
    assert absolute_paths(run) == []
    quatro("sample", run, "-b", "data/p.jsonl", "-n", "1", "--step", "1")
    killed(run)
    there = move(work)
    says(quatro("doctor", run).stdout, "1 iterations left", advice="--resume")
    quatro("sample", run, "-b", "data/p.jsonl", "-n", "2", "--step", "1")
    renamed = (there / "data/p.jsonl").rename(there / "data/q.jsonl")
    quatro("train", run, "--resume", *settings("data.prompts=data/q.jsonl", "eval.benchmark=data/q.jsonl"))
    assert outcome(run) == whole
    assert load_config(run).model == str(there / "model")
    renamed.rename(there / "data/p.jsonl")
    assert api.fine_tune("quickstart", run, resume=True, overrides=overrides()).status == "done"


def overrides(**more: object) -> dict[str, object]:
    found = dict(word.split("=", 1) for word in [*SMALL, "model=model", "eval.every=2", "eval.n=1"] if "=" in word)
    typed = {key: int(value) if value.isdecimal() else value for key, value in found.items()}
    return {**typed, "optimizer.lr": 1e-2, **more}


@pytest.mark.slow
def test_fault_54_an_adapter_that_was_moved_with_its_model_goes_on_bit_by_bit(work, move):
    pytest.importorskip("peft")
    run = train("runs/t1", *settings("policy.lora.rank=2"))
    whole = outcome(run)
    killed(run)
    there = move(work)
    quatro("train", run, "--resume")
    assert outcome(run) == whole
    adapter = run / "checkpoints/step-000002/model/adapter_config.json"
    assert read_json(adapter)["base_model_name_or_path"] == str(there / "model")  # where peft looks for it
    quatro("sample", run, "-b", "data/p.jsonl", "-n", "1")
    quatro("export", run, "-o", "merged")


@pytest.mark.slow
def test_fault_54_a_sweep_that_was_moved_takes_up_its_orphan_and_keeps_its_base(work, move):
    command = ["sweep", "quickstart", "-g", "method.delta=0.1,0.01", "--eval", "data/p.jsonl", "--eval-n", "1"]
    quatro(*command, *settings("model=model"), *SMALL, "-o", "sweeps/s")
    runs = [Path("sweeps/s/runs") / name for name in ("delta=0.1", "delta=0.01")]
    whole = [outcome(run) for run in runs]
    numbers = re.findall("[0-9.]+", quatro("table", "sweeps/s").stdout)
    assert '"/' not in Path("sweeps/s/sweep.yaml").read_text(encoding="utf-8")
    (base,) = Path("sweeps/s/base").glob("*/samples/*/p.jsonl")
    drawn = base.stat().st_mtime_ns
    killed(runs[0])
    shutil.rmtree(runs[1])
    move(work)
    quatro("sweep", "sweeps/s")
    assert [outcome(run) for run in runs] == whole
    assert re.findall("[0-9.]+", quatro("table", "sweeps/s").stdout) == numbers
    quatro(*command, *settings("model=model"), *SMALL, "-o", "sweeps/s")
    assert (base.stat().st_mtime_ns, len(list(Path("sweeps/s/base").iterdir()))) == (drawn, 1)


@pytest.mark.slow
def test_fault_54_another_mount_point_and_what_stayed_behind(work, tmp_path, monkeypatch):
    run = train("runs/t1")
    whole = outcome(run)
    killed(run)
    shutil.move(work / "runs", there := tmp_path / "mnt" / "deep" / "runs")
    (there.parent / "data").symlink_to(work / "data")
    monkeypatch.chdir(there.parent)
    (there.parent / "model").mkdir()  # something else
    refused = quatro("train", run, "--resume", code=4)
    says(refused, str(there.parent / "model"), key="model", value=load_config(run).paths["model"].digest)
    says(refused, advice=f"quatro train {run} --resume -s model=PATH")
    elsewhere = settings(f"model={work / 'model'}", f"data.prompts={work / 'data/p.jsonl'}")
    quatro("train", run, "--resume", *elsewhere)
    assert outcome(run) == whole
    assert load_config(run).model == str(work / "model")


def test_fault_54_what_was_edited_or_is_gone_is_refused_with_both_digests(work):
    run = train("runs/t1")
    killed(run)
    then = load_config(run).paths
    prompts = work / "data/p.jsonl"
    before = prompts.read_text(encoding="utf-8")
    prompts.write_text(before.replace("6", "7"), encoding="utf-8")
    says(quatro("train", run, "--resume", code=4), then["data.prompts"].digest, str(prompts), key="data.prompts")
    prompts.write_text(before, encoding="utf-8")
    for key, other in (("data.prompts", "q.jsonl"), ("model", "other")):
        write_rows(Path("q.jsonl"), [{"problem": "1 2 3 4 = 5", "answer": "5"}])
        Path("other").mkdir(exist_ok=True)
        error = quatro("train", run, "--resume", "-s", f"{key}={other}", code=2)
        says(error, then[key].digest, "digest", advice=f"{run}/config.yaml")
    with pytest.raises(UsageError, match=then["model"].digest):
        api.fine_tune("quickstart", run, resume=True, overrides=overrides(model="other"))
    says(quatro("train", run, "--resume", "-s", "data.prompts=nowhere.jsonl", code=2), "nothing is there")
    prompts.unlink()
    says(quatro("train", run, "--resume", code=3), str(prompts), advice="-s data.prompts=PATH")
    assert load_config(run).data.prompts == str(prompts), "a run is read where its data are not"
