"""The embedded benchmarks of reasoning-gym, in single characters: palindrome, shortest-path and spell-backward.

Their policies are too small to read the library's questions. A prompt holds what matters of the question, and an answer
is written briefly. What is judged is the library's own form of that answer, by the library's own checker.

    palindrome       cejecj:          jeccej      a palindrome of all these letters
    shortest-path    OO*/O#X/XOO:     llrd        a shortest way from * to # (left, right, up, down) that avoids X
    spell-backward   wallboard:       draobllaw   the word backward
"""

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from evals.benchmarks.gym import as_key
from evals.benchmarks.gym.items import Form, Item, Part, items, problems_of_items
from evals.benchmarks.problems import Problem
from quatro.tasks.warm_start import SPECIAL_TOKENS, Vocabulary, WarmStart, WarmstartRows

NUM_PROBLEMS = {"train": 3000, "test": 600, "start": 8000}

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, ":", "/", "*", "#", "O", "X", *string.ascii_lowercase), ".")

# The longest answer has nine characters; a way that goes round about may have more.
MAX_ANSWER_TOKENS = 12

_STEPS = {"l": (0, -1), "r": (0, 1), "u": (-1, 0), "d": (1, 0)}
_MOST_STEPS = 9
_DIRECTIONS = {"l": "left", "r": "right", "u": "up", "d": "down"}


def _grid(entry: Mapping[str, Any]) -> str | None:
    """Rows with a stroke between them; None where there is no way, or a single step is enough."""
    if len(entry["metadata"]["solution"]) < 2:
        return None
    return "/".join("".join(row) for row in entry["metadata"]["matrix"]) + ":"


def _word(entry: Mapping[str, Any]) -> str | None:
    word = str(entry["metadata"]["word"]).lower()
    return f"{word}:" if word.isascii() and word.isalpha() else None


FORMS: dict[str, Form] = {
    "palindrome": Form(
        "palindrome_generation",
        {"min_length": 6, "max_length": 9},
        lambda entry: "".join(entry["metadata"]["letters"]) + ":",
        key=lambda prompt: "".join(sorted(prompt)),
        short=str,
        long=str,
    ),
    "shortest-path": Form(
        "shortest_path",
        {"min_rows": 3, "max_rows": 4, "min_cols": 3, "max_cols": 4, "p_blocked": 0.2},
        _grid,
        key=str,
        short=lambda answer: "".join(word[0] for word in answer.split()),
        # `llrd` as `left left right down`; another letter stays, so that the checker refuses it.
        long=lambda answer: " ".join(_DIRECTIONS.get(letter, letter) for letter in answer),
    ),
    "spell-backward": Form(
        "spell_backward",
        {"min_word_len": 5, "max_word_len": 9},
        _word,
        key=str,
        short=str.lower,
        long=str,
    ),
}


def problems(name: str, split: Part) -> tuple[Item, ...]:
    """The 3,000 training or the 600 test problems: always the same, and no two are the same problem.

    Palindromes of the same letters, in whatever order a prompt has them, are the same problem.

    Raises MissingError if reasoning-gym is not installed.
    """
    form = FORMS[name]
    numbers = {"count": NUM_PROBLEMS[split], "num_test": NUM_PROBLEMS["test"]}
    return items(form.task, as_key(form.settings), split, at=name, form=name, **numbers)


def problems_of(name: str, split: Literal["train", "test"]) -> list[Problem]:
    """The problems as those of a benchmark."""
    return problems_of_items(name, split, problems(name, split))


def _palindrome(item: Item, rng: np.random.Generator, wrong_share: float) -> str:
    """The letters of the half in random order."""
    letters = sorted(item.answer)
    middle = [letter for letter in set(letters) if letters.count(letter) % 2]
    for letter in middle:
        letters.remove(letter)
    half = "".join(rng.permutation(letters[::2]))
    answer = half + "".join(middle) + half[::-1]
    return _with_other_letters(answer, 1, rng) if rng.random() < wrong_share else answer


def _backward(item: Item, rng: np.random.Generator, wrong_share: float) -> str:
    return _with_other_letters(item.answer, 2, rng) if rng.random() < wrong_share else item.answer


def _with_other_letters(answer: str, count: int, rng: np.random.Generator) -> str:
    letters = list(answer)
    for place in rng.choice(len(letters), count, replace=False):
        letters[place] = string.ascii_lowercase[rng.integers(26)]
    return "".join(letters)


def _way(item: Item, rng: np.random.Generator, wrong_share: float) -> str:
    """A way from the start: at each step one that leads nearer to the end, or any step into an open cell."""
    rows = item.prompt.removesuffix(":").split("/")
    cells = {(i, j): cell for i, row in enumerate(rows) for j, cell in enumerate(row) if cell != "X"}
    here = next(place for place, cell in cells.items() if cell == "*")
    end = next(place for place, cell in cells.items() if cell == "#")
    far = {end: 0}
    waiting = [end]
    for place in waiting:
        for step in _STEPS.values():
            other = place[0] + step[0], place[1] + step[1]
            if other in cells and other not in far:
                far[other] = far[place] + 1
                waiting.append(other)
    way = ""
    while here != end and len(way) < _MOST_STEPS:
        next_to = {letter: (here[0] + i, here[1] + j) for letter, (i, j) in _STEPS.items()}
        open_steps = [letter for letter, place in next_to.items() if place in cells]
        if rng.random() >= wrong_share:
            open_steps = [letter for letter in open_steps if far[next_to[letter]] < far[here]]
        letter = open_steps[rng.integers(len(open_steps))]
        way += letter
        here = next_to[letter]
    return way


_WRITERS = {"palindrome": _palindrome, "shortest-path": _way, "spell-backward": _backward}


@dataclass(frozen=True)
class CharacterWarmStart(WarmStart):
    """A policy that plays ``benchmark``. Many of its rows have a wrong answer, so that its Pass@1 leaves room.

    With probability ``wrong_share`` one letter of a palindrome is another, and two of a word; a way takes a random step
    in place of a good one with that probability at each step.
    """

    vocabulary: ClassVar[Vocabulary] = VOCABULARY
    benchmark: str = "palindrome"
    wrong_share: float = 0.35
    hidden_size: int = 96
    num_heads: int = 3
    steps: int = 800
    rows: int = 96

    def draw(self, num_rows: int) -> WarmstartRows:
        """Answers to problems of a third split, which are neither training nor test problems."""
        rng = np.random.default_rng(self.seed)
        pool = problems(self.benchmark, "start")
        chosen = [pool[i] for i in rng.integers(0, len(pool), num_rows)]
        write = _WRITERS[self.benchmark]
        return VOCABULARY.rows([(item.prompt, write(item, rng, self.wrong_share)) for item in chosen])


RECIPES: dict[str, WarmStart] = {
    "embedded:palindrome": CharacterWarmStart(steps=310),
    "embedded:shortest-path": CharacterWarmStart(benchmark="shortest-path", wrong_share=0.25, steps=400),
    "embedded:spell-backward": CharacterWarmStart(benchmark="spell-backward", wrong_share=0.6, steps=600),
}
