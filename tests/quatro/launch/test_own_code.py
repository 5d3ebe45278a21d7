"""Code of one's own: found in the current folder, tried before a run, and absent where a run is only read."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path

import pytest

from tests.kit import quatro, read_json, says, settings

METHODS = """
    import torch
    from quatro.methods.base import Method
    from quatro.types import Advantages, Loss, LossTerm, Needs

    class Centred(Method):
        delta: float = 0.5

        def advantages(self, reward_B, group_B):
            return Advantages(reward_B - reward_B.mean())

        def loss(self, logp_BT, batch):
            value = -batch.advantage_B[:, None].to(logp_BT) * logp_BT
            return Loss([LossTerm("policy", value, batch.mask_BT.to(logp_BT))])

    class Short(Centred):
        def advantages(self, reward_B, group_B):
            return Advantages(reward_B[:2])

    class Raises(Centred):
        def loss(self, logp_BT, batch):
            return 1 / 0

    class Shapes(Centred):
        def loss(self, logp_BT, batch):
            return Loss([LossTerm("policy", logp_BT.sum(), torch.ones(4))])

    class Lacking(Method):
        scale: float = 1.0

    class Signature(Centred):
        def advantages(self, rewards):
            return rewards

    class Column(Centred):
        def advantages(self, reward_B, group_B):
            return Advantages(reward_B[:, None])

    class Begins(Centred):
        def __init__(self, scale):
            self.scale = scale

    class Unknown(Centred):  # four rows are those of a run
        def advantages(self, reward_B, group_B):
            return Advantages(reward_B / (len(reward_B) - 4))

    class Endless(Centred):
        def loss(self, logp_BT, batch):
            return Loss([LossTerm("endless", logp_BT / (len(logp_BT) - 4), batch.mask_BT.to(logp_BT))])

    class Late(Centred):
        def loss(self, logp_BT, batch):
            if len(logp_BT) == 4:
                raise KeyError("late")
            return super().loss(logp_BT, batch)

    class Earlier(Centred):
        @property
        def needs(self):
            return Needs(dynamic_sampling=True)

    class ByPlace(Centred):
        @property
        def needs(self):
            return Needs(True, 3)

    def reward(completion, answer):
        return len(completion)

    def picky(completion):
        return 1.0 / len(completion)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_folder: str) -> Path:
    """The current folder, with a module of methods and a configuration for a tiny model."""
    (tmp_path / "my_methods.py").write_text(textwrap.dedent(METHODS), encoding="utf-8")
    (tmp_path / "own.yaml").write_text(
        f"model: {tiny_folder}\ndtype: float32\nmethod: {{name: 'my_methods:Centred'}}\ndata: {{prompts: countdown}}\n"
        "reward: countdown\nsteps: 2\nprompts_per_step: 2\nminibatch_prompts: 2\nrollouts_per_prompt: 2\n"
        "rollout: {max_new_tokens: 4}\ncheckpoint: {every: 1}\nsave_rollouts: false\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_methods", raising=False)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    return tmp_path


def test_a_method_of_the_current_folder_trains_and_its_run_is_read_from_anywhere(folder, monkeypatch):
    quatro("train", "own.yaml", "-o", "run", "-s", "steps=1")
    recorded = read_json(folder / "run/environment.json")
    assert recorded["folder"] == str(folder)
    digest = hashlib.sha256((folder / "my_methods.py").read_bytes()).hexdigest()
    assert recorded["own_code.my_methods"] == digest
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    modules = __import__("sys").modules
    for hidden in (True, False):
        monkeypatch.delitem(modules, "my_methods", raising=False)
        monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry != str(folder)])
        if hidden:
            (folder / "my_methods.py").rename(folder / "kept")
            assert "my_methods:Centred" in quatro("runs", "show", folder / "run").stdout
            says(quatro("train", folder / "run", "--resume", "--dry-run", code=2), "my_methods", folder)
            (folder / "kept").rename(folder / "my_methods.py")
        else:  # found where it lay when the run began
            quatro("train", folder / "run", "--resume", "--dry-run")
    with (folder / "my_methods.py").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    resumed = quatro("train", folder / "run", "--resume", "--steps", "2")
    assert f"your module my_methods was changed since this run began (SHA-256 {digest[:12]}... then" in resumed.stderr


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Lacking", ["advantages(reward_B, group_B)", "loss(logp_BT, batch)"]),
        ("Missing", ["Missing"]),
        ("Begins", ["__init__", "scale: float"]),
        ("Earlier", ["'dynamic_sampling'; Needs takes keywords only", "it is rollout.dynamic_sampling now"]),
        ("ByPlace", ["but 3 were given; Needs takes keywords only"]),
    ],
)
def test_what_is_no_method_is_refused_before_the_run(folder, name, found):
    refused = quatro("train", "own.yaml", "-o", "run", "-s", f"method.name=my_methods:{name}", code=2)
    says(refused, *found)
    assert "my_methods" in refused.stderr
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Short", "split_sizes to sum exactly to 2"),
        ("Column", "in advantages: return Advantages(reward_B[:, None])"),
        ("Signature", "TypeError: Signature.advantages() takes 2 positional arguments"),
        ("Raises", "raised ZeroDivisionError: division by zero"),
        ("Shapes", "ValueError: the loss term policy has value () and weight (4,): expected one shape"),
    ],
)
def test_a_method_that_returns_something_else_ends_the_run_and_is_named(folder, name, said):
    failed = quatro("train", "own.yaml", "-o", "run", "-s", f"method.name=my_methods:{name}", code=1)
    assert said in failed.stderr
    assert f"{folder}/my_methods.py" in failed.stderr
    assert "Traceback" in failed.stderr
    assert not list((folder / "run/checkpoints").iterdir())


@pytest.mark.parametrize(
    ("name", "code", "said", "line"),
    [
        ("Unknown", 5, "`advantages` of Unknown gave nan in 4 of 4 values", 1),
        ("Endless", 5, "`loss` of Endless gave -inf in 16 of 16 values of the term 'endless'", 1),
        ("Late", 1, "your own code raised KeyError: 'late'", 3),
    ],
)
def test_what_a_method_of_ones_own_does_wrong_later_names_the_line(
    folder, tmp_path, monkeypatch, name, code, said, line
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    words = settings(f"method.name=my_methods:{name}", "steps=1")
    failed = quatro("train", "own.yaml", "-o", "run", *words, code=code)
    begins = METHODS.partition(f"class {name}(")[0].count("\n") + 1
    assert said in failed.stderr
    assert f"{folder}/my_methods.py:{begins + line} in " in failed.stderr


def test_the_keys_of_a_method_of_ones_own_are_shown(folder):
    words = ("config", "schema", "-m", "my_methods:Centred")
    assert quatro(*words).stdout.splitlines()[1:] == [
        "# method.name: my_methods:Centred",
        "method.name: text, required",
        "method.delta: float = 0.5",
    ]
    quatro("config", "schema", "-m", "my_methods:Lacking", code=2)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("-s", "method.scale=1"), ["method.scale", "delta"]),
        (("-s", "method.dleta=1"), ["method.delta"]),
        (("-m", "own_method"), ["package.module:Class"]),
        (("-m", "broken"), ["package.module:Class"]),
    ],
)
def test_the_message_about_a_wrong_key_or_name_leads_to_the_method_of_ones_own(folder, words, found):
    (folder / "own_method.py").write_text("class A:\n    pass\n\nclass B(A):\n    pass\n", encoding="utf-8")
    (folder / "broken.py").write_text("class A(\n", encoding="utf-8")
    says(quatro("train", "own.yaml", "--dry-run", *words, code=2), *found)
