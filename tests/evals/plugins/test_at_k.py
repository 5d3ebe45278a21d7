"""The numbers that plug-ins give to other harnesses, by enumeration and beside `quatro eval`; no harness is needed."""

from __future__ import annotations

import json
import math
import random
from itertools import combinations
from statistics import fmean

import pytest

from evals.errors import UsageError
from evals.plugins.at_k import AtK, mean
from tests.kit import quatro, read_json, says

TEXTS = ["two and two \\boxed{4}", "twice two \\boxed{4}", "twice two \\boxed{4}", "\\boxed{5}", "none", "a \\boxed{4}"]
RIGHT = [True, True, True, False, False, True]  # of three solutions
ENUMERATED = {
    "pass@k": lambda some: any(is_right for _, is_right in some),
    "pass^k": lambda some: all(is_right for _, is_right in some),
    "ucc@k": lambda some: len({text for text, is_right in some if is_right}),
    "distinct@k": lambda some: len({text for text, _ in some}),
}


@pytest.mark.parametrize("metric", ENUMERATED)
def test_each_number_is_the_mean_over_all_choices_of_k(metric):
    asked = AtK(metric, [1, 2, 3, 4], **({"similarity": "exact"} if metric in ("ucc@k", "distinct@k") else {}))
    found = asked.of_problem(TEXTS, RIGHT)
    drawn_from = [pair for pair in zip(TEXTS, RIGHT, strict=True) if pair[1] or metric != "distinct@k"]
    for (name, value), k in zip(found.items(), (1, 2, 3, 4), strict=True):
        assert name.partition("/")[0] == metric.replace("k", str(k))
        assert value == pytest.approx(fmean(map(ENUMERATED[metric], combinations(drawn_from, k))), abs=1e-12)
    assert asked.of_answers(TEXTS, "4", {}) == found


def test_too_few_responses_have_no_number_and_a_mean_says_so():
    assert math.isnan(AtK("pass@k", 7).of_problem(TEXTS, RIGHT)["pass@7"])
    assert math.isnan(AtK("ucc@k", 1, similarity="exact").of_problem([], [])["ucc@1/exact"])
    assert list(AtK("distinct@k", [4, 5], similarity="exact").of_problem(TEXTS, RIGHT)) == ["distinct@4/exact"]
    assert mean([0.25, 0.75]) == 0.5
    assert all(map(math.isnan, (mean([]), mean([1.0, math.nan]), mean([1.0, None]))))


def test_the_setting_stands_in_the_name_and_decides():
    names = [
        *AtK("ucc@k", 2).k_of,
        *AtK("ucc@k", 2, similarity="tfidf", threshold=0.5, linkage="complete", tokens="whitespace").k_of,
    ]
    assert names == ["ucc@2/rouge-l/0.8/components", "ucc@2/tfidf/0.5/complete/whitespace"]
    near, far = (AtK("ucc@k", 6, similarity="edit", threshold=t).of_problem(TEXTS, RIGHT) for t in (0.1, 1.0))
    assert ([*near.values()], [*far.values()]) == ([1.0], [3.0])


def test_what_cannot_be_or_would_be_ignored_is_refused():
    for metric, settings, named in (
        ("ucc@k", {"similarity": "rogue"}, "rogue"),
        ("ucc@k", {"similarity": "exact", "threshold": 0.5}, "0.5"),
        ("ucc@k", {"jobs": 2}, "jobs"),
        ("pass@k", {"similarity": "exact"}, "similarity"),
    ):
        with pytest.raises(UsageError) as caught:
            AtK(metric, 1, **settings)
        says(caught, named)


@pytest.mark.parametrize("tokens", ["math", "code"])
def test_the_digits_are_those_of_quatro_eval_whatever_else_is_asked_for(tokens, tmp_path):
    rng = random.Random(5)
    bodies = ["\\boxed{4}", "```python\nx = 4  # four\nprint(x)\n```\n\\boxed{4}", "```\nx=4\nprint(x)\n```\\boxed{4}"]
    rows, values = [], {}
    asked = [AtK("pass@k", [1, 2, 4]), AtK("ucc@k", [1, 2, 4], tokens=tokens), AtK("distinct@k", 2, tokens=tokens)]
    for problem in range(30):
        texts = [f"{'so ' * rng.randrange(9)}{rng.choice([*bodies, 'no'])}" for _ in range(16)]
        rows += [
            {"benchmark": "b", "id": str(problem), "sample_index": at, "completion": text, "answer": "4"}
            for at, text in enumerate(texts)
        ]
        for one in asked:
            for name, value in one.of_answers(texts, "4", {}).items():
                values.setdefault(name, []).append(value)
    samples = tmp_path / "s.jsonl"
    samples.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    quatro("eval", "passk", samples, "--k", "1,2,3,4", "-o", tmp_path / "passk.json")
    quatro("eval", "ucc", samples, "--k", "1,2,4", "--tokens", tokens, "-o", tmp_path / "ucc.json")
    quatro("eval", "ucc", samples, "--k", "2", "--also", "distinct", "--tokens", tokens, "-o", tmp_path / "two.json")
    rows = [row for name in ("passk", "ucc", "two") for row in read_json(tmp_path / f"{name}.json")["rows"]]
    theirs = {row["metric"].replace("k", str(row["k"])): row["value"] for row in rows if row["k"]}
    ours = {name.partition("/")[0]: mean(found) for name, found in values.items()}
    assert len(ours) == 7
    assert ours == {name: theirs[name] for name in ours}
    assert ours["ucc@4"] > ours["pass@4"]
