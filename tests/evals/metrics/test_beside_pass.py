"""maj@k and G-Pass@k as rows: which answers are one vote, and values by hand."""

from dataclasses import replace
from itertools import combinations
from math import comb

import pytest

from evals.errors import UsageError
from evals.grading import grade, same_answer
from evals.metrics import counting
from evals.metrics.counting import wrong_votes
from evals.metrics.passk_ucc import passk_result
from evals.results.document import About, GraderInfo
from evals.samples.graders import grade_rows
from evals.samples.types import Sample, Samples


def samples(texts, *, answer="7", benchmark="a", correct=None):
    rows = [Sample(benchmark, "p", index, text, answer) for index, text in enumerate(texts)]
    right = [row.completion in correct for row in rows] if correct else [one.correct for one in grade_rows(rows)]
    return Samples([replace(row, correct=is_right) for row, is_right in zip(rows, right, strict=True)], [])


def votes(drawn, **how):
    (found,) = wrong_votes(list(zip(drawn.problems(), drawn.graded(), strict=True)), **how)
    return found


def boxed(answers):
    return [f"so \\boxed{{{answer}}}" for answer in answers]


def rows(result, metric):
    return {(row.k, row.tau): row.value for row in result.rows if row.metric == metric and row.benchmark == "a"}


def test_wrong_answers_are_one_vote_however_they_are_spelled():
    boxes = ["\\frac12", "1/2", "0.5", "\\dfrac{1}{2}", "7", "7.0", "3", "(1,2)", "(1, 2)", "x+1", "x + 1", "1 + x"]
    texts = [*boxed(boxes), "no answer", "an open \\boxed{8"]
    assert votes(samples(texts)) == (4, 3, 2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        ["1,234", "1234", "1,234", "1234"],
        ["\\$5", "5", "5\\text{ dollars}", "5.00"],
        ["2\\sqrt3", "\\sqrt{12}", "2\\sqrt{3}", "\\sqrt{12}"],
        ["50\\%", "0.5", "\\frac{1}{2}", "50\\%"],
        ["x=4", "4", "4.", "x = 4"],
    ],
)
def test_a_wrong_majority_wins_whatever_its_spellings_and_their_order(wrong):
    for order in (wrong, wrong[::-1], sorted(wrong)):
        drawn = samples(boxed([*order, "7", "7", "7"]))
        assert votes(drawn) == (4,)
        assert rows(passk_result(drawn, ks=[7], also=["maj"]), "maj@k") == {(7, None): 0.0}


def test_votes_agree_with_the_grader_on_every_pair_where_it_is_transitive():
    values = {"1": ["1", "1.0", "\\frac{2}{2}"], "r": ["\\sqrt{8}", "2\\sqrt2"], "p": ["(x+1)^2", "x^2+2x+1"]}
    values |= {"n": ["-3", "- 3"], "s": ["\\{1,2\\}", "\\{2,1\\}"], "t": ["(2,1)"], "u": ["x=2", "2"], "v": ["y-2"]}
    answers = [(value, text) for value, texts in values.items() for text in texts]
    for (value, one), (other, two) in combinations(answers, 2):
        is_called_right = any(grade(f"\\boxed{{{a}}}", b).correct for a, b in ((one, two), (two, one)))
        assert is_called_right == (value == other), (one, two)
    expected = sorted((len(texts) for texts in values.values()), reverse=True)
    assert votes(samples(boxed(text for _, text in answers))) == tuple(expected)


def test_names_and_units_that_differ_are_different_votes():
    assert votes(samples(boxed(["x=2", "y=2", "x=2"]))) == (2, 1)
    assert votes(samples(boxed(["5\\text{ cm}", "5\\text{ kg}"]))) == (1, 1)


def test_many_different_answers_cost_a_bounded_number_of_comparisons(monkeypatch):
    compared = []
    monkeypatch.setattr(counting, "MOST_COMPARED", 8)
    monkeypatch.setattr(counting, "same_answer", lambda *two, **how: compared.append(two) or same_answer(*two, **how))
    assert votes(samples(boxed(f"x+{i}" for i in range(64)), correct=["none"])) == (1,) * 64
    assert 64 < len(compared) <= 2 * 64 * counting.MOST_COMPARED


def test_integers_need_no_grader(monkeypatch):
    monkeypatch.setattr(counting, "same_answer", lambda *pair, **how: pytest.fail("compared"))
    assert votes(samples(boxed(map(str, range(100, 356))), correct=["none"])) == (1,) * 256


def test_votes_are_found_and_compared_as_was_asked():
    texts = ["it is 5"] * 3 + ["it is 5.0001"] * 2
    drawn = samples(texts, correct=["none"])
    assert votes(drawn) == ()
    assert votes(drawn, extraction="last-number") == (3, 2)
    assert votes(drawn, extraction="last-number", policy="simko") == (5,)
    told = GraderInfo(version="1", policy="simko", extraction="last-number")
    assert rows(passk_result(drawn, ks=[5], also=["maj"], about=About(grader=told)), "maj@k") == {(5, None): 0.0}


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


def test_pass_hat_k_is_the_chance_that_all_of_k_draws_are_right():
    """Of every number of right samples, against all draws; and it is G-Pass@k at tau 1."""
    for right in range(6):
        drawn = samples(["\\boxed{7}"] * right + ["\\boxed{8}"] * (5 - right))
        result = passk_result(drawn, ks=[1, 2, 3, 5], also=["pass^k", "g-pass"], taus=[1.0])
        found = rows(result, "pass^k")
        for k in (1, 2, 3, 5):
            draws = list(combinations([1] * right + [0] * (5 - right), k))
            assert found[k, None] == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-15)
        assert list(found.values()) == list(rows(result, "g-pass@k").values())
    assert found == {(k, None): 1.0 for k in (1, 2, 3, 5)}


def test_what_cannot_be_computed_is_refused():
    with pytest.raises(UsageError, match=r"'distinct'.*maj, g-pass"):
        passk_result(samples(["x"]), also=["distinct"])
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
