"""An engine of one's own, `module:Class`: it trains and samples, and what is wrong with it is said with its file."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tests.kit import quatro, read_json, says, settings

MODULE = """
    from dataclasses import replace
    from evals.errors import DataError
    from quatro.processes.stop import Stopped
    from quatro.rollout.engine import Engine, EngineKind
    from quatro.rollout.engine import Transformers
    from quatro.types import Rollout

    class Plain(Transformers):
        shares_weights = True  # the engine of quatro itself, under another name

    class Changed(Engine):
        # The plain engine's responses, after `change`.
        def __init__(self, inner, change):
            self.inner, self.change = inner, change

        def sync(self, named_weights):
            return self.inner.sync(named_weights)

        def generate(self, prompts, seeds, sampling, *, progress=None):
            groups = self.inner.generate(prompts, seeds, sampling, progress=progress)
            return [[self.change(rollout) for rollout in group] for group in groups]

    def changing(change):
        class Kind(EngineKind):
            shares_weights = True

            @staticmethod
            def open(recipe, tokenizer, policy=None):
                return Changed(Transformers.open(recipe, tokenizer, policy), change)

        return Kind

    class Stale(EngineKind):
        # Has weights of its own, and leaves them as they are.
        @staticmethod
        def open(recipe, tokenizer, policy=None):
            return Transformers.open(recipe, tokenizer)

    class Copying(Changed):
        def sync(self, named_weights):
            self.inner.model.load_state_dict(dict(named_weights()), strict=False)  # a tied head comes once
            return {"sync/copied": 1.0}

    class Copied(EngineKind):
        @staticmethod
        def open(recipe, tokenizer, policy=None):
            return Copying(Transformers.open(recipe, tokenizer), lambda one: replace(one, entropy=None))

    Silent = changing(lambda one: replace(one, logp=None))
    Off = changing(lambda one: replace(one, logp=tuple(value - 0.002 for value in one.logp)))
    Near = changing(lambda one: replace(one, logp=tuple(value - 0.0005 for value in one.logp)))
    Broken = changing(lambda one: one.no_such_thing)

    class Said(EngineKind):
        # Gives whatever `said` is, an error included.
        said = None

        @classmethod
        def check(cls, *, temperatures, replay_file=None):
            if temperatures.get("temperature") == 0.5:
                raise KeyError("half")

        @classmethod
        def open(cls, recipe, tokenizer, policy=None):
            class Saying(Engine):
                def sync(self, named_weights):
                    return None

                def generate(self, prompts, seeds, sampling, *, progress=None):
                    if isinstance(cls.said, Exception):
                        raise cls.said
                    return cls.said

            return Saying()

    class Unopened(EngineKind):
        pass

    class NoEngine(EngineKind):
        @staticmethod
        def open(recipe, tokenizer, policy=None):
            return object()

    def function(recipe):
        return None
"""
NAME = "my_engines"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the module."""
    (tmp_path / f"{NAME}.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    return tmp_path


LEARNING = settings("steps=2", "reward=digits", "optimizer.lr=1e-3")


def training(model: Path, engine: str) -> list[str]:
    sizes = ("steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "threads=1")
    return ["train", "quickstart", *settings(f"model={model}", *sizes, f"rollout.engine={NAME}:{engine}")]


def test_a_run_with_an_engine_of_ones_own_is_that_of_the_engine_it_hands_on(folder, tiny_folder):
    words = training(tiny_folder, "Plain")
    for name, more in (("own", []), ("ours", ["-s", "rollout.engine=transformers"])):
        quatro(*words, "-o", name, *more)
    own, ours = ((folder / name / "rollouts/step-000001.jsonl").read_bytes() for name in ("own", "ours"))
    assert own == ours


def test_a_run_is_read_without_its_engine_and_goes_on_where_that_lay(folder, tiny_folder, monkeypatch):
    quatro(*training(tiny_folder, "Plain"), "-o", "run")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run, module = str(folder / "run"), folder / f"{NAME}.py"
    for is_there in (False, True):
        monkeypatch.delitem(sys.modules, NAME, raising=False)
        monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry != str(folder)])
        if is_there:
            (folder / "kept").rename(module)
            quatro("train", run, "--resume", "--steps", 2)
        else:
            module.rename(folder / "kept")
            quatro("runs", "show", run)
            says(quatro("train", run, "--resume", "--steps", 2, code=2), f"{NAME}:Plain")


def test_an_engine_of_ones_own_draws_samples(folder, tiny_folder):
    words = ["sample", str(tiny_folder), "-b", "p.jsonl", "-n", "2", "--template", "plain", "--max-tokens", "3"]
    (folder / "p.jsonl").write_text('{"problem": "1 2 3 4 5 6 -> 7", "answer": "7"}\n', encoding="utf-8")
    quatro(*words, "--engine", f"{NAME}:Plain", "-o", "samples")
    assert read_json(folder / "samples/sampling.json")["engine"] == f"{NAME}:Plain"
    failed = quatro(*words, "--engine", f"{NAME}:Said", "--temperature", 0.5, "-o", "half", code=1)
    says(failed, "KeyError: 'half'", f"{NAME}.py")
    says(quatro(*words, "--engine", f"{NAME}:Plan", "-o", "other", code=2), f"{NAME}.py", "Plan")


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ("Off", 0, "by 0.002 nats a token"),
        ("Stale", 0, "under the weights that sync brought"),
        ("Broken", 1, "AttributeError: 'Rollout' object has no attribute 'no_such_thing'"),
        ("Said", 1, "TypeError: 'NoneType' object is not iterable"),
        ("Unopened", 2, "quatro.rollout.engine.EngineKind"),
        ("function", 2, "quatro.rollout.engine.EngineKind"),
        ("NoEngine", 1, "AttributeError: 'object' object has no attribute"),
    ],
)
def test_a_run_says_what_is_wrong_with_the_engine_and_where_it_lies(folder, tiny_folder, engine, code, said):
    says(quatro(*training(tiny_folder, engine), *LEARNING, "-o", "run", code=code).stderr, said, f"{NAME}.py")


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("engine", ["Silent", "Copied", "Near"])
def test_an_engine_that_keeps_its_promises_is_not_warned_of(folder, tiny_folder, engine):
    done = quatro(*training(tiny_folder, engine), *LEARNING, "-o", "run")
    assert "gives log-probabilities that differ" not in done.stderr
