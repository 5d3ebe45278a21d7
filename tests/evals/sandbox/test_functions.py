"""Tests that call functions: what passes, what fails, and how the verdict says so."""

import json
import math
import os
import resource
from pathlib import Path

import pytest

from evals.sandbox import Asserts, Calls, Job, Limits, Sandbox

DATA = Path(os.environ.get("QUATRO_DATA", "-"))
CHECK = "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 9\n"
SQUARE = "def square(n):\n    return n * n\n"


@pytest.mark.parametrize(
    ("program", "status", "detail"),
    [
        (SQUARE, "pass", ""),
        ("def square(n): return 4", "fail", "AssertionError"),
        ("def square(n): return n / 0", "crash", "ZeroDivisionError: division by zero"),
        ("def square(n) return n", "crash", "SyntaxError"),
        ("def cube(n): return n", "crash", "NameError: name 'square' is not defined"),
        ("import os\ndef square(n): os._exit(3)", "crash", "exit status 3"),
        ("def square(n): raise MemoryError", "memory", "MemoryError"),
        ("def square(n):\n    while True: pass", "timeout", "CPU time"),
        ("def square(n):\n    while True: print('x' * 10000)", "output_limit", "MB of output"),
        ("#" * (1 << 21), "refused", "bytes"),
    ],
)
def test_fault_51_verdicts_of_function_tests(judge, sandbox, program, status, detail):
    verdict = judge(program, Asserts(code=[CHECK], entry_point="square"), timeout_s=0.2)
    assert (verdict.status, verdict.tier) == (status, sandbox.tier)
    assert detail in verdict.detail
    assert (verdict.num_passed, verdict.num_tests) in [(int(status == "pass"), 1), (0, 0)]


def test_the_program_never_gets_the_values_that_are_expected(judge):
    program = (
        "seen = []\ndef f(*args, **named):\n    seen.append((args, named))\n    return 41\ndef all_seen(): return seen"
    )
    code = ["assert f(1, [2], k={3}) != 42", "assert all_seen() == [((1, [2]), {'k': {3}})]"]
    assert judge(program, Asserts(code=code)).status == "pass"


def test_each_assert_counts_if_asked_for(judge):
    code = ["assert f(1) == 1", "assert f(2) == 0", "assert f(3) == 3", "assert f(4) == 0"]
    counted = judge("def f(n): return n", Asserts(code=code), every_test=True)
    assert (counted.status, counted.num_passed, counted.num_tests) == ("fail", 2, 4)
    assert judge("def f(n): return n", Asserts(code=code)).num_passed == 1


def test_helpers_of_the_prompt_are_the_tests_own(judge):
    setup = "def double(n): return 2 * n\ndef f(n): pass"
    fake = "def double(n): return 0\ndef f(n): return 0"
    tests = Asserts(code=["assert f(3) == double(3)"], entry_point="f", setup=setup)
    assert judge(fake, tests).status == "fail"
    assert judge("def f(n): return 2 * n", tests).status == "pass"


@pytest.mark.parametrize("name", ["math", "abs", "sorted", "isinstance"])
def test_names_of_python_are_never_the_programs(judge, name):
    members = "    def __getattr__(s, n): return lambda *a, **k: True\n    def __call__(s, *a): return 0\n"
    fake = f"class Yes:\n{members}{name} = Yes()\ndef f(): return 7.5"
    code = "assert abs(f() - 3) < 1 and math.isclose(f(), 3) and sorted([f()]) == [3] and isinstance(f(), int)"
    assert judge(fake, code).status == "fail"


def test_an_entry_point_may_be_called_like_a_function_of_python(judge):
    tests = Asserts(code=["assert sum(10, 15) == 6"], entry_point="sum")
    assert judge("def sum(a, b): return 6", tests).status == "pass"


NODE = """
class Node:
    def __init__(self, value): self.value, self.left = value, None
    def __eq__(self, other): return True
    def twice(self): return 2 * self.value
def depth(node): return 0 if node is None else 1 + depth(node.left)
def values():
    yield 1
    yield 2
"""


def test_tests_may_build_objects_of_the_programs_classes(judge):
    setup = "root = Node(1)\nroot.left = Node(2)"
    code = [
        "assert depth(root) == 2",
        "assert root.left.value == 2",
        "assert root.twice() == 2",
        "assert list(values()) == [1, 2]",
    ]
    assert judge(NODE, Asserts(code=code, setup=setup)).status == "pass"


@pytest.mark.parametrize("code", ["Node(1) == 1", "Node(1) == Node(1)", "Node(1) in [1]", "values() == [1, 2]"])
def test_objects_of_the_programs_classes_equal_nothing(judge, code):
    assert judge(NODE, f"assert {code}").status == "fail"


def test_exceptions_are_pythons_own_with_their_text(judge):
    program = "class Odd(ValueError): pass\ndef f(n): raise Odd('text')"
    code = "try: f(1)\nexcept ValueError as error: assert str(error) == 'text'\nelse: assert False"
    assert judge(program, code).status == "pass"
    assert judge("def f(n): raise KeyError('k')", code).status == "crash"


def test_a_test_that_catches_everything_does_not_hide_an_end(judge):
    code = "try: f(1)\nexcept BaseException: pass"
    assert judge("import os\ndef f(n): os._exit(0)", code).status == "crash"


@pytest.mark.parametrize("code", ["assert (", "assert f(lambda: 1) == 1", "assert f(object()) == 1"])
def test_tests_that_cannot_run_are_refused(judge, code):
    assert judge("def f(n): return 1", code).status == "refused"
    assert judge("def f(n): return 1", Asserts(code=["assert f(1) == 1"], setup="1 / 0")).status == "refused"


def test_tests_that_never_end_on_a_result_are_a_timeout(judge):
    limits = {"timeout_s": 0.1}
    assert judge("def f(): return 1", "while f() != 2: pass", **limits).status == "timeout"


ENDLESS = """
class E:
    def __iter__(self): return iter(int, 1)
    def __len__(self): return 1 << 40
"""


def test_tests_use_no_more_than_the_program_on_what_never_ends():
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    results = {
        "range(1 << 60)": "for x in f(): pass",
        "range(1 << 61)": "sorted(f())",
        "iter(int, 1)": "list(f())",
        "E()": "assert len(f()) and sum(f())",
        "'1e99999999'": "from fractions import Fraction\nFraction(f())",
    }
    limits = Limits(timeout_s=0.1, memory_mb=64)
    with Sandbox(workers=1) as sandbox:
        verdicts = sandbox.run(
            Job(program=f"{ENDLESS}def f(): return {result}", tests=Asserts(code=[code]), limits=limits)
            for result, code in results.items()
        )
        assert {verdict.status for verdict in verdicts} <= {"timeout", "fail"}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 4


IN_PLACE = "def f(x):\n    {}\n    return x"


@pytest.mark.parametrize(
    ("code", "body", "status"),
    [
        # Tests that look at an argument see what the program made of it.
        ("x = [3, 1]; f(x); assert x == [3, 1]", "x.sort()", "fail"),
        ("x = [3, 1]\nassert f(x) == [1, 3]\nassert x == [3, 1]", "x.sort()", "fail"),
        ("x = [3, 1]\nassert f(x) == [1, 3]\nassert x == [3, 1]", "x = sorted(x)", "pass"),
        ("def check(g):\n    x = {1: [2]}\n    y = x[1]\n    g(x)\n    assert y == [2]", "x[1].clear()", "fail"),
        ("x = {1}\ntry: f(x)\nexcept ValueError: assert x == {1}", "x.clear(); raise ValueError", "fail"),
        ("x = [[1], [2]]\nfor _ in f(x): assert x == [[1], [2]]", "x[0][0] = 3", "fail"),
        ("x = ([1], 2)\nf(x)\nassert x == ([1], 2)", "x[0].append(1)", "fail"),
        # Programs that are asked to change it are right.
        ("x = [3, 1]; f(x); assert x == [1, 3]", "x.sort()", "pass"),
        ("x = [[1], 2]; y = x[0]; f(x=x); assert x == [[1, 5], 2, 7] and x[0] is y", "x[0] += [5]; x += [7]", "pass"),
        ("x = {'a': 1}; f(x); assert x == {'b': 2}", "x.clear(); x['b'] = 2", "pass"),
        ("x = bytearray(b'a'); f(x); assert x == b'ab'", "x += b'b'", "pass"),
        # While a statement compares, the tests' own objects are what they were.
        ("x = [3, 1]\nassert f(x) == sorted(x)", "x.clear()", "fail"),
        ("x = [3, 1]\nassert f(x) == sorted(x)", "x.sort()", "pass"),
        ("'text'\nfrom __future__ import annotations\nassert f([2, 1]) == [1, 2]", "x.sort()", "pass"),
    ],
)
def test_a_change_of_an_argument_is_seen_after_the_statement(judge, code, body, status):
    entry_point = "f" if "def check" in code else None
    assert judge(IN_PLACE.format(body), Asserts(code=[code], entry_point=entry_point)).status == status


@pytest.mark.parametrize(
    ("result", "expected", "options", "status"),
    [
        ([1, 2], [1, 2], {}, "pass"),
        ((1, 2), [1, 2], {}, "fail"),
        ((1, (2,)), [1, [2]], {"compare": "json"}, "pass"),
        ([2, 1, 1], [1, 2], {"compare": "set"}, "pass"),
        ("x", True, {"compare": "truth"}, "pass"),
        (None, True, {"compare": "truth"}, "fail"),
        (0.1 + 0.2, 0.3, {}, "pass"),
        (0.31, 0.3, {}, "fail"),
        ([0.1 + 0.2], [0.3], {}, "pass"),
        ({"a": 0.1 + 0.2}, {"a": 0.3}, {}, "fail"),
        (0.31, 0.3, {"atol": 0.1}, "pass"),
        ([0.31, 1], [0.3, 1], {"atol": 0.1}, "pass"),
        ([0.31], [0.3, 1], {"atol": 0.1}, "fail"),
        (float("nan"), 0.3, {"atol": 0.1}, "fail"),
        (float("inf"), 0.3, {"atol": 0.1}, "fail"),
        ("0.3", 0.3, {"atol": 0.1}, "fail"),
        (5, math.inf, {}, "fail"),
        (5, math.inf, {"atol": 0.1}, "fail"),
        ([5.0], [math.inf], {}, "fail"),
        (math.inf, -math.inf, {"atol": 0.1}, "fail"),
        (-math.inf, -math.inf, {}, "pass"),
        ([1.0 + 1e-9, math.inf], [1.0, math.inf], {}, "pass"),
        (1 + 1.0e-6, 1.0, {}, "pass"),  # 1e-6 + 1e-7 of what is expected
        (1 + 1.2e-6, 1.0, {}, "fail"),
        (1000 + 1.0e-4, 1000.0, {}, "pass"),
        (1000 + 1.02e-4, 1000.0, {}, "fail"),
        (-1000 - 1.0e-4, -1000.0, {}, "pass"),
        (math.nan, math.nan, {}, "pass"),
        ([1, math.nan], [1, math.nan], {"atol": 0.1}, "pass"),
        (0.3, math.nan, {}, "fail"),
        ("nan", math.nan, {"atol": 0.1}, "fail"),
        (range(1 << 60), [1], {"compare": "set"}, "fail"),
    ],
)
def test_results_are_compared_as_asked(judge, result, expected, options, status):
    values = "nan, inf = float('nan'), float('inf')\n"
    program = f"{values}def f(n): return {result!r}"
    tests = Calls(entry_point="f", inputs=[[1]], expected=[expected], **options)
    assert judge(program, tests).status == status
    reference = Calls(entry_point="f", inputs=[[1]], reference=f"{values}def f(n): return {expected!r}", **options)
    assert judge(program, reference).status == status


def test_a_method_of_solution_is_found(judge):
    tests = Calls(entry_point="twice", inputs=[[2], [(1,)]], expected=[4, (1, 1)])
    assert judge("class Solution:\n    def twice(self, n): return n * 2", tests).status == "pass"


def test_calls_name_what_is_wrong():
    with pytest.raises(ValueError, match="either"):
        Calls(entry_point="f", inputs=[[1]])
    with pytest.raises(ValueError, match="`compare` is one of equal, set"):
        Calls(entry_point="f", inputs=[[1]], expected=[1], compare="eq")
    with pytest.raises(ValueError, match="2 inputs, but 1"):
        Calls(entry_point="f", inputs=[[1], [2]], expected=[1])


def rows(name: str) -> list[dict]:
    path = DATA / f"{name}.jsonl"
    if not path.exists():
        pytest.skip(f"QUATRO_DATA names no folder with {name}.jsonl")
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(("body", "status"), [(None, "pass"), ("    return None\n", "fail")])
def test_humaneval_passes_with_its_solutions_and_fails_without(each_tier, body, status):
    jobs = []
    for row in rows("humaneval"):
        tests = Asserts(code=[row["test"]], entry_point=row["entry_point"], setup=row["problem"])
        jobs.append(Job(id=row["id"], program=row["problem"] + (body or row["canonical_solution"]), tests=tests))
    assert {verdict.id: verdict for verdict in each_tier.run(jobs) if verdict.status != status} == {}
    assert len(jobs) == 164


# Of mbpp and mbppplus a part; `tests/evals/code/test_grading.py` runs all of their solutions.


@pytest.mark.slow
def test_mbpp_passes_with_its_solutions(sandbox):
    jobs = []
    for row in rows("mbpp")[::5]:
        name = "sum" if row["id"] == "Mbpp/126" else None  # its function is called like one of Python's
        tests = Asserts(code=row["test_list"], setup=row["test_setup_code"], entry_point=name)
        jobs.append(Job(id=row["id"], program=row["canonical_solution"], tests=tests))
    assert {verdict.id: verdict for verdict in sandbox.run(jobs) if verdict.status != "pass"} == {}


# What evalplus compares otherwise, and makes of the inputs, which lose their types in JSON.
SETS = "similar_elements find_char_long common_in_nested_lists extract_singly larg_nnum intersection_array "
SETS += "find_dissimilar Diff"
NOT_NONE = "check_str text_match_three text_starta_endb"
TYPED = {
    "Mbpp/106": lambda a, b: [a, tuple(b)],
    "Mbpp/124": lambda a, b: [complex(a), complex(b)],
    "Mbpp/252": lambda a: [complex(a)],
    "Mbpp/580": lambda a: [nested_tuple(a)],
    "Mbpp/720": lambda a, b: [tuple(a), b],
}


def nested_tuple(value: object) -> object:
    return tuple(map(nested_tuple, value)) if isinstance(value, list) else value


@pytest.mark.slow
def test_mbppplus_passes_with_its_solutions():
    """Those with an oddity, and every fifteenth."""
    jobs = []
    for number, row in enumerate(rows("mbppplus")):
        name = row["entry_point"]
        if number % 15 and not (row["id"] in {*TYPED, "Mbpp/255"} or name in f"{SETS} {NOT_NONE}".split()):
            continue
        inputs = [*row["base_input"], *row["plus_input"]]
        if row["id"] in TYPED:
            inputs = [TYPED[row["id"]](*one) for one in inputs]
        if row["id"] == "Mbpp/255":  # some of its results have a gigabyte
            inputs = [one for one in inputs if math.comb(len(one[0]) + one[1], one[1]) < 100_000]
            assert len(inputs) > 80
        compare = "set" if name in SETS.split() else "truth" if name in NOT_NONE.split() else "equal"
        solution = row["canonical_solution"]
        tests = Calls(entry_point=name, inputs=inputs, reference=solution, atol=row["atol"], compare=compare)
        limits = Limits(timeout_s=60.0, memory_mb=4096, output_mb=256)
        jobs.append(Job(id=row["id"], program=solution, tests=tests, limits=limits))
    with Sandbox() as sandbox:
        assert {verdict.id: verdict for verdict in sandbox.run(jobs) if verdict.status != "pass"} == {}
