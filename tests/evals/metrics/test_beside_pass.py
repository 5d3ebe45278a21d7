"""maj@k and G-Pass@k as rows: which answers are one vote, and values by hand."""

from dataclasses import replace
from itertools import combinations
from math import comb

import pytest

from evals.errors import UsageError
from evals.metrics.beside import wrong_votes
from evals.metrics.passk_ucc import passk_result
from evals.samples.graders import grade_rows
from evals.samples.types import Sample, Samples


def samples(texts, *, answer="7", benchmark="a", correct=None):
    rows = [Sample(benchmark, "p", index, text, answer) for index, text in enumerate(texts)]
    right = [row.completion in correct for row in rows] if correct else [one.correct for one in grade_rows(rows)]
    return Samples([replace(row, correct=is_right) for row, is_right in zip(rows, right, strict=True)], [])


def votes(drawn):
    [problem], [graded] = drawn.problems(), drawn.graded()
    return wrong_votes(problem, graded)


def rows(result, metric):
    return {(row.k, row.tau): row.value for row in result.rows if row.metric == metric and row.benchmark == "a"}


def test_wrong_answers_are_one_vote_where_their_normal_forms_agree():
    boxes = [
        "\\frac12",
        "1/2",
        "0.5",
        "\\dfrac{1}{2}",
        "50",
        "50\\%",
        "7",
        "7.0",
        "3",
        "(1,2)",
        "(1, 2)",
        "x+1",
        "x + 1",
    ]
    texts = [f"so \\boxed{{{box}}}" for box in boxes] + ["no answer", "an open \\boxed{8"]
    assert votes(samples(texts)) == (4, 2, 2, 1, 1, 1)


def test_equal_texts_may_be_judged_differently_row_by_row():
    rows = [Sample("a", "p", index, "\\boxed{3}", "7", correct=index == 0) for index in range(3)]
    assert votes(Samples(rows, [])) == (2,)


def test_maj_is_the_chance_that_the_majority_of_k_draws_is_right():
    texts = ["\\boxed{7}"] * 3 + ["\\boxed{1/2}", "\\boxed{0.5}", "\\boxed{9}", "nothing"]
    kind = [0, 0, 0, 1, 1, 2, None]
    result = passk_result(samples(texts), ks=[1, 3, 7], also=["maj"])
    for k in (1, 3, 7):
        won = 0.0
        for draw in combinations(kind, k):
            count = {answer: draw.count(answer) for answer in draw if answer is not None}
            best = [answer for answer in count if count[answer] == max(count.values())]
            won += (0 in best) / max(len(best), 1)
        assert rows(result, "maj@k")[k, None] == pytest.approx(won / comb(7, k))


def test_g_pass_at_every_tau_stands_beside_pass():
    drawn = samples(["\\boxed{7}"] * 2 + ["\\boxed{8}"] * 2)
    found = rows(passk_result(drawn, ks=[1, 2], also=["g-pass"], taus=[0.5, 1.0]), "g-pass@k")
    assert found == pytest.approx({(1, 0.5): 1 / 2, (2, 0.5): 5 / 6, (1, 1.0): 1 / 2, (2, 1.0): 1 / 6})
    assert rows(passk_result(drawn, ks=[1, 2]), "g-pass@k") == {}


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(UsageError, match=r"'vendi'.*g-pass, cover"):
        passk_result(samples(["x"]), also=["vendi"])
    with pytest.raises(UsageError, match=r"tau.*1\.5"):
        passk_result(samples(["x"]), also=["g-pass"], taus=[1.5])
    with pytest.raises(UsageError, match=r"maj@k .*countdown"):
        passk_result(samples(["x"], benchmark="countdown", correct=["x"]), also=["maj"])


def test_averages_and_intervals_cover_them_too():
    result = passk_result(samples(["\\boxed{7}", "\\boxed{8}"]), ks=[1], also=["maj", "g-pass"], ci=True)
    assert {(row.metric, row.benchmark) for row in result.rows} == {
        (metric, name) for metric in ("pass@k", "maj@k", "g-pass@k") for name in ("a", "average")
    }
    assert all(row.ci_low < row.value < row.ci_high for row in result.rows)  # of one problem nobody knows the spread
