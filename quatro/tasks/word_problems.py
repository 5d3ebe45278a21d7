"""Elementary word problems in one to three steps, from a grammar: the task that a pretrained model learns here.

A situation has several wordings of its question and several ways to its answer. An item of the split `test` has a
wording and numbers that no item of `train` has. A solution writes one equation after another, in signs or in words, and
the answer in a box:

    Tom has 16 shells, buys 5 boxes of 5 and gives 4 away. How many shells does Tom have now?
     16 minus 4 is 12, and multiplying 5 by 5 gives 25. Then 12 and 25 make 37. \\boxed{37}
"""

import hashlib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, Literal, NamedTuple

from evals.benchmarks.problems import Problem
from evals.benchmarks.prompts import messages
from evals.samples.types import GradedProblem
from evals.text import table_beside
from quatro.tasks.derivations import VALIDITY, derivation_of

Split = Literal["train", "test"]
WORD_PROBLEMS = "word-problems"
MODELS = SMOLLM2, STARTED = "smollm2", "smollm2-started"  # which learn it
NUM_PROBLEMS = {"train": 3000, "test": 300}


class Situation(NamedTuple):
    """An entry of word_problems.toml, which says what its fields mean."""

    name: str
    ways: tuple[str, ...]
    numbers: dict[str, tuple[int, int]]
    wordings: tuple[str, ...]


@cache
def grammar() -> dict[str, Any]:
    """What problems and solutions are put together from: word_problems.toml."""
    return table_beside(__file__, "word_problems.toml")


@cache
def situations() -> dict[str, Situation]:
    """All situations by name."""
    return {one["name"]: Situation(**one) for one in grammar()["situation"]}


class Item(NamedTuple):
    """A problem of the grammar with its ``numbers``; ``answer`` is what every way of its situation gives."""

    id: str
    situation: str
    text: str
    numbers: dict[str, int]
    answer: int


Step = tuple[int, str, int, int]  # (left, operation, right, value)


def ways_of(situation: Situation, numbers: dict[str, int]) -> list[list[Step]]:
    """The equations of each way, if every value on it is above 0."""
    found = []
    for way in situation.ways:
        known, steps = dict(numbers), list[Step]()
        for equation in way.split(", "):
            left, operation, right, *name = equation.replace("= ", "").split()
            l, r = (known[part] if part in known else int(part) for part in (left, right))
            value = {"+": l + r, "-": l - r, "*": l * r, "/": l // max(1, r)}[operation]
            known |= dict.fromkeys(name, value)
            steps.append((l, operation, r, value))
        if all(value > 0 for *_, value in steps):
            found.append(steps)
    return found


@cache
def items(split: Split) -> tuple[Item, ...]:
    """The items of a split, the same everywhere."""
    rng, found, texts = random.Random(f"word-problems {split}"), list[Item](), set[str]()
    names = list(situations())
    while len(found) < NUM_PROBLEMS[split]:
        situation = situations()[names[len(found) % len(names)]]
        numbers = {key: rng.randint(*bounds) for key, bounds in situation.numbers.items()}
        if "q" in numbers:
            numbers["p"] = numbers["a"] * numbers["q"]
        ways = ways_of(situation, numbers)
        if (sum(numbers.values()) % 5 == 0) != (split == "test") or not ways:
            continue
        first, other = rng.sample(grammar()["names"], 2)
        wordings = situation.wordings[-1:] if split == "test" else situation.wordings[:-1]
        text = rng.choice(wordings).format(n=first, m=other, t=rng.choice(grammar()["things"]), **numbers)
        if text not in texts:
            texts.add(text)
            found.append(Item(f"{split}-{len(found)}", situation.name, text, numbers, ways[0][-1][-1]))
    return tuple(found)


def solution(item: Item, rng: random.Random) -> str:
    """A right solution: one of the ways, in signs or in words."""
    steps = rng.choice(ways_of(situations()[item.situation], item.numbers))
    in_words = rng.random() < 0.3
    sentences = []
    for l, operation, r, value in steps:
        if operation in "+*" and rng.random() < 0.25:
            l, r = r, l
        form = rng.choice(grammar()["words"][operation]) if in_words else grammar()["signs"][operation]
        sentences.append(form.format(l=l, r=r, v=value))
    text = sentences[0]
    for sentence in sentences[1:]:
        joined = rng.choice(grammar()["joined"])
        if joined.startswith("First") and text != sentences[0]:
            joined = grammar()["joined"][1]
        text = joined.format(text, sentence)
    text = re.sub(
        r"(First|Then|and) (Adding|Taking|Sharing|Multiplying|Dividing)", lambda m: f"{m[1]} {m[2].lower()}", text
    )
    return f" {text}. \\boxed{{{item.answer}}}"


def prompt_of(problem: str) -> str:
    """What the model reads: the template of the benchmark."""
    return messages("question", problem)[0]["content"]


def problems_of(name: str, split: Split) -> list[Problem]:
    """The problems of the benchmark ``name``."""
    return [Problem(name, one.id, one.text, str(one.answer), {"situation": one.situation}) for one in items(split)]


def validities(problems: Sequence[GradedProblem]) -> list[list[bool | None]]:
    """Whether the derivation of each completion is valid; None: it states none."""
    return [[VALIDITY[derivation_of(text).verdict] for text in one.completions] for one in problems]


@dataclass(frozen=True)
class StartRecipe:
    """The supervised start of SmolLM2; the hash of it and of what it teaches names the cached folder."""

    steps: int = 60
    rows: int = 16
    lr: float = 1.5e-4
    warmup_steps: int = 5
    max_grad_norm: float = 1.0
    seed: int = 0
    recipe: int = 1  # raise when the code changes how it learns

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps([asdict(self), self.pairs()]).encode("utf-8")).hexdigest()[:16]

    def pairs(self) -> list[tuple[str, str]]:
        """A prompt and a right solution for each row of each step."""
        rng = random.Random(self.seed)
        chosen = rng.choices(items("train"), k=self.steps * self.rows)
        return [(prompt_of(item.text), solution(item, rng)) for item in chosen]

    def is_enough(self, losses: Sequence[float]) -> bool:
        return False
