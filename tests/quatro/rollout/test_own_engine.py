"""An engine of one's own, `module:Class`: it trains and samples, and what is wrong with it is said with its file."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from quatro.rollout.engine import Recipe
from quatro.types import Prompt
from quatro_cli.app import app

MODULE = """
    from dataclasses import replace
    from evals.errors import DataError
    from quatro.processes.stop import Stopped
    from quatro.rollout.engine import Engine, EngineKind
    from quatro.rollout.kinds import Transformers
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

    class Moody(Changed):
        def generate(self, prompts, seeds, sampling, *, progress=None):
            moved = [[seed + len(prompts) for seed in group] for group in seeds]
            return self.inner.generate(prompts, moved, sampling, progress=progress)

    class Mood(Plain):
        @staticmethod
        def open(recipe, tokenizer, policy=None):
            return Moody(Transformers.open(recipe, tokenizer, policy), None)

    Silent = changing(lambda one: replace(one, logp=None))
    Off = changing(lambda one: replace(one, logp=tuple(value - 0.1 for value in one.logp)))
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
RECIPE = Recipe("", "", "float32", "cpu", 16)
PROMPT = Prompt("b", "p", "1", "1", "1", (5, 6))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the module."""
    (tmp_path / f"{NAME}.py").write_text(textwrap.dedent(MODULE), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    return tmp_path


def quatro(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, " ".join(done.stderr.split())


def training(model: Path, engine: str) -> list[str]:
    settings = [f"model={model}", "steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2"]
    settings += ["threads=1", f"rollout.engine={NAME}:{engine}"]
    return ["train", "quickstart", *(word for setting in settings for word in ("-s", setting))]


def test_a_run_with_an_engine_of_ones_own_is_that_of_the_engine_it_hands_on(folder, tiny_folder):
    words = training(tiny_folder, "Plain")
    for name, more in (("own", []), ("ours", ["-s", "rollout.engine=transformers"])):
        code, _, said = quatro(*words, "-o", name, *more)
        assert code == 0, said
    own, ours = ((folder / name / "rollouts/step-000001.jsonl").read_bytes() for name in ("own", "ours"))
    assert own == ours


def test_a_run_is_read_without_its_engine_and_goes_on_where_that_lay(folder, tiny_folder, monkeypatch):
    assert quatro(*training(tiny_folder, "Plain"), "-o", "run")[0] == 0
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    run, module = str(folder / "run"), folder / f"{NAME}.py"
    for is_there in (False, True):
        monkeypatch.delitem(sys.modules, NAME, raising=False)
        monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry != str(folder)])
        if not is_there:
            module = module.rename(folder / "kept")
            assert quatro("runs", "show", run)[0] == 0
            code, _, said = quatro("train", run, "--resume", "--steps", "2")
            assert code == 2
            assert f"engine '{NAME}:Plain' cannot be imported" in said
            module = module.rename(folder / f"{NAME}.py")
        else:
            code, _, said = quatro("train", run, "--resume", "--steps", "2")
            assert code == 0, said


def test_an_engine_of_ones_own_draws_samples(folder, tiny_folder):
    words = ["sample", str(tiny_folder), "-b", "p.jsonl", "-n", "2", "--template", "plain", "--max-tokens", "3"]
    (folder / "p.jsonl").write_text('{"problem": "1 2 3 4 5 6 -> 7", "answer": "7"}\n', encoding="utf-8")
    code, _, said = quatro(*words, "--engine", f"{NAME}:Plain", "-o", "samples")
    assert code == 0, said
    recorded = json.loads((folder / "samples/sampling.json").read_text(encoding="utf-8"))
    assert f"{NAME}:Plain" in json.dumps(recorded)
    code, _, said = quatro(*words, "--engine", f"{NAME}:Said", "--temperature", "0.5", "-o", "half")
    assert code == 1
    assert "raised KeyError: 'half'" in said
    assert f"{NAME}.py" in said
    code, _, said = quatro(*words, "--engine", f"{NAME}:Plan", "-o", "other")
    assert code == 2
    assert f"{NAME}.py has no Plan" in said


@pytest.mark.parametrize(
    ("engine", "code", "says"),
    [
        ("Plain", 0, "its log-probabilities are the policy's to "),
        ("Silent", 0, "it gives no log-probabilities, so the trainer computes them"),
        ("Copied", 0, "its log-probabilities are the policy's to "),
        ("Stale", 2, "before any truncation, under the weights that sync brought, or None"),
        ("Mood", 0, "drawn alone, a seed gives another response, so a resume will not be exact"),
        ("Off", 2, "differ from the policy's by up to 0.1 nats a token; expected those at temperature 1"),
        ("Broken", 1, "raised AttributeError: 'Rollout' object has no attribute 'no_such_thing'"),
        ("Said", 1, "TypeError: 'NoneType' object is not iterable"),
        ("Unopened", 2, "expected a class with `open` that is derived from quatro.rollout.engine.EngineKind"),
        ("function", 2, "expected a class with `open`"),
        ("NoEngine", 1, "AttributeError: 'object' object has no attribute 'close'"),
    ],
)
def test_a_dry_run_tries_the_engine_on_a_toy_model(folder, tiny_folder, engine, code, says):
    found, out, said = quatro(*training(tiny_folder, engine), "--dry-run")
    assert found == code, said
    assert says in out + said
    if code:
        assert f"{NAME}.py" in said
