"""The house in figures: its size, its rooms and floors, its circles, and how many files a run enters.

    python benchmarks/house.py                  # of this checkout
    python benchmarks/house.py --static         # without the two runs (some seconds)

Lines and imports are read from syntax trees, imports for type checking included. A room is a folder or a loose file
that lies directly in a package; its floor is the longest way down through what it imports. Two real runs are watched
with `sys.setprofile`: `quatro train quickstart --steps 2` up to the first step of the optimiser, and
`quatro eval ucc FILE`. Counted are the files of the three packages of which a function is called (imports do not
count), and the returns: functions in the order of their first call, how often the next one lies in another file that
was visited before.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("quatro", "evals", "quatro_cli")
LONG = 80

WATCHED = """
import json, runpy, sys
from pathlib import Path
root, target, until, *words = json.loads(sys.argv[1])
order, known = [], set()
def watch(frame, event, argument):
    if event != "call":
        return
    code = frame.f_code
    if until and code.co_name == "step" and "/torch/optim/" in code.co_filename:
        sys.setprofile(None)
        return
    if not code.co_filename.startswith(root) or code.co_name.startswith("<module") or code in known:
        return
    parent = code.co_filename[len(root):].split("/")[0]
    caller = frame.f_back
    if parent in ("quatro", "evals", "quatro_cli") and not (caller and caller.f_code.co_name == "<module>"):
        known.add(code)
        order.append(code.co_filename[len(root):])
from quatro_cli.app import main
sys.argv = ["quatro", *words]
sys.setprofile(watch)
try:
    main()
except SystemExit:
    pass
sys.setprofile(None)
Path(target).write_text(json.dumps(order))
"""


def trees() -> dict[str, ast.Module]:
    """The syntax tree of each module of the packages, by its dotted name."""
    found = {}
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def imports(found: dict[str, ast.Module], *, with_functions: bool) -> dict[str, set[str]]:
    """The modules of the packages that each module imports; those inside functions only ``with_functions``."""
    arrows: dict[str, set[str]] = {}
    for name, tree in found.items():
        inner = {
            id(node)
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
        }
        targets = set()
        for node in ast.walk(tree):
            if id(node) in inner and not with_functions:
                continue
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                targets |= {f"{node.module}.{alias.name}" for alias in node.names}
        arrows[name] = {target for one in targets if (target := _module(one, found)) and target != name}
    return arrows


def _module(name: str, found: dict[str, ast.Module]) -> str:
    while name and name not in found:
        name = name.rpartition(".")[0]
    return name


def circles(arrows: dict[str, set[str]]) -> list[set[str]]:
    """The groups of modules, or rooms, that import each other in a circle (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows.get(name, ())):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = set(stack[stack.index(name) :])
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(group)

    sys.setrecursionlimit(10_000)
    for name in arrows:
        if name not in index:
            visit(name)
    return found


def room_of(module: str) -> str:
    """`quatro.loop` for `quatro.loop.draw`; a package's own `__init__` is a room too."""
    return ".".join(module.split(".")[:2])


def floors(arrows: dict[str, set[str]], package: str) -> int:
    """The number of floors of a package: the longest way down through its rooms, circles counted once."""
    rooms: dict[str, set[str]] = {}
    for name, targets in arrows.items():
        room = room_of(name)
        if room.split(".")[0] == package and room != package:
            below = {room_of(target) for target in targets if target.split(".")[0] == package}
            rooms.setdefault(room, set()).update(below - {room, package})
    for circle in circles(rooms):
        for room in circle:
            rooms[room] -= circle
    depth: dict[str, int] = {}

    def deep(room: str) -> int:
        if room not in depth:
            depth[room] = 1 + max(map(deep, rooms.get(room, ())), default=0)
        return depth[room]

    return max(map(deep, rooms))


def functions(found: dict[str, ast.Module]) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for name, tree in found.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{name}.{node.name}", node


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """How many parameters, but for `self`; a command's are its options, and are counted apart."""
    arguments = node.args
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def lines_of(folder: str, *endings: str) -> int:
    paths = (path for ending in endings for path in (ROOT / folder).rglob(f"*{ending}"))
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def watched(words: list[str], *, until_step: bool, folder: str) -> tuple[int, int, int]:
    """(files entered, functions, returns) of one command."""
    target = Path(folder) / "order.json"
    asked = json.dumps([f"{ROOT}/", str(target), until_step, *words])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, asked], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    if not target.is_file():
        raise SystemExit(f"quatro {' '.join(words)} did not run:\n{done.stderr}")
    order = json.loads(target.read_text(encoding="utf-8"))
    moves = sum(one != other for one, other in pairwise(order)) + 1
    return len(set(order)), len(order), moves - len(set(order))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--static", action="store_true", help="leave out the two runs")
    options = parser.parse_args()
    found = trees()
    arrows = imports(found, with_functions=False)
    rows = [("lines of Python: " + ", ".join(PACKAGES), ", ".join(f"{lines_of(name, '.py'):,}" for name in PACKAGES))]
    rows.append(("together", f"{sum(lines_of(name, '.py') for name in PACKAGES):,}"))
    rows.append(("JavaScript, CSS and HTML", f"{sum(lines_of(name, '.js', '.css', '.html') for name in PACKAGES):,}"))
    others = ("experiments", "benchmarks", "examples")
    rows.append((", ".join(others), f"{sum(lines_of(name, '.py') for name in others):,}"))
    rows.append(("tests", f"{lines_of('tests', '.py'):,}"))
    rows.append(("files", f"{len(found)}"))
    doors = {name: {room_of(module) for module in found if module.startswith(f"{name}.")} for name in PACKAGES}
    rows.append(("rooms at the door", ", ".join(f"{name} {len(doors[name])}" for name in PACKAGES)))
    rows.append(("floors", ", ".join(f"{name} {floors(arrows, name)}" for name in PACKAGES)))
    rows.append(("circles of modules", "; ".join(", ".join(sorted(one)) for one in circles(arrows)) or "none"))
    all_functions = list(functions(found))
    long = [
        f"{name} {node.end_lineno - node.lineno + 1}"
        for name, node in all_functions
        if node.end_lineno - node.lineno + 1 > LONG
    ]  # type: ignore[operator]
    rows.append((f"functions over {LONG} lines", ", ".join(long) or "none"))
    signatures = sorted(
        ((parameters(node), name) for name, node in all_functions if "quatro_cli" not in name), reverse=True
    )
    rows.append(("longest signatures", ", ".join(f"{name} {count}" for count, name in signatures[:3])))
    if not options.static:
        with tempfile.TemporaryDirectory() as folder:
            words = ["train", "quickstart", "--steps", "2", "-o", "run"]
            files, number, _ = watched(words, until_step=True, folder=folder)
            rows.append(("files entered until the first weight moves", f"{files} ({number} functions)"))
            texts = [f"\\boxed{{{at % 3}}}" for at in range(40)]
            where = [{"benchmark": "toy", "id": f"p{at // 4}", "sample_index": at % 4} for at in range(40)]
            samples = [{**at, "completion": text, "answer": "1"} for at, text in zip(where, texts, strict=True)]
            text = "".join(json.dumps(row) + "\n" for row in samples)
            (Path(folder) / "samples.jsonl").write_text(text, encoding="utf-8")
            words = ["eval", "ucc", "samples.jsonl", "--k", "1,4"]
            files, number, returns = watched(words, until_step=False, folder=folder)
            rows.append(("eval ucc FILE: files, returns", f"{files}, {returns} ({number} functions)"))
            code = "import sys; from quatro_cli.app import main; sys.argv = ['quatro', *sys.argv[1:]]\n"
            code += "try: main()\nexcept SystemExit: pass\n"
            code += "print(sum(name.split('.')[0] in ('quatro', 'evals', 'quatro_cli') for name in sys.modules))"
            command = [sys.executable, "-c", code, *words]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
            rows.append(("modules of ours imported by it", done.stdout.split()[-1]))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    main()
