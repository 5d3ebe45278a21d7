"""Runs that train an adapter: stopped, resumed, sampled from, exported."""

from __future__ import annotations

import pytest
import torch

from evals.errors import MissingError
from quatro.config import load_config
from quatro.export import export
from quatro.policy.loading import load_model, load_tokenizer, stop_ids
from quatro.rollout.transformers import TransformersEngine
from quatro.rundir import RunDir
from quatro.stop import StopRequest
from quatro.train import train
from quatro.types import Prompt, Sampling


@pytest.fixture
def settings(settings):
    return [*settings, "policy.lora.rank=4", "optimizer.lr=1e-2", "kl.beta=0.01", "steps=4"]


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


@pytest.mark.parametrize("more", [[], ["dtype=bfloat16"], ["inner_updates=auto"]])
def test_a_stop_at_any_moment_changes_nothing(
    tmp_path, settings, run_training, rows_of, essence, weights_of, monkeypatch, more
):
    """Stops inside and between iterations; the resumed runs end in the same bytes."""
    settings = [*settings, *more, "steps=2"]
    whole = run_training(tmp_path / "whole", settings)
    for moment in (2, 5, 7):
        stop, looks, cut = StopRequest(), [], tmp_path / f"cut-{moment}"

        def look(self, looks=looks, moment=moment):
            looks.append(1)
            return len(looks) >= moment

        with monkeypatch.context() as patch:
            patch.setattr(StopRequest, "requested", property(look))
            run_training(cut, settings, stop=stop)
        with RunDir.open(cut) as run:
            train(load_config(cut), run)
        assert essence(rows_of(cut)) == essence(whole)
        one, other = weights_of(tmp_path / "whole", 2), weights_of(cut, 2)
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in one)


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
    found = export(tmp_path / "run", tmp_path / "out")
    assert (found.step, found.dtype) == (4, "float32")
    plain, merged = (load_model(str(folder), torch.float32, "cpu") for folder in (tmp_path / "out", checkpoint))
    assert all(torch.equal(one, other) for one, other in zip(plain.parameters(), merged.parameters(), strict=True))
    assert drawn(tmp_path / "out") == drawn(checkpoint) != drawn(tiny_folder)
    texts = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out").glob("*.[jm][sd]*")}
    assert not any(str(tmp_path) in text for text in texts.values())  # no path of this machine
    assert "adapter_config.json" not in texts
    assert "policy.lora.rank" in texts["README.md"]
    halved = export(tmp_path / "run", tmp_path / "half", step=3, dtype="bfloat16")
    assert (halved.step, halved.dtype) == (3, "bfloat16")
    assert {p.dtype for p in load_model(str(tmp_path / "half"), "auto", "cpu").parameters()} == {torch.bfloat16}


def test_an_export_whose_base_is_gone_says_so_and_leaves_nothing(tmp_path, settings, run_training, tiny_folder):
    import shutil

    base = tmp_path / "base"
    shutil.copytree(tiny_folder, base)
    run_training(tmp_path / "run", [*settings, f"model={base}", "steps=1"])
    shutil.rmtree(base)
    with pytest.raises(MissingError, match=r"is an adapter of the model .*base, and that folder is not here"):
        export(tmp_path / "run", tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith((".", "out"))) == []
