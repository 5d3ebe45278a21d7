"""The reward model: a tiny sequence classifier, against transformers itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, Qwen2Config, Qwen2ForSequenceClassification

from evals.errors import DataError, MissingError
from quatro.policy import embedded
from quatro.rewards import Reward, RewardConfig, make_reward
from quatro.types import Prompt, Rollout
from tests.kit import rewards

TEXTS = ("8 *7 =56", "8", "8 *7 =56 +7 =63 +6 =69 -2 =67", "1 +1 =2", "3 -2 =1")
PROMPT = Prompt("countdown", "p", "7 2 7 6 2 8 -> 67", None, "7 2 7 6 2 8 -> 67", (1,))


def save(folder: Path, *, pad: int | None, template: str | None = None) -> Path:
    tokenizer = embedded.make_tokenizer(64)
    if template is not None:
        tokenizer.chat_template = template
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen2Config(vocab_size=len(tokenizer), num_labels=1, pad_token_id=pad, **shape, **heads)
    Qwen2ForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make(folder: Path, **options: object) -> Reward:
    return make_reward(
        RewardConfig.model_validate(
            {"name": "model", "options": {"path": str(folder), "dtype": "float32", "device": "cpu", **options}}
        )
    )


def expected(folder: Path, texts: list[str]) -> list[float]:
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    tokenizer = embedded.make_tokenizer(64)
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    with torch.no_grad():
        return [model(input_ids=torch.tensor([row])).logits[0, 0].item() for row in ids]


@pytest.mark.parametrize("pad", [None, 0])
@pytest.mark.parametrize("batch_rows", [1, 2, 16])
def test_rewards_are_the_models_first_number_however_rows_are_batched(tmp_path, pad, batch_rows):
    folder = save(tmp_path, pad=pad)
    rollouts = [Rollout((0,), " " + text, "stop") for text in TEXTS]
    reward = make(folder, batch_rows=batch_rows)
    scored = reward.score([PROMPT, PROMPT], [rollouts[:2], rollouts[2:]])
    wanted = expected(folder, [f"{PROMPT.text} {text}" for text in TEXTS])
    assert [len(group) for group in rewards(scored)] == [2, 3]
    assert [value for group in rewards(scored) for value in group] == pytest.approx(wanted, abs=1e-6)
    assert len(set(wanted)) == len(TEXTS)
    assert all(grade.logged == {"cut": 0.0} for group in scored for grade in group)


def test_a_chat_template_is_the_models_own(tmp_path):
    folder = save(tmp_path, pad=0, template="{% for m in messages %}{{ m.content }} -> {% endfor %}")
    scored = make(folder).score([PROMPT], [[Rollout((0,), "8", "stop")]])
    assert rewards(scored)[0] == pytest.approx(expected(folder, ["7 2 7 6 2 8 -> 67 -> 8 -> "]), abs=1e-6)


def test_a_long_text_is_cut_at_its_beginning_and_counted(tmp_path):
    folder = save(tmp_path, pad=0)
    scored = make(folder, max_tokens=4).score([PROMPT], [[Rollout((0,), " 8 *7 =56", "stop")]])
    assert rewards(scored)[0] == pytest.approx(expected(folder, ["67 8 *7 =56"]), abs=1e-6)
    assert scored[0][0].logged == {"cut": 1.0}


def test_its_memory_is_told_where_it_computes(tmp_path):
    folder = save(tmp_path, pad=0)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert make(folder).device_bytes("cpu") == 4 * model.num_parameters()
    assert make(folder, dtype="bfloat16").device_bytes("cpu") == 2 * model.num_parameters()
    assert make(folder).device_bytes("cuda") == 0


def test_a_language_model_is_no_reward_model(tmp_path):
    tokenizer = embedded.make_tokenizer(64)
    embedded.make_model(embedded.recipe_of("embedded:countdown")).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(DataError, match=r"lack 1 of the model's tensors \(score.weight\)"):
        make(tmp_path).score([PROMPT], [[Rollout((0,), "8", "stop")]])
    with pytest.raises(MissingError):
        make(tmp_path / "nowhere")
