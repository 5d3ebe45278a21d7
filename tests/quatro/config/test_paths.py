"""How files name other files, and how those are found."""

import json
import re
from pathlib import Path

import pytest

from evals.errors import MissingError
from quatro.config import config_to_yaml, load_config, pinned
from quatro.config.load import lasting_differences, lasting_digest, refuse_lost
from quatro.config.paths import relative
from tests.kit import quatro, says

REWARDS = "[countdown, {name: model, options: {path: judge}}]"


def test_a_path_is_relative_unless_only_the_root_is_common(tmp_path):
    assert relative("/there/model", Path("/here/run")) == "/there/model"
    assert relative(str(tmp_path / "model"), tmp_path / "model/runs/t1") == "../.."
    assert relative("owner/name", tmp_path) == "owner/name"


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    for name in ("cfg/m", "m", "judge"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text(json.dumps({"name": name}), encoding="utf-8")
    for name in ("cfg/p.jsonl", "p.jsonl", "b.jsonl"):
        (tmp_path / name).write_text(f"{name}\n", encoding="utf-8")
    text = f"extends: quickstart\nmodel: m\nreward: {REWARDS}\n"
    text += "data: {prompts: p.jsonl, template: plain}\neval: {benchmark: b.jsonl}\n"
    (tmp_path / "cfg/mine.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_path_of_a_file_means_its_folder_and_then_the_current_one(folder):
    config = load_config("cfg/mine.yaml")
    found = (config.model, config.data.prompts, config.eval.benchmark)
    assert found == ("cfg/m", "cfg/p.jsonl", "b.jsonl")
    origins = json.loads(quatro("config", "show", "cfg/mine.yaml", "--json").stdout)["origins"]
    says(origins["model"], "found in cfg")
    says(origins["eval.benchmark"], "found in the current folder")
    assert load_config("cfg/mine.yaml", overrides=["model=m"]).model == "m"  # an option means the current folder


def test_files_in_a_list_of_benchmarks_are_found_again_and_keep_their_names(folder, tmp_path_factory, monkeypatch):
    text = "extends: mine.yaml\neval: {benchmark: [countdown, b.jsonl, p.jsonl], n: [4, 2, 1]}\n"
    (folder / "cfg/several.yaml").write_text(text, encoding="utf-8")
    config = pinned(load_config("cfg/several.yaml"))
    assert [key for key in config.paths if "eval" in key] == ["eval.benchmark.1", "eval.benchmark.2"]
    assert config.eval.benchmark == ("countdown", str(folder / "b.jsonl"), str(folder / "cfg/p.jsonl"))
    run = folder / "runs/t1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(config_to_yaml(config, folder=run), encoding="utf-8")
    assert 'benchmark: [countdown, "../../b.jsonl", "../../cfg/p.jsonl"]' in (run / "config.yaml").read_text("utf-8")
    there = tmp_path_factory.mktemp("there") / "b"
    folder.rename(there)
    (there / "b.jsonl").rename(there / "renamed.jsonl")
    monkeypatch.chdir(there)
    with pytest.raises(MissingError) as lost:
        refuse_lost(load_config("runs/t1"), "quatro train runs/t1 --resume")
    says(lost, key="eval.benchmark.1", advice="-s eval.benchmark.1=PATH")
    changed = load_config("runs/t1", overrides=["eval.benchmark.1=renamed.jsonl"])
    moved = pinned(changed, only=config.paths).with_paths({}, config.paths)
    assert {name: n for name, (_, n) in moved.evaluated.items()} == {"countdown": 4, "b": 2, "p": 1}
    assert [benchmark for benchmark, _ in moved.evaluated.values()][1] == str(there / "renamed.jsonl")
    assert lasting_digest(moved) == lasting_digest(config)


def test_names_are_no_paths(folder):
    for name in ("countdown", "quickstart", "embedded:countdown"):
        (folder / "cfg" / name).mkdir()
    (folder / "cfg/own.yaml").write_text("extends: quickstart\ndata: {prompts: countdown}\n", encoding="utf-8")
    config = pinned(load_config("cfg/own.yaml"))
    assert (config.model, config.data.prompts, config.paths) == ("embedded:countdown", "countdown", {})


def test_a_moved_configuration_is_the_same(folder, tmp_path_factory, monkeypatch):
    config = pinned(load_config("cfg/mine.yaml"))
    run = folder / "runs/t1"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(config_to_yaml(config, folder=run), encoding="utf-8")
    assert set(config.paths) == {"model", "data.prompts", "eval.benchmark", "reward.options.rewards.1.options.path"}
    assert re.findall(r"[\"' ]/\S+", (run / "config.yaml").read_text(encoding="utf-8")) == []
    assert load_config(run) == config
    there = tmp_path_factory.mktemp("there") / "b"
    folder.rename(there)
    monkeypatch.chdir(there)
    moved = load_config("runs/t1")
    assert moved.model == str(there / "cfg/m")
    assert lasting_digest(moved) == lasting_digest(config)
    digests = {key: one.digest for key, one in config.paths.items()}
    assert lasting_differences(config.model_dump(mode="json"), digests, moved) == []
    (there / "judge/config.json").write_text("{}", encoding="utf-8")
    changed = pinned(load_config("cfg/mine.yaml"))
    assert lasting_digest(changed) != lasting_digest(config)
    (said,) = lasting_differences(config.model_dump(mode="json"), digests, changed)
    says(said, digests["reward.options.rewards.1.options.path"], key="reward.options.rewards")
    diff = quatro("config", "diff", "runs/t1", "cfg/mine.yaml").stdout
    assert "judge" in diff
