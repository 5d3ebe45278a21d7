"""What programs may import: the standard library, and packages that are named here with what those need.

Nothing else that is installed can be read: among it may be the solutions of a benchmark.
"""

import os
import re
import sys
from collections.abc import Container, Iterable, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, BuiltinImporter, FrozenImporter, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from types import ModuleType

# Distributions that answers to benchmarks use, as far as they are installed.
PACKAGES = ("numpy", "pandas", "scipy", "sympy")

_LIBRARY = os.path.dirname(os.__file__)
_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_INSTALLED = ("site-packages", "dist-packages")
_REQUIREMENT = re.compile(r"[\w.-]+")


def standard_library() -> list[str]:
    """Files and folders of the standard library: what lies beside its modules, but no installed packages."""
    compiled = [path for path in sys.path if os.path.basename(path) == "lib-dynload"]
    return [*compiled, *entries(_LIBRARY, but=(*_INSTALLED, "lib-dynload"))]


def system_libraries() -> list[str]:
    """Libraries of the system and of the interpreter, and folders that hold nothing else."""
    folders = {os.path.realpath(path) for path in (*_SYSTEM, f"{sys.base_exec_prefix}/lib")}
    found = [(path, os.path.basename(path)) for folder in folders for path in entries(folder)]
    return [path for path, name in found if ".so" in name or "-linux-" in name or name in ("gconv", "locale")]


def entries(folder: str, *, but: Container[str] = ()) -> list[str]:
    """Paths in a folder, without links, whose targets have paths of their own, and without some names."""
    if not os.path.isdir(folder):
        return []
    with os.scandir(folder) as found:
        return [one.path for one in found if not one.is_symlink() and one.name not in but]


def installed(names: Iterable[str]) -> list[str]:
    """Files and folders of these distributions and of those that they require, as far as they are installed."""
    from importlib import metadata  # here, so that no worker has to hold it

    found: set[str] = set()
    waiting, seen = [*names], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        waiting += [_REQUIREMENT.match(one)[0] for one in distribution.requires or () if "extra ==" not in one]  # type: ignore[index]
        root = str(distribution.locate_file(""))
        # A distribution of another packager may have no such list.
        lines = (distribution.read_text("RECORD") or f"{name}\n{name}.libs").splitlines()
        found |= {os.path.join(root, _top(line.partition(",")[0])) for line in lines if not line.startswith("..")}
    return sorted(path for path in found if os.path.exists(path))


def _top(path: str) -> str:
    """The part of a path that belongs to one distribution alone."""
    first, _, rest = path.partition("/")
    return path if first == "__pycache__" else first if rest else path


class Finder:
    """Finds modules by their paths, where the folder that they lie in cannot be listed."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: dict[str, str] = {}
        for path in paths:
            name = os.path.basename(path)
            suffix = next((one for one in (".py", *EXTENSION_SUFFIXES) if name.endswith(one)), "")
            if bool(suffix) != os.path.isdir(path):
                self._paths.setdefault(name.removesuffix(suffix), path)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks."""
        place = self._paths.get(name)
        if path is not None or place is None:
            return None
        first = os.path.join(place, "__init__.py") if os.path.isdir(place) else place
        if os.path.exists(first):
            return spec_from_file_location(name, first)
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [place]
        return spec


def import_only(paths: Iterable[str]) -> None:
    """From here on this process finds the modules of these paths and of the standard library's folders."""
    sys.path[:] = [path for path in sys.path if path == _LIBRARY or path in standard_library()]
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder, Finder(paths)]
