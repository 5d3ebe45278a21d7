"""Tasks of reasoning-gym in a few characters, for policies that are too small to read the library's questions.

A prompt holds what matters of the question, and an answer is written briefly. What is judged is the library's own form
of that answer, by the library's own checker.

    palindrome       cejecj:          jeccej      a palindrome of all these letters
    shortest-path    OO*/O#X/XOO:     llrd        a shortest way from * to # (left, right, up, down) that avoids X
    spell-backward   wallboard:       draobllaw   the word backward
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_DIRECTIONS = {"l": "left", "r": "right", "u": "up", "d": "down"}


@dataclass(frozen=True)
class Form:
    """A task with its settings, and how its questions and answers are written.

    ``prompt`` makes the prompt of an entry, or None of an entry that is not used. ``key`` is what two prompts of one
    problem share. ``short`` writes a reference answer briefly, and ``long`` takes an answer back to the library's form.
    """

    task: str
    settings: Mapping[str, Any]
    prompt: Callable[[Mapping[str, Any]], str | None]
    key: Callable[[str], str]
    short: Callable[[str], str]
    long: Callable[[str], str]


def _letters(entry: Mapping[str, Any]) -> str:
    return "".join(entry["metadata"]["letters"]) + ":"


def _grid(entry: Mapping[str, Any]) -> str | None:
    """Rows with a stroke between them; None where there is no way, or a single step is enough."""
    if len(entry["metadata"]["solution"]) < 2:
        return None
    return "/".join("".join(row) for row in entry["metadata"]["matrix"]) + ":"


def _word(entry: Mapping[str, Any]) -> str | None:
    word = str(entry["metadata"]["word"]).lower()
    return f"{word}:" if word.isascii() and word.isalpha() else None


def _words_of_directions(answer: str) -> str:
    """`llrd` as `left left right down`; another letter stays, so that the checker refuses it."""
    return " ".join(_DIRECTIONS.get(letter, letter) for letter in answer)


def _letters_of_directions(answer: str) -> str:
    return "".join(word[0] for word in answer.split())


def _same(text: str) -> str:
    return text


FORMS: dict[str, Form] = {
    "palindrome": Form(
        "palindrome_generation",
        {"min_length": 6, "max_length": 9},
        _letters,
        key=lambda prompt: "".join(sorted(prompt)),
        short=_same,
        long=_same,
    ),
    "shortest-path": Form(
        "shortest_path",
        {"min_rows": 3, "max_rows": 4, "min_cols": 3, "max_cols": 4, "p_blocked": 0.2},
        _grid,
        key=_same,
        short=_letters_of_directions,
        long=_words_of_directions,
    ),
    "spell-backward": Form(
        "spell_backward",
        {"min_word_len": 5, "max_word_len": 9},
        _word,
        key=_same,
        short=lambda answer: answer.lower(),
        long=_same,
    ),
}
