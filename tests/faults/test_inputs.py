"""Configurations, prompts, samples and models that are wrong, damaged or hostile are named before any work."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import quatro, read_json, settings, write_rows


def said(*argv: object, code: int) -> str:
    """What a command that ends with ``code`` says on stderr, in one line."""
    result = quatro(*argv, code=code)
    assert "this is a bug" not in result.stderr
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def row(index: int = 0, **more: Any) -> dict[str, Any]:
    text = "\\boxed{1}"
    return {"benchmark": "b", "id": "1", "sample_index": index, "completion": text, "answer": "1", **more}


def lines(path: Path, *rows: dict[str, Any], end: str = "") -> Path:
    with write_rows(path, rows).open("a", encoding="utf-8") as stream:
        stream.write(end)
    return path


# ---- samples

TORN = '{"benchmark": "b", "id": "1", "sample_ind'


def test_fault_06_a_line_that_a_crash_cut_off_is_left_out_with_a_warning(tmp_path):
    samples = lines(tmp_path / "s.jsonl", row(), end=TORN)
    assert f"{samples}:2" in said("eval", "passk", samples, "--k", "1", code=0)


@pytest.mark.parametrize("after", ["\n", f"\n{json.dumps(row(1))}\n"])
def test_fault_06_a_broken_line_that_was_written_to_its_end_is_an_error(tmp_path, after):
    samples = lines(tmp_path / "s.jsonl", row(), end=TORN + after)
    assert f"{samples}:2: not JSON" in said("eval", "passk", samples, "--k", "1", code=4)


def test_fault_06_a_file_with_a_torn_line_alone_holds_no_samples(tmp_path):
    assert "no samples" in said("eval", "passk", lines(tmp_path / "s.jsonl", end=TORN), "--k", "1", code=4)


@pytest.mark.parametrize("other", [row(), row(completion="\\boxed{2}")], ids=["identical", "another text"])
def test_fault_26_a_sample_that_is_there_twice_is_refused_with_both_lines(tmp_path, other):
    samples = lines(tmp_path / "s.jsonl", row(1), row(), other)
    found = said("eval", "passk", samples, "--k", "1", code=4)
    assert f"{samples}:3" in found
    assert f"{samples}:2" in found


def test_fault_25_an_empty_completion_is_a_wrong_answer(tmp_path):
    result = quatro("eval", "passk", lines(tmp_path / "s.jsonl", row(completion="")), "--json")
    assert '"value": 0.0' in result.stdout


def test_fault_28_a_k_above_n_is_refused(tmp_path):
    found = said("eval", "passk", lines(tmp_path / "s.jsonl", row(), row(1)), "--k", "1,8", code=2)
    assert "k = 8" in found
    assert "n = 2" in found


def test_fault_29_samples_of_another_benchmark_are_refused_and_a_part_is_warned_of(tmp_path):
    samples = lines(tmp_path / "s.jsonl", row(benchmark="aime24"))
    assert "'aime24'" in said("eval", "passk", samples, "-b", "math500", "--k", "1", code=2)
    found = said("eval", "passk", samples, "--k", "1", code=0)
    assert "aime24 has 30 problems, but the samples hold only 1" in found


# ---- configurations


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "c.yaml"
    path.write_text(f"extends: quickstart\n{text}", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("fault", "text", "expected"),
    [
        (21, "stepz: 3\n", "c.yaml:2: stepz: unknown key; did you mean steps?"),
        (21, "optimizer:\n  learning_rate: 3\n", "c.yaml:3: optimizer.learning_rate: unknown key"),
        (22, "steps: true\n", "c.yaml:2: steps: found true, expected a whole number"),
        (22, "optimizer:\n  lr: .nan\n", "c.yaml:3: optimizer.lr: found .nan, expected a finite number"),
        (22, "steps: 3\nsteps: 4\n", "c.yaml:3: key 'steps' is given twice, first on line 2"),
        (23, "method: {name: quatro, delta: 0}\n", "c.yaml:2: method.delta: found 0, expected more than 0"),
        (24, "rollouts_per_prompt: 1\n", "c.yaml:2: rollouts_per_prompt: found 1, expected at least 2"),
        (30, "a: &a [x]\nb: *a\n", "c.yaml:2: anchor or alias a: they are not allowed"),
        (30, "a: !!python/object/apply:os.system [touch hacked]\n", "c.yaml:2: tag"),
        (30, f"a: {'[' * 100}{']' * 100}\n", "c.yaml:2:"),
    ],
)
def test_fault_21_22_23_24_30_a_wrong_line_is_named_with_what_was_expected(tmp_path, fault, text, expected):
    found = said("train", config(tmp_path, text), "--dry-run", code=2)
    assert expected in found


# ---- prompts

SHORT = LONG = "7 2 7 6 2 8 -> 67"


@pytest.fixture
def prompts(tmp_path: Path, tiny_folder: Path) -> Callable[..., list[str]]:
    """``prompts(*problems)``: the arguments of a training on them."""

    def arguments(*problems: str, chosen: tuple[str, ...] = ()) -> list[str]:
        path = lines(
            tmp_path / "p.jsonl", *({"id": f"p{n}", "problem": p, "answer": SHORT} for n, p in enumerate(problems))
        )
        keys = (f"model={tiny_folder}", f"data.prompts={path}", "steps=1", *chosen)
        return ["train", "quickstart", "-o", str(tmp_path / "run"), *settings(*keys)]

    return arguments


def test_fault_25_an_empty_file_and_an_empty_prompt_are_refused(prompts, tmp_path):
    assert "no problems" in said(*prompts(), code=4)
    assert "p.jsonl:2: problem is empty" in said(*prompts("a", " \n"), code=4)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("limit", "names"), [("20", "data.max_prompt_tokens 20"), ("100000", "context")])
def test_fault_27_a_prompt_that_is_too_long_is_refused_and_never_cut(prompts, tmp_path, limit, names):
    found = said(*prompts(SHORT, LONG * 9, chosen=(f"data.max_prompt_tokens={limit}",)), code=4)
    assert "'p1'" in found
    assert names in found
    assert "data.too_long=skip" in found
    assert not (tmp_path / "run").exists()


def test_fault_27_prompts_that_are_too_long_are_left_out_if_asked_for_and_counted(prompts):
    chosen = ("data.max_prompt_tokens=20", "data.too_long=skip", "prompts_per_step=2", "minibatch_prompts=1")
    found = said(*prompts(SHORT, LONG * 9, SHORT, chosen=chosen), code=0)
    assert "1 of 3 prompts are longer than 20 tokens and were left out" in found


def test_fault_27_a_sample_of_a_prompt_that_fills_the_context_is_refused(tiny_folder, tmp_path):
    problems = lines(tmp_path / "toy.jsonl", {"id": "p0", "problem": LONG * 40, "answer": "1"})
    argv = ["sample", tiny_folder, "-b", problems, "--template", "plain", "-o", tmp_path / "out", "-n", "1"]
    assert "'p0'" in said(*argv, code=4)
    assert not list((tmp_path / "out").rglob("*.jsonl"))


# ---- models


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def change_json(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        document = read_json(folder / name)
        change(document)
        (folder / name).write_text(json.dumps(document), encoding="utf-8")

    return damage


def lose_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")


def cut(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])


class Acts:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def train_from(folder: Path, tmp_path: Path, *chosen: str) -> list[str]:
    keys = (f"model={folder}", "steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollout.max_new_tokens=3")
    keys = (*keys, "rollouts_per_prompt=2", *chosen)
    return ["train", "quickstart", "-o", str(tmp_path / "run"), *settings(*keys)]


@pytest.mark.parametrize(
    ("damage", "names", "code"),
    [
        (without("config.json"), "config.json", 3),
        (without("model.safetensors"), "weights", 3),
        (without("tokenizer.json"), "tokenizer", 3),
        (lose_shard, "model-00001-of-00002.safetensors", 4),
        (cut, "model.safetensors", 4),
        (change_json("tokenizer_config.json", lambda found: found.pop("eos_token")), "eos", 4),
    ],
    ids=["config", "weights", "tokenizer", "shard", "cut", "eos"],
)
def test_fault_40_an_incomplete_model_is_refused_before_training(tiny_folder, tmp_path, damage, names, code):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    damage(folder)
    found = said(*train_from(folder, tmp_path), code=code)
    assert names in found
    assert str(folder) in found
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"eos_token_id": [1', "generation_config.json"),
        (b"", "generation_config.json"),
        (b"\0" * 20, "generation_config.json"),
        ('{"eos_token_id": 1}'.encode("utf-16"), "generation_config.json"),
        (b'{"eos_token_id": [1, "x"]}', "has eos_token_id [1, 'x']; expected an id or a list of ids"),
    ],
    ids=["cut", "empty", "nul", "utf-16", "word"],
)
def test_fault_40_a_damaged_list_of_stop_tokens_is_refused(tiny_folder, tmp_path, content, says):
    """transformers would go on without it, and responses would end elsewhere."""
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "generation_config.json").write_bytes(content)
    problems = lines(tmp_path / "toy.jsonl", {"id": "p0", "problem": "1+1?", "answer": "2"})
    assert says in said("sample", folder, "-b", problems, "--template", "plain", "-o", tmp_path / "out", code=4)
    assert says in said(*train_from(folder, tmp_path), code=4)
    assert not list(tmp_path.glob("run/checkpoints/*"))


@pytest.mark.parametrize(
    "chosen",
    [{"temperature": 0.9, "top_p": 0.6}, {"top_k": 20, "do_sample": False}, {"pad_token_id": -1}],
    ids=["temperature", "greedy", "pad"],
)
def test_fault_40_sampling_settings_that_transformers_will_not_save_do_not_stop_a_run(tiny_folder, tmp_path, chosen):
    """Published models name a temperature without `do_sample`; saving one as it was read is refused."""
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, **chosen}), encoding="utf-8")
    said(*train_from(folder, tmp_path), code=0)
    saved = tmp_path / "run" / "checkpoints" / "step-000001" / "model" / "generation_config.json"
    assert read_json(saved)["eos_token_id"] == 1


@pytest.mark.parametrize("length", ["x", [], {}])
def test_fault_40_a_length_that_is_no_number_is_refused(tiny_folder, tmp_path, length):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    change_json("tokenizer_config.json", lambda found: found.update(model_max_length=length))(folder)
    found = said(*train_from(folder, tmp_path), code=4)
    assert f"model_max_length is {length!r}" in found
    assert not (tmp_path / "run").exists()


def test_fault_40_a_tokenizer_that_reads_nothing_is_refused(tiny_folder, tmp_path):
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    change_json("tokenizer.json", lambda found: found["model"].update(vocab={}))(folder)
    problems = lines(tmp_path / "toy.jsonl", {"id": "p0", "problem": "1+1?", "answer": "2"})
    said("sample", folder, "-b", problems, "--template", "plain", "-o", tmp_path / "out", code=4)
    said(*train_from(folder, tmp_path), code=4)


def test_fault_40_a_chat_template_that_is_missing_is_refused_before_sampling(tiny_folder, tmp_path):
    problems = lines(tmp_path / "toy.jsonl", {"id": "p0", "problem": "1+1?", "answer": "2"})
    found = said("sample", tiny_folder, "-b", problems, "--template", "qwen-boxed", "-o", tmp_path / "out", code=3)
    assert f"that of {tiny_folder} has none" in found
    assert "--template plain" in found
    assert not (tmp_path / "out").exists()


def test_fault_40_a_tokenizer_needs_no_pad_token(tiny_folder, tmp_path):
    """Batches are padded by length, never by a token."""
    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    change_json("tokenizer_config.json", lambda found: found.pop("pad_token", None))(folder)
    said(*train_from(folder, tmp_path), code=0)


def test_fault_31_a_pickle_that_acts_is_refused_and_does_not_act(tiny_folder, tmp_path):
    import torch

    folder = shutil.copytree(tiny_folder, tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save(Acts(str(tmp_path / "hacked")), folder / "pytorch_model.bin")
    with pytest.raises(pickle.UnpicklingError):
        torch.load(folder / "pytorch_model.bin", weights_only=True)
    assert str(folder) in said(*train_from(folder, tmp_path), code=4)
    assert not (tmp_path / "hacked").exists()
