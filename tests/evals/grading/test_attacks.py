"""The grader is the training reward: what a policy could learn to write must not be accepted, its honest twin must."""

import itertools
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from evals.grading import grade, grade_many
from tests.evals.grading import attacks
from tests.kit import read_rows

LETTERS = "ABC"


def is_right(box: str, gold: str) -> bool:
    return grade(f"So $\\boxed{{{box}}}$.", gold).correct


def check(found: list) -> None:
    rates = attacks.rates(found, attacks.grades(found))
    hacks_accepted, hacks, honest_refused, honest = rates["all"]
    assert hacks_accepted <= 0.03 * hacks, rates
    assert honest_refused <= 0.05 * honest, rates
    for family in ("letters", "chains", "boxes", "percent"):
        assert rates.get(family, (0, 0, 0, 0))[0] == 0, rates


def test_a_sample_of_the_hacks_is_refused_and_their_honest_twins_are_accepted():
    check(Random(0).sample(attacks.cases(seed=0), 250))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hacks_are_refused_and_their_honest_twins_are_accepted(seed):
    found = attacks.cases(seed=seed)
    assert len(found) >= 2000
    check(found)


def unseen() -> list:
    """Cases that were written without a look at the grader; most of them are boxes, some whole completions."""
    rows = read_rows(Path(__file__).with_name("unseen.jsonl"))
    return [
        attacks.Case(row["family"], row.get("box") or row["completion"], row["gold"], row["is_honest"]) for row in rows
    ]


def check_unseen(found: list) -> None:
    rates = attacks.rates(found, attacks.grades(found))
    hacks_accepted, hacks, honest_refused, honest = rates["all"]
    assert hacks_accepted <= 0.03 * hacks, rates
    assert rates.get("letters", (0, 0, 0, 0))[0] == 0, rates
    assert honest_refused <= 0.05 * honest, rates


def test_a_sample_of_the_unseen_hacks_is_refused_and_their_honest_twins_are_accepted():
    text_side = [case for case in unseen() if case.family not in ("formulas", "constants", "huge_tiny")]
    check_unseen(Random(0).sample(text_side, 150))


@pytest.mark.slow
def test_unseen_hacks_are_refused_and_their_honest_twins_are_accepted():
    check_unseen(unseen())


@pytest.mark.parametrize(
    "lead",
    [
        r"\text{The final answer is }",
        r"\text{So, we get }",
        "Hence ",
        r"\text{The value of }x\text{ is }",
        r"\therefore ",
    ]
    + [r"\text{The number of triangles is }", r"\text{Total: }", "= ", r"\text{There are exactly }"],
)
def test_a_sentence_that_says_it_is_the_answer_is_passed_over(lead):
    assert is_right(f"{lead}7", "7")
    assert is_right(rf"{lead}\frac{{1}}{{2}}", "0.5")
    assert not is_right(rf"{lead}\text{{ not }}7", "7")


@pytest.mark.parametrize(
    "box",
    [r"\text{The wrong answer is }7", r"\text{The answer is about }7", r"\text{The square of the number is }7"]
    + [
        r"7\text{ is the wrong answer}",
        r"7\text{ is the answer to another problem}",
        r"\text{The value of }y\text{ is }7",
    ]
    + [r"7\text{ oder mehr}", "7以上", r"7\text{ больше}", r"7\text{ doz.}", r"7\text{ euros}", r"7\text{ gradians}"],
)
def test_a_sentence_or_a_unit_that_says_more_is_not_passed_over(box):
    assert not is_right(box, r"x=7\text{ dollars}" if "euro" in box else r"7^\circ" if "grad" in box else "x=7")


@pytest.mark.parametrize("noun", ["mètres", "米", "рублей", "個", "Äpfel", "平方米"])
def test_nouns_of_other_languages_are_units(noun):
    assert is_right(f"20 {noun}", "20")
    assert is_right(rf"20\text{{ {noun}}}", "20")


# Why a box is wrong: the reference, and such boxes.
WRONG = {
    "an equation that is no name and no identity says no value": (
        "4",
        [
            *(r"\pi=4", r"\ln x=4", r"\sqrt{x}=4", "|x|=4", "e=4", r"\cos x=4", "4=8-5", r"\sqrt{18}=4"),
            *("a+b=2+3=4",),
        ],
    ),
    "words beside zero are no factors": (
        "0",
        [r"0\text{ or six}", r"\text{not }0", "0 or six", "0 not", "not 0", r"0\,\mathrm{or}"],
    ),
    "an answer with more variables than the reference is wrong": (
        "0",
        [r"0\lor 9", r"9\oplus 0", r"0\mapsto 9", "0x", r"0\ll 9", r"0*", r"*0", "9 0", "{9}0"],
    ),
    "a statement is no name": (
        "x=5",
        [r"x\not=5", r"\lnot x=5", r"x\text{ is not}=5", r"|x|=5", "x'=5"],
    ),
    "marks that hide or change a value do not help it": (
        "5",
        [
            *("5'", "5''", r"5^\prime", r"5\phantom{6}", r"6\phantom{-1}", r"\phantom{5}", "5 % six\n", "6 %\n5"),
            *("% 5", r"\cancel{5}", r"\not 5", r"\neg 5", r"\sout{5}", r"5\textcolor{white}{6}", "5..."),
            *(r"5\ldots", r"5\tag{6}"),
        ],
    ),
}


@pytest.mark.parametrize("why", WRONG)
def test_what_says_something_else_is_wrong(why):
    gold, boxes = WRONG[why]
    assert [box for box in boxes if is_right(box, gold)] == []


@pytest.mark.parametrize(
    ("box", "gold"),
    [
        (r"\sqrt{18}=3\sqrt{2}", r"3\sqrt{2}"),
        ("(x+1)^2=x^2+2x+1", "x^2+2x+1"),
        ("m+n=3+4=7", "7"),
        (r"\cos A=\frac{1}{3}", r"\frac{1}{3}"),
        ("x=y", "y=x"),
        (r"150\%", "1.5"),
        (r"100\%-80\%", r"20\%"),
        (r"\phantom{0}5", "5"),
        (r"\mathstrut 5", "5"),
        (r"\left.5\right.", "5"),
        (r"\overline{z}", r"\bar{z}"),
        ("{-}14", "-14"),
        ("𝟏𝟐", "12"),
        ("√25", "5"),
        ("5⁻¹", r"\frac{1}{5}"),
        ("5⁄2", r"\frac{5}{2}"),
        (r"\$50", "50"),
        (r"50\text{ dollars}", r"\$50"),
        (r"0.333\ldots", r"\frac{1}{3}"),
        (r"0.1666\dots", r"\frac{1}{6}"),
        ("0.1212...", r"\frac{4}{33}"),
        (r"\text{Answer: }5", "5"),
        (r"\text{The answer is }5", "5"),
        (r"\text{The Value Of }x\text{ is }5", "5"),
        (r"6\color{red}{}", "6"),
        (r"\text{The answer is 5}", "5"),
        ("Final answer: (C)", "C"),
        ("7:30 p.m.", "7:30 pm"),
        ("7:30 PM", r"7\!:\!30 \text{ p.m.}"),
        ("3 h", "3 hours"),
        (r"3\text{ hours}", "3 h"),
        (r"\phantom{-}5", "5"),
        (r"\begin{pmatrix} 1 & -1 \\ 1 & 1 \end{pmatrix}", r"\begin{pmatrix} 1 & -1 \\ 1 & \phantom -1 \end{pmatrix}"),
        ("3/4", "3:4"),
        (r"\frac{\pi}{6}", r"30^\circ"),
        (r"\frac{1}{3} \approx 0.33", r"\frac{1}{3}"),
        (r"\sqrt{2}\approx 1.41", r"\sqrt{2}"),
        (r"x\approx 2.5", "2.5"),
        (r"P(\text{not red})=\frac{1}{2}", "0.5"),
        (r"\log_2 8", "3"),
        (r"\text{Option A}", r"\text{(A)}"),
        (r"\text{(A) 12}", "12"),
    ],
)
def test_other_ways_to_write_the_same_are_right(box, gold):
    assert is_right(box, gold)


@pytest.mark.parametrize(
    ("box", "gold"),
    [
        (r"1.5\%", "1.5"),
        ("x=x", "y=x"),
        (r"(C)\ 12\text{ or }(D)\ 15", "C"),
        (r"50\text{ cents}", r"\$50"),
        (r"45\text{ minutes}", r"45^\circ"),
        (r"(-\infty,\infty)", r"(0,\infty)"),
        (r"1\phantom{0}", "10"),
        ("1̶2̶", "12"),
        ("1½", r"\frac{1}{2}"),
        ("3:4", r"\frac{3}{4}"),
        (r"\pi", r"\pi^\circ"),
        (r"\pi^\circ", r"\pi"),
        ("3 h", "3 minutes"),
        ("0.334\\ldots", r"\frac{1}{3}"),
        (r"\text{The answer is not }5", "5"),
        (r"\frac{1}{2}", r"\frac{1}{2} mv^2"),
        ("y'", "y"),
        (r"\frac{\sqrt{2}}{2}\%", r"\frac{\sqrt{2}}{2}"),
    ],
)
def test_what_looks_alike_is_wrong(box, gold):
    assert not is_right(box, gold)


def accepted_letters(forms: list[str]) -> dict[str, int]:
    boxes = [attacks.with_letters(form, *letters) for form in forms for letters in itertools.permutations(LETTERS, 3)]
    pairs = list(itertools.product(dict.fromkeys(boxes), LETTERS))
    grades = grade_many((f"\\boxed{{{box}}}", gold) for box, gold in pairs)
    return Counter(box for (box, _), found in zip(pairs, grades, strict=True) if found.correct)


def test_a_box_is_right_for_at_most_one_letter():
    found = accepted_letters(attacks.TWO_LETTERS[::4] + attacks.ONE_LETTER)
    assert [box for box, count in found.items() if count > 1] == []
    assert len(found) >= len(attacks.ONE_LETTER) * len(LETTERS)


@pytest.mark.slow
def test_a_box_is_right_for_at_most_one_letter_in_every_form():
    assert [box for box, count in accepted_letters(attacks.TWO_LETTERS).items() if count > 1] == []


@pytest.mark.parametrize(
    "tail",
    [
        "is not the answer",
        "or six",
        "dozen",
        "minus one",
        "base seven",
        "or more",
        "halves",
        "SQUARED",
        "isn't",
        "orsix",
    ]
    + ["apples or six", "of", "per", "6", "-1", "= 6", "?", "ab", "IV", "red and six", "Not", "twenty-one", "maybe"],
)
@pytest.mark.parametrize("form", [r"5\text{{ {}}}", r"5 \mathrm{{{}}}", r"\text{{5 {}}}", r"(2,3)\mbox{{ {}}}"])
def test_a_tail_that_says_more_is_no_unit(form, tail):
    assert not is_right(form.format(tail), "5" if "5" in form else "(2,3)")


@pytest.mark.parametrize(
    "box",
    [
        r"5\text{ apples}",
        r"\text{5 apples}",
        "5 miles per hour",
        "5 square units",
        r"5\text{ cubic feet}",
        "5 cm squared",
    ]
    + [r"5\text{ inches}", r"5\text{ in}", r"5\text{ units squared}", r"5\text{ p.m.}", r"5\text{ seconds}", "5 hours"]
    + [r"5\text{ pounds per square inch}", r"5\text{ cups of flour}", r"5\,\mathrm{kg\cdot m/s^2}", r"5\text{ Km}"]
    + [r"5\text{ distinct ways.}", r"5\textit{ cm}", r"5\text{ man-hours}"],
)
def test_a_noun_behind_a_value_is_its_unit(box):
    assert is_right(box, "5")


@pytest.mark.parametrize(
    ("box", "value", "number"),
    [
        (r"3\text{ dozen}", "36", "3"),
        ("3 dozen eggs", "36", "3"),
        ("5 squared", "25", "5"),
        ("5 halves", r"\frac{5}{2}", "5"),
        (r"5\text{ minus one}", "4", "5"),
        ("6 divided by two", "3", "6"),
        (r"\text{twenty-one}", "21", "20"),
        (r"\text{two thirds}", "2/3", "2"),
        (r"x=2\text{ gross}", "288", "2"),
    ],
)
def test_plain_arithmetic_in_words_is_computed(box, value, number):
    assert is_right(box, value)
    assert not is_right(box, number)


@pytest.mark.parametrize(
    "chain",
    ["x=6=5", "x=1=2=5", "5=x=6", "6=x=5", "a=b=6=5", r"x=\sqrt{36}=5", "x=5=6=5", r"5\approx 6", r"x=5\approx 9"],
)
def test_a_chain_is_right_only_if_each_of_its_links_holds(chain):
    assert not is_right(chain, "5")


@pytest.mark.parametrize(
    "chain", ["2+3=5", "x=2+3=5", "x = 10/2 = 5", "a=b=5", "5=x", r"x=\sqrt{25}=5", r"S=\frac12 ab=5"]
)
def test_a_true_chain_says_its_value(chain):
    assert is_right(chain, "5")
    assert not is_right(chain, "6")


@pytest.mark.parametrize(
    ("completion", "right", "wrong"),
    [
        (r"\boxed{\boxed{5}+1}", ["6"], ["5"]),
        (r"\boxed{x=\boxed{5}}", ["5"], []),
        (r"\boxed{\boxed{5}}", ["5"], []),
        (r"\boxed{5 \boxed{6}}", [], ["5", "6", "30", "56"]),
        (r"\boxed{\boxed{5}, 6}", ["5,6"], ["5", "6"]),
        (r"\boxed{6} \phantom{\boxed{5}}", ["6"], ["5"]),
        ("\\boxed{6}\n  % \\boxed{5}", ["6"], ["5"]),
        (r"5% of it is \boxed{5}", ["5"], []),
        (r"\boxed{1}, \boxed{\boxed{2} \boxed{3}}", [], ["1", "2", "3"]),
    ],
)
def test_an_inner_a_hidden_or_a_commented_box_never_wins(completion, right, wrong):
    assert [gold for gold in right if not grade(completion, gold).correct] == []
    assert [gold for gold in wrong if grade(completion, gold).correct] == []


@pytest.mark.parametrize(
    ("box", "right", "wrong"),
    [
        (r"0.5\%", ["0.005", r"0.5\%", "0.5%", r"\frac{1}{200}"], ["0.5", r"\frac{1}{2}", r"50\%"]),
        (r"50\%", ["50", r"50\%", "0.5", r"\frac{1}{2}"], ["5000", "0.005"]),
        ("0.5", [r"50\%", "0.5"], []),
        ("62.5%", ["62.5", r"62.5\%", "0.625"], []),
        (r"5\%\%", [], ["5", r"5\%"]),
        (r"5\%^\circ", [], ["5"]),
        ("5%6", [], ["5", "6"]),
    ],
)
def test_the_reference_says_whether_a_percent_is_a_share(box, right, wrong):
    assert [gold for gold in right if not is_right(box, gold)] == []
    assert [gold for gold in wrong if is_right(box, gold)] == []
