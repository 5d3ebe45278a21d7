"""Options that several commands share: same name, same meaning, same help everywhere."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from typer import Argument, Option

if TYPE_CHECKING:
    from evals.results.reading import Expand

Number = TypeVar("Number", int, float)

repeated = partial(Option, default_factory=list, show_default=False)  # an option that may be given several times

Json = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]
DryRun = Annotated[bool, Option("--dry-run", help="Say what would be done, and do nothing.")]
Set = Annotated[
    list[str], repeated("-s", "--set", metavar="KEY=VALUE", help="Change one key of the configuration; repeatable.")
]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, in which the fields of a dataclass are options in place of each parameter of that class."""
    hints = get_type_hints(command, include_extras=True)
    fields_of: dict[str, list[str]] = {}
    parameters: list[Parameter] = []
    for one in signature(command).parameters.values():
        kind = hints[one.name]
        if isinstance(kind, type) and is_dataclass(kind):
            types, fields = get_type_hints(kind, include_extras=True), signature(kind).parameters.values()
            fields_of[one.name] = [field.name for field in fields]
            parameters += [field.replace(annotation=types[field.name]) for field in fields]
        else:
            parameters.append(one.replace(annotation=kind))

    @wraps(command)
    def with_options(**options: Any) -> None:
        for name, fields in fields_of.items():
            options[name] = hints[name](**{field: options.pop(field) for field in fields})
        command(**options)

    keywords = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters]
    vars(with_options)["__signature__"] = Signature(keywords)
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options


def benchmark_names(help: str) -> Any:
    """An option that takes names of benchmarks, several of them too."""
    return repeated("-b", "--benchmark", metavar="NAME[,NAME]", help=help)


Benchmarks = Annotated[list[str], benchmark_names("Only these benchmarks, by name.")]
Method = Annotated[
    str | None,
    Option("-m", "--method", metavar="METHOD", help="Replace the method by METHOD with its defaults, before any -s."),
]
Config = Annotated[
    str, Argument(metavar="CONFIG|RUN", help="A YAML file, a configuration that comes with quatro, or a run directory.")
]


def _allow_unsafe(given: bool) -> bool:
    if given:
        from evals.code.grading import ALLOW_UNSAFE

        os.environ[ALLOW_UNSAFE] = "1"  # for child processes, too
    return given


AllowUnsafe = Annotated[
    bool, Option("--allow-unsafe-code", callback=_allow_unsafe, help="Run model-written code even without isolation.")
]


def run_paths(metavar: str, help: str) -> Any:
    """An argument that takes run directories, and what else ``metavar`` and ``help`` say."""
    return Argument(metavar=metavar, help=help)


Run = Annotated[Path, run_paths("RUN", "A run directory.")]
Seed = Annotated[int, Option(metavar="N", help="Seed of everything random.")]
Step = Annotated[str | None, Option(metavar="N|best", help="Which checkpoint of a run. Default: the newest.")]
SweepCell = Annotated[
    str | None, Option(metavar="NAME", help="Use only this cell of a sweep. Default: all.", show_default=False)
]


def usage_error(message: str) -> Exception:
    """The UsageError to raise; `evals` is imported late, since another project's may be in its place."""
    from evals.errors import UsageError

    return UsageError(message)


def refuse_idle(options: Mapping[str, object], beside: str) -> None:
    """Raises UsageError for the first of ``options`` that was given: with ``beside`` it would be ignored."""
    for option, value in options.items():
        if value:
            raise usage_error(f"{option} has no effect beside {beside}; leave one of them out")


# What runs, sweeps and folders of samples consist of; results beside it may be replaced by newer ones.
_RECORDS = ("config.yaml", "environment.json", "status.json", "log.txt", "lock", "sampling.json")


def refuse_loss(out: Path | None, inputs: Sequence[Path]) -> None:
    """Raises UsageError if writing ``out`` would replace one of ``inputs``, samples, metrics or a part of a run."""
    if out is None or not out.exists():
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise usage_error(f"-o {out}: this file is read and would be replaced; name another file")
    real = out.resolve()
    of_checkpoint = "checkpoints" in real.parts and any((folder / "config.yaml").is_file() for folder in real.parents)
    if real.name.endswith((".jsonl", ".jsonl.gz")) or real.name in _RECORDS or of_checkpoint:
        raise usage_error(
            f"-o {out}: this file is no result, but samples, metrics or a part of a run, and would be replaced; "
            "name another file"
        )


def split(values: list[str], option: str = "") -> list[str]:
    """``["a,b", "c"]`` as ``["a", "b", "c"]``.

    Raises UsageError, which names ``option``, if a part between commas is empty.
    """
    parts = [(part.strip(), value) for value in values for part in value.split(",")]
    for part, value in parts:
        if option and not part:
            raise usage_error(f"{option} {value!r}: expected names separated by commas, none of them empty")
    return [part for part, _ in parts if part]


def checkpoint_step(text: str | None) -> int | Literal["best"] | None:
    """What --step says; raises UsageError unless it is an iteration or `best`."""
    if text is None:
        return None
    if text == "best":
        return "best"
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise usage_error(f"--step {text}: expected an iteration such as 20, or best")
    return int(text)


def names(text: str | None, option: str) -> list[str] | None:
    """``"a,b"`` as names, None where the option was not given; raises UsageError for an empty one."""
    return None if text is None else split([text], option)


def numbers(text: str | None, option: str, kind: type[Number]) -> list[Number] | None:
    """``"1,2,4"`` as numbers, None where the option was not given; raises UsageError naming it for anything else."""
    if text is None:
        return None
    try:
        found = [kind(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(math.isfinite(number) for number in found):
        example = "1,2,4" if kind is int else "0.8,0.9"
        shown = text if text.strip() else repr(text)
        raise usage_error(f"{option} {shown}: expected numbers separated by commas, such as {example}")
    return found


@dataclass(frozen=True)
class OfSweep:
    """Which samples of a sweep are meant."""

    top_p: Annotated[
        float | None, Option(metavar="P", help="A sweep's samples at this top_p, if several.", show_default=False)
    ] = None
    temperature: Annotated[
        float | None, Option(metavar="T", help="A sweep's samples at this temperature, if several.", show_default=False)
    ] = None
    cell: SweepCell = None

    def expander(self, paths: Sequence[Path]) -> Expand:
        """What reads a sweep among ``paths``; raises UsageError for an option without one, which would be ignored."""
        from quatro.runs.points import is_sweep, require_sweep
        from quatro.sweep.results import labelled_results

        require_sweep(paths, {f"--{name.replace('_', '-')}": value for name, value in vars(self).items()})
        return lambda folder: labelled_results(folder, **vars(self)) if is_sweep(folder) else None
