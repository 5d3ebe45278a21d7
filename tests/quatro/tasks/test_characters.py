"""The embedded benchmarks of reasoning-gym: their prompts in characters, and the rows of their first learning."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

from evals.benchmarks.catalogue import registry
from evals.benchmarks.gym import COLUMN, entry, reference_of
from evals.benchmarks.gym.scoring import Asked, GymGrader
from evals.benchmarks.loading import load_problems, local_copy
from quatro.tasks import characters
from quatro.tasks.characters import FORMS
from quatro.tasks.warm_start import EOS_ID

NAMES = list(FORMS)


@pytest.fixture(scope="module")
def grader():
    with closing(GymGrader(workers=1)) as found:
        yield found


def judged(grader: GymGrader, problem, *answers: str) -> list[float]:
    reference = reference_of(problem.extra[COLUMN])
    return [value for value, _ in grader.score([Asked(reference, answer) for answer in answers])]


def group(name: str, prompt: str) -> object:
    """What makes two prompts the same problem: of palindromes the letters in any order."""
    return tuple(sorted(prompt)) if name == "palindrome" else prompt


@pytest.mark.parametrize("name", NAMES)
def test_the_problems_are_those_that_the_registry_says(name):
    problems = load_problems(name)
    assert local_copy(registry()[name])[1]["same_as_registry"]
    assert len(problems) == registry()[name].count == 600
    assert len(load_problems(name, split="train")) == 3000


@pytest.mark.parametrize("name", NAMES)
def test_no_problem_is_in_two_splits_that_must_be_apart(name):
    test, train = load_problems(name), load_problems(name, split="train")
    groups = [group(name, problem.problem) for problem in test + train]
    assert len(set(groups)) == 3600
    assert {group(name, problem.problem) for problem in test}.isdisjoint(
        group(name, item.prompt) for item in characters.problems(name, "start")
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_says_what_the_library_asks_and_its_reference_answer_is_right(name, grader):
    for problem in load_problems(name)[:60]:
        found = entry(reference_of(problem.extra[COLUMN]))
        asked = problem.problem.removesuffix(":")
        if name == "shortest-path":
            grid = "\n".join(" ".join(row) for row in asked.split("/"))
            assert found["question"].endswith(f"\n{grid}\n")
        elif name == "palindrome":
            assert ", ".join(asked) in found["question"]
        else:
            assert asked in found["question"].lower()
        assert judged(grader, problem, problem.answer) == [1]
        both = problem.problem + problem.answer
        assert "".join(characters.VOCABULARY.tokens[i] for i in characters.VOCABULARY.encode(both)) == both


def test_a_way_is_judged_step_by_step(grader):
    """Brute force: every sequence of up to four steps of a small grid, against a walk on it."""
    from itertools import product

    problem = next(one for one in load_problems("shortest-path") if len(one.answer) == 3 and "X" in one.problem)
    rows = problem.problem.removesuffix(":").split("/")
    cells = {(i, j): cell for i, row in enumerate(rows) for j, cell in enumerate(row) if cell != "X"}
    start = next(place for place, cell in cells.items() if cell == "*")
    steps = {"l": (0, -1), "r": (0, 1), "u": (-1, 0), "d": (1, 0)}
    ways = ["".join(way) for length in range(1, 5) for way in product("lrud", repeat=length)]
    for way, value in zip(ways, judged(grader, problem, *ways), strict=True):
        place: tuple[int, int] | None = start
        for letter in way:
            place = (place[0] + steps[letter][0], place[1] + steps[letter][1])
            if place not in cells:
                break
        arrives = cells.get(place) == "#"
        assert value == (0 if not arrives else 1 if len(way) == 3 else 0.5), way
    assert judged(grader, problem, "left", "l l", "", "<answer>llll</answer>x")[0] == 0


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_the_warm_start_hold_no_test_prompt_and_as_many_wrong_answers_as_asked(name, grader):
    test = {group(name, problem.problem) for problem in load_problems(name)}
    for share in (0.0, 0.5):
        rows = characters.CharacterWarmStart(benchmark=name, seed=3, wrong_share=share).draw(300)
        texts = ["".join(characters.VOCABULARY.tokens[i] for i in row if i > EOS_ID) for row in rows.token_ids]
        prompts = [text[: text.index(":") + 1] for text in texts]
        assert all(group(name, prompt) not in test for prompt in prompts)
        for text, prompt, mask, ids in zip(texts, prompts, rows.answer_mask, rows.token_ids, strict=True):
            assert mask.nonzero()[0].tolist() == list(range(len(prompt), len(text) + 1))
            assert ids[len(text)] == EOS_ID
        references = {item.prompt: item.reference for item in characters.problems(name, "start")}
        asked = [Asked(references[p], text.removeprefix(p)) for p, text in zip(prompts, texts, strict=True)]
        solved = sum(grade.correct for _, grade in grader.score(asked))
        assert solved == 300 if share == 0 else 30 < solved < 270


def test_rows_depend_on_the_seed_alone():
    rows = [characters.CharacterWarmStart(seed=seed).draw(50).token_ids for seed in (1, 1, 2)]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert rows[0].shape != rows[2].shape or (rows[0] != rows[2]).any()


def test_half_of_a_palindrome_comes_in_any_order():
    """Of the letters of `abccba` there are six palindromes; each occurs in about a sixth of the rows."""
    item = characters.problems("palindrome", "start")[0]._replace(answer="abccba")
    rng = np.random.default_rng(0)
    found = Counter(characters._palindrome(item, rng, 0.0) for _ in range(600))
    assert len(found) == 6
    assert min(found.values()) > 60
