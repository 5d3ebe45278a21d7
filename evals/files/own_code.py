"""Code of the user's own, `module:name`, imported from the current folder, the path, or where it lay before."""

import functools
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from inspect import getattr_static
from pathlib import Path
from types import ModuleType
from typing import Any

from evals.errors import UsageError
from evals.files.whole import file_digest

_SPEC = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
OWN_CODE = "own_code."  # before a module's name, the key of its SHA-256 in environment.json
_imported: list[str] = []  # what `import_own` was asked for
_also: list[str] = []  # the folders that were given to `also_from`


def is_own(name: str) -> bool:
    """Whether ``name`` has the form `module:name`."""
    return _SPEC.fullmatch(name) is not None


def also_from(folder: str | None) -> None:
    """Look in ``folder`` too, after all others: where a run's own code lay when it began."""
    if folder and Path(folder).is_dir() and folder not in sys.path:
        sys.path.append(folder)
        _also.append(folder)


def folders() -> str:
    """Where a module is looked for beside the installed ones, in words: `/here, then /there, where the run began`."""
    others = [f", then {folder}, where the run began" for folder in dict.fromkeys(_also) if folder in sys.path]
    return os.getcwd() + "".join(others)


def recorded(module_name: str) -> dict[str, str]:
    """The file's SHA-256 of a user's module by its key in environment.json; empty for ours, and without a file."""
    file = Path(file_of(module_name))
    is_ours = module_name.startswith(("quatro.", "evals."))
    return {} if is_ours or not file.is_file() else {f"{OWN_CODE}{module_name}": file_digest(file).hexdigest()}


def source_digest(spec: str) -> str | None:
    """The SHA-256 of the file of the module that ``spec`` names, which is not run; None where there is no such file.

    It is looked for as `import_own` does: in the current folder, then on the path.
    """
    module_name = spec.partition(":")[0]
    stem = module_name.replace(".", "/")
    folders = [Path(folder) for folder in (os.getcwd(), *sys.path)]
    places = [Path(file_of(spec)), *(folder / f"{stem}{end}" for folder in folders for end in (".py", "/__init__.py"))]
    file = next((place for place in places if place.is_file()), None)
    return None if file is None else file_digest(file).hexdigest()


def import_own(spec: str, what: str) -> Any:
    """What ``spec``, `module:name`, names; the current folder comes first. ``what`` it is stands in errors.

    Raises UsageError if it cannot be imported, with the reason and where it was looked for.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, _, name = spec.partition(":")
    try:
        module = imported_anew(module_name)
    except (Exception, SystemExit) as error:  # whatever a module of the user's own does when it is imported
        is_absent = isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]
        where = f"; there is no {module_name.partition('.')[0]}.py in {folders()}" if is_absent else ""
        if not is_absent and _frames(error):
            where = f"\n  {line_of_own(error, spec)}"
        raise UsageError(f"{what} {spec!r} cannot be imported: {type(error).__name__}: {error}{where}") from error
    _imported.append(spec)
    try:
        return getattr(module, name)
    except AttributeError:
        raise UsageError(f"{what} {spec!r} cannot be imported: {file_of(spec)} has no {name}") from None


def own_kind(spec: str, what: str, base: type) -> Any:
    """The class that ``spec`` names, derived from ``base`` and with an `open` of its own; ``what`` stands in errors.

    Raises UsageError, which names the file to look at, if it cannot be imported or is no such class.
    """
    kind = import_own(spec, what.rpartition(".")[0] or what)
    if base not in getattr(kind, "__mro__", ()) or getattr_static(kind, "open") is vars(base)["open"]:
        raise UsageError(
            f"{what} {spec!r} is {kind!r:.80}; expected a class with `open` that is derived from "
            f"{base.__module__}.{base.__name__}. Look at {file_of(spec)}"
        )
    return kind


def own_function(spec: str, what: str, form: str) -> Callable[..., Any]:
    """The user's function that ``spec`` names, to be called with the words for what it is called on, then with that.

    ``what`` it is and of which ``form`` stand in errors.

    Raises UsageError as `import_own`, or if it is no function; and from the function, if the user's raises.
    """
    function = import_own(spec, what)
    if not callable(function):
        raise UsageError(
            f"{what} {spec!r} is of type {type(function).__name__}; expected a function {form}. Look at {file_of(spec)}"
        )

    @functools.wraps(function)
    def called(where: str, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:  # whatever a user's own code does; SystemExit ends a worker unheard
            raised = f"raised {type(error).__name__} on {where}: {error!s:.300}"
            raise UsageError(f"{what} {spec!r} {raised}\n  {line_of_own(error, spec)}") from error

    return called


def imported_anew(module_name: str) -> ModuleType:
    """The module, of which no compiled copy is kept.

    Python takes a copy for fresh if time (in seconds) and size of the file are the same, so a quick change may be lost.
    """
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        return importlib.import_module(module_name)
    finally:
        sys.dont_write_bytecode = before


def file_of(spec: str) -> str:
    """The file of the module that ``spec``, `module:name`, names, once it is imported; else the module's name."""
    module_name = spec.partition(":")[0]
    return getattr(sys.modules.get(module_name), "__file__", None) or module_name


def place_of(function: object) -> str:
    """`file:line in name` of where a Python function begins; "" for what is none, such as one written in C."""
    code = getattr(function, "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno} in {code.co_name}"


def line_of_own(error: BaseException, spec: str) -> str:
    """The last line of the user's own file in the traceback of ``error``, as `file:line in function: source`.

    That file is the module's that ``spec`` names, if it is in the traceback; else the first one that is not ours. It is
    all that is returned where nothing of the user's own had begun to run.
    """
    frames = _frames(error)
    if not frames:
        return file_of(spec)
    own = [frame for frame in frames if frame.filename == file_of(spec)]
    own = own or [frame for frame in frames if frame.filename == frames[0].filename]
    last = own[-1]
    return f"{last.filename}:{last.lineno} in {last.name}: {last.line}"


def line_of_any_own(error: BaseException) -> str:
    """As `line_of_own`, of any module of the user's own that was imported; "" if ``error`` came through none."""
    files = {frame.filename for frame in _frames(error)}
    return next((line_of_own(error, spec) for spec in _imported if file_of(spec) in files), "")


def own_in_use() -> str:
    """What was imported of the user's own, with its files, in words; "" if nothing was."""
    return ", ".join(f"{spec} ({file_of(spec)})" for spec in dict.fromkeys(_imported))


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The frames of the traceback without this package's own and those that import."""
    ours = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen")
    return [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
