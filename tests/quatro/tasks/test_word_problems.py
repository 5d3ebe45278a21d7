"""The word problems: their grammar, their splits, and the solutions from which a model learns them at first."""

import random
import re

import pytest

from evals.benchmarks.loading import load_problems
from evals.benchmarks.prompts import find_template, messages
from evals.grading import grade
from quatro.tasks.word_problems import StartRecipe, items, prompt_of, situations, solution, ways_of

SIGNS = re.compile(r"(\d+) ([-+*/]) (\d+) = (\d+)")


def test_there_are_ten_situations_or_more_of_one_to_three_steps_in_several_wordings():
    assert len(situations()) >= 10
    assert {min(len(way.split(", ")) for way in one.ways) for one in situations().values()} == {1, 2, 3}
    for one in situations().values():
        assert len(set(one.wordings)) == 3, one.name
        assert len(set(one.ways)) == len(one.ways)


def test_every_way_ends_at_the_answer_and_writes_true_equations():
    for item in (*items("train"), *items("test")):
        ways = ways_of(situations()[item.situation], item.numbers)
        assert ways
        for steps in ways:
            assert steps[-1][-1] == item.answer > 0
            for left, operation, right, value in steps:
                assert eval(f"{left} {operation} {right}") == value > 0, item  # our own grammar


def test_train_and_test_share_no_numbers_and_no_wording():
    def shapes(split):
        return {re.sub(r"\d+|[A-Z][a-z]+\b", "_", item.text) for item in items(split)}

    def numbers(split):
        return {(item.situation, *sorted(item.numbers.items())) for item in items(split)}

    for of in (shapes, numbers, lambda split: {item.text for item in items(split)}):
        assert of("train").isdisjoint(of("test"))
    assert len({item.text for item in items("train")}) == 3000
    assert len({item.text for item in items("test")}) == 300


def test_solutions_are_right_for_the_grader_end_in_a_box_and_differ():
    rng = random.Random(0)
    for item in items("test")[:100]:
        texts = {solution(item, rng) for _ in range(40)}
        assert len(texts) > 3
        for text in texts:
            assert grade(text, str(item.answer)).correct, text
            assert text.endswith(f". \\boxed{{{item.answer}}}")
            for left, operation, right, value in SIGNS.findall(text):
                assert eval(f"{left} {operation} {right}") == int(value)


def test_the_start_learns_what_the_benchmark_asks():
    problem = load_problems("word-problems")[0]
    (turn,) = messages(find_template("question"), problem.problem)
    assert turn["content"] == prompt_of(problem.problem) == f"Question: {problem.problem}\nAnswer:"
    pairs = StartRecipe(steps=3, rows=4).pairs()
    assert len(pairs) == 12
    assert pairs == StartRecipe(steps=3, rows=4).pairs() != StartRecipe(steps=3, rows=4, seed=1).pairs()
    tested = {prompt_of(item.text) for item in items("test")}
    assert tested.isdisjoint(prompt for prompt, _ in StartRecipe().pairs())


@pytest.mark.parametrize(("split", "count"), [("train", 3000), ("test", 300)])
def test_the_benchmark_is_made_here(split, count):
    problems = load_problems("word-problems", split=split)
    assert len(problems) == count
    assert {problem.benchmark for problem in problems} == {"word-problems"}
    assert [problem.id for problem in problems[:2]] == [f"{split}-0", f"{split}-1"]
