"""The examples of code of one's own: the commands that their first lines name, and what each says that it does."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.kit import quatro, read_rows, settings

ROOT = Path(__file__).parents[2]
EXAMPLES = [*sorted((ROOT / "examples").glob("own_*.py")), ROOT / "examples/own_benchmark/quatro-benchmarks.toml"]
TINY = ("steps=1", "prompts_per_step=2", "minibatch_prompts=2", "rollouts_per_prompt=2", "threads=1")
SMALLER = {
    "train": settings(*TINY),
    "sample": ["-n", "1", "--max-tokens", "2"],
    "eval": [],
    "benchmarks": [],
}
# What the command that holds the first text prints, or writes into its last metrics.
SAYS = {
    "own_engine:MinP -o runs": "kl/new_old",
    "own_engine:MinP -o samples": "200 samples drawn",
    "own_grader:within --k": "50.0",  # 3, 3, 1, 3 and 0 of 4 end in a number within 1 %
    "own_grader:within -o": "samples.jsonl",
    "own_method:Lenient --dry-run": "failure_weight: 0.5",
    "own_method:Lenient -s": "advantage/baseline_mean",
    "own_reward:brief --dry-run": "examples.own_reward:brief",
    "own_reward:brief -s": "reward/parts/steps",
    "eval similarity": "10 of 10",
    "eval ucc": "2.00",  # 2, 3, 2, 3 and 0 clusters of 3, 3, 2, 3 and 0 correct answers
    "benchmarks show": "problems here      5",
    "sample embedded:countdown -b five-sums": "5 problems x 1 samples",
    "eval passk samples.jsonl": "55.0",  # 3, 3, 2, 3 and 0 of 4 are correct
}


def commands(path: Path) -> list[str]:
    """The commands in the lines that an example begins with."""
    return re.findall(r"^(?:# )?    (quatro .+)$", path.read_text(encoding="utf-8"), re.MULTILINE)


CASES = [
    (path.parent if path.suffix == ".toml" else ROOT, line)
    for path in EXAMPLES
    for line in commands(path)
    # They have tests of their own: one starts a process with torch, the other needs mlflow (`make test-trackers`).
    if path.stem not in ("own_policy", "own_tracker")
]


def test_every_example_begins_with_the_commands_that_run_it():
    assert {path.stem for path in EXAMPLES} == {
        *("own_engine", "own_grader", "own_method", "own_policy", "own_reward", "own_similarity", "own_tracker"),
        "quatro-benchmarks",
    }
    assert all(commands(path) for path in EXAMPLES)
    assert all(any(key in line for key in SAYS) for _, line in CASES)


@pytest.mark.parametrize(("folder", "line"), CASES, ids=[line for _, line in CASES])
def test_the_commands_of_an_example_run_as_they_stand(folder, line, tiny_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.path", [str(folder), *sys.path])
    _, command, *words = shlex.split(line.replace("embedded:countdown", str(tiny_folder)))
    words += SMALLER[command]
    if command == "train":
        words += ["-s", f"model={tiny_folder}"]
    if "-o" in words:
        words += ["-o", str(tmp_path / "out")]
    done = quatro(command, *words)
    metrics = tmp_path / "out/metrics.jsonl"
    printed = metrics.read_text(encoding="utf-8") if metrics.exists() else done.stdout + done.stderr
    (says,) = (text for key, text in SAYS.items() if key in line)
    assert says in printed


@pytest.mark.slow
def test_a_policy_in_another_process_learns_what_a_local_one_learns(tiny_folder, tmp_path, monkeypatch):
    """There is no model in this process: its folder has no weights."""
    bare = tmp_path / "bare"
    shutil.copytree(tiny_folder, bare, ignore=shutil.ignore_patterns("*.safetensors"))
    monkeypatch.chdir(ROOT)
    (tmp_path / "digits.py").write_text("def share(completion):\n    return sum(map(str.isdigit, completion)) / 10\n")
    monkeypatch.setattr("sys.path", [str(ROOT), str(tmp_path), *sys.path])
    monkeypatch.setenv("REMOTE_MODEL", str(tiny_folder))
    [line] = commands(ROOT / "examples/own_policy.py")
    _, *remote = shlex.split(line)
    small = settings("steps=2", "prompts_per_step=4", "minibatch_prompts=2", "reward=digits:share")
    found = {}
    for name, words, model in (("remote", remote, bare), ("local", ["train", "quickstart"], tiny_folder)):
        quatro(*words, *small, "-s", f"model={model}", "-o", tmp_path / name)
        rollouts = [file.read_bytes() for file in sorted((tmp_path / name / "rollouts").iterdir())]
        found[name] = load_file(tmp_path / name / "checkpoints/step-000002/model/model.safetensors"), rollouts
    assert found["remote"][1] == found["local"][1]
    weights, others = found["remote"][0], found["local"][0]
    assert weights.keys() == others.keys()
    assert max(float((weights[key] - others[key]).abs().max()) for key in weights) < 1e-5
    moved = load_file(tiny_folder / "model.safetensors")
    assert max(float((weights[key] - moved[key]).abs().max()) for key in weights) > 1e-4


@pytest.fixture
def lenient() -> Callable[..., list[float]]:
    """The advantages of rewards in groups, by the example's method."""
    from examples.own_method import Lenient

    def advantages(reward: list[float], group: list[int], weight: float) -> list[float]:
        method = Lenient(name="examples.own_method:Lenient", failure_weight=weight)
        values: list[float] = method.advantages(torch.tensor(reward), torch.tensor(group)).value_B.tolist()
        return values

    return advantages


def test_the_method_leaves_one_out_and_learns_less_from_failures(lenient):
    # Rows 0, 2 and 4 answer one prompt: 1 - (0 + 0) / 2, and 0 - (1 + 0) / 2 twice. Row 3 is alone.
    reward, group = [1.0, 0.25, 0.0, 1.0, 0.0, 0.75], [7, 2, 7, 5, 7, 2]
    assert lenient(reward, group, 1.0) == [1.0, -0.5, -0.5, 0.0, -0.5, 0.5]
    assert lenient(reward, group, 0.5) == [1.0, -0.25, -0.25, 0.0, -0.25, 0.5]


def test_the_reward_is_higher_for_a_short_answer_and_0_for_one_that_was_cut():
    from examples.own_reward import brief

    prompt, short, long = "7 2 7 6 2 8 -> 56", "8 *7 =56", "8 *7 =56 +2 =58 -2 =56"
    assert brief(short, prompt, "stop", bonus=0.3) == {"reward": 1.3, "correct": True, "steps": 1}
    assert brief(long, prompt, "stop", bonus=0.3) == {"reward": 1.1, "correct": True, "steps": 3}
    assert brief(short, prompt, "length") == {"reward": 0.0, "correct": False, "steps": 1}


def test_the_engine_keeps_only_tokens_near_the_likeliest(tiny_folder, monkeypatch):
    from examples import own_engine
    from quatro.policy.loading import load_tokenizer
    from quatro.rollout.engine import Recipe
    from quatro.types import Prompt, Sampling

    tokenizer = load_tokenizer(str(tiny_folder))
    recipe = Recipe("examples.own_engine:MinP", str(tiny_folder), "float32", "cpu", 18)
    engine = own_engine.MinP.open(recipe, tokenizer)
    text = "7 2 7 6 2 8 -> 67"
    prompt = Prompt("b", "p", text, text, text, tuple(tokenizer.encode(text)))
    seeds, sampling = [list(range(20))], Sampling(max_new_tokens=6)
    (drawn,) = engine.generate([prompt], seeds, sampling)
    assert len({rollout.token_ids for rollout in drawn}) > 1
    monkeypatch.setattr(own_engine, "MIN_P", 1.0)  # nothing but the likeliest
    (greedy,) = engine.generate([prompt], seeds, sampling)
    assert len({rollout.token_ids for rollout in greedy}) == 1
    largest = greedy[0].logp[0]
    assert all(rollout.logp[0] <= largest for rollout in drawn)
    monkeypatch.setattr(own_engine, "MIN_P", 0.9)
    (near,) = engine.generate([prompt], seeds, sampling)
    assert all(rollout.logp[0] >= largest + torch.tensor(0.9).log() for rollout in near)
    first_word = tokenizer.decode([greedy[0].token_ids[0]])
    monkeypatch.setattr(own_engine, "MIN_P", 1.0)
    (stopped,) = engine.generate([prompt], [[0]], Sampling(max_new_tokens=6, stop=(first_word,)))
    assert (stopped[0].token_ids, stopped[0].text, stopped[0].finish_reason) == (greedy[0].token_ids[:1], "", "stop")


def test_the_problems_and_the_samples_of_the_benchmark_belong_together():
    folder = ROOT / "examples/own_benchmark"
    rows, samples = (read_rows(folder / name) for name in ("five-sums.jsonl", "samples.jsonl"))
    answers = {row["id"]: row["worked"].rpartition("#### ")[2] for row in rows}
    assert len(answers) == 5
    assert {sample["id"]: sample["answer"] for sample in samples} == answers


def of_the_page(file: str, name: str) -> Any:
    """What ``name`` is in the module that docs/extending.md shows as ``file``."""
    page = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
    shown = re.search(rf"^    # {file},.*\n((?:    (?!quatro).*\n|\n(?=    [^q]))+)", page, re.MULTILINE)
    assert shown is not None
    found: dict[str, object] = {"__name__": file}
    exec(textwrap.dedent(shown[1]), found)
    return found[name]


def test_a_part_of_a_built_in_method_is_changed_as_the_page_shows():
    method = of_the_page("my_methods.py", "MedianGrpo")(name="my_methods:MedianGrpo", clip_high=0.3)
    value_B = method.advantages(torch.tensor([1.0, 0.0, 0.0, 5.0]), torch.tensor([0, 0, 0, 1])).value_B
    assert value_B.tolist() == [1.0, 0.0, 0.0, 0.0]


def test_any_of_several_answers_is_enough_for_the_grader_of_the_page():
    grader = of_the_page("my_graders.py", "any_of")
    found = {boxed: grader(rf"\boxed{{{boxed}}}", "11 | 13") for boxed in ("11", "13", "11, 13", "7")}
    assert found == {"11": True, "13": True, "11, 13": False, "7": False}
