"""Runs that train an adapter: stopped, resumed, sampled from, exported."""

from __future__ import annotations

import logging
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from evals.errors import DataError, MissingError
from evals.files.whole import write_json
from quatro.config import load_config
from quatro.policy.facts import stop_ids
from quatro.policy.loading import load_model, load_tokenizer
from quatro.processes.stop import StopRequest
from quatro.rollout.transformers import TransformersEngine
from quatro.runs import checkpoint
from quatro.runs.directory import RunDir
from quatro.runs.export.folder import export_model
from quatro.runs.status import read_status
from quatro.train import train
from quatro.types import Prompt, Sampling
from tests.kit import quatro


@pytest.fixture
def settings(settings):
    return [*settings, "policy.lora.rank=4", "optimizer.lr=1e-2", "kl.beta=0.01", "steps=4"]


@pytest.mark.slow
def test_an_adapter_learns_and_knows_its_distance_from_the_base(tmp_path, settings, run_training):
    longer = [
        *settings,
        "steps=30",
        "optimizer.lr=5e-3",
        "inner_updates=1",
        "prompts_per_step=16",
        "minibatch_prompts=16",
        "kl.beta=0",
    ]
    rows = run_training(tmp_path / "run", longer)
    first, last = (sum(row["reward/mean"] for row in part) / 5 for part in (rows[:5], rows[-5:]))
    assert last > first + 0.1
    rows = run_training(tmp_path / "pulled", settings)
    assert rows[0]["kl/reference"] == pytest.approx(0, abs=1e-9)  # a new adapter changes nothing
    assert rows[-1]["kl/reference"] > 1e-4


@pytest.mark.parametrize(
    "more",
    [
        pytest.param([], marks=pytest.mark.slow),
        pytest.param(["dtype=bfloat16"], marks=pytest.mark.slow),
        pytest.param(["inner_updates=auto"], marks=pytest.mark.slow),
    ],
)
def test_a_stop_at_any_moment_changes_nothing(
    tmp_path, settings, run_training, rows_of, essence, weights_of, monkeypatch, more
):
    """Among the responses, between optimiser steps and after an iteration; the resumed runs end in the same bytes."""
    settings = [*settings, *more, "steps=2"]
    whole = run_training(tmp_path / "whole", settings)
    steps, num_inside = set(), 0
    for moment in (2, 11, 13, 16):
        stop, looks, cut = StopRequest(), [], tmp_path / f"cut-{moment}"

        def look(self, looks=looks, moment=moment):
            looks.append(1)
            return len(looks) >= moment

        with monkeypatch.context() as patch:
            patch.setattr(StopRequest, "requested", property(look))
            run_training(cut, settings, stop=stop)
        newest = checkpoint.load(checkpoint.find_checkpoint(cut))
        steps.add(newest.step)
        num_inside += newest.is_inside
        with RunDir.open(cut) as run:
            train(load_config(cut), run)
        assert essence(rows_of(cut)) == essence(whole)
        one, other = weights_of(tmp_path / "whole", 2), weights_of(cut, 2)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)
    assert steps == {0, 1}
    assert num_inside


def drawn(folder) -> list[tuple[int, ...]]:
    model, tokenizer = load_model(str(folder), torch.float32, "cpu"), load_tokenizer(str(folder))
    engine = TransformersEngine(model, tokenizer, eos_ids=stop_ids(tokenizer, model), collect_entropy=False)
    prompt = Prompt("b", "0", "p", None, "p", tuple(range(5, 12)))
    (group,) = engine.generate([prompt], [list(range(16))], Sampling(max_new_tokens=12))
    return [rollout.token_ids for rollout in group]


def test_the_export_is_a_plain_model_that_answers_like_the_run(tmp_path, settings, run_training, tiny_folder):
    run_training(tmp_path / "run", settings)
    checkpoint = tmp_path / "run" / "checkpoints" / "step-000004" / "model"
    assert not (checkpoint / "model.safetensors").exists()
    found = export_model(tmp_path / "run", tmp_path / "out")
    assert (found.step, found.dtype) == (4, "float32")
    plain, merged = (load_model(str(folder), torch.float32, "cpu") for folder in (tmp_path / "out", checkpoint))
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), merged.parameters(), strict=True))
    assert drawn(tmp_path / "out") == drawn(checkpoint) != drawn(tiny_folder)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.[jm][sd]*")}
    assert not any(str(tmp_path) in text for text in texts.values())  # no path of this machine
    assert "adapter_config.json" not in texts
    assert "policy.lora.rank" in texts["README.md"]


@pytest.fixture
def base(tmp_path, tiny_folder):
    """A base of the test's own."""
    return shutil.copytree(tiny_folder, tmp_path / "base")


def change(folder) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"] *= 1.5
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.slow
def test_fault_43_nothing_is_merged_into_another_base(tmp_path, settings, run_training, base):
    run = tmp_path / "run"
    run_training(run, [*settings, f"model={base}", "steps=1"])
    adapter = run / "checkpoints" / "step-000001" / "model"
    further = tmp_path / "further"
    run_training(further, [*settings, f"model={adapter}", "steps=2"])  # an adapter upon the adapter
    shutil.rmtree(further / "checkpoints" / "step-000002")
    drawing = ["-b", "countdown", "-n", "1", "-o", str(tmp_path / "samples")]
    loose = shutil.copytree(adapter, tmp_path / "loose")
    quatro("sample", loose, *drawing)

    change(base)
    with pytest.raises(DataError, match=r"the model .*base changed since the run began .*put it back"):
        export_model(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    for place in (run, adapter.parent, adapter):
        refused = quatro("sample", place, "-b", "countdown", "-n", "1", code=4)
        assert "base changed since the run began" in " ".join(refused.stderr.split())
    refused = quatro("sample", loose, *drawing, code=2)
    assert "(fingerprint: " in refused.stderr
    before = {**read_status(further), "status": "done"}
    write_json(further / "status.json", before)
    with RunDir.open(further) as opened, pytest.raises(DataError, match="the reference model changed"):
        train(opened.config, opened)
    assert read_status(further) == before  # refused, and otherwise as it was


@pytest.mark.slow
def test_a_checkpoint_inside_an_iteration_says_so(tmp_path, settings, run_training, monkeypatch, caplog):
    looks, run = [], tmp_path / "run"

    def look(self):
        looks.append(1)
        return len(looks) >= 11

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "requested", property(look))
        run_training(run, settings, stop=StopRequest())
    said = f"checkpoint step-000000-inside was saved inside iteration 1; `quatro train {run} --resume` finishes it"
    with caplog.at_level(logging.WARNING):
        export_model(run, tmp_path / "out")
    assert said in caplog.text
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "stopped inside iteration 1 of 4 iterations" in card
    asked = quatro("sample", run, "-b", "countdown", "-n", "1", "--dry-run")
    assert " ".join(said.split()) in " ".join(asked.stderr.split())
    with RunDir.open(run) as opened:
        train(load_config(run), opened)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        export_model(run, tmp_path / "whole")
    assert "inside" not in caplog.text
    assert "4 of 4 iterations" in (tmp_path / "whole" / "README.md").read_text(encoding="utf-8")


def test_a_run_may_begin_with_an_adapter_and_train_all_weights(tmp_path, settings, run_training, tiny_folder):
    run_training(tmp_path / "first", [*settings, "steps=1"])
    adapter = tmp_path / "first" / "checkpoints" / "step-000001" / "model"
    run_training(tmp_path / "second", [*settings, f"model={adapter}", "policy.lora=null", "steps=1"])
    before = load_model(str(adapter), torch.float32, "cpu").state_dict()
    after = load_model(str(tmp_path / "second/checkpoints/step-000001/model"), torch.float32, "cpu").state_dict()
    assert before.keys() == after.keys()
    assert all(0 < float((before[name] - after[name]).abs().max()) < 0.2 for name in ("model.norm.weight",))


def test_an_export_whose_base_is_gone_says_so_and_leaves_nothing(tmp_path, settings, run_training, base):
    run_training(tmp_path / "run", [*settings, f"model={base}", "steps=1"])
    shutil.rmtree(base)
    with pytest.raises(MissingError, match=r"is an adapter of the model .*base, which is neither here"):
        export_model(tmp_path / "run", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "out"))) == []
