"""Which runs differ in their seed alone, and in which settings others differ: for figures, reports and tables.

Settings are given as leaves: dotted key -> value as text.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Run = TypeVar("Run")
Key = TypeVar("Key", bound=Hashable)
_METHOD = "method."


def group_by_seed(runs: Iterable[Run], setting_of: Callable[[Run], Key]) -> dict[Key, list[Run]]:
    """The runs of each setting, which is everything but the seed, in the order of their first runs."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(setting_of(run), []).append(run)
    return groups


def settings_that_differ(runs: Sequence[Mapping[str, str]], *, besides: Collection[str]) -> list[dict[str, str]]:
    """Of the leaves of each run those on which it disagrees with another one; the keys ``besides`` never count.

    Keys of a method's block count where runs of that method disagree: other methods have other keys. Runs without
    settings have none that differ, and no other run differs from them.
    """

    def differs(key: str, own: Mapping[str, str]) -> bool:
        name = f"{_METHOD}name"
        peers = (one for one in runs if one and (not key.startswith(_METHOD) or one.get(name) == own.get(name)))
        return len({one.get(key) for one in peers}) > 1

    return [{key: own[key] for key in own if key not in besides and differs(key, own)} for own in runs]
