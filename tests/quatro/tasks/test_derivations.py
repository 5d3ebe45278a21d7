"""The checker of word problems against labels that were given by reading, before its code was written."""

import json
import random
import re
from collections import Counter
from pathlib import Path

import pytest

from evals.grading import grade
from quatro.tasks.derivations import derivation_of
from quatro.tasks.word_problems import items, situations, solution, ways_of

LABELLED = [
    json.loads(line) for line in (Path(__file__).parent / "data" / "right_answers.jsonl").open(encoding="utf-8")
]


def test_the_labelled_answers_are_right_and_many_of_them_are_not_valid():
    labels = Counter(row["label"] for row in LABELLED)
    assert len(LABELLED) == 200
    assert labels["false"] + labels["none"] == 60
    assert all(grade(row["completion"], row["answer"]).correct for row in LABELLED)
    texts = {item.id: item.text for item in items("test")}
    assert all(texts[row["id"]] == row["problem"] for row in LABELLED)


def test_false_derivations_are_found_as_readers_find_them():
    verdicts = [derivation_of(row["completion"]).verdict for row in LABELLED]
    pairs = Counter((row["label"], verdict) for row, verdict in zip(LABELLED, verdicts, strict=True))
    found = sum(count for (_, verdict), count in pairs.items() if verdict == "false")
    meant = sum(count for (label, _), count in pairs.items() if label == "false")
    assert pairs["false", "false"] / meant >= 0.95  # recall, .85 asked for
    assert pairs["false", "false"] / found >= 0.95  # precision


def test_every_solution_of_the_grammar_is_valid_and_has_the_strategy_of_its_way():
    rng = random.Random(0)
    for item in items("test")[:100]:
        strategies = {
            tuple(sorted(step[-1] for step in way)) for way in ways_of(situations()[item.situation], item.numbers)
        }
        seen = set()
        for _ in range(30):
            found = derivation_of(solution(item, rng))
            assert found.verdict == "valid"
            seen.add(tuple(map(int, found.strategy)))
        assert seen <= strategies, item
        assert len(seen) == len(strategies), item


def test_a_changed_result_is_always_false():
    """Whatever equation is broken, and whether it is written in signs or in words."""
    rng = random.Random(1)
    for item in items("test")[:100]:
        body, _, box = solution(item, rng).rpartition(" \\boxed")
        places = list(re.finditer(r"(?:= |is |gives |makes? |leaves )(\d+)", body))
        assert places
        place = rng.choice(places)
        broken = f"{body[: place.start(1)]}{int(place[1]) + rng.choice((1, 2, 10))}{body[place.end(1) :]} \\boxed{box}"
        assert derivation_of(broken).verdict == "false", broken


@pytest.mark.parametrize(
    ("text", "verdict", "strategy"),
    [
        ("3 + 4 = 7. \\boxed{7}", "valid", ("7",)),
        ("\\boxed{7}", "none", ()),
        ("She has 7 of them. \\boxed{7}", "none", ()),
        ("2 + 2 = 4. \\boxed{7}", "none", ()),
        ("10 * 2 = 20. 3 + 4 = 7. \\boxed{7}", "valid", ("7",)),  # what is not needed makes no strategy
        ("4 + 3 = 7, and 3 plus 4 is 7. \\boxed{7}", "valid", ("7",)),
        ("12 - 7 = 5. Then adding 5 to 11 gives 16. \\boxed{16}", "valid", ("5", "16")),
        ("12 + 11 = 23. Then taking 7 from 23 leaves 16. \\boxed{16}", "valid", ("16", "23")),
        ("Tom has 24 - 14 = 10 books left. \\boxed{10}", "valid", ("10",)),
        ("14 - 6 = 8 + 9 = 17. \\boxed{17}", "false", ()),  # a running sum says that 8 is 17
        ("2 + 3 * 4 = 14. \\boxed{14}", "valid", ("14",)),
        ("1,200 + 300 = 1,500. \\boxed{1,500}", "valid", ("1500",)),
        ("7 / 2 = 3.5. \\boxed{3.5}", "valid", ("7/2",)),
        ("5 / 0 = 0. \\boxed{0}", "none", ()),
        ("Three groups of 4 make 12. \\boxed{12}", "valid", ("12",)),
        ("3 × 4 = 12; 12 − 2 = 10. \\boxed{10}", "valid", ("10", "12")),
        ("5 or six", "none", ()),
        ("3 + 4 = 7. \\boxed{7} 2 + 2 = 5", "valid", ("7",)),  # what follows the answer is not its derivation
    ],
)
def test_equations_in_signs_and_in_words(text, verdict, strategy):
    found = derivation_of(text)
    assert (found.verdict, found.strategy) == (verdict, strategy)


def test_hostile_texts_are_read_in_no_time():
    for text in (
        "9 + " * 20_000,
        "adding 1 to " * 5_000,
        "a " * 50_000 + "= 3",
        "1" * 100_000 + " + 1 = 2",
        "=" * 50_000,
    ):
        derivation_of(text + " \\boxed{1}")
