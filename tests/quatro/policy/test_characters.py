"""The embedded policies of reasoning-gym's tasks: recipes, tokens, and what they can do at first and learn."""

import dataclasses
import json
from statistics import mean

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

import quatro  # noqa: E402
from quatro.policy import embedded  # noqa: E402
from quatro.policy.loading import load_model, load_tokenizer  # noqa: E402
from quatro.tasks import characters  # noqa: E402
from quatro.tasks.characters import FORMS  # noqa: E402
from quatro.tasks.warm_start import EOS_ID  # noqa: E402

TINY = {"hidden_size": 32, "num_heads": 1, "mlp_size": 32, "steps": 2, "rows": 4, "warmup_steps": 1}


@pytest.mark.parametrize("name", list(FORMS))
def test_a_policy_reads_and_writes_the_characters_of_its_task(name, tmp_path):
    recipe = dataclasses.replace(embedded.recipe_of(f"embedded:{name}"), **TINY)
    embedded.train(recipe, tmp_path / "model")
    tokenizer = load_tokenizer(str(tmp_path / "model"))
    for item in characters.problems(name, "test")[:50]:
        for text in (item.prompt, item.answer):
            ids = tokenizer(text)["input_ids"]
            assert ids == characters.VOCABULARY.encode(text)
            assert tokenizer.decode([*ids, EOS_ID], skip_special_tokens=True) == text
    model = load_model(str(tmp_path / "model"), torch.float32, "cpu")
    assert model.config.vocab_size == len(characters.VOCABULARY.tokens)
    longest = max(len(item.prompt) for item in characters.problems(name, "train"))
    assert longest + characters.MAX_ANSWER_TOKENS <= model.config.max_position_embeddings


def test_the_recipes_give_a_policy_of_their_task_and_differ_by_seed():
    for name in FORMS:
        recipe = embedded.recipe_of(f"embedded:{name}")
        assert recipe.benchmark == name
        sibling = embedded.recipe_of(f"embedded:{name}@2")
        ours, theirs = recipe.draw(20).token_ids, sibling.draw(20).token_ids
        assert ours.shape != theirs.shape or (ours != theirs).any()
    assert len({embedded.recipe_of(f"embedded:{name}").digest for name in FORMS}) == 3
    with torch.device("meta"):
        model = embedded.make_model(embedded.recipe_of("embedded:palindrome"))
    assert sum(weight.numel() for weight in model.parameters()) == 188_736


@pytest.mark.slow
@pytest.mark.parametrize("name", list(FORMS))
def test_the_first_policy_leaves_room(empty_cache, tmp_path, name):
    """Four answers to each of the 600 test problems; measured: 0.12 to 0.14, 0.24 and 0.28 on two processors."""
    rows = quatro.read_samples(
        [file.path for file in quatro.draw_samples(f"embedded:{name}", name, n=4, out=tmp_path, grade=True)]
    )
    assert len(rows) == 2400
    assert 0.08 < rows["correct"].astype(float).mean() < 0.5


@pytest.mark.slow
def test_the_reward_of_shortest_paths_rises(empty_cache, tmp_path):
    """25 of the 100 iterations, at delta 0.1. The first five earn 0.26, the last five 0.43."""
    quatro.fine_tune("quickstart-shortest-path", tmp_path / "run", overrides={"steps": 25, "method.delta": 0.1})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    reward = [json.loads(line)["reward/mean"] for line in lines]
    assert mean(reward[-5:]) - mean(reward[:5]) > 0.08
