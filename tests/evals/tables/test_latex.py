"""LaTeX that compiles, whatever a label holds."""

import re
import shutil
import subprocess

import pytest

from evals.tables.latex import latex_text, to_latex
from evals.tables.parts import Cell, Column, Line, Section, Table

HOSTILE = [
    "\\input{/etc/passwd}\\write18{id}",
    "$x_1^2$ & 100% #1 {a} ~ \\",
    "[nope] [3cm]",
    "*star",
    "a--b---c '' `` ?` !` \"q\" <<x>> |",
    "\\end{tabular}\\end{document}",
    "δ=0.1 Ω ο Α × ≤ ± − “quotes” é ş ñ ő ł ß",
    "中文 🙂 \u202e \u0301 \U0001d400",
    "%comment",
    "}" * 30,
    "x" * 5000,
    "a\n\nb\tc",
    "^^4d ^^M \\^^41",
    "",
]


TWO_COLUMNS = (Column("1"), Column("256"))


def table(labels, *, title="UCC@k (%)", columns=TWO_COLUMNS):
    lines = [
        Line(
            label, tuple(Cell(12.345, 10.0, 20.0, is_best=i % 2 == 0, is_ours=i % 3 == 0) for i in range(len(columns)))
        )
        for label in labels
    ]
    lines.append(Line("Ours delta=0.001", (None, *(Cell(1.0, is_misprint=True) for _ in columns[1:])), is_ours=True))
    sections = tuple(Section(model, tuple(columns), tuple(lines)) for model in ("Qwen_2.5", labels[0]))
    return Table(title, "name", "Method", "Model", "percent", sections, notes=tuple(labels))


def test_special_characters_are_spelled():
    assert latex_text("50%_$#&{}") == r"50\%\_\$\#\&\{\}"
    assert latex_text("\\a~^") == r"\textbackslash{}a\textasciitilde{}\textasciicircum{}"


def test_delta_is_mathematics():
    assert latex_text("Ours delta=0.01") == r"Ours $\delta=0.01$"
    assert latex_text("Ours δ = 1e-3, α") == r"Ours $\delta=1e-3$, $\alpha$"


# Letters with each accent that every font encoding has.
ACCENTED = (
    "ÀÁÂÃÄÅÇÈÉÊËÌÍÎÏÑÒÓÔÕÖÙÚÛÜÝàáâãäåçèéêëìíîïñòóôõöùúûüýÿĀāĂăĆćĈĉĊċČčĎďĒēĔĕĖėĚěĜĝĞğĠ"
    "ġĢģĤĥĨĩĪīĬĭİĴĵĶķĹĺĻļĽľŃńŅņŇňŌōŎŏŐőŔŕŖŗŘřŚśŜŝŞşŠšŢţŤťŨũŪūŬŭŮůŰűŴŵŶŷŸŹźŻżŽž"
)
TYPOGRAPHIC = "ß æ Æ ø Ø ł Ł œ Œ – — ‘a’ “b” …"


def test_accented_letters_stay_and_what_latex_lacks_is_named():
    assert [latex_text(letter) for letter in ACCENTED] == list(ACCENTED)
    assert latex_text("Erdős") == "Erdős"
    assert latex_text(TYPOGRAPHIC) == TYPOGRAPHIC
    assert latex_text("e\u0301 中 \u1ebd ð ą") == "é {[}U+4E2D{]} {[}U+1EBD{]} {[}U+00F0{]} {[}U+0105{]}"


def test_hyphens_stay_hyphens():
    assert latex_text("Math-7B a--b") == "Math-7B a-{}-b"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_comes_out_has_balanced_braces_known_commands_and_characters_that_latex_knows(text):
    out = latex_text(text)
    assert set(re.sub("[ -~]", "", out)) <= set(ACCENTED + TYPOGRAPHIC)
    assert "\n" not in out
    bare = re.sub(r"\\[{}]", "", out)
    assert bare.count("{") == bare.count("}")
    commands = set(re.findall(r"\\([A-Za-z]+)", out))
    assert commands.isdisjoint({"input", "write", "end", "begin", "par", "def", "catcode"})


def test_best_ours_misprint_and_interval_are_marked():
    text = to_latex([table(["GRPO"])], digits=1, with_ci=True)
    assert r"\textbf{12.3} {\tiny [10.0, 20.0]}" in text
    assert r"\rowcolor[gray]{0.92} Ours $\delta=0.001$ & -- & 1.0$^\dagger$ \\" in text
    assert r"\caption{UCC@$k$ (\%)}" in text


def test_groups_span_their_columns():
    columns = [Column(name, group) for group in ("k = 32", "k = 64") for name in ("GRPO", "Ours")]
    text = to_latex([table(["MATH500"], columns=columns)], digits=2, with_ci=False)
    assert r"\multicolumn{2}{c}{$k=32$} & \multicolumn{2}{c}{$k=64$} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text


def compile_latex(text, folder):
    """pdflatex's log; the file must be a whole document."""
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed")
    (folder / "t.tex").write_text(text, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "t.tex"]
    result = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    log = result.stdout.decode("utf-8", "replace")
    assert result.returncode == 0, log[-2000:]
    assert (folder / "t.pdf").stat().st_size > 0
    return log


@pytest.mark.parametrize("packages", ["booktabs", "booktabs,colortbl"])
def test_a_pasted_table_compiles_with_hostile_texts_and_accented_names(tmp_path, packages):
    names = [*(ACCENTED[i : i + 40] for i in range(0, len(ACCENTED), 40)), TYPOGRAPHIC, *HOSTILE]
    body = to_latex([table(names, title=" ".join(names))], digits=2, with_ci=True)
    head = f"\\documentclass{{article}}\\usepackage{{{packages}}}\\begin{{document}}\n"
    compile_latex(f"{head}{body}\\end{{document}}\n", tmp_path)


def test_a_standalone_document_compiles_and_nothing_sticks_out(tmp_path):
    columns = [Column(f"Method {i}", f"k = {k}") for k in (32, 64, 128, 256) for i in range(5)]
    text = to_latex([table(["MATH500", "AIME24"], columns=columns)], digits=2, with_ci=False, standalone=True)
    assert "Overfull" not in compile_latex(text, tmp_path)
