"""A run's inputs are read once, however often the dry run, the checks and the loop ask for them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from quatro.config import load_config
from quatro.launch import begin
from quatro.rollout import prompts
from quatro.tasks import codegrammar, countdown
from tests.kit import quatro, read_rows, says, settings, write_rows

REWARD = """
with open("imported.txt", "a") as file:
    file.write("once\\n")

def flat(prompt, completion, answer):
    return 0.0

def scaled(prompt, completion, answer, scale, *, names=()):
    return scale * len(names)
"""


@pytest.fixture
def arguments(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`quatro train` with a reward, prompts and a benchmark of one's own, for one iteration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(REWARD, encoding="utf-8")
    for name, numbers in (("prompts", "1 2 3"), ("benchmark", "4 5 6")):
        rows = [{"id": str(i), "problem": f"{numbers} {i} = 6", "answer": "6"} for i in range(4)]
        write_rows(tmp_path / f"{name}.jsonl", rows)
    small = [f"model={tiny_folder}", "reward=own:flat", "data.prompts=prompts.jsonl", "data.template=plain"]
    small += ["eval.every=1", "eval.benchmark=benchmark.jsonl", "eval.n=1", "steps=1", "prompts_per_step=4"]
    small += ["minibatch_prompts=2", "rollouts_per_prompt=2", "inner_updates=1", "threads=1"]
    return ["train", "quickstart", "-o", "run", *settings(*small)]


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_a_reward_is_imported_once(arguments, tmp_path, more):
    quatro(*arguments, *more)
    assert (tmp_path / "imported.txt").read_text(encoding="utf-8") == "once\n"


SCALED = settings("reward=own:scaled", "reward.options.names=[a, b]", "reward.timeout_s=60")


def test_a_function_gets_its_options(arguments, tmp_path):
    quatro(*arguments, *SCALED, *settings("reward.options.scale=0.25"))
    (row,) = read_rows(tmp_path / "run/metrics.jsonl")
    assert row["reward/mean"] == 0.5
    written = (tmp_path / "run/config.yaml").read_text(encoding="utf-8")
    assert "reward:\n  name: own:scaled\n  options:\n    names: [a, b]\n    scale: 0.25\n  timeout_s: 60.0\n" in written


@pytest.mark.parametrize(
    ("options", "named", "more"),
    [
        ([], ["scale", "(prompt, completion, answer, scale, *, names=())"], []),
        (["scale=1", "bonus=1"], ["bonus", "(prompt, completion, answer, scale, *, names=())"], ["--dry-run"]),
        (["scale=1", "answer=1"], ["reward.options", "answer"], []),
    ],
)
def test_options_that_a_function_does_not_take_are_refused_at_the_start(arguments, tmp_path, options, named, more):
    words = settings(*(f"reward.options.{option}" for option in options))
    says(quatro(*arguments, *SCALED, *words, *more, code=2), *named)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_prompts_are_tokenised_once_and_benchmarks_read_once(arguments, monkeypatch, more):
    read, tokenised = Counter[str](), Counter[str]()
    load, tokenise = prompts.load_problems, PreTrainedTokenizerBase.__call__

    def counted_load(source: str, **options: Any) -> Any:
        read[Path(source).name] += 1
        return load(source, **options)

    def counted_tokenise(self: Any, texts: list[str], **options: Any) -> Any:
        tokenised.update(texts)
        return tokenise(self, texts, **options)

    for module in (prompts, begin):
        monkeypatch.setattr(module, "load_problems", counted_load)
    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", counted_tokenise)
    quatro(*arguments, *settings("reward=math"), *more)
    assert read == {"prompts.jsonl": 1, "benchmark.jsonl": 1}
    assert len(tokenised) == 8
    assert set(tokenised.values()) == {1}


@pytest.mark.parametrize("name", ["quickstart", "quickstart-code"])
def test_a_model_that_is_still_to_be_made_has_its_own_words(name, tmp_path, monkeypatch):
    monkeypatch.setenv("QUATRO_CACHE", str(tmp_path))
    prepared = begin.prepare(load_config(name))
    words = {"quickstart": countdown, "quickstart-code": codegrammar}[name]
    assert not prepared.is_there
    for prompt in prepared.prompts.prompts[:20]:
        assert list(prompt.token_ids) == words.VOCABULARY.encode(prompt.text)
    prepared.close()
