"""Each option of a measuring command reaches the numbers: another value gives other rows, the same seed the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.kit import quatro, write_rows

PASSK, UCC, FLIPS = ["passk", "A"], ["ucc", "A", "--k", "3"], ["flips", "A", "B"]
COMPARE = ["compare", "A", "B"]
COMPARE_UCC = [*COMPARE, "--metric", "ucc@k", "--k", "3"]
PAIRS = ["similarity", "A"]
OPTIONS = [
    (PASSK, "--k", "1", "2"),
    ([*PASSK, "--also", "g-pass", "--k", "4"], "--tau", "0.25", "0.75"),
    (UCC, "--threshold", "0.3", "0.9"),
    (UCC, "--similarity", "tfidf", "edit"),
    ([*UCC, "--threshold", "0.5"], "--linkage", "components", "greedy"),
    ([*UCC, "--threshold", "0.6"], "--tokens", "math", "whitespace"),
    ([*FLIPS], "--k", "1", "3"),
    ([*COMPARE, "--also", "g-pass", "--k", "4"], "--tau", "0.25", "0.75"),
    (COMPARE_UCC, "--threshold", "0.3", "0.9"),
    (COMPARE_UCC, "--similarity", "tfidf", "edit"),
    ([*COMPARE_UCC, "--threshold", "0.5"], "--linkage", "components", "greedy"),
    ([*COMPARE_UCC, "--threshold", "0.6"], "--tokens", "math", "whitespace"),
    ([*PAIRS, "--max-pairs", "2"], "--seed", "1", "2"),
    (PAIRS, "--max-pairs", "1", "9"),
    ([*PAIRS, "--similarity", "jaccard"], "--tokens", "math", "whitespace"),
    *((command, "--n", "3", "6") for command in (PASSK, UCC, FLIPS, COMPARE)),
]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two files whose texts and numbers of correct ones differ; some problems are solved in B alone or in none."""
    folder = tmp_path_factory.mktemp("samples")
    chance = random.Random(3)

    def row(number: int, index: int, share: float) -> dict[str, object]:
        words = " ".join(chance.choice(["Add_one", "add one", "(a+b)", "then", "so", "x=1"]) for _ in range(6))
        is_right = chance.random() < (share if number % 3 or (share > 0.6 and number) else 0.0)
        head = {"benchmark": "toy", "id": f"p{number}", "sample_index": index, "answer": "1"}
        return head | {"completion": words, "correct": is_right}

    return {
        name: write_rows(folder / f"{name}.jsonl", (row(i, j, share) for i in range(12) for j in range(8)))
        for name, share in (("A", 0.5), ("B", 0.7))
    }


@pytest.mark.parametrize(
    ("command", "option", "one", "other"), OPTIONS, ids=[f"{' '.join(words)} {option}" for words, option, *_ in OPTIONS]
)
def test_an_option_changes_what_it_says_it_does(samples, command, option, one, other):
    words = [samples.get(word, word) for word in command]

    def rows(value: str) -> str:
        document = json.loads(quatro("eval", *words, option, value, "--json").stdout)
        return json.dumps(document["rows"])

    if option == "--seed":
        assert rows(one) == rows(one)
    assert rows(one) != rows(other)
