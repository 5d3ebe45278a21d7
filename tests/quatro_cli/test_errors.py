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
from evals.errors import how_to_install
from quatro_cli import errors

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (kinds.UsageError, 2),
        (kinds.MissingError, 3),
        (kinds.DataError, 4),
        (kinds.DivergedError, 5),
        (kinds.PartialFailureError, 6),
        (kinds.LockedError, 75),
    ],
)
def test_our_errors_carry_their_exit_code_and_message(kind, code, capsys):
    assert errors.report(kind("delta is 0, expected a positive number")) == code
    captured = capsys.readouterr()
    assert captured.err == "error: delta is 0, expected a positive number\n"
    assert captured.out == ""


def test_an_interrupt_is_130(capsys):
    assert errors.report(KeyboardInterrupt()) == 130
    assert "Traceback" not in capsys.readouterr().err


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
    assert errors.report(ModuleNotFoundError(f"No module named {module!r}", name=module)) == 3
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


def test_nothing_tells_a_user_to_install_our_name_from_an_index():
    """On package indexes it is the name of another project."""
    places = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")]
    for folder in ("docs", "configs", "examples", "evals", "quatro", "quatro_cli", "experiments", "benchmarks"):
        places += [file for file in (ROOT / folder).rglob("*") if file.suffix in (".md", ".yaml", ".py", ".toml")]
    advice = re.compile(r"pip install[^\n`]*[ '\"]quatro(?![\w./-])")
    found = [file for file in places if advice.search(file.read_text(encoding="utf-8"))]
    assert not found


def test_a_missing_module_of_ours_is_a_bug(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert errors.report(ModuleNotFoundError("No module named 'quatro.x'", name="quatro.x")) == 1
    assert "this is a bug" in capsys.readouterr().err


def test_a_bug_is_short_on_the_terminal_and_whole_in_a_file(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("QUATRO_DEBUG", raising=False)
    with pytest.raises(KeyError) as raised:
        {}["key \x1b[2J"]
    assert errors.report(raised.value) == 1
    shown = capsys.readouterr().err
    (file,) = tmp_path.iterdir()
    assert "this is a bug: KeyError" in shown
    assert str(file) in shown
    assert "Traceback" not in shown
    assert "\x1b" not in shown
    assert "Traceback" in file.read_text(encoding="utf-8")


def test_debug_mode_shows_the_traceback(capsys, monkeypatch):
    monkeypatch.setenv("QUATRO_DEBUG", "1")
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018 - the traceback is the point
    errors.report(raised.value)
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /dev/full")
def test_a_full_disk_names_the_file_although_write_does_not(capsys):
    with open("/dev/full", "wb", buffering=0) as file:
        with pytest.raises(OSError, match="No space") as raised:
            file.write(b"x")
        assert raised.value.filename is None
        assert errors.report(raised.value) == 1
    assert capsys.readouterr().err == "error: No space left on device: /dev/full\n"


def test_an_io_error_names_its_file(capsys):
    assert errors.report(PermissionError(errno.EACCES, "Permission denied", "/x/metrics.jsonl")) == 1
    assert capsys.readouterr().err == "error: Permission denied: /x/metrics.jsonl\n"


def test_fault_36_out_of_memory_comes_with_a_hint(capsys):
    kind = type("OutOfMemoryError", (RuntimeError,), {})
    for error in (
        kind("CUDA out of memory"),
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported asynchronously"),
    ):
        assert errors.report(error) == 1
        assert "microbatch_tokens" in capsys.readouterr().err


def test_our_own_evals_is_recognised():
    assert errors.foreign_evals() is None


def test_a_foreign_evals_is_not_ours(tmp_path, monkeypatch):
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/__init__.py").write_text("from .api import CompletionFn\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evals")
    problem = errors.foreign_evals()
    assert problem is not None
    assert str(tmp_path) in problem
    assert "pip" in problem


def test_a_foreign_init_laid_over_our_files_is_noticed(tmp_path, monkeypatch):
    (tmp_path / "evals").mkdir()
    (tmp_path / "evals/__init__.py").write_text("x = 1\n", encoding="utf-8")
    (tmp_path / "evals/errors.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evals")
    assert errors.foreign_evals() is not None
