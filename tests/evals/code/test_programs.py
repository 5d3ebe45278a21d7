"""Programs in completions: what is taken out of which form of an answer, and what is one program in normal form."""

import ast
import os
import random
from pathlib import Path

import pytest

from evals.code import programs
from evals.code.programs import extract_program, normal_program, normal_solution
from evals.sandbox import Asserts, Job, Sandbox
from tests.kit import read_rows

DATA = Path(os.environ.get("QUATRO_DATA", "-"))

PROMPT = 'from math import sqrt\n\n\ndef half(n):\n    return n / 2\n\n\ndef f(n):\n    """Half of a root."""\n'
BODY = "    return half(sqrt(n))\n"
F = "def f(n):\n    return n\n"
FENCE = "```"


def fenced(program, language="python"):
    return f"{FENCE}{language}\n{program}{FENCE}\n"


@pytest.mark.parametrize(
    "answer",
    [
        f"Sure, here it is:\n\n{fenced(F)}\nIt isn't long. `f` returns n.",
        fenced(F, "py"),
        fenced(F, "Python3"),
        fenced(F, ""),
        fenced(F, "{.python}"),
        fenced(F, "python title=f.py"),
        f"~~~python\n{F}~~~\n",
        f"````\n{F}````",
        f"The function: {FENCE}python\n{F}{FENCE}",
        f"1. Code:\n\n   {FENCE}python\n   def f(n):\n       return n\n   {FENCE}\n2. Done.",
        f"{FENCE}python\n    def f(n):\n        return n\n{FENCE}",
        f"{FENCE}python\n{F}",
        f"{FENCE}python\n{F.rstrip()}{FENCE}",
        f"{FENCE}python\r\ndef f(n):\r\n    return n\r\n{FENCE}\r\n",
        f"{fenced('pip install numpy', 'bash')}{fenced(F)}{fenced('{}', 'json')}",
        f"{fenced('def f(n):' + chr(10) + '    return 0' + chr(10))}No, better:\n{fenced(F)}",
        f"{fenced(F)}For example:\n{fenced('print(f(3))' + chr(10))}",
        f"{fenced(F)}Again:\n{FENCE}python\ndef f(n):\n    if n",
        f"{fenced(F)}Again:\n{FENCE}python\ndef f(n):\n    return 0\n    if n",
        f'"""Not so:\n{FENCE}\ndef f(n):\n    return 0\n{FENCE}\n"""\n{F}',
        f"{F}{FENCE}\nThis ends what the prompt began.\n{FENCE}\n",
        F,
        "\ufeff" + F,
        f"{F}\nThis isn't hard.",
        f"{F}[DONE]\nmore",
        f"{F}\nNote: It works\n",
        f"{F}\n\ndef g(n):\n    return (n +",
        f"The answer is\n\n{F}",
        f"Take it\nfrom here to there:\n{F}\nand be happy",
    ],
)
def test_the_function_is_found_in_every_form_of_an_answer(answer):
    program = extract_program(answer, entry_point="f")
    assert normal_program(program) == normal_program(F)


def test_a_fence_deep_inside_a_block_does_not_end_it():
    program = f'text = """Such as\n    {FENCE}\n    f(1)\n    {FENCE}\n"""\nf = len'
    assert extract_program(f"So:\n{fenced(program + chr(10))}", entry_point="f") == program


def test_what_follows_a_function_and_runs_stays():
    answer = f'{F}\nprint(f(1))\nif __name__ == "__main__":\n    print(f(2))\n'
    assert extract_program(answer, entry_point="f") == answer


@pytest.mark.parametrize(
    "completion",
    [
        BODY,
        f"\n{BODY}",
        PROMPT + BODY,
        f"{BODY}{FENCE}\n\nThis is right.\n",
        f"{BODY}\n\ndef main():\n    print(f(",
        f"{BODY}\n\n{FENCE}python\ndef f(n):\n    return 0\n{FENCE}",
        fenced(BODY),
        fenced(PROMPT + BODY),
        fenced("def f(n):\n" + BODY),  # the prompt's helpers and imports are not repeated
        f"    # the root\n{BODY}",
    ],
)
def test_a_completion_goes_on_where_the_prompt_ends(completion):
    names = {}
    exec(extract_program(completion, prompt=PROMPT, entry_point="f"), names)
    assert names["f"](16) == 2


def test_helpers_in_a_fenced_block_of_the_prompt_are_known():
    names = {}
    answer = fenced("def f(n):\n" + BODY)
    exec(extract_program(answer, prompt=f"Complete this:\n\n{fenced(PROMPT)}", entry_point="f"), names)
    assert names["f"](16) == 2


def test_a_prompt_without_a_line_end_and_one_that_ends_inside_a_line_go_on_too():
    assert extract_program("\n    return n", prompt="def f(n):", entry_point="f") == "def f(n):\n    return n"
    assert extract_program("(n): return n", prompt="def f", entry_point="f") == "def f(n): return n"


def test_helpers_of_earlier_blocks_are_joined_where_they_are_lacking():
    one, two = "import math\ndef root(n):\n    return math.sqrt(n)\n", "def half(n):\n    return root(n) / 2\n"
    unused = "def other(n):\n    return 0\n"
    main = "def f(n):\n    return half(n)\n"
    answer = "\nThen\n".join(map(fenced, (one, unused, two, main)))
    assert extract_program(answer, entry_point="f") == "\n".join(part.rstrip() for part in (one, two, main))
    assert extract_program(fenced(one) + fenced(F), entry_point="f") == F.rstrip("\n")


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("print(int(input()) + 1)\n", "print(int(input()) + 1)\n"),
        (f"Reads n.\n{fenced('n = int(input())' + chr(10) + 'print(n)' + chr(10))}", "n = int(input())\nprint(n)"),
        (f"{fenced('print(1)' + chr(10))}better:\n{fenced('print(2)' + chr(10))}", "print(2)"),
        (f"{fenced('print(1)' + chr(10))}It prints\n{fenced('1' + chr(10), '')}", "print(1)"),
        (f"{fenced('print(1)' + chr(10))}In JavaScript\n{fenced('console.log(1)' + chr(10), 'js')}", "print(1)"),
        ("Here it is.\nimport sys\nprint(sys.argv)\nDone", "import sys\nprint(sys.argv)"),
        ("print(1)\nprint(2", "print(1)"),
    ],
)
def test_programs_without_an_entry_point(answer, program):
    assert extract_program(answer) == program


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "   \n",
        "I cannot do that.",
        "Use `sorted(n)`.",
        "42",
        "Yes\nNo",
        "Answer: 42",
        f"{FENCE}\n5 3\n{FENCE}",
        "# no",
    ],
)
@pytest.mark.parametrize(
    ("prompt", "entry_point"), [(None, None), (None, "f"), (PROMPT, "f")], ids=["script", "function", "prompt"]
)
def test_where_there_is_no_program_there_is_none(answer, prompt, entry_point):
    assert extract_program(answer, prompt=prompt, entry_point=entry_point) is None


def test_a_program_that_defines_something_else_is_still_the_program():
    assert extract_program(fenced("def g(n):\n    return n\n"), entry_point="f") == "def g(n):\n    return n"


@pytest.mark.parametrize("definition", ["class f: pass", "f = lambda n: n", "from m import f", "async def f(n): pass"])
def test_what_defines_a_name(definition):
    assert extract_program(fenced(definition + "\n") + fenced("def g(): f = 1\n"), entry_point="f") == definition


def test_a_method_of_solution_defines_its_name():
    program = "class Solution:\n    def f(self, n):\n        return n"
    answer = fenced(program + "\n") + fenced("print(Solution().f(1))\n")
    assert extract_program(answer, entry_point="f") == program


def longest_prefix(text):
    lines = text.split("\n")
    for end in range(len(lines), 0, -1):
        following = next((line for line in lines[end:] if line.strip()), "")
        if following.startswith((" ", "\t")):  # inside a statement
            continue
        try:
            ast.parse("\n".join(lines[:end]))
            return "\n".join(lines[:end])
        except SyntaxError:
            continue
    return ""


def test_a_function_that_breaks_off_is_left_out():
    helper, cut = "def g(n):\n    return n", "def f(n):\n    m = n\n    return (m +"
    for text in (f"{helper}\n\n\n{cut}", f"{helper}\n\n\n@cache\n{cut}"):
        assert extract_program(text, entry_point="g").strip() == helper
        assert "def f" not in extract_program(text, entry_point="f")


def test_the_longest_prefix_is_that_of_trying_every_one():
    source = Path(programs.__file__).read_text(encoding="utf-8")
    tails = ["It's `x`.", "def g(x):\n    return (x +", "print('a'\n\nfor", "x = {\n 1: 2,", '"""\nabc', "f'{a b}'"]
    tails += ["try:\n  x", "@dec", "if x:\n    y(\n  z", "class A:\n  def f(self):\n  ", "else:", "print 'a b'", ""]
    draw = random.Random(0)
    for _ in range(150):
        start = draw.randrange(len(source))
        start = source.find("\n\n\n", start) + 3
        text = f"{source[start : start + draw.randrange(1500)]}\n{draw.choice(tails)}"
        if text[:1].isspace():
            continue
        found = programs._Reader().longest(text)
        # Prose that parses is cut off on top.
        assert found.text == longest_prefix(text) or programs._missing_in(ast.parse(longest_prefix(text)))
    assert programs._Reader().longest(source).text == source


HOSTILE = {
    "long": F * 5_000,
    "one line": "f(" + "1," * 50_000 + ")",
    "brackets": "(" * 1_000_000,
    "depth": "x = " + "-" * 40_000 + "1",
    "sum": "x = " + "+".join("1" * 5000),
    "elif": "if a: pass\n" + "elif a: pass\n" * 3500,
    "indentation": "".join("\t" * depth + "if x:\n" for depth in range(200)),
    "decorators": "@a\n" * 5_000,
    "unfinished": "def f(n):\n" * 10_000,
    "open brackets": "def f(n): (\n" * 10_000,
    "dotted": "import " + "a.\\\n" * 3_000 + "b\n" + "@a\n" * 300 + "!",
    "fences": "```\n" * 20_000,
    "blocks": fenced("def f(n): return (\n") * 2_000,
    "large blocks": fenced(F * 200 + "(") * 30,
    "ticks": "`" * 1_000_000,
    "quotes": "'" * 1_000_000,
    "triple quotes": "'''\n" * 20_000,
    "white space": " \n" * 50_000,
    "null": F + "\0" * 1_000_000,
    "form feeds": "\f\n" * 50_000,
    "line separators": F + "\u2028\n" * 10_000,
    "surrogates": F + "\ud800" * 100_000,
    "carriage returns": "x = 1\r" * 20_000,
    "digits": "x = " + "9" * 9000,
    "large number": "x = 0x" + "f" * 9000,
    "control": "x = '\x1b[31m'\x07",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_raise_nothing_and_cost_little(name, monkeypatch):
    parsed, whole = [], ast.parse
    monkeypatch.setattr(ast, "parse", lambda source: parsed.append(len(source)) or whole(source))
    program = extract_program(HOSTILE[name], prompt=PROMPT, entry_point="f")
    assert program is None or (len(program) <= 60_000 and "\0" not in program and "\ud800" not in program)
    assert sum(parsed) <= 500_000
    normal_program(HOSTILE[name])
    normal_program(HOSTILE[name][:50_000])


def test_a_function_before_what_cannot_be_read_is_kept():
    for name in ("null", "line separators", "surrogates"):
        assert extract_program(HOSTILE[name], entry_point="f").startswith(F.rstrip())


def test_random_texts_raise_nothing():
    draw = random.Random(0)
    pieces = [
        *"\n\n\n\t  (){}[]:'\"`~\\#@,=\0\f\r\u2028\ud800é",
        "```",
        "def f",
        "if",
        "f'{",
        "'''",
        "lambda",
        "import",
        "x",
    ]
    for _ in range(400):
        text = "".join(draw.choices(pieces, k=draw.randrange(60)))
        program = extract_program(text, prompt=draw.choice([None, PROMPT]), entry_point=draw.choice([None, "f"]))
        assert program is None or ast.parse(program)
        assert isinstance(normal_solution(text), str)


SAME = [
    "def f(n, m=1):\n    return {'a': n + 1, 'b': [m]}\n",
    'def f(n,m = 1):\n\t# a comment\n\treturn {"a":n+1,"b":[m,],}   # another',
    'def f(n, m=0x1):\n  """What it does."""\n  return {\n    "a": (n + 1),\n    "b": [m],\n  }\n\n\n',
    "# -*- coding: utf-8 -*-\n'''Module.'''\ndef f(n, m=1):\n    'doc'\n    'more'\n    return ({u'a': n+1, 'b': [m]})",
    "def f(n, m=1): return {'a': n + \\\n 1, 'b': [m]};",
]


def test_layout_comments_docstrings_and_quotes_do_not_count():
    assert {normal_program(text) for text in SAME} == {"def f(n, m=1):\n    return {'a': n + 1, 'b': [m]}"}
    assert normal_program(SAME[0].replace("m", "k")) != normal_program(SAME[0])


def test_a_body_of_nothing_but_texts_is_pass():
    text = "class A:\n    'doc'\ndef f(self):\n    'doc'\ntry:\n    'a'\nfinally:\n    'b'\n"
    assert normal_program(text) == normal_program(
        text.replace("'doc'", "pass").replace("'a'", "pass").replace("'b'", "pass")
    )
    assert normal_program("for x in y:\n    pass\nelse:\n    'nothing'\n") == "for x in y:\n    pass"
    assert normal_program("'only this'") == ""


@pytest.mark.parametrize("text", ["not a program", "def f(", "x = '\0'", "\ud800", "x = " + "-" * 40_000 + "1"])
def test_what_does_not_parse_is_its_own_normal_form(text):
    assert normal_program(text) == text


def test_the_normal_form_is_its_own_and_means_the_same():
    """Docstrings and strings apart, the syntax tree does not change."""
    for path in Path(programs.__file__).parents[1].glob("similarity/*.py"):
        source = path.read_text(encoding="utf-8")
        normal = normal_program(source)
        assert normal_program(normal) == normal
        assert ast.dump(ast.parse(normal)) == ast.dump(programs._without_texts(ast.parse(source)))


def test_an_answer_with_prose_and_the_bare_program_are_one_solution():
    answer = f"Sure!\n\n{fenced(SAME[2])}\nIt isn't long."
    assert (
        normal_solution(answer, entry_point="f") == normal_solution(SAME[0], entry_point="f") == normal_program(SAME[0])
    )
    assert normal_solution("    return half(n)  # so\n", prompt=PROMPT, entry_point="f") == normal_solution(
        PROMPT + "    return half(n)", entry_point="f"
    )
    assert normal_solution("no program, I'm afraid") == "no program, I'm afraid"


def rows(file):
    if not file.exists():
        pytest.skip(f"needs {file.name}: set QUATRO_DATA")
    return read_rows(file)


def asserts_of(problem):
    return Asserts(code=[problem["test"]], entry_point=problem["entry_point"], setup=problem["problem"])


def extracted(problem, completion):
    return extract_program(completion, prompt=problem["problem"], entry_point=problem["entry_point"]) or ""


@pytest.mark.slow
def test_every_solution_of_humaneval_passes_in_every_form():
    jobs, problems = [], rows(DATA / "humaneval.jsonl")
    for problem in problems:
        body, whole = problem["canonical_solution"], problem["problem"] + problem["canonical_solution"]
        cut = f"Sure, it isn't long:\n\n{FENCE}python\n{whole}\n\ndef more(x):\n    return (x +\n{FENCE}\n\nThat's it."
        for program in {extracted(problem, completion) for completion in (body, whole, fenced(whole), cut)}:
            jobs.append(Job(id=problem["id"], program=program, tests=asserts_of(problem)))
    with Sandbox() as sandbox:
        assert [verdict for verdict in sandbox.run(jobs) if verdict.status != "pass"] == []
    assert len(problems) == 164
