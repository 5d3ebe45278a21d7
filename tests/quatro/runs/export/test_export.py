"""`export`: verified, complete, loadable, and whole or not there."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

from evals.errors import DataError, UsageError
from quatro.config import load_config
from quatro.policy.loading import load_tokenizer
from quatro.runs import checkpoint
from quatro.runs.directory import RunDir
from quatro.runs.export.folder import export_model, gather_facts
from tests.kit import read_json


@pytest.fixture
def run(tmp_path: Path, tiny_folder: Path) -> Path:
    """A run with checkpoints of iterations 2 and 4, whose weights are told apart by a factor."""
    path = tmp_path / "run"
    with RunDir.create(path, load_config("quickstart", overrides=[f"model={tiny_folder}", "steps=4"])) as opened:
        for step in (2, 4):
            opened.append_metrics({"step": step, "reward/mean": step / 10})
            weights = load_file(tiny_folder / "model.safetensors")

            def fill(folder: Path, weights: Any = weights, step: int = step) -> None:
                shutil.copytree(tiny_folder, folder, dirs_exist_ok=True)
                load_tokenizer(str(tiny_folder)).save_pretrained(folder)
                scaled = {name: tensor * step for name, tensor in weights.items()}
                save_file(scaled, folder / "model.safetensors", metadata={"format": "pt"})

            checkpoint.save(opened, step, fill, {}, {})
    return path


def add_step(run: Path, tiny_folder: Path, change: Callable[[Path], object]) -> None:
    """A checkpoint of iteration 6: the model of ``tiny_folder`` with a change."""

    def fill(folder: Path) -> None:
        shutil.copytree(tiny_folder, folder, dirs_exist_ok=True)
        change(folder)

    with RunDir.open(run) as opened:
        checkpoint.save(opened, 6, fill, {}, {})


def model_of(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}" / "model"


def test_every_file_is_that_of_the_newest_checkpoint(run, tmp_path, contents, monkeypatch):
    before = contents(run)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "torch", None)  # copying needs none of it
        exported = export_model(run, tmp_path / "out")
    assert (exported.step, exported.dtype) == (4, "float32")
    found = contents(tmp_path / "out")
    assert found.pop("README.md").startswith(b"---\n")
    assert found == contents(model_of(run, 4))
    assert contents(run) == before
    assert len({path.stat().st_mode for path in (tmp_path / "out").iterdir()}) == 1
    assert sorted(os.listdir(tmp_path)) == ["out", "run"]


def test_a_named_step_is_exported_and_an_absent_one_refused(run, tmp_path, contents):
    assert export_model(run, tmp_path / "out", step=2).step == 2
    found = contents(tmp_path / "out")
    assert found["model.safetensors"] == contents(model_of(run, 2))["model.safetensors"]
    assert b"of iteration 2 after" in found["README.md"]
    with pytest.raises(UsageError, match=r"has no checkpoint of step 3; it has 2, 4$"):
        export_model(run, tmp_path / "other", step=3)


def test_weights_kept_in_bfloat16_stay_so(run, tmp_path, tiny_folder):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.bfloat16)
    add_step(run, tiny_folder, model.save_pretrained)
    assert export_model(run, tmp_path / "out").dtype == "bfloat16"
    found, wanted = (folder / "model.safetensors" for folder in (tmp_path / "out", model_of(run, 6)))
    assert found.read_bytes() == wanted.read_bytes()


def test_a_flipped_bit_stops_the_export(run, tmp_path):
    file = model_of(run, 4) / "model.safetensors"
    damaged = bytearray(file.read_bytes())
    damaged[-100] ^= 4
    file.write_bytes(damaged)
    with pytest.raises(DataError, match="SHA-256"):
        export_model(run, tmp_path / "out")
    assert sorted(os.listdir(tmp_path)) == ["run"]
    assert export_model(run, tmp_path / "out", step=2).step == 2


def test_nothing_is_overwritten(run, tmp_path, contents):
    out = tmp_path / "out"
    out.mkdir()
    export_model(run, out)  # an empty folder is as good as none
    before = contents(out)
    for taken in (out, run, out / "README.md"):
        with pytest.raises(UsageError, match="-o"):
            export_model(run, taken, step=2)
    assert contents(out) == before


def test_what_is_no_run_and_what_has_no_checkpoint_is_said(tmp_path):
    with pytest.raises(UsageError, match="runs list"):
        export_model(tmp_path, tmp_path / "out")
    RunDir.create(tmp_path / "run", load_config("quickstart")).close()
    with pytest.raises(DataError, match="no complete checkpoint"):
        export_model(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_paths_of_this_machine_are_taken_out_of_the_configuration(run, tmp_path, tiny_folder, contents):
    from transformers import AutoConfig

    def change(folder: Path) -> None:
        config = read_json(folder / "config.json")
        config |= {"_name_or_path": "/home/me/x", "limit": float("inf")}
        config["inner"] = {"name_or_path": "/home/me/y", "torch_dtype": "float32"}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    add_step(run, tiny_folder, change)
    export_model(run, tmp_path / "out")
    config = read_json(tmp_path / "out" / "config.json")
    assert "_name_or_path" not in config
    assert AutoConfig.from_pretrained(tmp_path / "out").limit == float("inf")
    assert config["inner"] == {"torch_dtype": "float32"}
    for content in contents(tmp_path / "out").values():
        assert str(tmp_path).encode() not in content


def test_a_failure_of_any_call_leaves_nothing_or_everything(run, tmp_path, monkeypatch, contents):
    """The Nth of the calls that change the disk fails, for every N until none does."""
    out, count = tmp_path / "out", 0

    def failing(real: Callable[..., Any], at: int) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                raise OSError(28, "No space left on device", "somewhere")
            return real(*arguments, **options)

        return call

    for at in range(1, 100):
        count = 0
        with monkeypatch.context() as patch:
            for owner, name in ((os, "rename"), (os, "replace"), (os, "fsync"), (Path, "mkdir"), (Path, "open")):
                patch.setattr(owner, name, failing(getattr(owner, name), at))
            try:
                export_model(run, out)
            except (OSError, DataError):  # the latter where metrics.jsonl cannot be opened
                pass
            else:
                break
        present = sorted(os.listdir(tmp_path))
        assert present in (["run"], ["out", "run"])
        if "out" in present:  # the folder has its name, and only making that durable failed
            assert (out / "README.md").exists()
            shutil.rmtree(out)
    assert at > 20
    assert len(contents(out)) == 6


def test_fault_39_a_killed_export_leaves_no_half_folder_and_is_made_again(run, tmp_path):
    out = tmp_path / "out"
    child = os.fork()
    if child == 0:
        try:
            export_model(run, out, progress=lambda done, total: os.kill(os.getpid(), signal.SIGKILL))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not out.exists()
    left = {"run", f".out.{child}.tmp"}
    assert set(os.listdir(tmp_path)) == left
    export_model(run, out)
    assert set(os.listdir(tmp_path)) == {*left, "out"}


def test_fault_04_a_write_that_fails_names_its_folder(run, tmp_path):
    size = (model_of(run, 4) / "model.safetensors").stat().st_size
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*\.out\..*/model\.safetensors"):
            export_model(run, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert sorted(os.listdir(tmp_path)) == ["run"]


@pytest.mark.parametrize(
    ("model", "base"),
    [("Qwen/Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-1.5B"), ("/models/x", None), ("embedded:countdown", None)],
)
def test_only_an_id_of_the_hub_is_a_base_model(tmp_path, model, base):
    config = load_config("quickstart", overrides=[f"model={model}"])
    assert gather_facts(tmp_path, config, 1, name="n", dtype="float32").base_model == base


def test_the_base_model_of_an_adapter_is_the_one_at_the_end(tmp_path):
    config = load_config("quickstart", overrides=[f"model={tmp_path / 'second'}"])
    for name, changed in (("first", "Qwen/Qwen2.5-Math-1.5B"), ("second", str(tmp_path / "first"))):
        (tmp_path / name).mkdir()
        document = json.dumps({"base_model_name_or_path": changed})
        (tmp_path / name / "adapter_config.json").write_text(document, encoding="utf-8")
    assert gather_facts(tmp_path, config, 1, name="n", dtype="float32").base_model == "Qwen/Qwen2.5-Math-1.5B"
    shutil.rmtree(tmp_path / "first")
    assert gather_facts(tmp_path, config, 1, name="n", dtype="float32").base_model is None


def test_known_data_are_named_by_their_hub_id(tmp_path):
    facts = gather_facts(tmp_path, load_config("math-1.5b"), 1, name="n", dtype="float32")
    assert facts.datasets == ["DigitalLearningGmbH/MATH-lighteval"]


def test_results_of_the_exported_checkpoint_go_with_the_model(run, tmp_path):
    """And no others: not those of another step, and not of a benchmark that the Hub does not know."""
    rows = [
        {"metric": "pass@k", "benchmark": name, "k": 1, "value": 0.625, "num_problems": 4, "n": 2}
        for name in ("gsm8k", "countdown", "average")
    ]
    (run / "results").mkdir()
    for step, value in ((2, 0.25), (4, 0.625)):
        document = {"schema": 1, "metric": "pass@k", "checkpoint": f"step-{step:06d}"}
        document["rows"] = [{**row, "value": value} for row in rows]
        (run / "results" / f"{step}.json").write_text(json.dumps(document), encoding="utf-8")
    for step, value in ((None, 62.5), (2, 25.0)):
        out = tmp_path / f"out-{step}"
        export_model(run, out, step=step)
        (file,) = (out / ".eval_results").iterdir()
        (entry,) = yaml.safe_load(file.read_text(encoding="utf-8"))
        assert (file.name, entry["dataset"]["id"], entry["value"]) == ("gsm8k.yaml", "openai/gsm8k", value)
    (run / "results" / "2.json").write_text('{"rows": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=r"2\.json"):
        export_model(run, tmp_path / "damaged")
    assert not list(tmp_path.glob("*damaged*"))
