"""The layering: who may import whom, and what starting the command line loads."""

import ast
import functools
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("evals", "quatro", "quatro_cli")
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]

HEAVY = {"torch", "transformers", "pandas", "sklearn", "pydantic", "numpy", "matplotlib", "rich", "yaml", "scipy"}
HEAVY |= {"reasoning_gym"}
# What may stand in one file only, or in one folder.
ONLY_IN = {
    "vllm": "quatro/rollout/vllm.py",
    "deepspeed": "quatro/policy/deepspeed.py",
    "httpx": "evals/servers.py",
    "rich": "quatro_cli/output.py",
    "reasoning_gym": "evals/benchmarks/gym/",
    "verl": "quatro/integrations/",
    "ray": "quatro/integrations/",
    "trl": "quatro/integrations/",
    "inspect_ai": "evals/plugins/inspect_ai.py",
    "lighteval": "evals/plugins/lighteval.py",
    "lm_eval": "evals/plugins/lm_eval.py",
}
# Rooms (folders, and files at the door) from the ground up: one may import what lies on lower floors only.
FLOORS = {
    "evals": [
        ["errors", "estimators", "text", "worker_pool"],
        ["files", "grading", "intervals", "sandbox"],
        ["servers"],
        ["code", "similarity"],
        ["benchmarks", "clustering"],
        ["results"],
        ["samples"],
        ["metrics"],
        ["tables"],
        ["figures"],
        ["plugins", "report"],
    ],
    "quatro": [
        ["dual", "registry", "tasks", "types"],
        ["ops", "processes", "rewards"],
        ["methods"],
        ["config"],
        ["policy"],
        ["runs", "rollout"],
        ["loop", "sample"],
        ["launch", "sweep"],
        ["rehearse", "train"],
        ["api", "integrations"],  # other people's engines import us: no room imports them
    ],
}
MOST_ROOMS = 20
# What no room of these may import besides: folder -> rooms.
NEVER = {
    "quatro/methods": {"rollout", "processes", "rewards"},  # a method is mathematics
    "quatro/policy": {"runs", "rehearse"},  # weights know nothing of folders of runs
    "quatro/loop": {"rehearse"},  # what is rehearsed is what runs
    "quatro/rollout": {"rehearse"},
    "quatro/sweep": {"launch", "loop", "policy", "train"},  # it starts processes that do
}
# Rooms and files of `quatro` that configuration and planning use.
WITHOUT_TORCH = (
    "quatro/__init__.py",
    "quatro/config",
    "quatro/sweep",
    "quatro/sample",
    "quatro/runs",
    "quatro/methods",
    "quatro/rewards",
    "quatro/types.py",
    "quatro/registry.py",
    "quatro/processes/stop.py",
    "quatro/launch/begin.py",
    "quatro/policy/kinds.py",
    "quatro/rollout/engine.py",
    "quatro/rollout/server.py",
)
ANYWHERE, AT_THE_TOP = True, False
# What files in these places must not import, anywhere or outside functions.
RULES = {
    "evals stands alone": (
        ("evals/",),
        {"torch", "transformers", "vllm", "deepspeed", "quatro", "quatro_cli", "typer", "rich", "click"},
        ANYWHERE,
    ),
    "quatro has no command line": (("quatro/",), {"quatro_cli", "typer", "rich", "click"}, ANYWHERE),
    "Typer brings a click of its own": (("quatro_cli/",), {"click"}, ANYWHERE),
    "nothing needs what is not installed": (("evals/", "quatro/", "quatro_cli/"), {"experiments", "tests"}, ANYWHERE),
    "planning needs no torch": (WITHOUT_TORCH, {"torch", "transformers"}, AT_THE_TOP),
    "commands load what is heavy when they run": (("quatro_cli/",), HEAVY | {"evals", "quatro"}, AT_THE_TOP),
    "few commands need these": (
        ("evals/", "quatro/", "quatro_cli/"),
        {"matplotlib", "pandas", "sklearn", "rouge_score"},
        AT_THE_TOP,
    ),
    "a method is mathematics": (
        ("quatro/methods/",),
        {"os", "io", "pathlib", "time", "datetime", "logging", "subprocess", "tempfile", "shutil", "random", "socket"},
        ANYWHERE,
    ),
}


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imports(path: Path, *, in_functions: bool = True, for_types: bool = True) -> frozenset[str]:
    """Dotted names that a file imports, inside functions and under `if TYPE_CHECKING` too where they count."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write the whole name"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        if not in_functions and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return
        is_for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for child in node.orelse if is_for_types and not for_types else ast.iter_child_nodes(node):
            visit(child)

    visit(tree_of(path))
    return frozenset(found)


def at_the_top(path: Path) -> frozenset[str]:
    return imports(path, in_functions=False, for_types=False)


def roots(names: Collection[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize(("places", "forbidden", "where"), RULES.values(), ids=RULES)
def test_what_must_not_be_imported(places, forbidden, where):
    files = {relative(path): path for path in FILES}
    assert [place for place in places if not any(name.startswith(place) for name in files)] == []
    found = {
        name: roots(imports(path) if where is ANYWHERE else at_the_top(path)) & forbidden
        for name, path in files.items()
        if name.startswith(places)
    }
    assert {name: what for name, what in found.items() if what} == {}


def room(name: str) -> str:
    """`quatro.loop` of `quatro.loop.draw`."""
    return ".".join(name.split(".")[:2])


def module_name(path: Path) -> str:
    return relative(path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


MODULES = {module_name(path): path for path in FILES}


def modules_among(names: Collection[str]) -> set[str]:
    """Our modules that these dotted names are, or are of."""
    found = set()
    for name in names:
        while name and name not in MODULES:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {""}


def rooms_imported(name: str) -> set[str]:
    """Rooms of the same package that a module imports anywhere, inside functions and under TYPE_CHECKING too."""
    package = name.split(".")[0]
    others = {room(other) for other in modules_among(imports(MODULES[name])) if other.startswith(f"{package}.")}
    return others - {room(name)}


@pytest.mark.parametrize("package", FLOORS)
def test_every_room_stands_on_lower_floors_only(package):
    floor_of = {f"{package}.{name}": number for number, names in enumerate(FLOORS[package]) for name in names}
    rooms = {room(name) for name in MODULES if name.startswith(f"{package}.")}
    assert rooms == set(floor_of), "FLOORS lists every room"
    assert len(rooms) <= MOST_ROOMS
    upwards = [
        f"{name} imports {other}"
        for name in MODULES
        if name.startswith(f"{package}.")
        for other in rooms_imported(name)
        if floor_of[other] >= floor_of[room(name)]
    ]
    assert upwards == []


def test_nothing_here_imports_the_plugins_of_other_harnesses():
    users = {name for name, path in MODULES.items() if any(one.startswith("evals.plugins.") for one in imports(path))}
    assert users == {f"evals.plugins.{name}" for name in ("inspect_ai", "lighteval", "lm_eval")}


@pytest.mark.parametrize("folder", NEVER)
def test_what_a_room_must_not_know(folder):
    forbidden = {f"quatro.{name}" for name in NEVER[folder]}
    inside = [name for name, path in MODULES.items() if relative(path).startswith(f"{folder}/")]
    assert inside
    assert {name: found for name in inside if (found := rooms_imported(name) & forbidden)} == {}


def test_a_run_on_disk_knows_nothing_of_what_is_shown_of_it():
    on_disk = [path for path in FILES if path.parent == ROOT / "quatro/runs"]
    assert on_disk
    assert [path for path in on_disk if any("quatro.runs.views" in name for name in imports(path))] == []


def test_every_folder_is_a_package_that_is_installed():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    folders = {path.parent for path in FILES}
    assert [relative(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
    assert set(settings["packages"]) - {"quatro._configs"} == {relative(folder).replace("/", ".") for folder in folders}
    data = {
        path
        for name, patterns in settings["package-data"].items()
        for pattern in patterns
        for path in (ROOT / name.replace(".", "/")).glob(pattern)
    }
    others = {path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()} - set(FILES)
    assert {relative(path) for path in others - data if "__pycache__" not in path.parts} == set()


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Names that can be reached from themselves."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            for name in arrows.get(waiting.pop(), set()) - found:
                found.add(name)
                waiting.append(name)
        return found

    return [name for name in arrows if name in reached(name)]


def test_there_is_no_import_circle():
    """Imports under TYPE_CHECKING count; those inside functions do not, nor a package that hands on its own files."""
    files = {name: path for name, path in MODULES.items() if path.name != "__init__.py"}
    arrows = {
        name: modules_among(imports(path, in_functions=False)) & files.keys() - {name} for name, path in files.items()
    }
    assert circles(arrows) == []
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]


def test_some_packages_have_one_home():
    assert [
        f"{relative(path)}: {name} belongs in {home}"
        for path in FILES
        for name, home in ONLY_IN.items()
        if name in roots(imports(path)) and not relative(path).startswith(home)
    ] == []


def test_grading_starts_no_process_and_rewards_and_the_sandbox_have_theirs_from_one_pool():
    pools = {"subprocess", "multiprocessing", "concurrent.futures.ProcessPoolExecutor", "concurrent.futures.process"}
    graders = (
        "evals/grading/",
        "evals/code/",
        "evals/samples/",
        "evals/benchmarks/",
        "quatro/rewards/",
        "quatro/loop/",
    )
    assert {
        relative(path): found
        for path in FILES
        if relative(path).startswith(graders)
        and (found := {name for name in imports(path) if name.startswith(tuple(pools))})
    } == {}
    users = {name for name in MODULES if "evals.worker_pool" in modules_among(imports(MODULES[name]))}
    assert {"quatro.rewards.function", "evals.sandbox.pool"} <= users


def test_the_checker_sees_an_import_wherever_it_stands(tmp_path):
    file = tmp_path / "x.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n"
        "def f():\n    from vllm.engine import LLM\nclass A:\n    import rich\n",
        encoding="utf-8",
    )
    assert roots(imports(file)) == {"typing", "torch", "vllm", "rich"}
    assert roots(at_the_top(file)) == {"typing", "rich"}
    assert roots(imports(file, in_functions=False)) == {"typing", "torch", "rich"}


def loaded_by(*arguments: str, whole: bool = False) -> set[str]:
    """Top-level modules in sys.modules after `quatro ARGUMENTS` ran to its end; or ``whole`` names of all modules."""
    code = (
        "import sys\nsys.argv = ['quatro', *sys.argv[1:]]\nfrom quatro_cli.app import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\nMODULES', *sorted(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    names = done.stdout.rsplit("MODULES ", 1)[1].split()
    return set(names) if whole else {name.split(".")[0] for name in names}


def test_help_loads_nothing_heavy():
    assert loaded_by("--help") & (HEAVY | {"click"}) == set()


@pytest.mark.parametrize("arguments", [("train", "--help"), ("eval", "ucc", "--help")])
def test_help_of_a_command_loads_only_what_typer_loads(arguments):
    # Typer itself uses pydantic to describe some options.
    assert loaded_by(*arguments) & ((HEAVY | {"click"}) - {"pydantic"}) == set()


def test_a_dry_run_of_a_sweep_loads_no_torch(tmp_path):
    loaded = loaded_by("sweep", "quickstart", "-g", "method.delta=0.1,0.01", "--dry-run", "-o", str(tmp_path / "sweep"))
    assert "pydantic" in loaded
    assert loaded.isdisjoint({"torch", "transformers"})


def test_measuring_mathematics_loads_neither_the_sandbox_nor_tasks_that_are_made(tmp_path):
    row = {"benchmark": "b", "id": "1", "sample_index": 0, "completion": "\\boxed{1}", "answer": "1"}
    (tmp_path / "s.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    loaded = loaded_by("eval", "ucc", str(tmp_path / "s.jsonl"), "--k", "1", whole=True)
    assert "evals.grading" in loaded
    assert loaded.isdisjoint({"evals.sandbox", "evals.code.grading", "evals.benchmarks.gym.items", "quatro.tasks"})


@pytest.mark.slow
def test_training_loads_neither_scikit_learn_nor_pandas(tmp_path):
    loaded = loaded_by(
        *("train", "quickstart", "-s", "steps=1", "-s", "prompts_per_step=2", "-s", "minibatch_prompts=2"),
        *("-s", "rollouts_per_prompt=2", "-o", str(tmp_path / "run")),
    )
    assert "transformers" in loaded
    assert loaded.isdisjoint({"sklearn", "pandas", "nltk"})


def test_the_trainer_never_asks_which_method_it_has():
    """No method's name, and no look at `method.name`, in what drives training."""
    from quatro.registry import METHODS

    drivers = [path for path in (ROOT / "quatro").rglob("*.py") if "methods" not in path.parts]
    # The table of methods, defaults, examples, a default name and what a card or samples say are not decisions.
    may_name = ("quatro/registry.py", "quatro/config/", "quatro/sweep/", "quatro/runs/export/")
    may_name += tuple(f"quatro/runs/{name}.py" for name in ("directory", "views/summary", "views/series"))
    may_name += ("quatro/sample/request.py",)
    for path in drivers:
        if relative(path).startswith(may_name):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "quatro":
                assert node.value not in METHODS, f"{path}:{node.lineno} names the method {node.value!r}"
            if isinstance(node, ast.Compare):  # "quatro" is also the package's name: only a question counts
                assert "'quatro'" not in ast.unparse(node), f"{path}:{node.lineno} asks for the method 'quatro'"
            if isinstance(node, ast.Attribute) and node.attr == "name":
                assert not ast.unparse(node).endswith("method.name"), f"{path}:{node.lineno} looks at method.name"


def test_no_pattern_needs_more_than_every_python_gets_right():
    """Possessive quantifiers and atomic groups match wrongly before Python 3.11.5 (CPython issue 106052)."""

    def has_them(pattern: str) -> bool:
        return bool(
            {"POSSESSIVE_REPEAT", "ATOMIC_GROUP"} & set(re.findall(r"[A-Z_]{5,}", str(re._parser.parse(pattern))))
        )

    assert has_them("a++")
    assert has_them("(?>a)")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args
        if isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        if isinstance(pattern := _constant(node.args[0]), str) and has_them(pattern)
    ]
    assert found == []


def _constant(node: ast.AST) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None  # put together when the module is loaded
