"""The registry of benchmarks, ours and the user's, and the problems of one by name or from a file.

One entry is one TOML table. Ours are in `benchmarks.toml` beside this file; a user's own are in the file that
`$QUATRO_BENCHMARKS` names, else in `./quatro-benchmarks.toml`, and look the same:

    [gsm8k]
    title = "GSM8K"
    file = "data/gsm8k.jsonl"        # beside this TOML file; or hub = [{ id = "...", config = "...", split = "..." }]
    problem_field = "question"
    answer_field = "answer"
    answer_after = "####"            # the answer is what follows the last of these
"""

from __future__ import annotations

import logging
import os
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from evals import countdown
from evals.errors import DataError, UsageError
from evals.problems import Columns, Problem, ReadProblems, content_hash, read_problem_file
from evals.prompts import TEMPLATES
from evals.strict_json import shown

__all__ = ["Benchmark", "HubSource", "Problem", "content_hash", "load_problems", "registry", "user_file"]

logger = logging.getLogger(__name__)

USER_FILE = "quatro-benchmarks.toml"
_Text = Annotated[str, Field(min_length=1)]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class HubSource(_Entry):
    """A data set of the Hugging Face Hub. An empty ``config`` or ``split`` is looked up when it is fetched."""

    id: _Text
    config: str = ""
    split: str = ""

    def __str__(self) -> str:
        return ", ".join(
            [self.id, *(f"{key} {value}" for key, value in (("config", self.config), ("split", self.split)) if value)]
        )


class Benchmark(_Entry):
    """A registry entry.

    ``count`` rows (0: unknown) before ``skip_empty_answer`` drops the ``num_empty`` without a reference answer; ``hub``
    in order of preference; the answer comes from ``answer_field``, there from behind ``answer_after`` if that is set,
    or from the last box of ``solution_field``; ``sha256`` as of `content_hash`, after these fixes of rows; ``verified``
    says that count and hash were computed from the data, not copied from somewhere. What the grader reads of an
    answer's form (leading zeros, several answers in one string) is the grader's business and not here.
    """

    name: str
    title: str = ""
    count: int = Field(0, ge=0)
    licence: str = ""
    verified: bool = False
    sha256: str = Field("", pattern="^([0-9a-f]{64})?$")
    hub: tuple[HubSource, ...] = ()
    file: str = ""
    problem_field: str = ""
    answer_field: str = ""
    solution_field: str = ""
    id_field: str = ""
    answer_after: str = ""
    skip_empty_answer: bool = False
    num_empty: int = Field(0, ge=0)
    grader: Literal["math", "countdown"] = "math"
    template: str = "qwen-boxed"
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
        """Where rows keep what. Of a local copy of a Hub data set the usual names are accepted too."""
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
            id=names(self.id_field, usual.id if of_a_copy or self.file else ()),
            answer_after=self.answer_after,
            skip_empty_answer=self.skip_empty_answer,
        )

    @field_validator("hub", mode="before")
    @classmethod
    def _hub_is_a_tuple(cls, value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value  # TOML has lists only

    @field_validator("template")
    @classmethod
    def _template_exists(cls, value: str) -> str:
        if value not in TEMPLATES:
            raise ValueError(f"no such prompt template; there are {', '.join(TEMPLATES)}")
        return value

    @model_validator(mode="after")
    def _is_consistent(self) -> Benchmark:
        if self.file and self.hub:
            raise ValueError("names both a `file` and a `hub` data set; keep one")
        if self.answer_field and self.solution_field:
            raise ValueError("names both an `answer_field` and a `solution_field`; keep one")
        if self.verified and not (self.sha256 and self.count):
            raise ValueError("verified = true needs the count and sha256 that were computed")
        return self


def registry() -> Mapping[str, Benchmark]:
    """The benchmarks by name: ours, then the user's.

    Raises:
        UsageError: the user's file cannot be read, or an entry of it is wrong (file, entry and key are named).
    """
    path = user_file()
    if path is None:
        _note_misnamed(Path("benchmarks.toml").absolute())
        return _ours()
    try:
        stamp = os.stat(path)
    except OSError as error:
        raise UsageError(f"{path} (QUATRO_BENCHMARKS) cannot be read: {error.strerror}") from error
    return _with_users(path, stamp.st_mtime_ns, stamp.st_size)


def user_file() -> Path | None:
    """The TOML file with the user's own benchmarks: ``$QUATRO_BENCHMARKS``, else ``./quatro-benchmarks.toml``."""
    named = os.environ.get("QUATRO_BENCHMARKS")
    if named:
        return Path(named).absolute()
    return Path(USER_FILE).absolute() if os.path.isfile(USER_FILE) else None


@cache
def _note_misnamed(path: Path) -> None:
    """Warns of a file of our form whose name has no ``quatro-``; one of another project is none of our business."""
    try:
        is_ours = os.path.isfile(path) and len(_with_users(path, 0, 0)) > len(_ours())
    except UsageError:
        return
    if is_ours:
        logger.warning("%s is not read: rename it to %s, or let QUATRO_BENCHMARKS name it", path, USER_FILE)


@cache
def _ours() -> Mapping[str, Benchmark]:
    tables = tomllib.loads(resources.files("evals").joinpath("benchmarks.toml").read_text(encoding="utf-8"))
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
            raise UsageError(f"{at}: a benchmark of that name exists already; choose another name")
        known.add(name.casefold())
        if name != name.strip() or not name.isprintable() or "," in name or name.endswith((".jsonl", ".jsonl.gz")):
            raise UsageError(f"{at}: a name has no comma, no space at an end and no .jsonl at its end")
        entries[name] = _user_entry(name, table, path, at)
    return MappingProxyType({**_ours(), **entries})


def _user_entry(name: str, table: Any, path: Path, at: str) -> Benchmark:
    if not isinstance(table, dict):
        raise UsageError(f"{at}: expected a table [{name}] of keys, found {shown(table)}")
    own = sorted(set(Benchmark.model_fields) - {"name", "defined_in", "verified"})
    unknown = [key for key in table if key not in own]
    if unknown:
        raise UsageError(f"{at}: unknown key {unknown[0]!r}; the keys are {', '.join(own)}")
    if not table.get("file") and not table.get("hub"):
        raise UsageError(
            f'{at}: says nowhere where its problems are; add file = "PROBLEMS.jsonl" or hub = [{{ id = ... }}]'
        )
    if table.get("grader") == "countdown":
        table = {"template": "plain", **table}
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


def load_problems(source: str, *, split: Literal["train", "test"] | None = None) -> list[Problem]:
    """Problems of a registry name, or of a `.jsonl`/`.jsonl.gz` file, whose stem is then the benchmark's name.

    ``split`` is for `countdown`, which makes both: `test` (the default) or `train`. A benchmark of the Hub is read
    from the cache, and fetched if it is not there. A row of a file needs one of problem, question, prompt; `answer`,
    or a `solution` whose last box is the answer; and may have an `id` (otherwise its line number). A file named like
    a benchmark gets its fixes of rows.

    Raises:
        UsageError: ``source`` is neither a benchmark nor the name of a `.jsonl` file, or has no such ``split``.
        MissingError: the benchmark must be fetched and cannot be.
        DataError: a file is missing, empty, changed or holds a bad row (`file:line`).
    """
    if source == "countdown":
        problems = countdown.problems(split or "test")
        return [Problem("countdown", problem.id, problem.prompt, problem.prompt) for problem in problems]
    if split is not None:
        raise UsageError(
            f"only countdown has a choice of split; {source!r} is what it is, so leave split={split!r} out"
        )
    if source.endswith((".jsonl", ".jsonl.gz")):
        name = Path(source).name.removesuffix(".gz").removesuffix(".jsonl")
        entry = registry().get(name)
        columns = entry.columns(of_a_copy=True) if entry is not None else Columns()
        return read_problem_file(Path(source), name, columns).problems
    if source not in registry():
        raise UsageError(
            f"unknown benchmark {source!r}; expected one of {', '.join(registry())}, or the path of a .jsonl file "
            f"(own benchmarks: entries of ./{USER_FILE} or of the file that QUATRO_BENCHMARKS names)"
        )
    entry = registry()[source]
    if entry.source == "file":
        return read_own_file(entry).problems
    from evals.fetching import cached_problems, fetch

    return cached_problems(entry) or fetch(entry).problems


def read_own_file(entry: Benchmark) -> ReadProblems:
    """Problems of an entry with a `file`; raises DataError where it is not the one of its count or hash."""
    found = read_problem_file(entry.path, entry.name, entry.columns())
    says = f"[{entry.name}] in {entry.defined_in} says"
    if entry.count and found.num_rows != entry.count:
        raise DataError(f"{entry.path}: {found.num_rows} rows, but {says} {entry.count}")
    digest = content_hash(found.problems)
    if entry.sha256 and digest != entry.sha256:
        raise DataError(f"{entry.path}: its content has SHA-256 {digest}, but {says} {entry.sha256}")
    return found
