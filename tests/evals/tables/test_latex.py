"""LaTeX that compiles, whatever a label holds."""

import re
from dataclasses import replace

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
    columns = [replace(column, is_ours=i % 3 == 0) for i, column in enumerate(columns)]
    cells = tuple(Cell(12.345, 10.0, 20.0, is_best=i % 2 == 0) for i in range(len(columns)))
    lines = [Line(label, cells) for label in labels]
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
    text = to_latex([table(["GRPO"])], with_ci=True)
    assert r"\textbf{12.35} {\tiny [10.00, 20.00]}" in text
    assert r"\rowcolor[gray]{0.92} Ours $\delta=0.001$ & -- & 1.00$^\dagger$ \\" in text
    assert r"\caption{UCC@$k$ (\%)}" in text


def test_groups_span_their_columns():
    columns = [Column(name, group) for group in ("k = 32", "k = 64") for name in ("GRPO", "Ours")]
    text = to_latex([table(["MATH500"], columns=columns)], with_ci=False)
    assert r"\multicolumn{2}{c}{$k=32$} & \multicolumn{2}{c}{$k=64$} \\" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text


def wide(num_columns, *, groups=1, num_lines=2, plate="", name="name"):
    columns = tuple(
        Column(f"Method {i}", f"k = {2**group}" if groups > 1 else "")
        for group in range(groups)
        for i in range(num_columns)
    )
    lines = tuple(Line(f"Row {i}", tuple(Cell(12.34) for _ in columns)) for i in range(num_lines))
    return Table("Title", name, "Dataset", "", "percent", (Section("", columns, lines),), plate=plate)


@pytest.mark.parametrize(
    ("num_columns", "groups", "environment", "num_blocks"),
    [(3, 1, "table", 1), (10, 1, "table*", 1), (5, 3, "table*", 1), (9, 4, "table*", 4), (24, 1, "sidewaystable*", 1)],
)
def test_a_table_is_set_as_its_width_demands(num_columns, groups, environment, num_blocks):
    """In a column, across the page, in blocks of whole groups, or turned; and nothing is wider than its line."""
    text = to_latex([wide(num_columns, groups=groups)], with_ci=False)
    assert f"\\begin{{{environment}}}[htp]" in text
    assert text.count("\\begin{tabular}{l") == num_blocks
    assert text.count("\n\\fittoline{%") == 1, "all blocks at the same scale"
    assert text.count("12.34") == 2 * num_columns * groups


def test_a_narrow_table_is_larger():
    assert "\\small\\setlength" in to_latex([wide(2)], with_ci=False)
    assert "\\scriptsize\\setlength" in to_latex([wide(6)], with_ci=False)


def test_tables_of_a_plate_share_a_float_two_side_by_side_as_far_as_a_page_goes():
    six = [wide(3, num_lines=12, plate="Pass@k on 6 benchmarks", name=f"B{i}") for i in range(6)]
    text = to_latex([*six, wide(3)], with_ci=False)
    assert text.count("\\begin{table*}[htp]") == 1
    assert text.count("\\begin{minipage}[t]{0.48\\textwidth}") == 6
    assert text.count("\\hfill") == 3
    assert re.findall(r"\\textbf{(B\d)}", text) == [f"B{i}" for i in range(6)]
    assert text.count("\\begin{table}[htp]") == 1, "a table without a plate is a float of its own"
    long = [wide(3, num_lines=30, plate="Pass@k on 6 benchmarks", name=f"B{i}") for i in range(6)]
    text = to_latex(long, with_ci=False)
    assert text.count("\\begin{table*}[htp]") == 2
    assert "\\addtocounter{table}{-1}\\caption{Pass@$k$ on 6 benchmarks (continued)}" in text


def test_tables_of_one_name_have_labels_of_their_own():
    text = to_latex([wide(2), wide(2)], with_ci=False)
    assert re.findall(r"\\label{(.*?)}", text) == ["tab:name", "tab:name-2"]


def test_a_number_below_zero_has_a_minus_sign():
    section = Section("", (Column("n"),), (Line("lr", (Cell(-1.5),)),))
    text = to_latex([Table("T", "t", "Setting", "", "", (section,))], with_ci=False)
    assert "\\begin{tabular}{lr}" in text
    assert "lr & $-$1.50 \\\\" in text


@pytest.mark.latex
@pytest.mark.parametrize("packages", ["booktabs", "booktabs,colortbl", "booktabs,graphicx,rotating,colortbl"])
def test_a_pasted_table_compiles_with_hostile_texts_and_accented_names(compile_latex, packages):
    names = [*(ACCENTED[i : i + 40] for i in range(0, len(ACCENTED), 40)), TYPOGRAPHIC, *HOSTILE]
    tables = [table(names, title=" ".join(names)), table(names, title="", columns=TWO_COLUMNS * 8)]
    body = to_latex(tables, with_ci=True)
    compile_latex(f"\\documentclass{{article}}\\usepackage{{{packages}}}\\begin{{document}}\n{body}\\end{{document}}\n")


@pytest.mark.latex
@pytest.mark.parametrize("has_two_columns", [False, True])
def test_nothing_is_wider_than_its_line(compile_latex, has_two_columns):
    shapes = [(3, 1), (10, 1), (5, 3), (9, 4), (24, 1), (40, 2)]
    tables = [wide(num_columns, groups=groups) for num_columns, groups in shapes]
    tables += [wide(9, num_lines=12, plate="P", name=f"B{i}") for i in range(6)]
    head = "\\documentclass[twocolumn]{article}" if has_two_columns else "\\documentclass{article}"
    packages = "\\usepackage[a4paper,margin=2cm]{geometry}\\usepackage{booktabs,graphicx,rotating,colortbl}"
    body = to_latex(tables, with_ci=False)
    log = compile_latex(f"{head}{packages}\n\\begin{{document}}\n{body}\\end{{document}}\n")
    assert "Overfull" not in log
    assert "Float too large" not in log
