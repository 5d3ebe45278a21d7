"""`quatro benchmarks`: which benchmarks there are, what is on this machine, and fetching them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from quatro_cli.help import App
from quatro_cli.options import Json, usage_error
from quatro_cli.output import output

if TYPE_CHECKING:
    from evals.benchmarks.catalogue import Benchmark

app = App()


@app.callback()
def _benchmarks() -> None:
    """List and show benchmarks, and fetch them into the cache.

    Your own benchmark is the path of a .jsonl, .csv or .parquet file (problem, answer, id), a data set of the Hub,
    OWNER/NAME:SPLIT, or the name of an entry in ./quatro-benchmarks.toml, or in the file that the variable
    QUATRO_BENCHMARKS names (docs/files.md has all keys):

    \b
      [my-gsm8k]
      file = "gsm8k.jsonl"        # beside the TOML file; or hub = [{ id = "...", split = "..." }]
      problem_field = "question"
      answer_field = "answer"
      answer_after = "####"
      grader = "math"             # or code, countdown, or your own as module:function

    `reasoning-gym:TASK` is a task of that library (docs/tasks.md) and needs no entry.

    \b
    Examples:
      quatro benchmarks list
      quatro benchmarks fetch math500 --from math500.jsonl
    """


def list_(json: Json = False) -> None:
    """List the benchmarks and whether they are on this machine.

    `verified` says that count and hash were computed from a copy of the data.

    \b
    Examples:
      quatro benchmarks list
      quatro benchmarks list --json
    """
    from evals.benchmarks.catalogue import registry
    from evals.benchmarks.loading import is_here

    entries = list(registry().values())
    if json:
        output.json({"schema": 1, "benchmarks": [{**_entry(entry), "here": is_here(entry)} for entry in entries]})
        return
    rows = [
        [entry.name, entry.title, entry.count or None, _word(entry.verified), _word(is_here(entry)), _source(entry)]
        for entry in entries
    ]
    output.table("", ["name", "title", "problems", "verified", "here", "source"], rows)


def show(
    name: Annotated[str, Argument(metavar="NAME", help="A benchmark, or the path of a file of your own.")],
    json: Json = False,
) -> None:
    """Show one benchmark and the prompt of its first problem.

    \b
    Examples:
      quatro benchmarks show math500
      quatro benchmarks show countdown --json
    """
    from evals.benchmarks.loading import known_benchmark, local_copy
    from evals.benchmarks.prompts import find_template, messages

    entry = _own_file(name) or known_benchmark(name)
    problems, copy = local_copy(entry)
    first = problems[0] if problems else None
    turns = messages(entry.template, first.problem) if first is not None else []
    if json:
        output.json({"schema": 1, **_entry(entry), "copy": copy or None, "first_prompt": turns or None})
        return
    rows = [(key, value) for key, value in _entry(entry).items() if key != "hub"]
    rows += [("hub", str(source)) for source in entry.hub]
    rows += [(f"{key} here", value) for key, value in (copy or {"copy": _how_to_get(entry)}).items()]
    output.table("", ["key", "value"], [(key, _word(value)) for key, value in rows if value not in ("", None, {})])
    if copy and copy["same_as_registry"] is False:
        output.warn("these are not the registered problems: compare results only with others of this hash")
    if first is not None:
        is_chat = find_template(entry.template).is_chat
        output.data(f"\nPrompt of {first.id} (template {entry.template}):")
        for turn in turns:
            output.data(f"[{turn['role']}]\n{turn['content']}" if is_chat else turn["content"])


def fetch(
    name: Annotated[str, Argument(metavar="NAME", help="A benchmark; `quatro benchmarks list` shows their names.")],
    file: Annotated[
        Path | None, Option("--from", metavar="FILE", help="Read this .jsonl, .csv or .parquet file, not the Hub.")
    ] = None,
) -> None:
    """Copy a benchmark into the cache, from the Hub or a file.

    The first fetch records the Hub's commit and a hash of problems and answers; a later fetch must match it. The cache
    is $QUATRO_CACHE/benchmarks.

    \b
    Examples:
      quatro benchmarks fetch math500
      quatro benchmarks fetch aime24 --from aime24.jsonl
    """
    from evals.benchmarks import fetching, loading

    entry = loading.known_benchmark(name)
    problems, lock = fetching.fetch(entry, file=file)
    origin = f"{lock.hub} at commit {lock.commit}" if lock.hub is not None else lock.file
    output.info(f"{name}: {len(problems)} problems from {origin}, SHA-256 {lock.sha256}")
    if lock.same_as_registry:
        output.info("their content is the one that the registry's count and hash were computed from")
    output.data(str(fetching.cached_path(entry)))


def _own_file(path: str) -> Benchmark | None:
    """The benchmark that a file is; None where ``path`` is not named like a file of problems."""
    from evals.benchmarks.catalogue import Benchmark, grader_of
    from evals.benchmarks.problems import FILE_ENDINGS, benchmark_name

    if not path.endswith(FILE_ENDINGS):
        return None
    if not Path(path).is_file():
        raise usage_error(f"there is no file {path}; name one that exists, or a benchmark of `quatro benchmarks list`")
    name = benchmark_name(path)
    return Benchmark(name=name, title=name, file=path, grader=grader_of(name))


def _entry(entry: Benchmark) -> dict[str, Any]:
    shown = {
        "name": entry.name,
        "title": entry.title,
        "problems": entry.count or None,
        "verified": entry.verified,
        "licence": entry.licence or "unknown",
        "source": entry.source,
        "file": str(entry.path) if entry.file else None,
        "defined_in": str(entry.defined_in) if entry.defined_in is not None else None,
    }
    of_gym = () if entry.reasoning_gym else ("reasoning_gym", "settings", "num_train")
    return shown | entry.model_dump(exclude={*shown, "count", "made_by", *of_gym})


def _how_to_get(entry: Benchmark) -> str:
    from evals.errors import how_to_install

    if entry.file:
        return f"no; there is no {entry.path}"
    return f"no; type: {f'quatro benchmarks fetch {entry.name}' if entry.hub else how_to_install('gym')}"


def _word(value: object) -> object:
    return str(value).lower() if isinstance(value, bool) else value


def _source(entry: Benchmark) -> str:
    if entry.source == "built-in":
        return "reasoning-gym" if entry.grader == "reasoning-gym" else "built in"
    return str(entry.path) if entry.source == "file" else entry.hub[0].id


app.add("list", list_)
app.add("show", show)
app.add("fetch", fetch)
