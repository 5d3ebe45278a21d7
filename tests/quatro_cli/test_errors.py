"""From exceptions to messages and exit codes."""

import errno
import re
import shlex
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from evals import errors as kinds
from evals.errors import how_to_install, with_pages
from quatro_cli.app import foreign_evals, report
from tests.kit import says

ROOT = Path(__file__).parents[2]


MEMORY = "microbatch_tokens"
TORCH_MEMORY = type("OutOfMemoryError", (RuntimeError,), {})


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (kinds.UsageError("delta is 0"), 2, "error: delta is 0\n"),
        (kinds.MissingError("delta is 0"), 3, "error: delta is 0\n"),
        (kinds.DataError("delta is 0"), 4, "error: delta is 0\n"),
        (kinds.DivergedError("delta is 0"), 5, "error: delta is 0\n"),
        (kinds.PartialFailureError("delta is 0"), 6, "error: delta is 0\n"),
        (kinds.LockedError("delta is 0"), 75, "error: delta is 0\n"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (PermissionError(errno.EACCES, "Permission denied", "/x/m.jsonl"), 1, "error: Permission denied: /x/m.jsonl\n"),
        (TORCH_MEMORY("CUDA out of memory"), 1, MEMORY),
        (MemoryError(), 1, MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 1, MEMORY),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported asynchronously"), 1, MEMORY),
    ],
    ids=str,
)
def test_fault_36_an_error_has_its_code_and_a_message_without_a_traceback(error, code, said, capsys):
    assert report(error) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("torch", "pip install -e '.[train]'"),
        ("transformers.models", "pip install -e '.[train]'"),
        ("matplotlib", "pip install -e '.[plot]'"),
        ("pandas", "pip install -e ."),
    ],
)
def test_a_missing_package_names_the_command_to_type(module, command, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert report(ModuleNotFoundError(f"No module named {module!r}", name=module)) == 3
    assert command in capsys.readouterr().err


def test_the_command_for_an_extra_is_right_where_it_is_typed(tmp_path, monkeypatch):
    """In the checkout, elsewhere with the checkout's path, and by requirements where we came in a wheel."""
    monkeypatch.chdir(tmp_path)
    assert how_to_install("gym") == f"pip install -e {shlex.quote(f'{ROOT}[gym]')}"
    assert how_to_install() == f"pip install -e {shlex.quote(str(ROOT))}"
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n', encoding="utf-8")
    monkeypatch.setattr("evals.errors._ROOT", tmp_path)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"": project["dependencies"], **project["optional-dependencies"]}
    for extra in ("", "gym", "train"):
        pip, install, *named = shlex.split(how_to_install(extra))
        assert (pip, install) == ("pip", "install")
        assert set(map(Requirement, named)) == set(map(Requirement, wanted[extra]))


def test_pages_are_named_by_the_path_that_they_have_here(tmp_path, monkeypatch):
    said = "docs/methods.md#a-b has more, and docs/none.md"
    assert with_pages(said) == said
    page = tmp_path / "share/doc/quatro/methods.md"
    monkeypatch.setattr("evals.errors._ROOT", tmp_path)
    monkeypatch.setattr("importlib.metadata.files", lambda name: None)
    assert with_pages(said) == said
    entry = type("Entry", (str,), {"name": page.name, "locate": lambda self: page})
    monkeypatch.setattr("importlib.metadata.files", lambda name: [entry("../../share/doc/quatro/methods.md")])
    assert with_pages(said) == f"{page}#a-b has more, and docs/none.md"


def test_nothing_tells_a_user_to_install_our_name_from_an_index():
    """On package indexes it is the name of another project."""
    places = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")]
    for folder in ("docs", "configs", "examples", "evals", "quatro", "quatro_cli", "experiments", "benchmarks"):
        places += [file for file in (ROOT / folder).rglob("*") if file.suffix in (".md", ".yaml", ".py", ".toml")]
    advice = re.compile(r"pip install[^\n`]*[ '\"]quatro(?![\w./-])")
    found = [file for file in places if advice.search(file.read_text(encoding="utf-8"))]
    assert not found


def test_a_missing_module_of_ours_is_a_bug(capsys):
    assert report(ModuleNotFoundError("No module named 'quatro.x'", name="quatro.x")) == 1
    assert "this is a bug" in capsys.readouterr().err


def test_a_bug_comes_with_its_traceback_and_no_control_characters(capsys):
    with pytest.raises(KeyError) as raised:
        {}["key \x1b[2J"]
    assert report(raised.value) == 1
    shown = capsys.readouterr().err
    assert "this is a bug: KeyError" in shown
    assert "Traceback" in shown
    assert "\x1b" not in shown


def test_our_own_evals_is_recognised():
    assert foreign_evals() is None


@pytest.mark.parametrize("files", [["__init__.py"], ["__init__.py", "errors.py"]], ids=["foreign", "laid over ours"])
def test_a_foreign_evals_is_not_ours(tmp_path, monkeypatch, files):
    (tmp_path / "evals").mkdir()
    for name in files:
        (tmp_path / "evals" / name).write_text("x = 1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evals")
    problem = foreign_evals()
    assert problem is not None
    says(problem, tmp_path / "evals/__init__.py", "pip")
