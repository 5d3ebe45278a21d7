"""What a shell offers for an argument: names of benchmarks, methods and configurations, and the runs nearby.

Each function loads only what knows the names. Paths are left to the shell, which offers them where nothing here fits.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

# Where commands put runs when they are not told otherwise.
RUN_PATTERNS = ("runs/*", "runs/*/*", "sweeps/*/runs/*")


def similarities(incomplete: str) -> list[str]:
    """Similarities that come with the package, for the last of several names."""
    from evals.similarity import SIMILARITIES

    return _as_last(incomplete, SIMILARITIES)


def benchmarks(incomplete: str) -> list[str]:
    """Benchmarks of the registry, for the last of several names."""
    from evals.benchmarks.catalogue import registry
    from evals.errors import QuatroError

    try:
        names = list(registry())
    except QuatroError:  # a broken quatro-benchmarks.toml: the command itself says what is wrong with it
        names = []
    return _as_last(incomplete, names)


def _as_last(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, _ = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in names]


def methods() -> list[str]:
    """Methods by name."""
    from quatro.registry import METHODS

    return list(METHODS)


def configs() -> list[str]:
    """Configurations that come with the package."""
    from quatro.config import shipped_configs

    return list(shipped_configs())


def sweeps() -> list[str]:
    """Configurations and sweep files that come with the package, and sweeps below sweeps/."""
    from quatro.config import shipped_configs

    shipped = shipped_configs()
    files = sorted(shipped["quickstart"].parent.glob("sweeps/*.yaml"))
    begun = sorted(Path().glob("sweeps/*/sweep.yaml"))
    return [*shipped, *(path.stem for path in files), *(path.parent.as_posix() for path in begun)]


def runs() -> list[str]:
    """Run directories below runs/ and sweeps/, the folder that the command is typed in."""
    found = {path.parent for pattern in RUN_PATTERNS for path in Path().glob(f"{pattern}/config.yaml")}
    return [path.as_posix() for path in sorted(found)]


def configs_and_runs() -> list[str]:
    """What `quatro train` takes."""
    return [*configs(), *runs()]
