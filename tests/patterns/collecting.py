"""Every regular expression of the three packages, how it is used, and where it stands."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = ("evals", "quatro", "quatro_cli")
METHODS = ("match", "search", "fullmatch", "finditer", "findall", "sub", "subn", "split")
# Patterns that an object holds, by the place of their call: the objects.
OF_OBJECTS = {
    ("quatro/tasks/warm_start.py", "self.pattern"): [
        f"quatro.tasks.{name}:VOCABULARY.pattern" for name in ("codegrammar", "characters")
    ],
}


class Found(NamedTuple):
    """``methods``: which of a pattern's are called; all of them where a module only keeps the pattern."""

    where: str
    pattern: re.Pattern[Any]
    methods: tuple[str, ...]


def patterns() -> Iterator[Found]:
    """The patterns of all calls of `re`, and those that modules hold."""
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    sources = {path.relative_to(ROOT): path.read_text("utf-8") for path in files}
    used: dict[str, set[str]] = {}
    for source in sources.values():
        for name, method in re.findall(rf"\b(\w+)\.({'|'.join(METHODS)})\b", source):
            used.setdefault(name, set()).add(method)
    for path, source in sources.items():
        nodes = ast.walk(ast.parse(source)) if "import re\n" in source else ()
        calls = [node for node in nodes if isinstance(node, ast.Call) and _method_of_re(node)]
        if not calls:
            continue
        module = importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        names = {id(pattern): name for name, pattern in vars(module).items() if isinstance(pattern, re.Pattern)}
        for call in calls:
            method = _method_of_re(call)
            if (objects := OF_OBJECTS.get((str(path), ast.unparse(call.args[0])))) is not None:
                for name in objects:
                    yield Found(f"{path}:{call.lineno} {name}", re.compile(pkgutil.resolve_name(name)), (method,))
                continue
            pattern = _pattern_of(call, module)
            name = names.get(id(pattern), "")
            methods = sorted(used.get(name, METHODS)) if method == "compile" else [method]
            yield Found(f"{path}:{call.lineno} {name}".strip(), pattern, tuple(methods))


def _method_of_re(call: ast.Call) -> str:
    """The function of `re` that ``call`` calls with a pattern; empty if it is none."""
    match call.func:
        case ast.Attribute(value=ast.Name(id="re"), attr=name) if name in (*METHODS, "compile"):
            return name
    return ""


def _pattern_of(call: ast.Call, module: ModuleType) -> re.Pattern[Any]:
    """The pattern of a call; what only a run knows of it is a letter here."""
    source = _Known(module).visit(call.args[0])
    at = {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(_method_of_re(call), 2)
    flags = [one.value for one in call.keywords if one.arg == "flags"] + call.args[at : at + 1]
    return re.compile(_value(source, module), _value(flags[0], module) if flags else 0)


def _value(node: ast.AST, module: ModuleType) -> Any:
    code = compile(ast.fix_missing_locations(ast.Expression(node)), "pattern", "eval")  # type: ignore[arg-type]
    return eval(code, vars(module))


class _Known(ast.NodeTransformer):
    """Puts a letter in the place of names that are no module's."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.AST:
        return node if self._is_known(node.value) else ast.Constant("x")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node if self._is_known(node) else ast.Constant("x")

    def visit_Call(self, node: ast.Call) -> ast.AST:
        return node if self._is_known(node) else ast.Constant("x")

    def _is_known(self, node: ast.AST) -> bool:
        try:
            _value(node, self.module)
        except NameError:
            return False
        return True
