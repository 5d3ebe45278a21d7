"""The registry of benchmarks, ours and the user's.

One entry is one TOML table. Ours are in `benchmarks.toml` beside this file; a user's own are in the file that
`$QUATRO_BENCHMARKS` names, else in `./quatro-benchmarks.toml`, and look the same; `quatro benchmarks --help` shows
two.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator

from evals.benchmarks.gym import PREFIX
from evals.benchmarks.problems import FILE_ENDINGS, Columns
from evals.benchmarks.prompts import find_template
from evals.errors import UsageError
from evals.files.own_code import is_own
from evals.files.strict_json import shown
from evals.text import table_beside

USER_FILE = "quatro-benchmarks.toml"
GRADERS = ("math", "countdown", "code", "reasoning-gym")
# How many problems the test split of a task of reasoning-gym has, if its entry does not say it.
GYM_COUNT = 200
# What an entry with one of these graders has where it does not say otherwise.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "countdown": {"template": "plain", "has_short_answers": True},
    "code": {"template": "code-chat"},
    "reasoning-gym": {"grader": "reasoning-gym", "template": "reasoning-gym", "count": GYM_COUNT},
}
# By these names code benchmarks are known that are not in the registry, such as `humaneval_xl`.
CODE_BENCHMARKS = ("humaneval", "mbpp", "apps")
# The column of samples that records the `Kind` of a user's own benchmark.
JUDGED_AS = "judged_as"
_Text = Annotated[str, Field(min_length=1)]
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*", re.ASCII)
# Names of files that hold neither problems nor a data set.
_OTHER_FILE = re.compile(r".*\.(json|txt|tsv|xlsx?|ods|arrow|gz|zip|yaml|py)")


class Kind(NamedTuple):
    """How answers to a benchmark are judged, and `Benchmark.has_short_answers`; ``grader`` may be `module:function`."""

    grader: str
    has_short_answers: bool

    @classmethod
    def recorded_in(cls, row: Mapping[str, Any]) -> Self | None:
        """The kind that `JUDGED_AS` of a sample says; None where it says none."""
        said = row.get(JUDGED_AS)
        if not isinstance(said, dict) or not is_grader(said.get("grader")):
            return None
        return cls(said["grader"], said.get("has_short_answers") is True)


def is_grader(name: object) -> bool:
    """Whether ``name`` is one of `GRADERS`, or has the form of a function of the user's own."""
    return isinstance(name, str) and (name in GRADERS or is_own(name))


def _grader_that_exists(name: str) -> str:
    if not is_grader(name):
        raise ValueError(f"expected {', '.join(GRADERS)}, or a function of your own as module:function")
    return name


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class HubSource(_Entry):
    """A data set of the Hugging Face Hub. An empty ``config`` or ``split`` is looked up when it is fetched."""

    id: _Text
    config: str = ""
    split: str = ""

    def __str__(self) -> str:
        parts = (self.id, self.config and f"config {self.config}", self.split and f"split {self.split}")
        return ", ".join(filter(None, parts))


class Benchmark(_Entry):
    """A registry entry.

    ``count`` is the number of rows (0: unknown), of which ``num_left_out`` are no problems to sample: they have no
    reference answer (``skip_empty_answer``), or another value in a column than ``only`` says.
    ``hub`` lists data sets in order of preference, ``hub_task`` is its name on their leaderboard; ``made_by`` is the
    module that makes the problems of an embedded benchmark. The answer is what follows ``answer_after`` in
    ``answer_field`` (the whole field if that is not set), or the last box of ``solution_field``. ``sha256`` is
    `content_hash` of the fixed rows. ``verified`` says that count and hash were computed from the data.
    ``has_short_answers``: UCC takes each text as a solution of its own, since a similarity would make one of most of
    them (the default of the grader countdown). ``reasoning_gym`` is a task of that library, which makes ``count`` test
    and ``num_train`` training problems with its own ``settings``.
    """

    name: str
    title: str = ""
    count: int = Field(0, ge=0)
    licence: str = ""
    verified: bool = False
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$")
    hub: Annotated[tuple[HubSource, ...], Strict(False)] = ()  # TOML has lists only
    hub_task: str = "default"
    file: str = ""
    problem_field: str = ""
    answer_field: str = ""
    solution_field: str = ""
    id_field: str = ""
    answer_after: str = ""
    skip_empty_answer: bool = False
    num_left_out: int = Field(0, ge=0)
    only: dict[str, str] = {}
    reasoning_gym: str = ""
    settings: dict[str, Any] = {}
    num_train: int = Field(2000, ge=1)
    made_by: str = ""
    grader: Annotated[str, AfterValidator(_grader_that_exists)] = "math"
    has_short_answers: bool = False
    template: Annotated[str, AfterValidator(lambda name: find_template(name).name)] = "qwen-boxed"
    note: str = ""
    defined_in: Path | None = None

    @property
    def source(self) -> Literal["built-in", "file", "hub"]:
        return "file" if self.file else "hub" if self.hub else "built-in"

    @property
    def path(self) -> Path:
        """The user's file, relative to the TOML file that names it."""
        return (self.defined_in.parent if self.defined_in else Path()) / self.file

    def columns(self, *, of_a_copy: bool = False) -> Columns:
        """The columns of a row. A local copy of a Hub data set may have the usual names as well."""
        usual = Columns()

        def names(given: str, default: tuple[str, ...]) -> tuple[str, ...]:
            if not given:
                return default
            return tuple(dict.fromkeys((given, *default))) if of_a_copy else (given,)

        has_own_answer = bool(self.answer_field or self.solution_field) and not of_a_copy
        return Columns(
            problem=names(self.problem_field, usual.problem),
            answer=names(self.answer_field, () if has_own_answer else usual.answer),
            solution=names(self.solution_field, () if has_own_answer else usual.solution),
            id=names(self.id_field, usual.id if of_a_copy or self.file or self.grader == "code" else ()),
            answer_after=self.answer_after,
            is_copy=of_a_copy,
            skip_empty_answer=self.skip_empty_answer,
            is_code=self.grader == "code",
        )

    @model_validator(mode="before")
    @classmethod
    def _has_the_defaults_of_its_grader(cls, said: dict[str, Any]) -> dict[str, Any]:
        grader = "reasoning-gym" if said.get("reasoning_gym") else said.get("grader")
        return {**_DEFAULTS.get(str(grader), {}), **said}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for several in (("reasoning_gym", "file", "hub"), ("answer_field", "solution_field")):
            given = [key for key in several if getattr(self, key)]
            if len(given) > 1:
                raise ValueError(f"has both `{given[0]}` and `{given[1]}`; keep one of them")
        if self.settings and not self.reasoning_gym:
            raise ValueError("has `settings`, which belong to a task of reasoning-gym; add `reasoning_gym`")
        if self.verified and not (self.sha256 and self.count):
            raise ValueError("verified = true needs the count and sha256 that were computed")
        return self


def registry() -> Mapping[str, Benchmark]:
    """The benchmarks by name, ours then those of the user's file, which ``$QUATRO_BENCHMARKS`` names, or `USER_FILE`.

    Raises UsageError naming file, entry and key that are wrong.
    """
    named = os.environ.get("QUATRO_BENCHMARKS")
    if not named and not os.path.isfile(USER_FILE):
        return _ours()
    path = Path(named or USER_FILE).absolute()
    try:
        stamp = os.stat(path)
    except OSError as error:
        raise UsageError(f"{path} (QUATRO_BENCHMARKS) cannot be read: {error.strerror}") from error
    return _with_users(path, stamp.st_mtime_ns, stamp.st_size)


def find_benchmark(name: str) -> Benchmark | None:
    """The entry of that name, or one for a data set of the Hub, `OWNER/NAME[:CONFIG][:SPLIT]`; None for other names.

    `reasoning-gym:TASK` is a task of that library with its default settings; whether it exists, loading says.
    A split may be a part or several, as `datasets` writes them: `train[:500]`, `train+test`. What names a file or a
    folder here is no data set.
    """
    if name in registry():
        return registry()[name]
    if name.startswith(PREFIX):
        return Benchmark(name=name, title=name, reasoning_gym=name.removeprefix(PREFIX), licence="Apache-2.0")
    id, *places = re.split(r":(?![^\[]*\])", name)
    if (
        not _HUB_ID.fullmatch(id)
        or id.endswith(FILE_ENDINGS)
        or _OTHER_FILE.fullmatch(id)
        or len(places) > 2
        or "" in places
        or Path(id).exists()
    ):
        return None
    config, split = places if len(places) == 2 else ("", *places) if places else ("", "")
    return Benchmark(name=name, title=name, hub=(HubSource(id=id, config=config, split=split),), id_field="id")


def maker_of(benchmark: str) -> Any:
    """The module that makes the problems of an embedded benchmark; None for any other.

    It lies above this package, which knows it by its name in the registry alone: `quatro.tasks.countdown`. It has
    ``problems_of(name, split)``; that of countdown has the checker, and that of the tasks of reasoning-gym the `FORMS`.
    """
    entry = registry().get(benchmark)
    return import_module(entry.made_by) if entry is not None and entry.made_by else None


def kind_of(benchmark: str) -> Kind:
    """How the samples of a benchmark are judged: as the registry says, else as the name does, else as maths."""
    known = registry().get(benchmark)
    if known is not None:
        return Kind(known.grader, known.has_short_answers)
    if benchmark.startswith("countdown-"):  # its variants
        return Kind("countdown", True)
    if benchmark.startswith(PREFIX):
        return Kind("reasoning-gym", False)
    return Kind("code" if benchmark.lower().startswith(CODE_BENCHMARKS) else "math", False)


def grader_of(benchmark: str) -> str:
    """Which grader the samples of a benchmark take."""
    return kind_of(benchmark).grader


def judged_as(benchmark: str) -> dict[str, Any]:
    """What samples of a user's own benchmark say of its kind, so that no other folder judges them otherwise."""
    known = registry().get(benchmark)
    return {} if known is None or known.defined_in is None else {JUDGED_AS: kind_of(benchmark)._asdict()}


@cache
def _ours() -> Mapping[str, Benchmark]:
    tables = table_beside(__file__, "benchmarks.toml")
    return MappingProxyType({name: Benchmark(name=name, **table) for name, table in tables.items()})


@lru_cache(maxsize=8)
def _with_users(path: Path, modified_ns: int, size: int) -> Mapping[str, Benchmark]:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not readable as TOML ({error})") from error
    known = {name.casefold() for name in _ours()}
    entries = {}
    for name, table in tables.items():
        at = f"{path}: [{name}]"
        if name.casefold() in known:
            raise UsageError(f"{at}: there is already a benchmark of that name; choose another name")
        known.add(name.casefold())
        if name != name.strip() or not name.isprintable() or "," in name or name.endswith(FILE_ENDINGS):
            raise UsageError(
                f"{at}: a name must not hold a comma, begin or end with a space, or end in {', '.join(FILE_ENDINGS)}"
            )
        entries[name] = _user_entry(name, table, path, at)
    return MappingProxyType({**_ours(), **entries})


def _user_entry(name: str, table: Any, path: Path, at: str) -> Benchmark:
    if not isinstance(table, dict):
        raise UsageError(f"{at}: expected a table [{name}] of keys, found {shown(table)}")
    own = sorted(set(Benchmark.model_fields) - {"name", "defined_in", "verified", "made_by"})
    unknown = [key for key in table if key not in own]
    if unknown:
        raise UsageError(f"{at}: unknown key {unknown[0]!r}; the keys are {', '.join(own)}")
    if not table.get("file") and not table.get("hub") and not table.get("reasoning_gym"):
        raise UsageError(
            f'{at}: has no source; add file = "PROBLEMS.jsonl", hub = [{{ id = ... }}] or reasoning_gym = "TASK"'
        )
    try:
        entry = Benchmark(name=name, defined_in=path, **table)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        found = "" if not key else f", found {shown(first['input'])}"
        raise UsageError(
            f"{at}{' ' if key else ''}{key}: {first['msg'].removeprefix('Value error, ')}{found}"
        ) from None
    # Whoever wrote a hash down has computed it: it is checked on every load.
    return entry.model_copy(update={"title": entry.title or name, "verified": bool(entry.sha256 and entry.count)})
