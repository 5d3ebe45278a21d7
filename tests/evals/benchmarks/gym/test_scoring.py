"""Scores of answers to tasks of reasoning-gym: what an answer is, partial scores, hostile answers, and the sandbox."""

from __future__ import annotations

import copy
from contextlib import closing

import pytest

pytest.importorskip("reasoning_gym", reason="needs pip install -e '.[gym]'")

from evals.benchmarks.gym import Reference, as_key, entry, task_names
from evals.benchmarks.gym.items import items
from evals.benchmarks.gym.scoring import IN_PROCESS, MOST_CHARACTERS, Asked, GymGrader, answer_in
from evals.sandbox import Job, Number, Sandbox, probe

needs_sandbox = pytest.mark.skipif(probe().name == "none", reason="no isolation here")
HOSTILE = ["\0", "\ud800", "(" * 500, "[" * 5000, "9" * 5000, "1e999999999", "\u202e", "<answer></answer>"]


@pytest.fixture(scope="module")
def grader():
    with closing(GymGrader(workers=1)) as found:
        yield found


def first(task: str, number: int = 0, **settings: object) -> tuple[Reference, str]:
    item = items(task, as_key(settings), "test", count=number + 1, num_test=5, at="test")[number]
    return item.reference, item.answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (" 42 \n", "42"),
        (r"It is \boxed{1}, no, \boxed{42}.", "42"),
        (r"<answer>1</answer> <answer> 42 </answer> \boxed{7}", "42"),
        ("<answer>1 <answer>42</answer>", "42"),
        ("a\nb", "a\nb"),
        ("<answer>a\nb</answer>", "a\nb"),
        ("<answer>42", "<answer>42"),
        ("", ""),
    ],
)
def test_the_answer_is_the_last_block_or_box_or_the_whole_text(response, answer):
    assert answer_in(response) == answer


def test_a_response_that_was_cut_off_has_only_a_finished_answer(grader):
    reference, answer = first("gcd")
    texts = [answer, f"<answer>{answer}</answer> So", f"Thus <answer>{answer}"]
    scores = grader.score([Asked(reference, text, is_cut=True) for text in texts])
    assert [(value, grade.outcome) for value, grade in scores] == [(0, "no_answer"), (1, "correct"), (0, "no_answer")]


def test_the_scores_are_the_library_s(grader):
    """Worked out by hand from the library's description of each task."""
    palindrome, answer = first("palindrome_generation", min_length=6, max_length=9)
    path, way = first("shortest_path", min_rows=3, max_rows=3, min_cols=3, max_cols=3, p_blocked=0.0)
    step, *steps = way.split()
    back = {"right": "left", "left": "right", "up": "down", "down": "up"}[step]
    longer = " ".join([step, back, step, *steps])
    word, backward = first("spell_backward", min_word_len=7, max_word_len=7)
    wrong_letter = backward[:-1] + ("x" if backward[-1] != "x" else "y")
    scores = grader.score(
        [
            Asked(palindrome, answer),
            Asked(palindrome, "abba"),
            Asked(palindrome, "abc"),
            Asked(path, way),
            Asked(path, longer),
            Asked(path, "home"),
            Asked(word, backward.upper()),
            Asked(word, wrong_letter),
            Asked(word, backward + "x"),
        ]
    )
    expected = [1, 0.05, 0.02, 1, 0.5, 0, 1, 6 / 7, 0.8]
    for (value, grade), right in zip(scores, expected, strict=True):
        assert value == pytest.approx(right), grade
        assert grade.correct == (right == 1)


@pytest.mark.parametrize("length", range(3, 11))
def test_a_word_with_a_letter_too_many_is_never_solved(grader, length):
    """The library adds up n times 1/n, and takes 0.2 off where the sum is exactly 1: elsewhere it is 1 by rounding."""
    word, backward = first("spell_backward", min_word_len=length, max_word_len=length)
    [(value, grade)] = grader.score([Asked(word, backward + "x")])
    assert not grade.correct
    assert value == pytest.approx(0.8)


@pytest.mark.parametrize("task", sorted(IN_PROCESS - {"number_sequence", "acre"}))
def test_reference_answers_are_right_and_hostile_ones_are_not(grader, task):
    reference, answer = first(task)
    before = copy.deepcopy(entry(reference))
    right, long, *others = grader.score(
        [Asked(reference, text) for text in (f"<answer>{answer}</answer>", "x" * (MOST_CHARACTERS + 1), *HOSTILE)]
    )
    assert (right[0], right[1].outcome) == (1, "correct")
    assert (long[0], long[1].outcome) == (0, "incorrect")
    assert all(value < 1 and not grade.correct for value, grade in others)
    assert entry(reference) == before


@needs_sandbox
def test_code_in_an_answer_has_no_effect(grader, tmp_path):
    """The checkers of these tasks evaluate the answer. With the last answers they do it for ever, or die of it."""
    trace = tmp_path / "trace"
    attack = f"__import__('os').system('touch {trace}')"
    writing = f"open('{trace}', 'w').write('x')"
    for task in ("countdown", "n_queens", "string_insertion"):
        assert task in set(task_names()) - IN_PROCESS
        reference, answer = first(task)
        texts = [answer, attack, writing, "__import__('os')._exit(0)", "\0", "\ud800", answer]
        scores = grader.score([Asked(reference, text) for text in texts])
        assert [grade.correct for _, grade in scores] == [True, False, False, False, False, False, True]
        assert not trace.exists()


@needs_sandbox
@pytest.mark.slow
def test_an_answer_that_never_ends_is_stopped_and_the_next_one_is_judged(grader):
    reference, answer = first("n_queens")
    endless, right = grader.score([Asked(reference, "sum(1 for i in iter(int, 1))"), Asked(reference, answer)])
    assert (endless[0], endless[1].outcome) == (0, "timeout"), endless[1].detail
    assert right[1].correct


@needs_sandbox
def test_one_answer_does_not_change_the_judgement_of_another(grader):
    """It replaces the checker in its own process; the next answer meets the library's."""
    reference, answer = first("n_queens")
    attack = "setattr(__import__('reasoning_gym.games.n_queens').games.n_queens.NQueensDataset, 'score_answer', print)"
    scores = grader.score([Asked(reference, attack), Asked(reference, answer), Asked(reference, "no")])
    assert [grade.correct for _, grade in scores] == [False, True, False]


@needs_sandbox
def test_a_checker_that_raises_gives_no_score_and_is_counted(grader):
    reference, answer = first("prime_factorization")
    scores = grader.score([Asked(reference, "six"), Asked(reference, answer), Asked(reference, "2 × 2")])
    assert [(value, grade.outcome) for value, grade in scores] == [(0, "error"), (1, "correct"), (0.01, "incorrect")]
    assert "ValueError" in scores[0][1].detail


@needs_sandbox
def test_the_sandbox_gives_the_number_of_a_function():
    program = "import math\ndef f(x, text):\n    return {'nan': math.nan, 'text': '1'}.get(text, x / 4)"
    with Sandbox(workers=1) as sandbox:
        jobs = [
            Job(program=program, tests=Number(entry_point=name, arguments=arguments))
            for name, arguments in (("f", [3, "\ud800"]), ("f", [3, "nan"]), ("f", [3, "text"]), ("f", []), ("g", []))
        ]
        verdicts = list(sandbox.run(jobs))
    assert [(one.status, one.number) for one in verdicts] == [
        ("pass", 0.75),
        ("fail", None),
        ("fail", None),
        ("crash", None),
        ("crash", None),
    ]
