"""What may be asked of the symbolic stage, and how identifiers are spelled for it."""

import pytest

from evals.grading.guard import refusal
from evals.grading.identifiers import Names, rewrite
from evals.grading.typography import clean


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x+" * 301 + "1", "longer"),
        ("{" * 41 + "5" + "}" * 41, "nested"),
        ("9^{9^{9}}", "tower"),
        ("9^{(9)^9}", "tower"),
        ("9^9^9", "tower"),
        ("x^{x^{x^x}}", "tower"),
        ("x^{100000}", "exponent"),
        ("(a+b)^{40}", "exponent"),
        ("(10^9)!", "factorial"),
        ("999!", "factorial"),
        ("((3!)!)!", "factorial"),
        ("5!!", "factorial"),
        ("\\binom{10000}{5000}", "binomial"),
        ("\\sum_{n=1}^{9}n", "sum"),
        ("\\int_0^1 x", "integral"),
        ("\\prod n", "product"),
        ("\\lim_{x\\to0}x", "limit"),
        ("__import__('os')", "code"),
        ("2**3", "code"),
        ("lambda x: x", "code"),
        ("\\sqrt[1000000007]{2}", "root"),
        ("\\frac{d^{50}}{dx^{50}}e^x", "derivative"),
        ("1" * 60, "60 digits"),
        ("12_3", "subscript"),
        ("1+2+\\cdots+n", "dots"),
        ("\\gcd(10^{99},12^{99})", "gcd"),
        ("5\x00", "control"),
        ("(x-1)" * 31, "factors"),
        ("--5", "signs"),
        ("(+-5)", "signs"),
        ("2--3", "signs"),
    ],
)
def test_the_guard_refuses_what_could_cost_or_run(text: str, reason: str) -> None:
    assert reason in (refusal(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "\\lambda x",
        "x^{100}",
        "2^{n+1}",
        "n!",
        "(n+1)!",
        "\\binom{n}{k}",
        "x_{12}",
        "\\frac{d^2x}{dt^2}",
        "e^{-x^2}",
        "2^{2^n}",
        "x^{2024}+1",
        "2+-3",
        "(-\\infty,+\\infty)",
    ],
)
def test_the_guard_lets_honest_answers_pass(text: str) -> None:
    assert refusal(clean(text)) is None


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("y''+y'+y", "x+y+z"),
        ("N+n", "x+y"),
        ("E_{0}^2", "x^2"),
        ("e^{-x}+i", "e^{-x}+I"),
        ("1.5x", "(\\frac{3}{2})x"),
        ("x^12", "x^{12}"),
        ("x^2(y)", "x^2\\cdot (y)"),
        ("\\cos^2(x)", "\\cos^2(x)"),
        ("F(x,y)", "x(y,z)"),
        ("f(2x)", "x"),
        ("sin(x)", "\\sin (x)"),
        ("\\mathbb{R}", "\\mathbb{R}"),
    ],
)
def test_every_identifier_becomes_a_symbol_of_its_own(text: str, spelling: str) -> None:
    assert rewrite(text, Names()) == spelling
