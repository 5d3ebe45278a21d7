"""Answers, names and templates of any text: a value or one of our own errors, and nothing acts where it is shown."""

import csv
import io
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evals.benchmarks.prompts import TEMPLATES, find_template, render
from evals.errors import QuatroError
from evals.files.frames import csv_text
from evals.grading import extract, same_answer
from evals.tables.formats import markdown_text
from evals.tables.latex import latex_text

# Pieces that answers, names and templates are made of, so that they often nearly mean something.
MATHS = r"\boxed{ \fbox{ } { $ $$ \frac{1}{2} \sqrt ^ _ \text{ \begin{pmatrix} & \end{pmatrix} \\ % # ~ \pi \cup \infty"
WORDS = "i = < , ( ] 1e999 - 10^ ! or six {problem} {{ chat: <|im_end|> \u2212 0.1\u0305 \u00bd \u0663 \u202e \ufeff"
OTHERS = ("'", "\n", "\r", "\t", "\x00", "\x1b[2J", "\ud800", '"', " or ", "the answer is ", "{% raw %}")
PIECES = (*MATHS.split(), *WORDS.split(), *OTHERS)
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)
NESTED = "\\boxed{" * 3000 + "1" + "}" * 3000


@pytest.mark.parametrize("policy", ["boxed", "answer-is", "last-number"])
@given(completion=TEXTS)
@example(completion=NESTED)
@example(completion="\\boxed{" * 20_000)
def test_an_extracted_answer_is_a_part_of_the_completion(policy, completion):
    found = extract(completion, policy)
    assert found.text is None or found.text in completion


@pytest.mark.parametrize("policy", ["strict", "simko"])
@given(answer=TEXTS, reference=TEXTS)
@example(answer="9" * 5000, reference="1")
@example(answer="10^{10^{10}}", reference="1")
@example(answer="(" * 5000, reference="(1)")
def test_a_comparison_says_yes_or_no_and_names_its_rule(policy, answer, reference):
    found = same_answer(answer, reference, policy=policy)
    assert found.is_equal in (True, False)
    assert found.rule


@given(cells=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_csv_row_stays_a_row_and_no_cell_is_a_formula(cells):
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([csv_text(cell) for cell in cells])
    ((*found,),) = csv.reader(io.StringIO(stream.getvalue(), newline=""))
    for cell, back in zip(cells, found, strict=True):
        assert back.removeprefix("'") in {text.removeprefix("'") for text in (cell, re.sub("\r\n?", "\n", cell))}
        assert not back.startswith(("=", "+", "-", "@"))


@given(text=TEXTS)
def test_no_character_acts_in_latex(text):
    safe = latex_text(text)
    # What is left without the escapes, formulas and macros that we write ourselves holds nothing that acts.
    plain = re.sub(r"\\[A-Za-z]+(\{\})?", "", re.sub(r"\$[^$]*\$", "", re.sub(r"\\[{}$&#%_]", "", safe)))
    assert not re.search(r"[\\&#%~^_\x00-\x08\x0b-\x1f\x7f]", plain), safe
    assert safe.count("{") - safe.count("\\{") == safe.count("}") - safe.count("\\}")


@given(text=TEXTS)
def test_no_text_ends_a_markdown_cell(text):
    safe = markdown_text(text)
    assert "\n" not in safe
    assert not re.search(r"(?<!\\)(\\\\)*\|", safe)
    assert "\x1b" not in safe


@given(template=TEXTS | st.sampled_from(sorted(TEMPLATES)), problem=TEXTS)
def test_a_prompt_holds_the_whole_problem(template, problem):
    try:
        found = find_template(template)
    except QuatroError:
        return
    prompt = render(found, problem, lambda messages: "".join(message["content"] for message in messages))
    assert problem in prompt
