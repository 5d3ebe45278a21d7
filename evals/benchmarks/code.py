"""Rows of code benchmarks, which come in many forms, as rows of one form: `problem`, `entry_point`, `tests`.

| Form | Known by | Tests |
|---|---|---|
| HumanEval | `test`, `entry_point` | a function `check(candidate)` |
| MBPP | `test_list` | assert statements; a `test` beside them (MBPP+ of the Hub) is `plus` |
| evalplus | `base_input` | inputs, whose results the canonical solution gives; `plus_input` is `plus` |
| APPS | `input_output` | standard input and output, or calls of a function |
| ours | `tests` | those of `evals.code.grading`, or a list of assert statements |

The forms of APPS, and of MBPP+ and HumanEval+ of the Hub, are those that public evaluation code reads; the readers have
not met these data.
"""

import ast
import builtins
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from evals.code.grading import SETS, Tests, as_json, asserts, sandbox_tests
from evals.code.programs import parsed
from evals.files.strict_json import refuse, shown
from evals.sandbox import Calls, Stdio
from evals.sandbox.jobs import Compare

Values = Mapping[str, Any]
_TEXT_FIELDS = ("problem", "prompt", "question", "text")
_ID_FIELDS = ("id", "task_id", "problem_id")
_LONGEST_REASON = 300
# Small columns that people group results by.
_KEPT = ("difficulty", "split")
# Their results have the order of a set, which differs from program to program, though their asserts do not say so.
_AS_SETS = {"Mbpp/579", "Mbpp/769"}
# Complex numbers, which JSON holds as texts.
_COMPLEX = {"Mbpp/124", "Mbpp/252"}
# Mbpp/255 asks for all combinations; some of its inputs have results of a gigabyte.
_MOST_COMBINATIONS = 100_000
# HumanEval/32 asks for a root: any will do, so its tests are about the polynomial and not about a result.
_IS_ROOT = """
def _is_root(coefficients, x, atol):
    return abs(sum(c * x ** power for power, c in enumerate(coefficients))) <= atol
"""


def row_of(values: Values, at: str) -> dict[str, Any]:
    """The row with the columns id (if it has one), problem, answer (null), entry_point, tests and what is kept.

    ``tests`` is None if the row has no tests.

    Raises DataError if the row is of none of the forms above, or incomplete; the message starts with ``at``.
    """
    read = next((reader for column, reader in _READERS.items() if column in values), None)
    if read is None:
        refuse(at, f"has no tests; expected a field named {', '.join(_READERS)}, found {shown(list(values))}")
    try:
        row = {"problem": _text(values), "entry_point": values.get("entry_point"), **read(values)}
        for name in SETS:
            if row["tests"] and name in row["tests"]:
                sandbox_tests(row["tests"][name], row["entry_point"])
    except (AttributeError, KeyError, SyntaxError, TypeError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        refuse(at, f"its tests cannot be read: {ascii(why)[1:-1][:_LONGEST_REASON]}; docs/code.md shows their forms")
    id = next((values[name] for name in _ID_FIELDS if name in values), None)
    if id is not None:
        row["id"] = f"Mbpp/{id}" if isinstance(id, int) and "test_list" in values else id
    if "tests" in values:  # a user's own columns
        kept = {name: value for name, value in values.items() if name not in (*_TEXT_FIELDS, *_ID_FIELDS)}
        row = {**kept, **row}
    row |= {name: values[name] for name in _KEPT if name in values} | {"answer": None}
    return {name: value for name, value in row.items() if value is not None or name in ("answer", "tests")}


def _text(values: Values) -> str:
    return next((values[name] for name in _TEXT_FIELDS if name in values), "")


def _ours(values: Values) -> Values:
    tests = values["tests"]
    if isinstance(tests, list):
        ast.parse("\n".join(map(str, tests)), "tests")
        tests = asserts(tests, setup=values.get("setup", "")) if tests else None
    if isinstance(tests, dict) and "kind" in tests:
        tests = {"base": tests}
    if tests and not (isinstance(tests, dict) and "base" in tests and tests.keys() <= set(SETS)):
        raise ValueError(f"`tests` is a list of assert statements or has the keys {' and '.join(SETS)}")
    return {"tests": tests or None}


def _humaneval(values: Values) -> Values:
    # The prompt may define functions and imports that the tests use.
    return {"tests": {"base": asserts([values["test"]], setup=_text(values))}}


def _mbpp(values: Values) -> Values:
    test_list = list(values["test_list"])
    setup = values.get("test_setup_code") or "\n".join(values.get("test_imports", ()))
    solution = values.get("canonical_solution") or values.get("code") or ""
    tests = {"base": asserts(test_list, setup=setup)} if test_list else None
    if tests and values.get("test"):
        tests["plus"] = asserts([values["test"]], setup=setup)
    text = _text(values)
    if not text.lstrip().startswith('"""'):  # the name of the function stands in the tests alone
        text = '"""\n' + "\n".join([text.strip(), *test_list]) + '\n"""\n'
    return {"problem": text, "tests": tests, "entry_point": _tested_name(solution, test_list)}


def _tested_name(solution: str, test_list: list[str]) -> str | None:
    """The function that the tests call and the solution defines; None if that is not clear."""
    program, tests = _parsed(solution), _parsed("\n".join(test_list))
    if program is None or tests is None:
        return None
    defined = {node.name for node in program.body if isinstance(node, ast.FunctionDef)}
    called = [
        node.func.id for node in ast.walk(tests) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    for is_it in (defined.__contains__, lambda name: not hasattr(builtins, name)):
        if found := next(filter(is_it, called), None):
            return found
    return None


def _evalplus(values: Values) -> Values:
    id, name = values.get("id", values.get("task_id")), values["entry_point"]
    solution = values["canonical_solution"]
    if f"def {name}(" not in solution:
        solution = _text(values) + solution
    shown_asserts = _Shown(f"{values.get('assertion') or ''}\n{_text(values)}", name)
    compare: Compare = "set" if id in _AS_SETS else shown_asserts.compare

    def tests_of(inputs: list[Any]) -> Tests:
        if id == "HumanEval/32":
            atol = values.get("atol") or 1e-4
            code = [f"assert _is_root(*{given!r}, find_zero(*{given!r}), {atol!r})" for given in inputs]
            return asserts(code, setup=_IS_ROOT)
        if id == "Mbpp/255":
            inputs = [one for one in inputs if math.comb(len(one[0]) + one[1], one[1]) < _MOST_COMBINATIONS]
        if id in _COMPLEX:
            inputs = [list(map(complex, one)) for one in inputs]
        typed = [shown_asserts.typed(one) for one in inputs]
        atol = values.get("atol") or 0.0
        return as_json(Calls(entry_point=name, inputs=typed, reference=solution, atol=atol, compare=compare))

    tests = {"base": tests_of(values["base_input"])}
    if values.get("plus_input"):
        tests["plus"] = tests_of(values["plus_input"])
    return {"tests": tests}


class _Shown:
    """What assert statements about the function ``name`` show: how results compare, and where a list was a tuple.

    The inputs of evalplus are JSON, in which every tuple became a list; the asserts of the same problem are Python.
    """

    def __init__(self, text: str, name: str) -> None:
        self._tuples: dict[tuple[int, int], bool] = {}  # by argument and depth: whether all of its sequences are tuples
        statements = [line.strip() for line in text.splitlines() if line.strip().startswith("assert ")]
        trees = [tree.body[0] for tree in map(_parsed, statements) if tree is not None and tree.body]
        called = [
            node
            for tree in trees
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        ]
        for call in called:
            for index, argument in enumerate(call.args):
                self._look(index, 0, argument)
        self.compare: Compare = "equal"
        if any("assert set(" in statement for statement in statements):
            self.compare = "set"
        elif trees and all(isinstance(tree, ast.Assert) and _is_bare(tree.test, name) for tree in trees):
            self.compare = "truth"

    def _look(self, index: int, depth: int, node: ast.expr) -> None:
        if isinstance(node, ast.List | ast.Tuple):
            place = index, depth
            self._tuples[place] = self._tuples.get(place, True) and isinstance(node, ast.Tuple)
            for part in node.elts:
                self._look(index, depth + 1, part)
        elif isinstance(node, ast.Dict):
            for part in node.values:
                self._look(index, depth + 1, part)

    def typed(self, arguments: list[Any]) -> list[Any]:
        """The arguments with tuples where the asserts have them; a depth that they do not show is like the last."""
        return [self._typed(index, 0, value, False) for index, value in enumerate(arguments)]

    def _typed(self, index: int, depth: int, value: Any, above: bool) -> Any:
        if isinstance(value, dict):
            return {key: self._typed(index, depth + 1, part, above) for key, part in value.items()}
        if not isinstance(value, list):
            return value
        is_tuple = self._tuples.get((index, depth), above)
        parts = [self._typed(index, depth + 1, part, is_tuple) for part in value]
        return tuple(parts) if is_tuple else parts


def _parsed(text: str) -> ast.Module | None:
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _is_bare(test: ast.expr, name: str) -> bool:
    """Whether the test is the call alone, or its negation."""
    call = test.operand if isinstance(test, ast.UnaryOp) else test
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name


def _apps(values: Values) -> Values:
    text, starter = _text(values), values.get("starter_code") or ""
    problem = text.rstrip() + "\n\n" + starter if starter.strip() else text
    found = values["input_output"]
    if isinstance(found, str):
        found = json.loads(found) if found.strip() else {}
    inputs, outputs = found.get("inputs") or [], found.get("outputs") or []
    if len(inputs) != len(outputs):
        raise ValueError(f"{len(inputs)} inputs and {len(outputs)} outputs")
    if not inputs:
        return {"problem": problem, "tests": None}
    name = found.get("fn_name")
    if name is not None:
        tests = as_json(Calls(entry_point=name, inputs=inputs, expected=outputs, compare="json or first"))
    else:
        cases = [(_lines(given), _lines(wanted)) for given, wanted in zip(inputs, outputs, strict=True)]
        tests = as_json(Stdio(cases=cases, atol=1e-6))
    return {"problem": problem, "entry_point": name, "tests": {"base": tests}}


def _lines(value: Any) -> str:
    """One text, also where a data set lists its lines."""
    return "\n".join(map(str, value)) + "\n" if isinstance(value, list) else str(value)


_READERS: dict[str, Callable[[Values], Values]] = {
    "tests": _ours,
    "base_input": _evalplus,
    "test_list": _mbpp,
    "input_output": _apps,
    "test": _humaneval,
}
