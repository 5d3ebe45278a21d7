import ast
import subprocess
import sys
from contextlib import closing
from itertools import pairwise

import pytest

from evals.benchmarks.catalogue import registry
from evals.benchmarks.loading import load_problems
from evals.benchmarks.problems import content_hash
from evals.code.grading import Answer, CodeGrader
from evals.code.programs import normal_program
from evals.errors import UsageError
from evals.sandbox import probe
from quatro.tasks.codegrammar import (
    ENTRY_POINT,
    HIDDEN_INPUTS,
    MAX_ANSWER_TOKENS,
    STEPS,
    VOCABULARY,
    CodeWarmStart,
    bodies,
    problems,
)
from quatro.tasks.warm_start import EOS_ID, PAD_ID

BOTH = problems("train") + problems("test")
isolated = pytest.mark.skipif(probe().name == "none", reason="this machine has no isolation for programs")


def returned(problem, body):
    """What a body of the grammar returns for the hidden inputs."""
    scope = {}
    exec(problem.prompt + body, scope)
    return tuple(scope[ENTRY_POINT](list(x) if isinstance(x, list) else x) for x in HIDDEN_INPUTS[problem.kind])


def test_problems_are_the_same_in_every_process():
    code = "import quatro.tasks.codegrammar as c; print(hash(1), c.problems('test')[7], c.problems('train')[7])"
    runs = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(runs) == 1
    assert f"{problems('test')[7]} {problems('train')[7]}" in runs.pop()


def test_the_registry_knows_the_test_split():
    entry, found = registry()["codegrammar"], load_problems("codegrammar")
    assert (entry.grader, entry.template) == ("code", "plain")
    assert (len(found), content_hash(found)) == (entry.count, entry.sha256)
    assert found[0].id == "codegrammar/test/0000"
    assert load_problems("codegrammar", split="train")[0].id == "codegrammar/train/0000"
    with pytest.raises(UsageError, match=r"only countdown, codegrammar, .* have splits"):
        load_problems("math500", split="train")


def test_no_two_problems_share_a_behaviour_a_body_or_a_docstring():
    assert len({repr(problem.expected) for problem in BOTH}) == len(BOTH)
    assert len({problem.prompt for problem in BOTH}) == len(BOTH)
    of = {split: {body for problem in problems(split) for body in problem.bodies} for split in ("train", "test")}
    assert of["train"].isdisjoint(of["test"])


def test_every_body_of_a_test_problem_returns_what_its_tests_expect():
    for problem in problems("test"):
        assert {repr(returned(problem, body)) for body in problem.bodies} == {repr(problem.expected)}, problem.prompt


def test_functions_have_several_right_programs_of_one_to_three_lines():
    for problem in BOTH:
        assert max(body.count("\n") for body in problem.bodies) <= 2
    for problem in problems("test"):
        different = {normal_program(problem.prompt + body) for body in problem.bodies}
        assert len(different) == len(problem.bodies) >= 2


def test_no_problem_is_solved_by_a_constant_or_by_its_argument():
    for problem in BOTH:
        assert problem.expected != HIDDEN_INPUTS[problem.kind]
        assert any(value != problem.expected[0] for value in problem.expected)


def by_hand(words, value):
    """What a docstring says, read by a second reader."""
    for step in words.split(", "):
        *_, last = step.split()
        c = int(last) if last.isdigit() else next((int(word) for word in step.split() if word.isdigit()), 0)
        verb = step.split()[0]
        one = {
            "add": lambda x, c=c: x + c,
            "subtract": lambda x, c=c: x - c,
            "multiply": lambda x, c=c: x * c,
            "divide": lambda x, c=c: x // c,
            "reduce": lambda x, c=c: x % c,
            "raise": lambda x, c=c: max(x, c),
            "cap": lambda x, c=c: min(x, c),
            "negate": lambda x: -x,
            "square": lambda x: x * x,
        }
        whole = {
            "sort": sorted,
            "reverse": lambda xs: xs[::-1],
            "drop the first": lambda xs: xs[1:],
            "drop the last": lambda xs: xs[:-1],
            "keep every second number": lambda xs: [x for i, x in enumerate(xs) if i in range(0, 9, 2)],
            "keep the even numbers": lambda xs: [x for x in xs if x in range(-9998, 9999, 2)],
            "keep the odd numbers": lambda xs: [x for x in xs if x not in range(-9998, 9999, 2)],
            f"keep those above {c}": lambda xs, c=c: [x for x in xs if x > c],
            f"keep those below {c}": lambda xs, c=c: [x for x in xs if x < c],
            "take the sum": sum,
            "take the largest": max,
            "take the smallest": min,
            "take the length": len,
            "take the first": lambda xs: xs[0],
            "take the last": lambda xs: xs[len(xs) - 1],
        }
        if verb in one:
            value = [one[verb](x) for x in value] if isinstance(value, list) else one[verb](value)
        else:
            value = whole[step](value)
    return value


def test_functions_do_what_their_docstrings_say():
    for problem in BOTH:
        words = ast.get_docstring(ast.parse(problem.prompt + problem.bodies[0]).body[0])
        assert tuple(by_hand(words, value) for value in HIDDEN_INPUTS[problem.kind]) == problem.expected, words
    assert {step.takes for step in STEPS} == {"n", "xs"}


def test_brackets_keep_the_order_of_the_steps():
    by_words = {step.words: step for step in STEPS}
    steps = [by_words[words] for words in ("subtract 3", "multiply by 2", "negate")]
    assert "    return -((n - 3) * 2)" in set(bodies(steps, "n"))
    assert "    n = (n - 3) * 2\n    return -n" in set(bodies(steps, "n"))
    assert "    n -= 3\n    n *= 2\n    return -n" in set(bodies(steps, "n"))


def test_tokens_joined_are_the_text():
    assert len(VOCABULARY.tokens) == len(set(VOCABULARY.tokens))
    for problem in BOTH:
        for text in (problem.prompt, *problem.bodies[::7]):
            assert "".join(VOCABULARY.tokens[i] for i in VOCABULARY.encode(text)) == text
    assert max(len(VOCABULARY.encode(body)) for problem in BOTH for body in problem.bodies) + 1 == MAX_ANSWER_TOKENS
    with pytest.raises(ValueError, match="vocabulary"):
        VOCABULARY.encode("    return math.pi")


def test_warm_start_rows_are_right_bodies_of_training_problems():
    rows = CodeWarmStart().draw(2000)
    of_prompt = {problem.prompt: problem for problem in problems("train")}
    seen = set()
    for ids, is_answer in zip(rows.token_ids, rows.answer_mask, strict=True):
        start = is_answer.argmax()
        problem = of_prompt["".join(VOCABULARY.tokens[i] for i in ids[:start])]
        *body, last = ids[is_answer]
        assert "".join(VOCABULARY.tokens[i] for i in body) in problem.bodies
        assert last == EOS_ID
        assert (ids[start + is_answer.sum() :] == PAD_ID).all()
        seen.add(problem.id)
    assert len(seen) > 1000
    assert (CodeWarmStart().draw(2000).token_ids == rows.token_ids).all()


@isolated
def test_the_sandbox_tells_right_programs_from_those_of_other_problems():
    chosen = load_problems("codegrammar")[::10]
    first = {problem.id: problem for problem in problems("test")}
    right = [Answer(one.id, first[one.id].bodies[-1], one.extra, one.problem) for one in chosen]
    wrong = [Answer(one.id, first[other.id].bodies[0], one.extra, one.problem) for one, other in pairwise(chosen)]
    with closing(CodeGrader(workers=2)) as grader:
        grades = grader.grade(right + wrong)
    assert [grade.is_right for grade in grades] == [True] * len(right) + [False] * len(wrong)
