"""Finds the file of a configuration: a file, a run directory, or a name that comes with the package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from evals.errors import UsageError
from quatro.config.errors import closest


def shipped_configs() -> dict[str, Path]:
    """Name -> file of every configuration that comes with the package; `quatro.sweep.file` knows the sweeps."""
    return {path.stem: path for path in sorted(_shipped_folder().glob("*.yaml"))}


def find_config(source: str | Path) -> Path:
    """The file that ``source`` means: a file, a run directory's config.yaml, or a shipped configuration.

    Raises:
        UsageError: there is none; the message lists the shipped ones.
    """
    path = Path(source)
    shipped = shipped_configs()
    try:
        if path.is_file():
            return path
        if (path / "config.yaml").is_file():
            return path / "config.yaml"
    except (OSError, ValueError) as error:  # a name no file system takes
        reason = f"{type(error).__name__}; shipped: {', '.join(shipped)}"
        raise UsageError(f"no config can be called {str(source)[:80]!r}...: {reason}") from error
    name = str(source).removesuffix(".yaml")
    if name in shipped:
        return shipped[name]
    found = "a directory without config.yaml" if path.is_dir() else "no such file or run"
    raise UsageError(f"config {str(source)!r}: {found}; shipped: {', '.join(shipped)}{closest(name, shipped)}")


def _shipped_folder() -> Path:
    """`quatro/_configs` where the package was installed from a wheel, `configs/` in a checkout."""
    package = Path(str(resources.files("quatro")))
    installed = package / "_configs"
    return installed if installed.is_dir() else package.parent / "configs"
