r"""Wrong formulas that agree with the right one almost everywhere a grader may look, and honest twins: real rewritings.

A policy that is rewarded by the grader may learn to write `x^2+e^{-800}`, a polynomial that vanishes at the points at
which formulas are compared, or something that is zero but for a single point. None may be right, in any place where a
formula can stand; and what is only written in another way must stay right.
"""

import math
import random
from collections.abc import Callable, Iterator

import pytest

from evals.grading import Grade, grade_many

Case = tuple[str, str, str]  # family, answer, reference


# Points that were public once: those of the first variable, over 1009.
PUBLIC_POINTS = (1040, 438, 5120, 1446, 1133, 20054, -1350, 369, -11015, 2244, -706, 13890)


def constant(rng: random.Random) -> str:
    a, b = rng.randrange(2, 60), rng.choice([2, 3, 5, 7, 11])
    return rng.choice([f"{a}", f"\\frac{{{a}}}{{{b * 7 + 1}}}", f"{a}\\sqrt{{{b}}}", f"{a}\\pi", f"{a}+\\ln {b}"])


def function(rng: random.Random) -> str:
    a, b, c = rng.randrange(2, 30), rng.randrange(2, 9), rng.randrange(1, 20)
    forms = [f"{a}x^{b}-{c}x", f"x^2+{a}", f"\\frac{{{a}x}}{{x^2+{c}}}", f"{a}\\sin({b}x)", f"e^{{{b}x}}+{c}"]
    return rng.choice([*forms, f"\\sqrt{{x^2+{c}}}", f"{a}x+{b}y", f"xy-{c}", f"{a}\\ln(x^2+{b})"])


def tiny(rng: random.Random) -> str:
    """A number that is not zero, and nearer to it than any fixed number of digits."""
    n, k = rng.randrange(300, 2900), rng.randrange(60, 900)
    forms = [f"e^{{-{n}}}", f"2^{{-{n}}}\\pi", f"\\sqrt{{2}}\\cdot 10^{{-{k}}}", f"\\sin(\\pi\\cdot 10^{{-{k}}})"]
    forms += [
        f"\\frac{{1}}{{e^{{{n}}}}}",
        f"\\ln(1+e^{{-{n}}})",
        f"\\arctan(e^{{-{n}}})",
        f"(\\frac{{1}}{{e}})^{{{n}}}",
    ]
    forms += [
        f"(1-\\cos(10^{{-{k}}}))",
        f"\\frac{{\\pi}}{{10^{{{k}}}}}",
        f"(1-\\tanh {n})",
        f"(\\sqrt{{1+e^{{-{n}}}}}-1)",
    ]
    return rng.choice(forms)


def rare(rng: random.Random) -> str:
    """A function of x that is zero, but for one point or one half of the line."""
    k, n = rng.randrange(1, 40), rng.randrange(2, 9)
    forms = [
        f"0^{{|x-{k}|}}",
        f"\\lfloor\\frac{{1}}{{1+(x-{k})^2}}\\rfloor",
        "\\lfloor e^{-x^2}\\rfloor",
        f"{n}(|x|-x)",
    ]
    forms += [
        f"(\\sqrt{{x^2}}-x)^{n}",
        f"\\max(0,-{k}x)",
        "\\min(0,x)",
        f"0^{{(x-{k})^2}}",
        f"\\lfloor\\cos^2({k}x)\\rfloor",
    ]
    forms += [f"(1-\\lceil\\frac{{(x-{k})^2}}{{1+(x-{k})^2}}\\rceil)", "(1-\\frac{|x|}{x})", f"(|x-{k}|-x+{k})"]
    return rng.choice([*forms, "(\\sin^2 x+\\cos^2 x-1)^{|x|}", f"(|x^{n * 2 + 1}|-x^{n * 2 + 1})"])


def vanishing(rng: random.Random) -> str:
    """A function of x that is zero at many points, among them those that could be guessed."""
    q, n = rng.choice([1009, 1000, 997, 9699690, 30030, 2**31 - 1]), rng.randrange(1, 5)
    points = rng.sample(PUBLIC_POINTS, 12)
    product = "".join(f"(x-\\frac{{{point}}}{{1009}})" for point in points).replace("--", "+")
    forms = [f"\\sin({q}\\pi x)", f"\\sin^{{{2 * n}}}({q}\\pi x)", f"\\tan({q}\\pi x)", product, f"{n}{product}"]
    return rng.choice([*forms, f"(1-\\cos({2 * q}\\pi x))", "".join(f"(1009x-{p})" for p in points).replace("--", "+")])


def undefined(rng: random.Random) -> str:
    """A quotient of two zeros that do not look it: times it, everything is what one likes."""
    zeros = ["\\sin^2 x+\\cos^2 x-1", "(x+1)^2-x^2-2x-1", "\\cos(2x)-\\cos^2 x+\\sin^2 x", "e^{2x}-(e^x)^2"]
    above, below = rng.sample(zeros, 2)
    return f"\\frac{{{above}}}{{{below}}}"


def near_constant(rng: random.Random) -> tuple[str, str]:
    gold, small = constant(rng), tiny(rng)
    c = rng.randrange(2, 40)
    forms = [(f"{gold}+{small}", gold), (f"({gold})(1+{small})", gold), (f"\\frac{{{gold}}}{{1+{small}}}", gold)]
    forms += [
        (f"\\sqrt{{{c * c}+{small}}}", f"{c}"),
        (f"{c}^{{1+{small}}}", f"{c}"),
        (f"\\lfloor {c}-{small}\\rfloor", f"{c}"),
    ]
    forms += [(f"{c}\\cos({small})", f"{c}"), (f"|{c}+{small}|", f"{c}"), (f"\\max({c},{c}+{small})", f"{c}")]
    forms += [(f"\\frac{{{small}}}{{{small}+0\\pi}}\\cdot{c + 1}", f"{c}"), (f"\\lceil {c}+{small}\\rceil", f"{c}")]
    return rng.choice([*forms, (f"{c}+\\frac{{1}}{{\\infty}}+{small}", f"{c}"), (f"e^{{{small}}}{c}", f"{c}")])


def near_function(rng: random.Random) -> tuple[str, str]:
    gold, small = function(rng), tiny(rng)
    c = rng.randrange(2, 30)
    forms = [(f"{gold}+{small}", gold), (f"({gold})(1+{small})", gold), (f"{gold}+{small}x", gold)]
    forms += [(f"\\sin({c}x+{small})", f"\\sin({c}x)"), (f"x^{{{c}+{small}}}", f"x^{{{c}}}")]
    return rng.choice([*forms, (f"\\sqrt{{x^2+{c}+{small}}}", f"\\sqrt{{x^2+{c}}}"), (f"e^{{x+{small}}}", "e^x")])


def with_part(part: Callable[[random.Random], str]) -> Callable[[random.Random], tuple[str, str]]:
    def make(rng: random.Random) -> tuple[str, str]:
        gold, factor = function(rng), rng.choice(["", "3", "x", "-"])
        return f"{gold}{'' if factor == '-' else '+'}{factor}{part(rng)}", gold

    return make


def replaced(rng: random.Random) -> tuple[str, str]:
    gold, wrong = function(rng), function(rng)
    while wrong == gold:
        wrong = function(rng)
    zero = undefined(rng)
    return rng.choice([f"{wrong}+{zero}", f"{wrong}+({gold}-({wrong})){zero}"]), gold


ATTACKS: dict[str, Callable[[random.Random], tuple[str, str]]] = {
    "near a constant": near_constant,
    "near a function": near_function,
    "zero but for a point": with_part(rare),
    "zero at points": with_part(vanishing),
    "zero over zero": replaced,
}


def polynomials(rng: random.Random) -> tuple[str, str]:
    a, b, c = (rng.choice([*range(-12, 0), *range(1, 13)]) for _ in range(3))
    product = f"(x{a:+d})(x{b:+d})"
    forms = [(f"x^2{a + b:+d}x{a * b:+d}", product), (f"(x{a:+d})^2{c:+d}", f"x^2{2 * a:+d}x{a * a + c:+d}")]
    forms += [(f"\\frac{{x^2{a + b:+d}x{a * b:+d}}}{{x{a:+d}}}", f"x{b:+d}")]
    forms += [(f"\\frac{{1}}{{x{a:+d}}}-\\frac{{1}}{{x{a + 13:+d}}}", f"\\frac{{13}}{{(x{a:+d})(x{a + 13:+d})}}")]
    return rng.choice(
        [*forms, (f"(x+{abs(a)}y)(x-{abs(a)}y)", f"x^2-{a * a}y^2"), (f"|{a}x{b:+d}|", f"|{-a}x{-b:+d}|")]
    )


def trigonometry(rng: random.Random) -> tuple[str, str]:
    a, k = rng.randrange(2, 30), rng.randrange(1, 5)
    forms = [(f"{a}\\sin^2({k}x)", f"{a}-{a}\\cos^2({k}x)"), (f"{2 * a}\\sin({k}x)\\cos({k}x)", f"{a}\\sin({2 * k}x)")]
    forms += [(f"{a}\\cos(2x)", f"{a}(1-2\\sin^2 x)"), (f"{a}\\tan(x)", f"\\frac{{{a}\\sin x}}{{\\cos x}}")]
    forms += [(f"{a}\\sec^2 x", f"{a}+{a}\\tan^2 x"), ("\\cos(x+y)", "\\cos x\\cos y-\\sin x\\sin y")]
    forms += [(f"{a}\\sin(x+\\frac{{\\pi}}{{2}})", f"{a}\\cos x"), (f"{2 * a}\\cosh x", f"{a}e^x+{a}e^{{-x}}")]
    return rng.choice(
        [*forms, (f"{4 * a}\\sin^3 x", f"{3 * a}\\sin x-{a}\\sin(3x)"), ("\\cos 36^\\circ", "\\frac{1+\\sqrt5}{4}")]
    )


def logarithms(rng: random.Random) -> tuple[str, str]:
    a, b = rng.sample([2, 3, 5, 7, 11, 13], 2)
    forms = [
        (f"\\ln {a * b}", f"\\ln {a}+\\ln {b}"),
        (f"\\ln x^{a}", f"{a}\\ln x"),
        (f"\\log_{a} {b}", f"\\frac{{\\ln {b}}}{{\\ln {a}}}"),
    ]
    forms += [
        (f"\\ln\\frac{{x}}{{{a}}}", f"\\ln x-\\ln {a}"),
        (f"e^{{{a}\\ln x}}", f"x^{a}"),
        (f"{a}^{{x+2}}", f"{a * a}\\cdot {a}^x"),
    ]
    forms += [
        ("\\ln(xy)", "\\ln x+\\ln y"),
        (f"{a}^x{b}^x", f"{a * b}^x"),
        (f"\\frac{{e^{{{a}x}}}}{{e^{{{b}x}}}}", f"e^{{{a - b}x}}"),
    ]
    return rng.choice(
        [
            *forms,
            (f"\\ln\\sqrt{{{a}}}", f"\\frac{{\\ln {a}}}{{2}}"),
            (f"\\log_{{{a}}}x^2", f"\\frac{{2\\ln|x|}}{{\\ln {a}}}"),
        ]
    )


def radicals(rng: random.Random) -> tuple[str, str]:
    a, b = sorted(rng.sample([2, 3, 5, 7, 11, 13, 17], 2))
    c = rng.randrange(2, 20)
    forms = [
        (f"\\sqrt{{{a + b}+2\\sqrt{{{a * b}}}}}", f"\\sqrt{{{a}}}+\\sqrt{{{b}}}"),
        (f"\\sqrt{{{c * c * a}}}", f"{c}\\sqrt{{{a}}}"),
    ]
    forms += [
        (f"\\frac{{{b - a}}}{{\\sqrt{{{b}}}-\\sqrt{{{a}}}}}", f"\\sqrt{{{a}}}+\\sqrt{{{b}}}"),
        (f"\\frac{{{c}}}{{\\sqrt{{{a}}}}}", f"\\frac{{{c}\\sqrt{{{a}}}}}{{{a}}}"),
    ]
    forms += [
        (f"\\sqrt[3]{{{c**3 * a}}}", f"{c}\\sqrt[3]{{{a}}}"),
        (f"\\frac{{1}}{{{c}+\\sqrt{{{a}}}i}}", f"\\frac{{{c}-\\sqrt{{{a}}}i}}{{{c * c + a}}}"),
    ]
    forms += [
        ("\\sqrt[3]{2+\\sqrt5}+\\sqrt[3]{2-\\sqrt5}", "1"),
        (f"\\sqrt{{x^2+{2 * c}x+{c * c}}}", f"|x+{c}|"),
        (f"\\sqrt{{{c * c}x}}", f"{c}\\sqrt x"),
    ]
    return rng.choice(
        [
            *forms,
            (f"\\frac{{x-{c}}}{{\\sqrt x-\\sqrt{{{c}}}}}", f"\\sqrt x+\\sqrt{{{c}}}"),
            ("(\\sqrt{x})^3", "x\\sqrt x"),
        ]
    )


def combinatorics(rng: random.Random) -> tuple[str, str]:
    k = rng.randrange(2, 5)
    falling = "".join(f"(n-{i})" if i else "n" for i in range(k))
    forms = [
        (f"\\binom{{n}}{{{k}}}", f"\\frac{{{falling}}}{{{math.factorial(k)}}}"),
        (f"\\frac{{n!}}{{(n-{k})!}}", falling),
    ]
    return rng.choice([*forms, ("(n+1)!", "(n+1)n!"), ("\\frac{n(n+1)}{2}", "\\binom{n+1}{2}"), ("2^{2n}", "4^n")])


TWINS = (polynomials, trigonometry, logarithms, radicals, combinatorics)


def shift(answer: str, gold: str, rng: random.Random) -> tuple[str, str]:
    """A pair of formulas where else a formula can stand."""
    k = rng.randrange(2, 9)
    return rng.choice(
        [
            (f"y={answer}", f"y={gold}"),
            (f"{k}y={k}({answer})", f"y={gold}"),
            (f"z>{answer}", f"z>{gold}"),
            (f"({k},{answer})", f"({k},{gold})"),
            (f"{answer},{k + 50}", f"{k + 50},{gold}"),
            (f"\\begin{{pmatrix}}{k}\\\\{answer}\\end{{pmatrix}}", f"\\begin{{pmatrix}}{k}\\\\{gold}\\end{{pmatrix}}"),
            (f"[{answer},\\infty)", f"[{gold},\\infty)"),
        ]
    )


def attacks(num: int, seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    for number in range(num):
        family = list(ATTACKS)[number % len(ATTACKS)]
        answer, gold = ATTACKS[family](rng)
        if number % 3 == 2:
            answer, gold = shift(answer, gold, rng)
        yield family, answer, gold


def twins(num: int, seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    for number in range(num):
        make = TWINS[number % len(TWINS)]
        answer, gold = make(rng)
        if rng.random() < 0.5:
            answer, gold = gold, answer
        if number % 3 == 2:
            answer, gold = shift(answer, gold, rng)
        yield make.__name__, answer, gold


def graded(cases: list[Case]) -> list[tuple[Case, Grade]]:
    grades = grade_many((f"\\boxed{{{answer}}}", gold) for _, answer, gold in cases)
    return list(zip(cases, grades, strict=True))


def check(num: int, seed: int) -> None:
    wrong, right = graded(list(attacks(num, seed))), graded(list(twins(num, seed)))
    accepted = [case for case, grade in wrong if grade.correct]
    refused = [(case, grade.outcome, grade.detail) for case, grade in right if not grade.correct]
    assert accepted == []
    assert len(refused) <= 0.01 * num, refused[:20]


NEARLY = [
    ("5+e^{-1000}", "5"),
    ("5(1+e^{-700})", "5"),
    ("x^2+e^{-800}", "x^2"),
    ("x^2(1+e^{-900})", "x^2"),
    ("x^2+0^{|x-3|}", "x^2"),
    ("x^2+\\lfloor\\frac{1}{1+x^2}\\rfloor", "x^2"),
    ("5+\\frac{1}{\\infty}", "5"),
    ("\\sqrt{3-\\pi}", "\\sqrt{\\pi-3}"),
    ("\\frac{5\\infty}{\\infty}", "5"),
    ("\\lfloor 6-e^{-1000}\\rfloor", "6"),
    ("y=\\lceil 20+\\ln(1+e^{-1500})\\rceil", "y=20"),
    ("\\{5+e^{-900}\\}", "\\{5\\}"),
    ("x\\ne 5+e^{-900}", "(-\\infty,5)\\cup(5,\\infty)"),
    ("x>5+e^{-900}", "(5,\\infty)"),
    ("x^2+y^2=1+e^{-900}", "x^2+y^2=1"),
    ("(\\sin^2x+\\cos^2x-1)^{|x-3|}<1", "\\mathbb{R}"),
    ("(x-5)(x-5-e^{-1000})>0", "x\\ne 5"),
    ("\\mathbb{R}\\setminus\\{3+e^{-900}\\}", "\\mathbb{R}\\setminus\\{3\\}"),
    ("\\begin{pmatrix}5+e^{-900}\\\\1\\end{pmatrix}", "\\begin{pmatrix}5\\\\1\\end{pmatrix}"),
    ("\\sqrt[3]{|x|}", "\\sqrt[3]{x}"),
    ("\\arcsin(\\sin x)", "x"),
    ("x=6=5", "5"),
    ("6(1)", "7"),
    ("\\frac{2(3)}{4}x", "\\frac{5}{4}x"),
    ("6{1}x", "7x"),
]
REWRITTEN = [
    ("\\arctan\\frac12+\\arctan\\frac13", "\\frac{\\pi}{4}"),
    ("\\ln(2+\\sqrt3)", "-\\ln(2-\\sqrt3)"),
    ("\\frac{\\ln(3+2\\sqrt2)}{\\ln(1+\\sqrt2)}", "2"),
    ("\\cos\\frac{\\pi}{7}\\cos\\frac{2\\pi}{7}\\cos\\frac{4\\pi}{7}", "-\\frac18"),
    ("\\sqrt{\\frac{g}{l}}", "\\frac{\\sqrt{gl}}{l}"),
    ("\\sqrt{(1-x)^2}", "|x-1|"),
    ("(\\frac{x}{y})^n", "\\frac{x^n}{y^n}"),
    ("\\min(a,b)+\\max(a,b)", "a+b"),
    ("\\lceil x\\rceil", "-\\lfloor-x\\rfloor"),
    ("\\lfloor x+1\\rfloor", "\\lfloor x\\rfloor+1"),
    ("8y=8", "y=\\sqrt[3]{2+\\sqrt5}+\\sqrt[3]{2-\\sqrt5}"),
    ("-2x<4y", "x>-2y"),
    ("a<b<c", "c>b>a"),
    ("\\sin{\\left(2t\\right)}/2", "\\frac{\\sin(2t)}{2}"),
    ("\\sin{x}y", "y\\sin x"),
    ("2(3)\\pi", "6\\pi"),
    ("2\\frac{1}{2}x", "\\frac{5}{2}x"),
]


@pytest.mark.slow
def test_no_list_of_points_and_no_smallness_makes_formulas_equal():
    cases = graded([("nearly", *pair) for pair in NEARLY] + [("rewritten", *pair) for pair in REWRITTEN])
    assert [case for case, grade in cases if grade.correct != (case[0] == "rewritten")] == []


@pytest.mark.slow
def test_formulas_that_only_nearly_agree_are_wrong_and_their_honest_twins_right():
    check(30, seed=1)


@pytest.mark.long
@pytest.mark.parametrize("seed", [2, 3])
def test_thousands_of_formulas_that_nearly_agree_are_wrong(seed):
    check(1500, seed)
