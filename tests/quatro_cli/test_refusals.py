"""What is refused for want of a file, a folder or a package is refused before torch is loaded, with its usual code."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import quatro, settings

ROOT = Path(__file__).parents[2]

# In one interpreter, one after the other: what one of them loads, the next ones would be blamed for.
SCRIPT = """
import json, sys
from typer.testing import CliRunner
from quatro_cli.app import app
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(app, arguments)
    loaded = sorted({"torch", "transformers"} & {name.split(".")[0] for name in sys.modules})
    print(json.dumps([done.exit_code, done.stderr, loaded]))
"""


def refusals(folder: Path, *commands: list[str]) -> list[tuple[int, str]]:
    """Exit code and stderr of each command, typed in ``folder``, none of which may load torch."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(commands)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {" ".join(command): loaded for command, (_, _, loaded) in zip(commands, found, strict=True) if loaded} == {}
    return [(code, said) for code, said, _ in found]


@pytest.fixture(scope="module")
def finished(model, tmp_path_factory) -> Path:
    """A run that has done its one iteration."""
    run = tmp_path_factory.mktemp("runs") / "run"
    small = ["prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "inner_updates=1", "steps=1"]
    chosen = settings(f"model={model}", *small)
    quatro("train", "quickstart", *chosen, "-o", run)
    return run


MISSING = {
    "a run to resume": (["train", "nowhere", "--resume"], 2, "run directory"),
    "a configuration": (["train", "nowhere"], 2, "'nowhere'"),
    "a model's folder": (["train", "quickstart", "-s", "model=no/such/folder"], 3, "no folder no/such/folder"),
    "a model in its folder": (["train", "quickstart", "-s", "model=."], 3, "holds no tokenizer"),
    "a model of the Hub": (["train", "quickstart", "-s", "model=org/model"], 3, "hf download org/model"),
    "an embedded model": (["train", "quickstart", "-s", "model=embedded:x"], 2, "embedded:countdown"),
    "prompts": (["train", "quickstart", "-s", "data.prompts=no.jsonl"], 4, "no.jsonl"),
    "a benchmark": (["train", "quickstart", "-s", "data.prompts=none-such"], 2, "none-such"),
    "an evaluation": (["train", "quickstart", "-s", "eval.every=1", "-s", "eval.benchmark=no.jsonl"], 4, "no.jsonl"),
    "a reward": (["train", "quickstart", "-s", "reward=no_such_module:f"], 2, "no_such_module"),
    "recorded responses": (
        ["train", "quickstart", "-s", "rollout.engine=replay", "-s", "rollout.replay_file=no.jsonl"],
        4,
        "no.jsonl",
    ),
    "a folder to write": (["train", "quickstart", "-o", "file/run"], 2, "file is a file"),
    "a model, dry run": (["train", "quickstart", "-s", "model=org/model", "--dry-run"], 3, "hf download org/model"),
    "a reward, dry run": (["train", "quickstart", "-s", "reward=no_such_module:f", "--dry-run"], 2, "no_such_module"),
    "a folder to sample": (["sample", "no/such/folder", "-b", "countdown"], 3, "no folder no/such/folder"),
    "a model to sample": (["sample", "org/model", "-b", "countdown"], 3, "hf download org/model"),
    "a model to sample, dry run": (["sample", ".", "-b", "countdown", "--dry-run"], 3, "holds no tokenizer"),
    "a benchmark to sample": (["sample", "embedded:countdown", "-b", "no.jsonl"], 4, "no.jsonl"),
    "numbers of GPUs": (["sample", "embedded:countdown", "-b", "countdown", "--gpus", "a"], 2, "--gpus"),
    "a run to export": (["export", "nowhere", "-o", "out"], 2, "nowhere is not a run"),
    "a sweep's configuration": (["sweep", "nowhere", "-g", "seed=0,1"], 2, "'nowhere'"),
    "a run to report": (["report", "nowhere", "-o", "page.html"], 2, "nowhere is neither"),
    "a folder for the demo": (["demo", "-o", "file"], 2, "file is a file"),
}


@pytest.mark.slow
def test_what_is_missing_is_refused_before_torch_is_loaded(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    found = refusals(tmp_path, *(command for command, _, _ in MISSING.values()))
    for (name, (_, code, words)), (found_code, said) in zip(MISSING.items(), found, strict=True):
        assert (found_code, words in said) == (code, True), (name, said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_that_is_there_is_refused_what_it_lacks_before_torch_is_loaded(finished, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    adapter = tmp_path / "adapter"
    shutil.copytree(run / "checkpoints" / "step-000001" / "model", adapter)
    (adapter / "adapter_config.json").write_text('{"base_model_name_or_path": "../gone/model"}', encoding="utf-8")
    said = refusals(
        tmp_path,
        ["train", "run"],
        ["train", "quickstart", "-o", "run"],
        ["train", "run", "--resume"],
        ["train", "run", "--resume", "--json"],
        ["sample", "run", "-b", "none-such"],
        ["sample", "run/checkpoints/step-000777", "-b", "countdown"],
        ["sample", "adapter", "-b", "countdown"],
        ["export", "run", "-o", "out", "--step", "777"],
        ["export", "run", "-o", "adapter"],
    )
    assert [code for code, _ in said] == [2, 2, 0, 0, 2, 3, 3, 2, 2]
    words = [
        "--resume",
        "--resume",
        "is done",
        "is done",
        "none-such",
        "step-000777",
        "../gone/model",
        "777",
        "adapter",
    ]
    assert [word for word, (_, text) in zip(words, said, strict=True) if word not in text] == []
    document = json.loads(quatro("train", run, "--resume", "--json").stdout)
    assert document == {"schema": 1, "run": str(run), "interrupted": False, "metrics": {"step": 1.0}}
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_finished_run_with_a_changed_file_or_setting_is_not_called_done(finished, tmp_path):
    changed, edited = tmp_path / "changed", tmp_path / "edited"
    shutil.copytree(finished, changed)
    shutil.copytree(finished, edited)
    with (changed / "checkpoints/step-000001/state.json").open("a", encoding="utf-8") as stream:
        stream.write(" ")
    chosen = (edited / "config.yaml").read_text(encoding="utf-8")
    (edited / "config.yaml").write_text(chosen.replace("seed: 0", "seed: 1"), encoding="utf-8")
    said = refusals(tmp_path, ["train", "changed", "--resume"], ["train", "edited", "--resume"])
    assert [code for code, _ in said] == [4, 4]
    assert "state.json was changed" in said[0][1]
    assert "seed was 0, is 1" in said[1][1]


@pytest.mark.parametrize(
    ("name", "loader"),
    [
        ("no/such/folder", "load_tokenizer"),
        ("EMPTY", "load_tokenizer"),
        ("NO_CONFIG", "load_model_config"),
        ("NO_WEIGHTS", "load_model"),
        ("org/model", "load_tokenizer"),
        ("ADAPTER", "load_model_config"),
    ],
)
def test_a_model_is_refused_in_the_words_in_which_loading_it_would_be(name, loader, model, tmp_path, monkeypatch):
    import torch

    from evals.errors import QuatroError
    from quatro.policy import loading

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    folder = tmp_path / name
    if name.isupper():
        shutil.copytree(model, folder) if name != "EMPTY" else folder.mkdir()
        name = str(folder)
    if folder.name == "NO_CONFIG":
        (folder / "config.json").unlink()
    if folder.name == "NO_WEIGHTS":
        (folder / "model.safetensors").unlink()
    if folder.name == "ADAPTER":
        (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "gone/for/good"}', encoding="utf-8")
    with pytest.raises(QuatroError) as later:
        getattr(loading, loader)(name, *((torch.float32, "cpu") if loader == "load_model" else ()))
    refused = quatro("sample", name, "-b", "countdown", "--dry-run", code=later.value.exit_code)
    assert " ".join(str(later.value).split()) in " ".join(refused.stderr.split())
