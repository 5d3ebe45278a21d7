"""The problems of a benchmark, made, read or fetched, and whether a copy is on this machine."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from evals.benchmarks.catalogue import USER_FILE, Benchmark, find_benchmark, maker_of, registry
from evals.benchmarks.fetching import cached_path, cached_problems, fetch, read_lock
from evals.benchmarks.gym import PREFIX, as_key, check, items
from evals.benchmarks.problems import FILE_ENDINGS, Columns, Problem, benchmark_name, content_hash, read_problem_file
from evals.errors import DataError, UsageError

Split = Literal["train", "test"]


def _gym_problems(entry: Benchmark, split: Split) -> list[Problem]:
    """The problems of a task of reasoning-gym.

    Raises:
        UsageError: the library has no such task, or it does not take the settings.
        DataError: the task does not give enough different problems, or they have another hash than the entry says.
    """
    place = f"[{entry.name}] in {entry.defined_in}" if entry.defined_in else entry.name
    check(entry.reasoning_gym, entry.settings, place)
    count = entry.count if split == "test" else entry.num_train
    settings = as_key(entry.settings)
    drawn = items.items(entry.reasoning_gym, settings, split, count=count, num_test=entry.count, at=place)
    found = items.problems_of_items(entry.name, split, drawn)
    digest = content_hash(found) if split == "test" and entry.sha256 else entry.sha256
    if digest != entry.sha256:
        raise DataError(f"{place} says SHA-256 {entry.sha256}, but the test problems have {digest}")
    return found


def has_splits(source: str) -> bool:
    """Whether the problems of ``source`` are made here, in a split to train on and one to measure on."""
    entry = registry().get(source)
    return source.startswith(PREFIX) or (entry is not None and bool(entry.reasoning_gym or entry.made_by))


def known_benchmark(name: str) -> Benchmark:
    """`find_benchmark`; raises UsageError, which says what there is, for a name that it does not know."""
    if entry := find_benchmark(name):
        return entry
    here = f" (what lies at {name} here hides a data set of that name)" if os.path.exists(name) else ""
    raise UsageError(
        f"unknown benchmark {name!r}{here}; expected one of {', '.join(registry())}, the path of a file "
        f"({', '.join(FILE_ENDINGS)}), a task of reasoning-gym as {PREFIX}TASK, or a data set of the Hub as "
        f"OWNER/NAME, OWNER/NAME:SPLIT or OWNER/NAME:CONFIG:SPLIT (your own benchmarks are entries of "
        f"./{USER_FILE} or of the file in QUATRO_BENCHMARKS)"
    )


def load_problems(source: str, *, split: Split | None = None, name: str | None = None) -> list[Problem]:
    """Problems of a registered benchmark, of a data set of the Hub (`find_benchmark`), or of a file.

    The name of a file ends in one of `FILE_ENDINGS`, and its stem, or ``name``, is then the benchmark's name.
    ``split`` is for those of which `has_splits` is true: `test` (the default) or `train`. A benchmark of the Hub is
    read from the cache and fetched if it is not there. A row of a file needs `problem`, `question` or `prompt`, and
    `answer` or a `solution` whose last box is the answer. It may have an `id`; the default is its line number. If the
    file is named like a benchmark, that benchmark's fixes of rows apply.

    Raises:
        UsageError: ``source`` is no benchmark, file or data set, or has no such ``split``.
        MissingError: the benchmark must be fetched and cannot be, or parquet without pyarrow.
        DataError: a file is missing, empty, changed or holds a bad row (`file:line`).
    """
    if maker := maker_of(source):
        found: list[Problem] = maker.problems_of(source, split or "test")
        return found
    if split is not None and not has_splits(source):
        made = ", ".join(name for name, entry in registry().items() if entry.made_by)
        raise UsageError(
            f"only {made} and the tasks of reasoning-gym have splits; leave split={split!r} out for {source!r}"
        )
    if source.endswith(FILE_ENDINGS):
        name = name or benchmark_name(source)
        entry = registry().get(name)
        columns = entry.columns(of_a_copy=True) if entry is not None else Columns()
        return read_problem_file(Path(source), name, columns).problems
    entry = known_benchmark(source)
    if entry.reasoning_gym:
        return _gym_problems(entry, split or "test")
    chosen = entry.only.items()
    return [
        problem for problem in _all_problems(entry) if all(problem.extra.get(key) == value for key, value in chosen)
    ]


def _all_problems(entry: Benchmark) -> list[Problem]:
    """Those of an entry with a file or data set; DataError if a file's count or hash differs, or as `check_answer`."""
    if entry.source == "hub":
        return cached_problems(entry) or fetch(entry)[0]
    found = read_problem_file(entry.path, entry.name, entry.columns())
    if entry.grader == "countdown":
        for problem in found.problems:
            maker_of("countdown").check_answer(problem.answer, problem.id, entry.name)
    says = f"[{entry.name}] in {entry.defined_in} says"
    if entry.count and found.num_rows != entry.count:
        raise DataError(f"{entry.path}: {found.num_rows} rows, but {says} {entry.count}")
    digest = content_hash(found.problems)
    if entry.sha256 and digest != entry.sha256:
        raise DataError(f"{entry.path}: its content has SHA-256 {digest}, but {says} {entry.sha256}")
    return found.problems


def local_problems(benchmark: str) -> list[Problem]:
    """Every problem of a benchmark whose copy is on this machine, whatever ``only`` says; none if there is no copy."""
    entry = find_benchmark(benchmark)
    if entry is None or not is_here(entry):
        return []
    return load_problems(benchmark) if entry.source == "built-in" else _all_problems(entry)


def is_here(entry: Benchmark) -> bool:
    """Whether problems can be read without a network. The content of the file is not checked."""
    if entry.source == "built-in":
        return entry.grader != "reasoning-gym" or find_spec("reasoning_gym") is not None
    if entry.source == "file":
        return entry.path.exists()
    return cached_path(entry).exists()


def local_copy(entry: Benchmark) -> tuple[list[Problem], dict[str, Any]]:
    """The problems on this machine, and the words of `quatro benchmarks show --json` on them; empty if there are none.

    ``same_as_registry`` is null if the registry has no hash. Raises DataError if the content is not as expected.
    """
    if not is_here(entry):
        return [], {}
    # A file that is given by its path is none of the registry.
    problems = local_problems(entry.name) if entry.defined_in or not entry.file else load_problems(entry.file)
    lock = read_lock(entry) if entry.source == "hub" else None
    path = {"hub": cached_path(entry), "file": entry.path, "built-in": None}[entry.source]
    digest = content_hash(problems)
    same = digest == entry.sha256 if entry.sha256 else None
    # Of the verified rows none is missing, however few are usable (two of math_train have no answer).
    missing = 0 if same else max(0, entry.count - len(problems))
    return problems, {
        "path": str(path) if path is not None else None,
        "problems": len(problems),
        "missing": missing,
        "sha256": digest,
        "same_as_registry": same,
        "hub": lock.hub.model_dump() if lock is not None and lock.hub is not None else None,
        "commit": lock.commit if lock is not None else None,
    }
