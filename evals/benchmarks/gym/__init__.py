"""The library `reasoning-gym`: its tasks by name, their settings, and the entries that it draws.

The library is an extra (`pip install -e '.[gym]'`) and takes a second to import: only functions import it.
"""

import contextlib
import dataclasses
import hashlib
import io
import json
import random
import warnings
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from typing import Any

from evals.errors import UsageError, how_to_install, require
from evals.files.strict_json import shown
from evals.text import table_beside, words_of

# A benchmark with this prefix is a task of the library with its default settings.
PREFIX = "reasoning-gym:"
# The column of a problem and of its samples that says which entry of the library it is.
COLUMN = "reasoning_gym"
# A task draws item i from Random(seed + i) at most. This many items is what every task of the library can hold.
MOST_ITEMS = 20_000
_OURS = ("seed", "size")

_TASKS = table_beside(__file__, "tasks.toml")
# Tasks whose checkers need no sandbox; those that cannot be used, and why.
IN_PROCESS = words_of(_TASKS["in_process"])
_HASH_ORDER = (
    "its items depend on the order of sets, which differs from process to process, so no answer could be graded later"
)
REFUSED = _TASKS["refused"] | dict.fromkeys(_TASKS["of_hash_order"].split(), _HASH_ORDER)


@dataclasses.dataclass(frozen=True)
class Reference:
    """Which entry of the library a problem is. ``digest`` is that of its question and answer.

    ``form`` names the compact form in which the problem is posed (`evals.benchmarks.gym.items.Form`); empty means the
    library's text.
    """

    task: str
    settings: str
    seed: int
    index: int
    digest: str
    form: str = ""

    def column(self) -> dict[str, Any]:
        """The value of `COLUMN`."""
        found = {**vars(self), "settings": json.loads(self.settings)}
        return {name: value for name, value in found.items() if value not in ("", {})}


def reference_of(value: object) -> Reference | None:
    """The reference that a value of `COLUMN` is; None if it is none."""
    if not isinstance(value, Mapping):
        return None
    found = {"settings": {}, "form": "", **value}
    kinds = {"task": str, "settings": dict, "seed": int, "index": int, "digest": str, "form": str}
    if found.keys() != kinds.keys() or any(type(found[name]) is not kind for name, kind in kinds.items()):
        return None
    return Reference(**{**found, "settings": as_key(found["settings"])})


def as_key(settings: Mapping[str, Any]) -> str:
    """Settings as a text that equal settings share."""
    return json.dumps(settings, sort_keys=True)


def task_names() -> list[str]:
    """The tasks that can be used."""
    return sorted(_tables().keys() - REFUSED.keys())


def check(task: str, settings: Mapping[str, Any], at: str) -> None:
    """Raises UsageError, which begins with ``at``, unless the library has the task and takes the settings."""
    tables = _tables()
    if task in REFUSED:
        raise UsageError(f"{at}: the task {task} of reasoning-gym cannot be used: {REFUSED[task]}; choose another task")
    if task not in tables:
        near = get_close_matches(task, task_names(), n=3, cutoff=0.5) or task_names()[:3]
        raise UsageError(
            f"{at}: reasoning-gym has no task {task!r}; did you mean {' or '.join(near)}? All tasks: "
            "python -c 'import reasoning_gym.factory as f; print(*sorted(f.DATASETS))'"
        )
    fields = {one.name: one for one in dataclasses.fields(tables[task][1]) if one.name not in _OURS}
    for name in settings:
        if name in _OURS:
            raise UsageError(f"{at}: settings.{name} is chosen by quatro, which keeps the splits apart; leave it out")
        if name.endswith("_file"):
            raise UsageError(f"{at}: settings.{name} would read a file of this machine; leave it out")
        if name not in fields:
            near = get_close_matches(name, fields, n=1)
            hint = f"did you mean {near[0]}? Its" if near else "its"
            known = ", ".join(fields) or "none"
            raise UsageError(f"{at}: the task {task} has no setting {name!r}; {hint} settings are {known}")
    try:
        dataset(task, as_key(settings), 0)
    except Exception as error:
        said = " ".join(str(error).split()) or type(error).__name__
        named = [name for name in settings if name in said] or list(settings)
        found = ", ".join(f"settings.{name} = {shown(settings[name])}" for name in named) or "its default settings"
        raise UsageError(f"{at}: the task {task} refuses {found}: {said}; change it") from error


@lru_cache(maxsize=64)
def dataset(task: str, settings: str, seed: int) -> Any:
    """The library's data set of a task with ``settings`` (`as_key`); raises what the library raises about these."""
    tables = _tables()
    defaults = {one.name: one.default for one in dataclasses.fields(tables[task][1])}
    values = {
        name: tuple(value) if isinstance(value, list) and isinstance(defaults.get(name), tuple) else value
        for name, value in json.loads(settings).items()
    }
    with quiet():
        config = tables[task][1](**values, seed=seed, size=MOST_ITEMS)
        if hasattr(config, "validate"):
            config.validate()
        return tables[task][0](config=config)


@lru_cache(maxsize=8192)
def entry(reference: Reference) -> dict[str, Any]:
    """The library's entry: `question`, `answer` and `metadata`. It must not be changed.

    Raises UsageError if there is no such item, or the installed library makes another problem of it.
    """
    at = f"item {reference.index} of the task {reference.task}"
    check(reference.task, json.loads(reference.settings), at)
    if not (0 <= reference.index < MOST_ITEMS and 0 <= reference.seed < 2**31):
        raise UsageError(f"{at}: a task has the items 0 to {MOST_ITEMS - 1}; draw the samples again")
    found = drawn(dataset(reference.task, reference.settings, reference.seed), reference.index)
    if digest_of(found) != reference.digest:
        raise UsageError(
            f"item {reference.index} of the task {reference.task} is another problem in the reasoning-gym that is "
            "installed here than in the one that made it; install the version that made it: "
            f"{how_to_install('gym')}"
        )
    return found


def drawn(data: Any, index: int) -> dict[str, Any]:
    """Item ``index`` of a data set; the global generators, which some tasks draw from, are set meanwhile."""
    import numpy as np

    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(index)
    np.random.seed(index)  # noqa: NPY002
    try:
        with quiet():
            found: dict[str, Any] = data[index]
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
    return found


def digest_of(found: Mapping[str, Any]) -> str:
    """A short digest of a question and its answer."""
    text = repr((found["question"], found["answer"]))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Drops what the library prints and warns of: standard output is for data."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _tables() -> dict[str, tuple[Any, Any]]:
    """The classes of each task: data set and configuration."""
    require("reasoning_gym", "a task of reasoning-gym")
    with quiet():
        from reasoning_gym.factory import DATASETS
    return DATASETS
