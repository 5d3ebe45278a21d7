"""The engine vllm on a GPU that it shares with the trainer, against a stub that records what vLLM is asked to do."""

from __future__ import annotations

import importlib
import itertools
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from evals.errors import MissingError
from quatro.launch.saving import make_training_engine
from quatro.policy.loading import load_model, load_tokenizer
from quatro.policy.torch_policy import LocalPolicy
from quatro.processes.stop import StopRequest
from quatro.rollout import vllm
from quatro.rollout.transformers import TransformersEngine
from quatro.runs.directory import RunDir
from quatro.train import train
from quatro.types import Prompt, Sampling
from tests.kit import read_rows, says

CALLS: list[str] = []
RAISES: dict[str, Exception] = {}  # what vLLM raises in a call


class StubLLM:
    """Draws from a model of its own, which a sleep at level 2 destroys; whatever is done to it goes into `CALLS`."""

    def __init__(self, *, model: str, **settings: object) -> None:
        self.asleep, self.is_stale, self.waiting = set[str](), False, list[tuple]()
        self.say("load")
        assert settings["enable_sleep_mode"]
        self.model = load_model(model, torch.float32, "cpu")
        self.drawer = TransformersEngine(self.model, load_tokenizer(model), eos_ids=(0, 1))
        self.llm_engine = self
        self.engine_core = SimpleNamespace(shutdown=lambda: None)

    def say(self, call: str) -> None:
        CALLS.append(call)
        if call in RAISES:
            raise RAISES[call]

    def sleep(self, level: int) -> None:
        assert not self.asleep, "asleep already"
        self.say(f"sleep {level}")
        self.asleep = {"weights", "kv_cache"}
        for parameter in self.model.parameters():
            parameter.data.fill_(torch.nan)

    def wake_up(self, tags: list[str]) -> None:
        self.say(f"wake {' '.join(tags)}")
        self.asleep -= set(tags)

    def collective_rpc(self, method: str, kwargs: dict) -> None:
        assert "weights" not in self.asleep
        self.say(method)
        self.model.load_state_dict(dict(kwargs["weights_iterator"]), strict=False)  # a tied head comes once
        self.is_stale = True

    def apply_model(self, function) -> None:
        assert function(self.model) is None

    def reset_prefix_cache(self) -> bool:
        self.say("reset")
        self.is_stale = False
        return True

    def add_request(self, name: str, prompt: dict, parameters: SimpleNamespace) -> None:
        assert not self.asleep
        assert not self.is_stale
        self.waiting.append((name, prompt["prompt_token_ids"], parameters))

    def step(self) -> list:
        self.say("draw")
        names, ids, asked = zip(*self.waiting, strict=True)
        self.waiting.clear()
        prompts = [Prompt("b", name, "", None, "", tuple(one)) for name, one in zip(names, ids, strict=True)]
        seeds = [[one.seed] for one in asked]
        groups = self.drawer.generate(prompts, seeds, Sampling(max_new_tokens=asked[0].max_tokens))
        outputs = []
        for name, (one,) in zip(names, groups, strict=True):
            logprobs = [{id: SimpleNamespace(logprob=logp)} for id, logp in zip(one.token_ids, one.logp, strict=True)]
            said = SimpleNamespace(token_ids=one.token_ids, logprobs=logprobs, finish_reason=one.finish_reason)
            outputs.append(SimpleNamespace(request_id=name, outputs=[said], finished=True))
        return outputs


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """What is done, with the stub in vLLM's place and on a GPU that is the trainer's too."""
    modules = {
        "vllm": {"LLM": StubLLM, "SamplingParams": SimpleNamespace},
        "vllm.platforms": {"current_platform": SimpleNamespace(device_type="cuda")},
        "vllm.sampling_params": {"RequestOutputKind": SimpleNamespace(DELTA=0, FINAL_ONLY=1)},
    }
    for name, entries in modules.items():
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(**entries))
    follows = vllm.that_follows

    def on_its_gpu(*arguments):
        recipe, following = follows(*arguments)
        return recipe, replace(following, shares_device=True)

    def saying(call, function):
        def said(*arguments, **options):
            CALLS.append(call)
            return function(*arguments, **options)

        return said

    loop = importlib.import_module("quatro.train")
    monkeypatch.setattr(loop, "audits", saying("audit", loop.audits))
    monkeypatch.setattr(LocalPolicy, "update", saying("update", LocalPolicy.update))
    monkeypatch.setattr(vllm, "that_follows", on_its_gpu)
    monkeypatch.setattr("evals.errors.find_spec", lambda name: True)
    CALLS.clear()
    RAISES.clear()
    return CALLS


@pytest.fixture
def engine(calls, tiny_config, tiny_folder):
    config = tiny_config("rollout.engine=vllm")
    policy = LocalPolicy(load_model(str(tiny_folder), torch.float32, "cpu"), config)
    return make_training_engine(config, policy, load_tokenizer(str(tiny_folder)))


def test_it_is_awake_from_each_sync_to_the_last_response_and_sleeps_without_weights(
    calls, tiny_config, tmp_path, monkeypatch
):
    evaluated = ("eval.every=1", "eval.at_start=true", "eval.benchmark=countdown", "eval.n=1")
    config = tiny_config("rollout.engine=vllm", "rollout.max_new_tokens=4", "steps=3", *evaluated)
    stop, update = StopRequest(), LocalPolicy.update

    def run(**options) -> list[str]:
        calls.clear()
        path = tmp_path / "run"
        with RunDir.open(path) if path.exists() else RunDir.create(path, config) as one:
            train(one.config, one, **options)
        assert all(row["sync/probe_dlogp_max"] < 1e-4 for row in read_rows(path / "metrics.jsonl"))
        return [call for call, _ in itertools.groupby(calls)]

    def stopping(*arguments, **options):
        if calls.count("update") == 6:  # of the second iteration, which has four
            stop.request()
        return update(*arguments, **options)

    loaded = ["reload_weights", "reset"]
    synced = ["wake weights", *loaded, "wake kv_cache", "draw"]
    with monkeypatch.context() as patch:
        patch.setattr(LocalPolicy, "update", stopping)
        # The probe, the evaluation at the start and the first batch; the probe, an evaluation and the second batch.
        first = ["load", *loaded, "draw", "sleep 2", "update", "audit", *synced, "sleep 2", "update"]
        assert run(stop=stop) == first
    resumed = ["load", *loaded, "draw", "sleep 2", "update", "audit", *synced]
    assert run() == [*resumed, "sleep 2", "update", "audit", *synced]


def test_after_a_sleep_nothing_is_drawn_before_the_weights_are_there(engine, calls):
    engine.sync(lambda: iter(engine._llm.model.state_dict().items()))
    engine.rest()
    engine.rest()
    assert calls[-2:] == ["draw", "sleep 2"]
    with pytest.raises(AssertionError, match="sync"):
        engine.generate([Prompt("b", "i", "", None, "", (2, 3))], [[1]], Sampling(max_new_tokens=2))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("load", AssertionError("Error in memory profiling. Initial free memory 9 GiB, current free memory 11 GiB.")),
        ("sleep 2", AssertionError("Memory usage increased after sleeping.")),
        ("wake kv_cache", RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:145")),
    ],
)
def test_memory_that_another_process_took_or_freed_is_said_with_what_to_do(request, calls, call, error):
    RAISES[call] = error

    def iteration() -> None:
        engine = request.getfixturevalue("engine")
        engine.rest()
        engine.sync(lambda: iter(engine._llm.model.state_dict().items()))

    with pytest.raises(MissingError) as refused:
        iteration()
    says(refused, error, key="rollout.gpu_memory_utilization", advice="nvidia-smi")


def test_an_assertion_about_anything_else_is_a_bug_as_before(request, calls):
    RAISES["load"] = AssertionError("rope")
    with pytest.raises(AssertionError, match="rope"):
        request.getfixturevalue("engine")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_it_says_that_it_is_compiling_while_it_is(calls, caplog, tiny_folder, is_compiled):
    caplog.set_level("INFO")
    vllm._load({"model": str(tiny_folder), "enable_sleep_mode": True}, is_compiled=is_compiled)
    assert ("compiling" in caplog.text) == is_compiled
