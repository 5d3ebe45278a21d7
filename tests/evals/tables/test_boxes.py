"""Texts of models in boxes of LaTeX: as they were written, and never run."""

import re

import pytest

from evals.tables.latex import LONGEST_SHOWN, Box, Text, boxes_to_latex, latex_lines

HOSTILE = [
    "\\input{/etc/passwd}\\write18{id}\\immediate",
    "\\end{samplesbox}\\end{document}",
    "$x_1^2$ & 100% #1 {a} ~ ^^4d",
    "def f(x):\n    if x:\n        return {}\n\n\n",
    "\\[ \\frac{1}{2} \\] so \\(a\\) is \\boxed{5}",
    '[3cm] *star  --- `` \' "q"',
    "\x1b[2J\x00\u202e\ud800",
    "中文 🙂 δ=0.1 é",
    "x" * 9000,
    "",
    "   ",
    "%" * 200,
]


def test_lines_and_indentation_stay_and_long_words_can_be_broken():
    lines = latex_lines("a\n    b--c\n\n" + "x" * 45).split("\n")
    assert lines == [
        r"\noindent{}a\par",
        r"\noindent\hspace*{2em}{}b-{}-c\par",
        r"\smallskip",
        rf"\noindent{{}}{'x' * 20}\allowbreak{{}}{'x' * 20}\allowbreak{{}}xxxxx\par",
    ]


@pytest.mark.parametrize("text", HOSTILE)
def test_of_a_text_only_our_own_commands_are_left(text):
    out = latex_lines(text)
    commands = set(re.findall(r"\\([A-Za-z]+)", out))
    ours = {"noindent", "hspace", "par", "smallskip", "allowbreak", "textbackslash", "textasciicircum"}
    assert commands <= ours | {"textasciitilde", "delta"}
    bare = re.sub(r"\\[{}]", "", out)
    assert bare.count("{") == bare.count("}")
    out.encode("utf-8")


def test_of_a_very_long_text_the_rest_is_counted():
    out = boxes_to_latex([Box("T", "blue", [Text("H", "y" * (LONGEST_SHOWN + 7))])])
    assert "(7 more characters)" in out


@pytest.mark.latex
@pytest.mark.parametrize("packages", ["", "\\usepackage{tcolorbox}", "\\usepackage[most]{tcolorbox}"])
def test_boxes_compile_with_and_without_tcolorbox(compile_latex, packages):
    boxes = [Box(text[:60] or "T", color, [Text(text[:60], text)]) for text in HOSTILE for color in ("gray", "blue")]
    body = boxes_to_latex(boxes)
    log = compile_latex(f"\\documentclass{{article}}{packages}\\begin{{document}}\n{body}\\end{{document}}\n")
    assert "Overfull \\hbox" not in log
