"""Right answers with a false derivation: taken out before clustering, counted, and never in silence."""

import json
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import quatro
from evals.errors import UsageError
from evals.metrics.valid import shares_of_right
from evals.samples.types import GradedProblem
from quatro.tasks import codegrammar
from tests.kit import quatro as command
from tests.kit import write_rows

TEXTS = {
    "p": [r"2 + 2 = 4. \boxed{4}", r"2 * 2 = 4. \boxed{4}", r"2 + 1 = 4. \boxed{4}", r"3 - 1 = 4. \boxed{4}", "no"],
    "q": [r"5 - 1 = 4. \boxed{4}", r"\boxed{4}", r"9 - 4 = 4. \boxed{4}", "no", "no"],
}
IS_FALSE = {TEXTS["p"][2], TEXTS["p"][3], TEXTS["q"][2]}


@pytest.fixture
def samples(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = {"benchmark": "word-problems", "answer": "4"}
    return write_rows(
        tmp_path / "samples.jsonl",
        (
            {
                **head,
                "id": id,
                "sample_index": i,
                "completion": text,
                "correct": text != "no",
                "prompt": f"problem {id}",
            }
            for id, texts in TEXTS.items()
            for i, text in enumerate(texts)
        ),
    )


def values(rows):
    return {(row["metric"], row["k"]): row["value"] for row in rows if row["benchmark"] == "word-problems"}


def test_false_derivations_are_no_solutions(samples):
    shown = command("eval", "ucc", samples, "--valid", "word-problems", "--k", "1,3", "--similarity", "exact", "-o",
                    "ucc.json", "--ci").stdout  # fmt: skip
    found = values(json.loads(Path("ucc.json").read_text())["rows"])
    for k in (1, 3):  # by hand: all ways to draw k of five
        for metric, false in (("ucc@k", set()), ("valid-ucc@k", IS_FALSE)):
            drawn = [len({*some} - {"no"} - false) for texts in TEXTS.values() for some in combinations(texts, k)]
            assert found[metric, k] == pytest.approx(np.mean(drawn))
    assert found["false_share", None] == pytest.approx(3 / 7)
    assert found["unknown_share", None] == pytest.approx(1 / 7)
    lines = [line.split() for line in shown.splitlines() if line.startswith("Word problems")]
    assert [line[2] for line in lines] == ["all", "valid"]
    assert "42.9" in " ".join(lines[0])
    assert command("eval", "ucc", samples, "--k", "1").stdout.count("valid") == 0
    assert "without false derivations" in command("table", "ucc.json", "--metric", "valid-ucc@k").stdout


def test_ones_own_checker_sees_each_text_once_with_its_problem(samples, monkeypatch):
    Path("own_checks.py").write_text(
        "seen = []\ndef check(text, problem):\n    seen.append((text, problem.prompt, problem.answer))\n"
        "    return None if '-' in text else '+' in text\n"
        "def odd(text, problem):\n    return 'yes'\n"
    )
    found = values(quatro.measure(samples, k=1, metric="ucc@k", valid="own_checks:check")["ucc@k"].document()["rows"])
    assert found["false_share", None] == pytest.approx(2 / 7)
    assert found["unknown_share", None] == pytest.approx(3 / 7)
    assert found["valid-ucc@k", 1] == pytest.approx((3 / 5 + 2 / 5) / 2)
    import own_checks

    assert sorted(own_checks.seen) == sorted(
        (t, f"problem {id}", "4") for id, some in TEXTS.items() for t in some if t != "no"
    )
    with pytest.raises(UsageError, match=r"own_checks:odd.*'yes' for a right answer to .*p.*True, False or None"):
        quatro.measure(samples, k=1, metric="ucc@k", valid="own_checks:odd")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["eval", "ucc", "A", "--valid", "nothing"], "expected word-problems, codegrammar or a function of your own"),
        (["eval", "ucc", "A", "--valid", "not.here:f"], "cannot be imported"),
        (["eval", "ucc", "A", "--valid", "codegrammar"], "'p' is no problem of codegrammar"),
    ],
)
def test_what_cannot_check_is_refused(samples, arguments, words):
    assert words in command(*[samples if one == "A" else one for one in arguments], code=2).stderr


def test_a_body_that_only_knows_the_tests_is_false():
    problem = next(one for one in codegrammar.problems("test") if one.kind == "n")
    table = dict(zip(codegrammar.HIDDEN_INPUTS["n"], problem.expected, strict=True))
    texts = [*problem.bodies[:2], f"    return {table!r}.get(n, 0)"]
    asked = GradedProblem("codegrammar", problem.id, None, 3, texts, problem.prompt, "f")
    assert codegrammar.validities([asked]) == [[True, True, False]]


def test_the_spread_of_a_share_is_that_of_the_ratio():
    rng = np.random.default_rng(0)
    false, right = defaultdict(list), defaultdict(list)
    for draw in range(400):
        number = rng.integers(1, 20, size=50)
        right[draw], false[draw] = number, rng.binomial(number, rng.beta(1, 4, size=50))
    shares = [sum(false[draw]) / sum(right[draw]) for draw in right]
    errors = [shares_of_right(false[draw], right[draw]).std(ddof=1) / 50**0.5 for draw in right]
    assert np.mean([shares_of_right(false[d], right[d]).mean() for d in right]) == pytest.approx(np.mean(shares))
    assert np.mean(errors) == pytest.approx(np.std(shares), rel=0.15)
    assert shares_of_right([0, 0], [0, 0]).tolist() == [0, 0]
