"""The model card: valid YAML head, what matters in it, nothing of this machine, nothing hostile."""

from __future__ import annotations

import re

import pytest
import yaml

from evals.benchmarks.prompts import TEMPLATES, messages
from quatro.config import load_config
from quatro.runs.export.model_card import Facts, model_card


def head_of(card: str) -> dict:
    _, head, _ = re.split("^---\n", card, maxsplit=2, flags=re.MULTILINE)
    return yaml.safe_load(head)


def test_the_head_is_what_the_hub_reads():
    config = load_config("math-1.5b")
    card = model_card(Facts("m", config, 10, "bfloat16", base_model="Qwen/Qwen2.5-Math-1.5B", datasets=["a/b"]))
    assert head_of(card) == {
        "base_model": "Qwen/Qwen2.5-Math-1.5B",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": ["quatro", "reinforcement-learning"],
        "datasets": ["a/b"],
    }
    other = head_of(model_card(Facts("m", load_config("quickstart", method="gspo"), 1, "float32")))
    assert "base_model" not in other
    assert "datasets" not in other
    assert other["tags"] == ["quatro", "reinforcement-learning", "gspo"]


def test_the_card_says_how_and_how_far():
    config = load_config("quickstart", overrides=["method.delta=0.0123", "optimizer.lr=7e-5"])
    environment = {"quatro": "9.8.7", "python": "3.11.1", "host": "secret-host", "argv": ["/home/me/x"]}
    environment["packages"] = {"torch": "2.13.0", "unrelated": "1"}
    card = model_card(Facts("m", config, 12, "float32", environment=environment))
    assert "12 of 100 iterations" in card
    assert "delta = 0.0123 nats" in card
    assert "| `optimizer.lr` | `7e-05` |" in card
    assert "| `method.delta` | `0.0123` |" in card
    assert "quatro `9.8.7`, torch `2.13.0`" in card
    assert not re.search("secret-host|/home|unrelated", card)


def test_the_card_of_an_adapter_and_of_half_an_iteration():
    config = load_config("quickstart", overrides=["policy.lora.rank=4", "policy.lora.alpha=7"])
    card = model_card(Facts("m", config, 3, "float32", is_inside=True))
    assert "A LoRA adapter of rank 4 (alpha 7) was trained and merged into the base model." in card
    assert "stopped inside iteration 4 of 100 iterations" in card
    assert "from the checkpoint inside iteration 4 " in card
    assert "iteration 3" not in card
    assert "LoRA" not in model_card(Facts("m", load_config("quickstart"), 3, "float32"))


def test_no_path_of_this_machine_is_on_the_card():
    settings = ["model=/home/me/models/base-7b", "data.prompts=/data/private/prompts.jsonl"]
    settings += ["reward=my.module:judge", "reward.options.words=[/home/me/a.txt, {b: ~/private/b}, 0.5]"]
    config = load_config("math-1.5b", overrides=[*settings, "eval.every=1", "eval.benchmark=/data/private/dev.jsonl"])
    card = model_card(Facts("m", config, 1, "float32"))
    assert "`base-7b`" in card
    assert "`prompts.jsonl`" in card
    assert "rewarded by `my.module:judge`" in card
    assert '| `reward.options.words` | `["a.txt", {"b": "b"}, 0.5]` |' in card
    assert not re.search("/home|/data|private", card)


def test_hostile_names_stay_words_in_their_cell():
    nasty = "a|b\n---\n<script>`x` [l](http://e) # \u202e"
    facts = Facts(
        nasty,
        load_config("quickstart"),
        1,
        "float32",
        base_model=nasty,
        environment={"quatro": nasty, "packages": {"torch": nasty}},
    )
    card = model_card(facts)
    assert head_of(card)["base_model"] == nasty
    body = re.split("^---\n", card, maxsplit=2, flags=re.MULTILINE)[2]
    assert "\n---\n" not in body
    assert "\u202e" not in body
    outside_code = re.sub(r"(`+).*?\1", "", body.replace("\\`", ""))
    assert "<script" not in outside_code.replace("\\<", "")


@pytest.mark.parametrize("template", [*sorted(TEMPLATES), "Q: {problem}\nA:", "chat: {problem}!"])
def test_the_card_shows_the_prompt_and_the_stops_that_training_had(template):
    settings = [f"data.template={template}", "data.prompts=own.jsonl", "model=a/b", 'rollout.stop=["\\ndef", "```"]']
    card = model_card(Facts("m", load_config("math-1.5b", overrides=settings), 1, "float32"))
    (shown,) = re.findall("```text\n(.*?)^```$", card, re.DOTALL | re.MULTILINE)
    for turn in messages(template, "{problem}"):
        assert turn["content"] in shown
    assert r'| ```` ["\ndef", "```"] ```` |' in card
