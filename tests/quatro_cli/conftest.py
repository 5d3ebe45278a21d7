"""A model that knows nothing and loads in no time, for commands that need one."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded architecture with random weights and a chat template; skips where there is no torch."""
    torch = pytest.importorskip("torch")
    from quatro.policy.embedded import make_model, make_tokenizer
    from quatro.tasks.countdown import CountdownWarmStart

    folder = tmp_path_factory.mktemp("model")
    recipe = CountdownWarmStart(hidden_size=64, num_layers=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        make_model(recipe).save_pretrained(folder)
    tokenizer = make_tokenizer(recipe.max_positions)
    tokenizer.chat_template = "{% for m in messages if m['role'] == 'user' %}{{ m['content'][:18] }}{% endfor %}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def own_code_of_other_tests_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error names the user's own code that was imported, which here other tests did."""
    monkeypatch.setattr("evals.files.own_code._imported", [])
