import dataclasses

import pytest

torch = pytest.importorskip("torch")

from evals.errors import UsageError  # noqa: E402
from quatro.config.model import EMBEDDED_MODELS  # noqa: E402
from quatro.policy import embedded  # noqa: E402
from quatro.policy.loading import load_model, load_tokenizer  # noqa: E402
from quatro.tasks import codegrammar  # noqa: E402
from quatro.tasks.warm_start import EOS_ID  # noqa: E402

TINY = {"hidden_size": 32, "num_heads": 1, "mlp_size": 32, "steps": 30, "rows": 4, "warmup_steps": 2}


def test_the_cached_countdown_models_of_earlier_versions_stay_in_use():
    assert embedded.recipe_of("embedded:countdown").digest == "9ed9a9e4854a4bae"
    assert embedded.recipe_of("embedded:countdown-hard").digest == "cd3d432dfe7589e1"
    assert [embedded.recipe_of(name).seed for name in EMBEDDED_MODELS] == [0] * len(EMBEDDED_MODELS)


def test_an_embedded_model_has_siblings_of_other_seeds():
    first = embedded.recipe_of("embedded:countdown")
    assert embedded.recipe_of("embedded:countdown@0") == first
    sibling = embedded.recipe_of("embedded:countdown@7")
    assert dataclasses.replace(sibling, seed=0) == first
    assert sibling.seed == 7
    assert (sibling.draw(4).token_ids != first.draw(4).token_ids).any()
    for name in ("embedded:nowhere", "embedded:countdown@", "embedded:countdown@01", "embedded:countdown@x"):
        with pytest.raises(UsageError, match=r"unknown embedded model .*embedded:countdown.* of another seed"):
            embedded.recipe_of(name)


def test_the_code_model_reads_and_writes_python_text(tmp_path):
    recipe = dataclasses.replace(embedded.recipe_of("embedded:code"), **TINY)
    embedded.train(recipe, tmp_path / "model")
    tokenizer = load_tokenizer(str(tmp_path / "model"))
    for problem in codegrammar.problems("test")[:50]:
        for text in (problem.prompt, *problem.bodies):
            ids = tokenizer(text)["input_ids"]
            assert (
                ids
                == codegrammar.VOCABULARY.encode(text)
                == embedded.make_tokenizer(recipe.max_positions, recipe.vocabulary)(text)["input_ids"]
            )
            assert tokenizer.decode([*ids, EOS_ID], skip_special_tokens=True) == text
    model = load_model(str(tmp_path / "model"), torch.float32, "cpu")
    assert model.config.vocab_size == len(codegrammar.VOCABULARY.tokens)
    assert model.config.eos_token_id == tokenizer.eos_token_id == EOS_ID
    longest = max(len(codegrammar.VOCABULARY.encode(problem.prompt)) for problem in codegrammar.problems("train"))
    assert longest + codegrammar.MAX_ANSWER_TOKENS <= model.config.max_position_embeddings


def test_the_warm_start_of_code_ends_at_its_loss(tmp_path):
    recipe = dataclasses.replace(embedded.recipe_of("embedded:code"), **TINY)
    for enough_loss, steps in ((100.0, 20), (0.0, 30)):
        seen = []
        embedded.train(
            dataclasses.replace(recipe, enough_loss=enough_loss),
            tmp_path / str(steps),
            progress=lambda step, steps, loss, seen=seen: seen.append(step),
        )
        assert seen[-1] == steps
