"""Fetching copies benchmarks from the Hugging Face Hub or a local file into the cache and locks their content.

    $QUATRO_CACHE/benchmarks/NAME.jsonl       {"id", "problem", "answer", further columns} a line, rows already fixed
    $QUATRO_CACHE/benchmarks/NAME.lock.json   where they came from (the Hub's commit), how many, their hash

The first fetch writes the lock. Every later fetch, and every use of the copy, must match it. `datasets` and the Hub
client are imported only where something is fetched.
"""

import json
import logging
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from evals.benchmarks.catalogue import USER_FILE, Benchmark, HubSource, registry
from evals.benchmarks.problems import Columns, Problem, ReadProblems, content_hash, problems_of, read_problem_file
from evals.errors import DataError, MissingError, UsageError, how_to_install
from evals.files.whole import cache_root, file_stem, write_whole

logger = logging.getLogger(__name__)


class Lock(BaseModel):
    """What the first fetch found.

    ``commit`` is null for a local file; ``same_as_registry`` is null if the registry has no hash.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    benchmark: str
    hub: HubSource | None
    commit: str | None
    file: str | None
    num_problems: int
    sha256: str
    same_as_registry: bool | None


def cached_path(entry: Benchmark) -> Path:
    """Where the copy of a benchmark lies: in ``$QUATRO_CACHE/benchmarks``, by default in ``~/.cache/quatro``."""
    return cache_root() / "benchmarks" / f"{file_stem(entry.name)}.jsonl"


def lock_path(entry: Benchmark) -> Path:
    """Where the lock of a benchmark lies."""
    return cached_path(entry).with_suffix(".lock.json")


def cached_problems(entry: Benchmark) -> list[Problem] | None:
    """The problems of the copy in the cache, or None; raises DataError if it differs from its lock, or has none."""
    path = cached_path(entry)
    if not path.exists():
        return None
    lock = read_lock(entry)
    if lock is None:
        raise DataError(
            f"{path} has no lock file beside it; move it away and run "
            f"`quatro benchmarks fetch {entry.name} --from FILE`"
        )
    problems = read_problem_file(path, entry.name, Columns()).problems
    digest = content_hash(problems)
    if digest != lock.sha256:
        raise DataError(
            f"{path} was changed after it was fetched: its content has SHA-256 {digest}, but "
            f"{lock_path(entry).name} says {lock.sha256}; delete {path} and run `quatro benchmarks fetch {entry.name}`"
        )
    return problems


def read_lock(entry: Benchmark) -> Lock | None:
    """The lock of a benchmark, None before its first fetch; raises DataError if it cannot be read."""
    path = lock_path(entry)
    if not path.exists():
        return None
    try:
        return Lock.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # ValidationError is a ValueError
        reason = f"{error.error_count()} wrong keys" if isinstance(error, ValidationError) else str(error)
        raise DataError(f"{path} cannot be read ({reason}); delete it and fetch {entry.name} again") from error


def fetch(entry: Benchmark, *, file: Path | None = None) -> tuple[list[Problem], Lock]:
    """Copy a benchmark into the cache, from ``file`` or the Hub: the problems of the copy, and its lock.

    If there is a lock, the commit that it names is fetched.

    Raises:
        UsageError: the benchmark is built in or a user's file, or the config or split is ambiguous.
        MissingError: the package `datasets` is not installed, or the Hub cannot be reached.
        DataError: the content differs from the lock or is another benchmark's, the number of rows differs from the
            registry, a row is bad, or the answers of a data set named by its id are workings as GSM8K's are.
    """
    if entry.source != "hub":
        where = f"read from {entry.path} each time" if entry.file else "built in"
        raise UsageError(f"{entry.name} is {where}: there is nothing to fetch")
    lock = read_lock(entry)
    source, commit = None, None
    if file is not None:
        found = read_problem_file(file, entry.name, entry.columns(of_a_copy=True))
    else:
        found, source, commit = _from_hub(entry, lock)
    where = str(file) if file is not None else f"{source} at commit {commit}"
    if not is_listed(entry) and any("####" in (problem.answer or "") for problem in found.problems):
        raise DataError(
            f"{entry.name}: its answers are whole workings, with the answer after ####; make it an entry of "
            f'./{USER_FILE} with answer_after = "####" (`quatro benchmarks --help` shows one), and use its name'
        )
    digest = content_hash(found.problems)
    # Rows of another benchmark may look alike; a user may give one a second name.
    other = next((one.name for one in registry().values() if one.sha256 == digest and one.name != entry.name), None)
    if other is not None and entry.defined_in is None and is_listed(entry):
        raise DataError(f"{entry.name}: {where} holds the problems and tests of {other}; give the file of {entry.name}")
    if lock is None:
        if entry.count and found.num_rows != entry.count:
            raise DataError(
                f"{entry.name}: {where} has {found.num_rows} rows, expected {entry.count}; give all of them with "
                f"`quatro benchmarks fetch {entry.name} --from FILE`, or name a file of other rows by its path"
            )
        same = digest == entry.sha256 if entry.sha256 else None
        if same is False:
            logger.warning(
                f"{entry.name}: {where} differs from the copy that the registry's hash was computed from (SHA-256 "
                f"{digest}, there {entry.sha256}): compare results only with others of the same hash"
            )
        lock = Lock(
            benchmark=entry.name,
            hub=source,
            commit=commit,
            file=file.name if file is not None else None,
            num_problems=len(found.problems),
            sha256=digest,
            same_as_registry=same,
        )
    elif digest != lock.sha256:
        raise DataError(
            f"{entry.name}: {where} has content of SHA-256 {digest}, but the first fetch locked {lock.sha256}; "
            f"do not mix results of the two. To fetch it anew, delete {lock_path(entry)} and {cached_path(entry)}"
        )
    # A copy that is there stays: equal content may come with other ids, and samples are kept by id.
    problems = cached_problems(entry) if cached_path(entry).exists() and lock_path(entry).exists() else None
    if problems is None:
        _store(entry, problems := found.problems, lock)
    return problems, lock


def is_listed(entry: Benchmark) -> bool:
    """Whether the entry stands in the registry; a data set of the Hub that is named by its id does not."""
    return entry.name in registry()


def _store(entry: Benchmark, problems: list[Problem], lock: Lock) -> None:
    """Writes the data before the lock: a copy without a lock is refused, a lock without a copy is fetched again."""
    rows = ({"id": row.id, "problem": row.problem, "answer": row.answer, **row.extra} for row in problems)
    try:
        write_whole(cached_path(entry), ((json.dumps(row) + "\n").encode("ascii") for row in rows))
        document = {"schema": 1, **lock.model_dump()}
        write_whole(lock_path(entry), [(json.dumps(document, indent=2, ensure_ascii=True) + "\n").encode()])
    except OSError as error:
        raise MissingError(
            f"the cache folder {cached_path(entry).parent} cannot be written ({error.strerror}); set QUATRO_CACHE to "
            "one that can"
        ) from error


def _from_hub(entry: Benchmark, lock: Lock | None) -> tuple[ReadProblems, HubSource, str]:
    """Rows of the first data set that can be loaded, their exact place, and their commit."""
    try:
        import datasets
        from huggingface_hub import HfApi
    except ImportError as error:
        raise MissingError(
            f"fetching {entry.name!r} from the Hugging Face Hub needs the package `datasets` "
            f"(`{how_to_install('hub')}`); or {_instead(entry)}"
        ) from error
    candidates: list[tuple[HubSource, str | None]] = [(source, None) for source in entry.hub]
    if lock is not None and lock.hub is not None:
        candidates = [(lock.hub, lock.commit)]
    reasons = []
    for source, pinned in candidates:
        try:
            commit = pinned or str(HfApi().dataset_info(source.id).sha)
            resolved, rows = _load(datasets, entry, source, commit)
        except UsageError:
            raise
        except Exception as error:  # whatever the Hub client raises offline; there are many kinds of it
            reasons.append(f"{source}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
            continue
        numbered = ((i, f"{source.id}, row {i}", dict(row)) for i, row in enumerate(rows))
        return problems_of(numbered, entry.name, entry.columns(), id_prefix=f"{entry.name}/"), resolved, commit
    raise MissingError(
        f"cannot fetch {entry.name!r} from the Hugging Face Hub ({'; '.join(reasons)}); {_instead(entry)}"
    )


def _load(datasets: Any, entry: Benchmark, source: HubSource, commit: str) -> tuple[HubSource, list[Any]]:
    """Rows of a data set, and ``source`` with the config and split that were used."""
    config = source.config
    if not config:
        configs = list(datasets.get_dataset_config_names(source.id, revision=commit))
        if len(configs) != 1:
            named = f"{source.id}:{configs[0]}:SPLIT"
            raise UsageError(f"{source} has the configs {', '.join(configs)}; choose one and a split: {named}")
        config = configs[0]
    split = source.split
    if not split:
        splits = list(datasets.get_dataset_split_names(source.id, config, revision=commit))
        if len(splits) != 1:
            named = f"{source.id}:{f'{config}:' if source.config else ''}{splits[0]}"
            raise UsageError(f"{source} has the splits {', '.join(splits)}; choose one as {named}")
        split = splits[0]
    # Of several, as `train+test`, each row says which split it is of.
    parts = split.split("+")
    found = {part: datasets.load_dataset(source.id, name=config, split=part, revision=commit) for part in parts}
    rows = [{"split": part, **row} if len(parts) > 1 else row for part in parts for row in found[part]]
    return source.model_copy(update={"config": config, "split": split}), rows


def _instead(entry: Benchmark) -> str:
    file = f"{entry.name}.jsonl" if is_listed(entry) else "FILE"
    return (
        f"use a local file instead: `quatro benchmarks fetch {entry.name} --from FILE`, "
        f"or for training `-s data.prompts={file}`"
    )
