"""Sweep files: named cells, each a grid on a base configuration, with single points added to it.

    base: quickstart                     # a configuration: file (beside this one), or shipped name
    overrides: {optimizer.lr: 3.0e-4}    # dotted keys, for every cell
    cells:
      staleness:
        overrides: {inner_updates: 5}
        axes: {method.name: [quatro, gspo], method.delta: [0.1, 0.01]}
        seeds: [0, 1, 2]
        include: [{method.name: gspo, method.preset: official}]

A cell may also have its own `base`, and `method` for a sweep without an axis over it. With `models: [A, B]`, in a
cell or for every cell, the runs of seed 0 begin with model A, those of seed 1 with B, those of seed 2 with A again.
The file may also hold what `--eval` and `--eval-...` say, each as a list; an option wins over it:

    evaluation: {benchmarks: [all], n: 256, temperature: [1], top_p: [0.7]}
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from evals.errors import MissingError, UsageError
from quatro.config import find_config, shipped_configs
from quatro.config.errors import problem_lines, problems_of
from quatro.config.paths import KEYS, PROMPTS, locate, source_places, take_records, why_lost
from quatro.config.yaml_text import Document, load_yaml, scalar_text
from quatro.runs.points import SWEEP, is_sweep
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.plan import METHOD_AXIS, SEED_AXIS, Axis, Cell, Point, SweepPlan, plan_cell


def _refuse_block(value: Any) -> Any:
    if isinstance(value, dict):
        raise ValueError("found a block of keys, expected dotted keys such as optimizer.lr")
    return value


def _require_different(values: list[Any]) -> list[Any]:
    if not values or len({scalar_text(value) for value in values}) < len(values):
        raise ValueError("expected a list of different values")
    return values


Item = TypeVar("Item")
Value = Annotated[Any, AfterValidator(_refuse_block)]
Values = Annotated[list[Item], AfterValidator(_require_different)]
Settings = dict[str, Value]  # dotted key -> value


class _Block(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _CellBlock(_Block):
    base: str | None = None
    method: str | None = None
    models: Values[str] = []
    overrides: Settings = {}
    axes: dict[str, Values[Value]] = {}
    seeds: Values[Annotated[int, Field(ge=0)]] = []
    include: list[Settings] = []


class _Evaluation(_Block):
    benchmarks: Values[str] = []
    n: int = 256
    temperature: Values[float] = []
    top_p: Values[float] = []


class _SweepFile(_Block):
    base: str | None = None
    models: Values[str] = []
    overrides: Settings = {}
    cells: Annotated[dict[str, _CellBlock], Field(min_length=1)]
    evaluation: Any = None  # `read_evaluation` checks it


def find_sweep(source: str | Path) -> Path | None:
    """A YAML file with `cells`, or a shipped one by name; else None. Raises UsageError if it is not strict YAML."""
    path = Path(source)
    name = str(source).removesuffix(".yaml").removeprefix("sweeps/")
    if not path.is_file():
        shipped = shipped_configs()["quickstart"].parent / "sweeps" / f"{name}.yaml"
        is_name = name.replace("-", "").replace(".", "").isalnum()
        return shipped if is_name and shipped.is_file() else None
    return path if "cells" in load_yaml(path).data else None


def load_sweep(path: Path, *, overrides: Sequence[str] = ()) -> SweepPlan:
    """Every point of every cell, its configuration checked; ``overrides`` come after those of the file.

    Raises UsageError, `file:line: ...`, for whatever is wrong in the file.
    """
    document = load_yaml(path)
    file = _checked(_SweepFile, document, document.data)
    points: list[Point] = []
    num_collapsed = 0
    for name, block in file.cells.items():
        try:
            _locate(block, file, path.parent)
            added, collapsed = plan_cell(_cell(name, block, file, path.parent, overrides))
        except UsageError as error:
            raise _in_file_terms(document, name, str(error)) from None
        points += added
        num_collapsed += collapsed
    if twice := [name for name, count in Counter(point.name for point in points).items() if count > 1]:
        raise UsageError(f"{path}: two points are called {twice[0]!r}; rename a cell")
    return SweepPlan(path.stem, tuple(points), num_collapsed)


def read_evaluation(path: Path) -> dict[str, Any]:
    """The block `evaluation` of a sweep file: lists by key, and ``n``; empty without one.

    Raises:
        UsageError: `file:line: ...` for whatever is wrong in the block.
        MissingError: a file of problems is not what it was when it was written down.
    """
    document = load_yaml(path)
    raw = document.data.get("evaluation")
    if raw is None:
        return {}
    records = take_records(raw) if isinstance(raw, dict) else {}
    found = _checked(_Evaluation, document, raw, "evaluation").model_dump(exclude_unset=True)
    names = found.get("benchmarks", [])
    places = ((f"benchmarks.{number}", names, number) for number in range(len(names)))
    for key, one in locate(places, records, path.parent).items():
        if one.record is not None and (why := why_lost(one.text, one.record)):
            raise MissingError(f"{path}: {key}: {why}; put it back")
    return found


def recorded_evaluation(sweep: Path) -> dict[str, Any]:
    """`read_evaluation` of a sweep's folder; empty where there is none, or where its sweep.yaml is damaged."""
    try:
        return read_evaluation(sweep / SWEEP) if is_sweep(sweep) else {}
    except UsageError:  # as of a plan that cannot be read: it is written anew
        return {}


Block = TypeVar("Block", bound=_Block)


def _checked(kind: type[Block], document: Document, value: Any, *above: str) -> Block:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        places = {place: f"{document.name}:{line}" for place, line in document.lines.items()}
        owners = {(*above, *one["loc"][:-1]): _CellBlock if one["loc"][1:] else kind for one in error.errors()}
        raise UsageError("\n".join(problem_lines(problems_of(error, owners, above), places, document.name))) from None


def _cell(name: str, block: _CellBlock, file: _SweepFile, folder: Path, overrides: Sequence[str]) -> Cell:
    if name == BASE_CELL:
        raise UsageError(f"the name {BASE_CELL} is that of the untrained models; choose another")
    base = block.base or file.base
    if base is None:
        raise UsageError("base: missing, expected a configuration such as quickstart")
    if METHOD_AXIS in file.overrides | block.overrides:
        raise UsageError(f"overrides: {METHOD_AXIS}: write `method: NAME` in the cell")
    axes = [Axis(key, tuple(map(scalar_text, values))) for key, values in block.axes.items()]
    axes += [Axis(SEED_AXIS, tuple(map(str, block.seeds)))] if block.seeds else []
    return Cell(
        source=folder / base if (folder / base).is_file() else find_config(base),
        axes=tuple(axes),
        overrides=(*_assigned(file.overrides), *_assigned(block.overrides), *overrides),
        method=block.method,
        include=tuple({key: scalar_text(value) for key, value in entry.items()} for entry in block.include),
        models=tuple(map(scalar_text, block.models or file.models)),
        name=name,
    )


def _locate(block: _CellBlock, file: _SweepFile, folder: Path) -> None:
    """Look for the files that they name in the ``folder`` of the sweep file."""
    lists = [*block.axes.items(), ("model", block.models), ("model", file.models)]
    several: list[tuple[str, Any, Any]] = [(key, some, at) for key, some in lists for at in range(len(some))]
    several += [(key, some, key) for some in (file.overrides, block.overrides, *block.include) for key in some]
    locate([one for one in several if one[0] in KEYS and isinstance(one[1][one[2]], str)], {}, folder)
    locate((place for key, some, at in several if key == PROMPTS for place in source_places(some[at])), {}, folder)


def _assigned(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}={scalar_text(value)}" for key, value in settings.items())


def _in_file_terms(document: Document, cell: str, problem: str) -> UsageError:
    """``problem`` of a cell with the line of the entry that it calls `-s KEY=VALUE`, or else with that of the cell."""
    line = document.lines["cells", cell]
    for place, at in document.lines.items():
        if not place or (place[0] == "cells" and place[1:2] != (cell,)):
            continue
        key = [part for part in place if isinstance(part, str)][-1]
        value: Any = document.data
        for part in place:
            value = value[part]
        option = f"-s {'model' if key == 'models' else key}={scalar_text(value)}: "
        if option in problem:
            line, problem = at, problem.replace(option, "")
    return UsageError(f"{document.name}:{line}: cells.{cell}: {problem}")
