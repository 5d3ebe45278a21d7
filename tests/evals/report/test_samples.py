"""What a report keeps of a samples file."""

import pytest

from evals.errors import DataError
from evals.estimators import pass_at_k, ucc_at_k
from evals.report import LONGEST_ANSWER, result_rows, view_samples
from evals.report.answers import capped
from evals.samples.types import Sample, Samples


def samples(texts, *, benchmark="b", id="p1", right=()):
    return [Sample(benchmark, id, i, text, "7", prompt="q", correct=text in right) for i, text in enumerate(texts)]


def test_the_largest_clusters_and_the_commonest_wrong_answers_are_kept():
    rows = samples(["7 = x", "7 = x", "it is 7", "8", "8", "9", "10"], right=("7 = x", "it is 7"))
    (view,) = view_samples(Samples(rows, []), num_answers=2)
    (problem,) = view.problems
    assert (problem.counts.n, problem.counts.correct, problem.counts.sizes) == (7, 3, (2, 1))
    clusters = [(one["size"], one["texts"][0][1].text) for one in problem.answers["clusters"]]
    assert clusters == [(2, "7 = x"), (1, "it is 7")]
    assert [(n, text.text) for n, text in problem.answers["wrong"]] == [(2, "8"), (1, "9")]
    assert problem.answers["distinct_wrong"] == 3


def test_the_same_text_can_be_right_once_and_wrong_once():
    rows = [Sample("b", "p", 0, "x", "7", correct=True), Sample("b", "p", 1, "x", "7", correct=False)]
    (view,) = view_samples(Samples(rows, []), num_answers=3)
    assert [n for n, _ in view.problems[0].answers["wrong"]] == [1]


def test_huge_answers_are_cut_before_anything_else_and_say_by_how_much():
    (view,) = view_samples(Samples(samples(["a" * 1_000_000]), []), num_answers=3)
    ((_, text),) = view.problems[0].answers["wrong"]
    assert (len(text.text), text.num_cut) == (LONGEST_ANSWER, 1_000_000 - LONGEST_ANSWER)


@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\u2066", "\u200b", "\x00", "\u2028"])
def test_what_acts_on_a_reader_or_cannot_be_seen_is_spelled_out(character):
    text = capped(f"a{character}b", 10).text
    assert character not in text
    assert text.startswith("a\\")
    assert text.endswith("b")


def test_rows_are_the_estimates_of_the_counts():
    rows = samples(["r1", "r1", "r2", "w", "w"], right=("r1", "r2")) + samples(["w"] * 5, id="p2")
    found = {(row.metric, row.k): row for row in result_rows(view_samples(Samples(rows, []), num_answers=1))}
    assert sorted(k for metric, k in found if metric == "pass@k") == [1, 2, 4, 5]
    assert found["pass@k", 2].value == pytest.approx(pass_at_k(5, 3, 2) / 2)
    sizes = view_samples(Samples(rows, []), num_answers=1)[0].problems[0].counts.sizes
    assert found["ucc@k", 4].value == pytest.approx(ucc_at_k(5, sizes, 4) / 2)
    row = found["pass@k", 1]
    assert row.ci_low <= row.value <= row.ci_high


def test_a_benchmark_cannot_be_named_like_the_average():
    views = view_samples(Samples(samples(["r"], benchmark="average", right=("r",)), []), num_answers=1)
    with pytest.raises(DataError, match="average"):
        result_rows(views)


def test_a_report_counts_what_is_left_without_false_derivations():
    texts = [r"2 + 2 = 4. \boxed{4}", r"2 + 1 = 4. \boxed{4}"]
    views = view_samples(Samples(samples(texts, benchmark="word-problems", right=texts), []), num_answers=2)
    found = {(row.metric, row.k, row.benchmark): row.value for row in result_rows(views)}
    assert found["valid-ucc@k", 1, "word-problems"] == 0.5
    assert found["ucc@k", 1, "word-problems"] == 1
    assert views[0].false_text == "word-problems: 1 of 2 right answers have a false derivation"
