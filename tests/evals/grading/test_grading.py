"""Answers against references: what is the same, what is not, under which policy."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals.grading import Grade, grade


def boxed(answer: str, gold: str, **options: object) -> Grade:
    return grade(f"So the answer is $\\boxed{{{answer}}}$.", gold, **options)  # type: ignore[arg-type]


EQUAL = [
    ("8.7 \\times 10^{8}", "8.7e8"),
    ("870000000", "8.7e8"),
    ("25", "025"),
    ("336", "336^\\circ"),
    ("-1.5", "-3./2"),
    ("\\arcsin(10/13)", "np.arcsin(10/13)"),
    ("e^{at}", "\\exp{a*t}"),
    ("84, 69", "69$,$84"),
    ("\\{84, 69\\}", "69$,$84"),
    ("84 \\text{ and } 69", "69$,$84"),
    ("84 or 69", "69$,$84"),
    ("7,986", "7986"),
    ("1{,}234{,}567", "1234567"),
    ("11,\\! 111,\\! 100", "11111100"),
    ("12 345", "12345"),
    ("\\dfrac12", "\\frac{1}{2}"),
    ("\\frac1{72}", "\\frac{1}{72}"),
    ("½", "0.5"),
    ("−5", "-5"),
    ("５", "5"),
    ("+5", "5"),
    ("x = 5", "5"),
    ("5", "f(1)=5"),
    ("(x, y) = (3, 2)", "(3,2)"),
    ("(0; 1), (2; 3)", "(2,3),(0,1)"),
    ("5\\text{ cm}", "5"),
    ("5 \\mathrm{~cm}^{2}", "5"),
    ("18\\pi \\text{ square units}", "18\\pi"),
    ("\\$32.50", "32.5"),
    ("50\\%", "50"),
    ("0.5", "50\\%"),
    ("\\approx 2.5", "2.5"),
    ("(C)", "\\text{C}"),
    ("1\\pm\\sqrt{5}, -2", "\\{-2,1+\\sqrt{5},1-\\sqrt{5}\\}"),
    ("\\left[0,\\infty\\right)", "[0, +\\infty)"),
    ("(3,\\infty)\\cup(-\\infty,2)", "(-\\infty, 2) \\cup (3, \\infty)"),
    (
        "\\begin{bmatrix} 16/49 \\\\ 48/49 \\end{bmatrix}",
        "\\begin{pmatrix} \\frac{16}{49} \\\\ \\frac{48}{49} \\end{pmatrix}",
    ),
    ("0.0833333333333333", "\\frac{1}{12}"),
    ("((5))", "5"),
    ("{{{5}}}", "5"),
    ("5.", "5"),
    ("27 = 27", "27"),
    ("\\omega^2+x_1", "\\omega^{2} + x_{1}"),
    ("\\\\frac{1}{2}", "\\frac{1}{2}"),
    ("10\\!,\\!000", "10000"),
    ("10\\;000", "10000"),
    ("\\langle 1,2\\rangle", "(1,2)"),
    ("<1,2>", "(1,2)"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "(1,2)"),
    ("\\begin{smallmatrix}1&2\\\\3&4\\end{smallmatrix}", "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"),
    ("\\begin{cases}x=1\\\\y=2\\end{cases}", "(1,2)"),
    ("y=2, x=1", "(1,2)"),
    ("x=1,y=2;x=3,y=4", "(3,4),(1,2)"),
    ("]2,5[", "(2,5)"),
    ("[0,1[\\cup]2,3]", "(2,3]\\cup[0,1)"),
    ("\\{\\}", "\\varnothing"),
    ("\\text{no solution}", "\\emptyset"),
    ("3 1/2", "3.5"),
    ("{3 \\over 4}", "0.75"),
    ("3x10^8", "3e8"),
    ("1.5\\text{ million dollars}", "1500000"),
    ("y = x = 3\\text{ dozen}", "36"),
    ("\\text{five}", "5"),
    ("5^{\\text{th}}", "5"),
    ("€5", "5"),
    ("5=x", "5"),
    ("2+3=5", "5"),
    ("\\angle ABC=60^\\circ", "60"),
    ("60^o", "60"),
    ("2^{2024}", "4^{1012}"),
    ("(1010)_2", "1010_{\\text{two}}"),
    ("\\textbf{(C) }12", "C"),
    ("\\textbf{(C)}\\ 12", "12"),
    ("B. 7", "(B)"),
    ("C", "\\text{(C) }7"),
    ("\\text{Bob and Alice}", "\\text{Alice, Bob}"),
    ("\\boldsymbol{\\frac{1}{2}}", "0.5"),
    ("\\textcolor{red}{5}\\hspace{1cm}", "5"),
    ("12\\ \\text{in}^2", "12"),
    ("12 m/s", "12"),
    ("5\\frac{\\text{m}}{\\text{s}}", "5 \\text{ meters per second}"),
    ("9.8\\ \\mathrm{m\\,s^{-2}}", "9.8\\text{ m/s}^2"),
    ("5\\text{ J}\\cdot\\text{s}", "5"),
    ("5\\text{ square meters}", "5\\text{ m}^2"),
    ("5\\text{ kilometres}", "5\\text{ km}"),
]


@pytest.mark.parametrize(("answer", "gold"), EQUAL)
def test_other_ways_to_write_the_reference_are_right(answer, gold):
    assert boxed(answer, gold).correct, boxed(answer, gold)
    assert boxed(gold, gold).stage == "text"


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("700", "7"),
        ("0.07", "7"),
        ("10001", "10000"),
        ("3.00000000000000001", "3"),
        ("69", "69$,$84"),
        ("69, 84, 85", "69$,$84"),
        ("69, 69", "69$,$84"),
        ("(3,4]", "(3,4)"),
        ("[3,4)", "(3,4]"),
        ("(4,3)", "(3,4)"),
        ("3,4", "(3,4)"),
        ("0.333", "\\frac{1}{3}"),
        ("x=2, y=1", "x=1, y=2"),
        ("0.5\\%", "50\\%"),
        ("8.7 \\times 10^{9}", "8.7e8"),
        ("4210_6", "4210_5"),
        ("3:30", "3.5"),
        ("5\\text{ m}", "5\\text{ cm}"),
        ("1 2", "12"),
        ("2\\mathrm{e}", "2"),
        ("3 pi", "3"),
        ("2 \\sin x", "2"),
        ("2021", "\\pm 2021"),
        ("11a+c", "7 = 11a+c"),
        ("MR", "MR=SRMC"),
        ("1", "2x + z = 1"),
        ("x > 2", "[2,\\infty)"),
        ("nan", "5"),
        ("5\x00", "5"),
        ("\\text{Evelyn}", "\\text{(E)}"),
        ("\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"),
        ("--5", "-5"),
        ("1, 234", "1234"),
        ("12,34", "1234"),
        ("--5", "5"),
        ("- -5", "5"),
        ("---5", "-5"),
        ("+-5", "-5"),
        ("2--3", "5"),
        ("\\langle 2,1\\rangle", "(1,2)"),
        ("\\begin{pmatrix}1&2\\end{pmatrix}", "(1,2)"),
        ("y=2, x=1", "(2,1)"),
        ("]2,5[", "[2,5]"),
        ("3 1/2", "1.5"),
        ("3 1/2", "\\frac{31}{2}"),
        ("1.5\\text{ million}", "1.5"),
        ("3\\text{ hundredths}", "300"),
        ("2nd", "2"),
        ("5=x", "6"),
        ("2+3=6", "6"),
        ("a+b=5", "5"),
        ("(1010)_2", "1010_3"),
        ("1010_2", "10"),
        ("(C)\\ 12", "\\textbf{(C)}\\ 13"),
        ("(C)\\ 12", "D"),
        ("A + 1", "1"),
        ("\\text{Alice}", "\\text{Alice, Bob}"),
        ("5\\text{ m}^2", "5\\text{ m}^3"),
        ("5\\text{ mW}", "5\\text{ MW}"),
        ("5\\text{ a.m.}", "5\\text{ p.m.}"),
        ("5x", "5"),
        ("0\\!,\\!5", "5"),
    ],
)
def test_other_answers_are_wrong(answer, gold):
    assert boxed(answer, gold).outcome == "incorrect"


@given(st.integers(-(10**6), 10**6).filter(bool))
def test_a_hundredfold_or_a_neighbour_is_never_an_integer_reference(gold: int) -> None:
    assert not boxed(str(100 * gold), str(gold)).correct
    assert not boxed(str(gold + 1), str(gold)).correct
    assert boxed(f"{gold:,}", str(gold)).correct


@given(st.lists(st.fractions(max_denominator=99), min_size=2, max_size=6, unique=True), st.randoms())
def test_order_matters_in_tuples_and_not_in_lists(values: list[Fraction], rng: object) -> None:
    other = [*values[1:], values[0]]
    gold, turned = (", ".join(map(str, rows)) for rows in (values, other))
    assert boxed(turned, gold).correct
    assert boxed(f"\\{{{turned}\\}}", gold).correct
    assert not boxed(f"({turned})", f"({gold})").correct
    assert not boxed(", ".join(map(str, values[1:])), gold).correct


def test_simko_mode_has_its_leniencies_and_strict_has_not():
    for answer, gold in [("700", "7"), ("0.07", "7"), ("10001", "10000"), ("1, 2", "1,2,3")]:
        assert not boxed(answer, gold).correct
        assert boxed(answer, gold, policy="simko").correct
    assert not boxed("10002", "10000", policy="simko").correct


def test_references_may_be_numbers_and_an_empty_one_is_an_error_of_its_own():
    assert boxed("0.5", 0.5).correct  # type: ignore[arg-type]
    assert boxed("25", 25).correct  # type: ignore[arg-type]
    assert boxed("25", "").outcome == "error"
    assert grade("\\boxed{25}", None).outcome == "error"


def test_unknown_policies_are_refused():
    with pytest.raises(ValueError, match="strict, simko"):
        grade("", "1", policy="lenient")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="boxed, answer-is"):
        grade("", "1", extraction="box")  # type: ignore[arg-type]


def test_nothing_is_evaluated_as_python():
    assert not boxed('__import__("os").system("true")', "0").correct
    assert not boxed("9**9**9**9", "5").correct


@pytest.mark.parametrize(
    ("answer", "gold", "is_correct"),
    [
        ("x=2", "y=2", False),
        ("n=12", "m=12", False),
        ("x_1=3", "x_2=3", False),
        ("x=2", "2", True),
        ("f(x)=2x", "y=2x", True),
        (r"0.\overline{3}", r"\frac{1}{3}", True),
        (r"\frac16", r"0.1\overline{6}", True),
        (r"1.\overline{27}", r"\frac{14}{11}", True),
        (r"0.\dot{3}", "1/3", True),
        (r"0.\overline{9}", "1", True),
        (r"0.\overline{3}", "0.3", False),
    ],
)
def test_other_variables_differ_and_repeating_decimals_are_fractions(answer, gold, is_correct):
    assert grade(rf"So \boxed{{{answer}}}.", gold).correct is is_correct
