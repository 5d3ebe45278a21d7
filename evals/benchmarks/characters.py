"""The embedded benchmarks of reasoning-gym, in single characters: palindrome, shortest-path and spell-backward.

`evals.benchmarks.gym.compact` says how their prompts and answers are written. Here are their problems, the
vocabulary of the embedded policies that play them, and the rows from which these policies learn at first.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evals.benchmarks.countdown import WarmstartRows
from evals.benchmarks.gym.compact import FORMS
from evals.benchmarks.gym.items import Item, Part, items

NUM_PROBLEMS = {"train": 3000, "test": 600, "start": 8000}

SPECIAL_TOKENS = ("<pad>", "<eos>", "_")
TOKENS: tuple[str, ...] = (*SPECIAL_TOKENS, ":", "/", "*", "#", "O", "X", *string.ascii_lowercase)
TOKEN_IDS = {token: i for i, token in enumerate(TOKENS)}
TOKEN_PATTERN = "."
PAD_ID, EOS_ID = TOKEN_IDS["<pad>"], TOKEN_IDS["<eos>"]

# The longest answer has nine characters; a way that goes round about may have more.
MAX_ANSWER_TOKENS = 12

_STEPS = {"l": (0, -1), "r": (0, 1), "u": (-1, 0), "d": (1, 0)}
_MOST_STEPS = 9


def problems(name: str, split: Part) -> tuple[Item, ...]:
    """The 3,000 training or the 600 test problems: always the same, and no two are the same problem.

    Palindromes of the same letters, in whatever order a prompt has them, are the same problem.

    Raises:
        MissingError: reasoning-gym is not installed.
    """
    form = FORMS[name]
    numbers = {"count": NUM_PROBLEMS[split], "num_test": NUM_PROBLEMS["test"]}
    return items(form.task, form.settings, split, at=name, form=name, **numbers)


def encode(text: str) -> list[int]:
    """Token ids of the characters; KeyError names the first one that is not in the vocabulary."""
    return [TOKEN_IDS[character] for character in text]


def decode(ids: Sequence[int] | NDArray[np.int64]) -> str:
    """The text of ``ids`` up to, and without, the first ``<eos>`` or ``<pad>``."""
    text = ""
    for i in ids:
        if i in (PAD_ID, EOS_ID):
            break
        text += TOKENS[i]
    return text


def warmstart_rows(name: str, rng: np.random.Generator, num_rows: int, *, wrong_share: float) -> WarmstartRows:
    """Prompts with answers of which many are wrong; never a prompt of the test split.

    A palindrome has its letters in random order, and with probability ``wrong_share`` one letter is another. A word has
    two other letters with that probability. A way takes a random step in place of a good one, with that probability at
    each step.
    """
    pool = problems(name, "start")
    write = {"palindrome": _palindrome, "shortest-path": _way, "spell-backward": _backward}[name]
    chosen = [pool[i] for i in rng.integers(0, len(pool), num_rows)]
    pairs = [(item.prompt, write(item, rng, wrong_share)) for item in chosen]
    width = max(len(prompt) + len(answer) for prompt, answer in pairs) + 1 if pairs else 1
    token_ids = np.full((num_rows, width), PAD_ID, dtype=np.int64)
    mask = np.zeros(token_ids.shape, dtype=bool)
    for row, is_answer, (prompt, answer) in zip(token_ids, mask, pairs, strict=True):
        end = len(prompt) + len(answer) + 1
        row[:end] = [*encode(prompt + answer), EOS_ID]
        is_answer[len(prompt) : end] = True
    return WarmstartRows(token_ids, mask)


def _palindrome(item: Item, rng: np.random.Generator, wrong_share: float) -> str:
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
