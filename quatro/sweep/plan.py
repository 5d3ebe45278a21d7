"""Which points a sweep has: the grid of its axes, each point with its whole configuration. Imports no torch."""

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evals.errors import DataError, UsageError
from quatro.config import Config, load_config, pinned, resolve_config
from quatro.config.errors import closest
from quatro.config.yaml_text import load_yaml
from quatro.methods.base import Method
from quatro.registry import METHODS
from quatro.runs.points import SWEEP, config_file, is_sweep, planned_config, read_points

METHOD_AXIS = "method.name"
SEED_AXIS = "seed"


@dataclass(frozen=True)
class Axis:
    """One key of the configuration and the values it takes, as text."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Point:
    """One run. ``settings`` are the axes that apply to it, key -> value as text; ``cell`` is its part of the sweep."""

    name: str
    settings: Mapping[str, str]
    config: Config
    cell: str = ""


@dataclass(frozen=True)
class SweepPlan:
    """``num_collapsed`` combinations differ only in keys that their method does not have; they became one point."""

    name: str
    points: tuple[Point, ...]
    num_collapsed: int


@dataclass(frozen=True)
class Cell:
    """A grid on one base configuration, with single points added to it.

    ``include`` maps keys to values as text. An included point is crossed with an axis over the seed. Seed i begins
    with the model number i modulo their number of ``models``, so that what is measured over seeds is measured over
    these models too.
    """

    source: str | Path
    axes: tuple[Axis, ...] = ()
    overrides: tuple[str, ...] = ()
    method: str | None = None
    include: tuple[Mapping[str, str], ...] = ()
    models: tuple[str, ...] = ()
    name: str = ""


def parse_axis(text: str) -> Axis:
    """``method.delta=0.1,0.01`` as an axis; commas inside brackets or quotes separate nothing.

    Raises UsageError for no key, no value, or the same value twice.
    """
    key, separator, value_text = text.partition("=")
    whole = r"""\[[^\]]*\]|"[^"]*"|'[^']*'|,"""
    separated = re.sub(whole, lambda found: "\0" if found[0] == "," else found[0], value_text)
    values = tuple(value.strip() for value in separated.split("\0") if value)
    if not separator or not key.strip() or not values or not all(values):
        raise UsageError(f"-g {text}: expected KEY=VALUE,VALUE such as method.delta=0.1,0.01")
    if len(set(values)) < len(values):
        raise UsageError(f"-g {text}: a value is given twice")
    return Axis(key.strip(), values)


def plan_sweep(
    source: str | Path,
    axes: Sequence[Axis],
    *,
    seeds: Sequence[int] = (),
    overrides: Sequence[str] = (),
    method: str | None = None,
) -> SweepPlan:
    """Every point of the grid, in the order of the axes, with its configuration checked.

    An axis over `method.name` replaces the method block. An axis `method.X` applies to points whose method has X.

    Raises UsageError if an axis is given twice or applies to no point, or a point's configuration is wrong.
    """
    if seeds:
        axes = [*axes, Axis(SEED_AXIS, tuple(map(str, seeds)))]
    points, num_collapsed = plan_cell(Cell(source, tuple(axes), tuple(overrides), method))
    stem = resolve_config(source, overrides=overrides, method=method).stem
    return SweepPlan(stem, points, num_collapsed)


def part_of(plan: SweepPlan, cells: Sequence[str], seeds: Sequence[int]) -> SweepPlan:
    """The points of these cells with these seeds, in the order of the plan; an empty list leaves none out.

    Raises UsageError if the plan has no such cell, or no point of these cells has such a seed.
    """
    if not cells and not seeds:
        return plan
    known = list(dict.fromkeys(point.cell for point in plan.points))
    if unknown := [name for name in cells if name not in known]:
        raise UsageError(f"--cell {','.join(unknown)}: {plan.name} has the cells {', '.join(known)}")
    points = [point for point in plan.points if not cells or point.cell in cells]
    found = {point.settings.get(SEED_AXIS, str(point.config.seed)) for point in points}
    if missing := [seed for seed in seeds if str(seed) not in found]:
        raise UsageError(
            f"--seeds {','.join(map(str, missing))}: {plan.name} has the seeds {', '.join(sorted(found, key=int))}; "
            "add others in a copy of the file"
        )
    wanted = set(map(str, seeds)) or found
    chosen = (point for point in points if point.settings.get(SEED_AXIS, str(point.config.seed)) in wanted)
    return SweepPlan(plan.name, tuple(chosen), 0)


def plan_cell(cell: Cell) -> tuple[tuple[Point, ...], int]:
    """The points of one cell in the order of its axes, included ones last, and how many combinations collapsed.

    Raises UsageError as `plan_sweep`.
    """
    keys = [axis.key for axis in cell.axes]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise UsageError(f"the key {twice} has two axes; give it one with all of its values")
    base = resolve_config(cell.source, overrides=cell.overrides, method=cell.method).config
    settings: list[dict[str, str]] = []
    num_combinations = 0
    if cell.axes or not cell.include:
        for values in itertools.product(*(axis.values for axis in cell.axes)):
            setting = dict(zip(keys, values, strict=True))
            kind = METHODS[setting[METHOD_AXIS]] if METHOD_AXIS in setting else type(base.method)
            applicable = {key: value for key, value in setting.items() if _applies(key, kind)}
            if applicable not in settings:
                settings.append(applicable)
        num_combinations = math.prod(len(axis.values) for axis in cell.axes)
        for key in keys:
            if not any(key in setting for setting in settings):
                kinds = {METHODS[one[METHOD_AXIS]] if METHOD_AXIS in one else type(base.method) for one in settings}
                known = sorted({f"method.{name}" for kind in kinds for name in kind.model_fields})
                raise UsageError(
                    f"-g {key}=...: no method of this sweep has the key {key.removeprefix('method.')!r}"
                    f"{closest(key, known)}"
                )
    num_collapsed = num_combinations - len(settings)
    seeds = next((axis.values for axis in cell.axes if axis.key == SEED_AXIS), ())
    for extra in cell.include:
        for added in [dict(extra)] if SEED_AXIS in extra or not seeds else [{**extra, SEED_AXIS: s} for s in seeds]:
            if added not in settings:
                settings.append(added)
    last = {key: key.rpartition(".")[2] for key in [*keys, *(key for extra in cell.include for key in extra)]}
    # Each key's last part, or the whole key where two would look the same.
    short = {key: part if list(last.values()).count(part) == 1 else key for key, part in last.items()}
    prefix = f"{cell.name}-" if cell.name else ""
    points = tuple(
        Point(_point_name(prefix, setting, short), setting, _point_config(cell, setting, base), cell.name)
        for setting in settings
    )
    return points, num_collapsed


def _applies(key: str, method: type[Method]) -> bool:
    """Whether a point of ``method`` has the dotted ``key``; only its own block is unlike that of other methods."""
    return not key.startswith("method.") or key.split(".")[1] in method.model_fields


def _point_config(cell: Cell, setting: Mapping[str, str], base: Config) -> Config:
    name = setting.get(METHOD_AXIS)
    others = [f"{key}={value}" for key, value in setting.items() if key != METHOD_AXIS]
    overrides: Sequence[str] = cell.overrides
    if name is not None:
        # An override method.X goes to the points whose method has X, like an axis over it.
        overrides = [text for text in overrides if _applies(text.partition("=")[0].strip(), METHODS[name])]
    if cell.models:
        seed = int(setting.get(SEED_AXIS, base.seed))
        overrides = [*overrides, f"model={cell.models[seed % len(cell.models)]}"]
    return pinned(load_config(cell.source, overrides=[*overrides, *others], method=name or cell.method))


def _point_name(prefix: str, setting: Mapping[str, str], short: Mapping[str, str]) -> str:
    """``quatro-delta=0.1-seed=0``; what has no place in a file name becomes an underscore and a hash tells it apart."""
    from hashlib import blake2b

    parts = [value if key == METHOD_AXIS else f"{short[key]}={value}" for key, value in setting.items()]
    name = prefix + ("-".join(parts) or "point")
    safe = re.sub(r"[^A-Za-z0-9._=-]+", "_", name)[:120]
    return (
        safe if safe == name else f"{safe}-{blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    )


# ---- the plan as the sweep's folder has it, so that the sweep goes on without the command that began it


def find_begun(source: str | Path) -> Path | None:
    """The folder of a sweep that ``source`` means: the folder, or the sweep.yaml in it; None for anything else."""
    path = Path(source)
    if path.name == SWEEP and path.is_file() and "points" in load_yaml(path).data:
        return path.parent
    return path if is_sweep(path) else None


def read_plan(folder: Path) -> SweepPlan:
    """Every point of the sweep in ``folder`` with the configuration that it was planned with.

    Raises DataError if sweep.yaml or the configuration of a point is missing or damaged, or is of another point.
    """
    points = []
    for name, (cell, settings) in read_points(folder).items():
        file = config_file(folder, name)
        if not file.is_file():
            raise DataError(f"{file} is missing: {folder} cannot go on without it; repeat the command that began it")
        points.append(Point(name, settings, pinned(planned_config(folder, name, settings)), cell))
    data = load_yaml(folder / SWEEP).data
    num_collapsed = data.get("num_collapsed")
    return SweepPlan(str(data.get("name")), tuple(points), num_collapsed if type(num_collapsed) is int else 0)
