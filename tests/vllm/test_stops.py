"""Stop strings in vLLM: its own responses without them, cut by the rule, and those of the transformers engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from quatro.policy.loading import load_model
from quatro.rollout.engine import rollout_seed
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Rollout, Sampling

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm")

EOS = (0, 1, 2)
# The text of a response is numbers and the spaces between them.
STOPS = [("7",), ("5 1", " 2"), ("1 1", "3 3", "8 "), ("0 4", "60 ")]


@pytest.fixture(scope="module")
def engines(make_folder, open_engine) -> dict:
    folder = make_folder(tied=True)
    vllm = open_engine(folder)
    model = load_model(str(folder), torch.float32, "cpu")
    return {"vllm": vllm, "transformers": TransformersEngine(model, vllm.tokenizer, eos_ids=EOS)}


def make_prompts(*lengths: int) -> list[Prompt]:
    rng = np.random.default_rng(1)
    return [Prompt("toy", f"p{i}", "", None, "", tuple(rng.integers(3, 64, n).tolist())) for i, n in enumerate(lengths)]


def cut(tokenizer, rollout: Rollout, stop: tuple[str, ...]) -> Rollout:
    for length, id in enumerate(rollout.token_ids, start=1):
        text = tokenizer.decode(rollout.token_ids[:length])
        found = [text.index(one) for one in stop if one in text]
        if found and id not in EOS:
            return Rollout(rollout.token_ids[:length], text[: min(found)], "stop", rollout.logp[:length])
    return rollout


def ends(groups: list[list[Rollout]]) -> list[tuple[tuple[int, ...], str, str]]:
    return [(one.token_ids, one.text, one.finish_reason) for group in groups for one in group]


@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("name", ["vllm", "transformers"])
def test_sampled_responses_are_those_drawn_without_a_stop_and_cut(engines, name, stop):
    engine, prompts = engines[name], make_prompts(5, 140, 40, 7)
    seeds = [[rollout_seed(0, 0, prompt.id, j) for j in range(16)] for prompt in prompts]
    sampling, seen = Sampling(max_new_tokens=24), []
    whole = engine.generate(prompts, seeds, sampling)
    expected = [[cut(engine.tokenizer, rollout, stop) for rollout in group] for group in whole]
    groups = engine.generate(prompts, seeds, replace(sampling, stop=stop), progress=lambda *now: seen.append(now))
    assert ends(groups) == ends(expected)
    for group, others in zip(groups, expected, strict=True):
        for one, other in zip(group, others, strict=True):
            np.testing.assert_allclose(one.logp, other.logp, atol=1e-4, rtol=0)
    is_met = [reason == "stop" and ids[-1] not in EOS for ids, _, reason in ends(groups)]
    assert 0 < sum(is_met) < len(is_met)
    assert seen[-1] == (len(is_met), sum(len(ids) for ids, _, _ in ends(groups)))
    # What was aborted leaves nothing behind.
    assert ends(engine.generate(prompts, seeds, sampling)) == ends(whole)


def test_both_engines_end_greedy_responses_at_the_same_token(engines):
    prompts = make_prompts(*range(4, 44))
    seeds = [[i] for i in range(len(prompts))]
    greedy = Sampling(temperature=0.0, max_new_tokens=24)
    whole = engines["vllm"].generate(prompts, seeds, greedy)
    reasons = set()
    for stop in STOPS:
        found = {name: engine.generate(prompts, seeds, replace(greedy, stop=stop)) for name, engine in engines.items()}
        assert ends(found["vllm"]) == ends(found["transformers"])
        assert ends(found["vllm"]) == ends([[cut(engines["vllm"].tokenizer, one, stop) for one in g] for g in whole])
        reasons |= {(reason, ids[-1] in EOS) for ids, _, reason in ends(found["vllm"])}
    assert reasons >= {("stop", False), ("length", False)}


def test_a_stop_string_at_the_limit_is_a_stop(engines):
    prompts = make_prompts(*range(4, 12))
    greedy = Sampling(temperature=0.0, max_new_tokens=2)
    for engine in engines.values():
        groups = engine.generate(prompts, [[1]] * 8, greedy)
        whole = next(group[0] for group in groups if group[0].finish_reason == "length")
        prompt = prompts[groups.index([whole])]
        ((stopped,),) = engine.generate([prompt], [[1]], replace(greedy, stop=(whole.text,)))
        assert (stopped.token_ids, stopped.text, stopped.finish_reason) == (whole.token_ids, "", "stop")
        assert stopped.logp == whole.logp


def test_a_stop_token_with_a_text_comes_before_a_stop_string_in_it(engines, monkeypatch):
    prompts, sampling = make_prompts(5, 40), Sampling(max_new_tokens=24)
    seeds = [[rollout_seed(0, 0, prompt.id, j) for j in range(32)] for prompt in prompts]
    for engine in engines.values():
        monkeypatch.setattr(engine, "eos_ids", (*EOS, 9))
        whole = engine.generate(prompts, seeds, sampling)
        found = engine.generate(prompts, seeds, replace(sampling, stop=("9",)))
        ended = [ids for ids, _, _ in ends(found) if ids[-1] == 9]
        assert ended
        assert [(ids, text) for ids, text, _ in ends(found) if ids[-1] == 9] == [
            (ids, engine.tokenizer.decode(ids[:-1])) for ids in ended
        ]
        assert set(ended) <= {ids for ids, _, _ in ends(whole)}
