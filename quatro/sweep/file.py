"""Sweep files: named cells, each a grid on a base configuration, with single points added and taken away.

    base: quickstart                     # a configuration: file (beside this one), or shipped name
    overrides: {optimizer.lr: 3.0e-4}    # dotted keys, for every cell
    cells:
      staleness:
        overrides: {inner_updates: 5}
        axes: {method.name: [quatro, gspo], method.delta: [0.1, 0.01]}
        seeds: [0, 1, 2]
        include: [{method.name: gspo, method.preset: official}]
        exclude: [{method.name: quatro, method.delta: 0.1}]
        per_method: {gspo: {optimizer.lr: 1.0e-4}}

A cell may also have its own `base`, and `method` for a sweep without an axis over it. With `models: [A, B]`, in a
cell or for every cell, the runs of seed 0 begin with model A, those of seed 1 with B, those of seed 2 with A again.
The file may also hold what `--eval` and `--eval-...` say, each as a list; an option wins over it:

    evaluation: {benchmarks: [all], n: 256, temperature: [1], top_p: [0.7]}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from evals.errors import UsageError
from quatro.config import find_config, shipped_configs
from quatro.config.errors import closest
from quatro.config.yaml_reader import Document, KeyPath, load_yaml
from quatro.config.yaml_writer import scalar_text
from quatro.methods import METHODS
from quatro.sweep.measure import BASE_CELL
from quatro.sweep.plan import METHOD_AXIS, SEED_AXIS, Axis, Cell, Point, SweepPlan, plan_cell

TOP_KEYS = ("base", "overrides", "models", "cells", "evaluation")
CELL_KEYS = ("base", "method", "overrides", "per_method", "models", "axes", "seeds", "include", "exclude")


def find_sweep(source: str | Path) -> Path | None:
    """The sweep file that ``source`` means: a YAML file with `cells`, or a shipped one by name; else None.

    Raises:
        UsageError: the file is not strict YAML.
    """
    path = Path(source)
    name = str(source).removesuffix(".yaml").removeprefix("sweeps/")
    if not path.is_file():
        shipped = shipped_configs()["quickstart"].parent / "sweeps" / f"{name}.yaml"
        is_name = name.replace("-", "").replace(".", "").isalnum()
        return shipped if is_name and shipped.is_file() else None
    return path if "cells" in load_yaml(path).data else None


def load_sweep(path: Path, *, overrides: Sequence[str] = ()) -> SweepPlan:
    """Every point of every cell, its configuration checked; ``overrides`` come after those of the file.

    Raises:
        UsageError: `file:line: ...` for whatever is wrong in the file.
    """
    reader = _Reader(load_yaml(path), path)
    top = reader.block(reader.document.data, (), TOP_KEYS)
    cells = reader.block(top.get("cells"), ("cells",), None)
    shared = reader.overrides(top.get("overrides", {}), ("overrides",))
    points: list[Point] = []
    num_collapsed = 0
    for name, raw in cells.items():
        place = ("cells", name)
        if name == BASE_CELL:
            raise reader.refuse(place, f"the name {BASE_CELL} is that of the untrained models; choose another")
        of_all: dict[str, Any] = {key: top[key] for key in ("base", "models") if key in top}
        cell = reader.cell(name, of_all | reader.block(raw, place, CELL_KEYS), (*shared, *overrides))
        with_lines = reader.in_file_terms(place)
        try:
            added, collapsed = plan_cell(cell)
        except UsageError as error:
            raise with_lines(error) from None
        points += added
        num_collapsed += collapsed
    names = [point.name for point in points]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise reader.refuse(("cells",), f"two points are called {twice!r}; rename a cell")
    return SweepPlan(path.stem, tuple(points), num_collapsed)


def read_evaluation(path: Path) -> dict[str, Any]:
    """The block `evaluation` of a sweep file: lists by key, and ``n``; empty without one.

    Raises:
        UsageError: `file:line: ...` for whatever is wrong in the block.
    """
    reader = _Reader(load_yaml(path), path)
    raw = reader.document.data.get("evaluation")
    if raw is None:
        return {}
    kinds: dict[str, tuple[type, ...]] = {"benchmarks": (str,), "temperature": (int, float), "top_p": (int, float)}
    found = reader.block(raw, ("evaluation",), (*kinds, "n"))
    for key, value in found.items():
        place = ("evaluation", key)
        if key == "n":
            if type(value) is not int:
                raise reader.refuse(place, f"evaluation.n: found {_shown(value)}, expected a whole number such as 256")
        elif not isinstance(value, list) or not value or any(type(item) not in kinds[key] for item in value):
            example = "[math500, aime24] or [all]" if key == "benchmarks" else "[0.7, 1]"
            raise reader.refuse(place, f"evaluation.{key}: found {_shown(value)}, expected a list such as {example}")
    return found


@dataclass
class _Reader:
    document: Document
    path: Path
    # Where each `KEY=VALUE` stands that was made of an entry of the file: errors about it name that place.
    origins: dict[str, KeyPath] = field(default_factory=dict)

    def refuse(self, place: KeyPath, problem: str) -> UsageError:
        while place and place not in self.document.lines:
            place = place[:-1]
        return UsageError(f"{self.path}:{self.document.lines.get(place, 1)}: {problem}")

    def in_file_terms(self, place: KeyPath) -> Callable[[UsageError], UsageError]:
        def translate(error: UsageError) -> UsageError:
            text = str(error)
            for setting, origin in sorted(self.origins.items(), key=lambda item: -len(item[0])):
                if f"-s {setting}" in text:
                    return self.refuse(origin, f"{_words(place)}: {text.replace(f'-s {setting}: ', '')}")
            for setting, origin in self.origins.items():
                blocks = accumulate(setting.partition("=")[0].split("."), "{}.{}".format)
                if any(f": {block}: unknown key" in text for block in blocks):  # said of the base's file
                    return self.refuse(origin, f"{_words(place)}: {text.partition(': ')[2]}")
            choice = next((key for key in ("axes", "exclude", "include") if f" {key}" in f" {text}"), "")
            return self.refuse((*place, choice), f"{_words(place)}: {text}")

        return translate

    def block(self, value: Any, place: KeyPath, known: Sequence[str] | None) -> dict[str, Any]:
        """``value`` if it is a mapping with something in it and of ``known`` keys only."""
        if not isinstance(value, dict) or not value:
            what = "missing" if value is None else f"found {_shown(value)}"
            raise self.refuse(place, f"{_words(place)}: {what}, expected a block of keys")
        for key in value:
            if known is not None and key not in known:
                hint = closest(key, known) or f"; known here: {', '.join(known)}"
                raise self.refuse((*place, key), f"{_words((*place, key))}: unknown key{hint}")
        return value

    def cell(self, name: str, raw: Mapping[str, Any], shared: Sequence[str]) -> Cell:
        place = ("cells", name)
        method = raw.get("method")
        if method is not None and not isinstance(method, str):
            raise self.refuse((*place, "method"), f"method: found {_shown(method)}, expected a method's name")
        axes = list(self.axes(raw.get("axes"), (*place, "axes")))
        axes += self.seeds(raw.get("seeds"), (*place, "seeds"))
        entries = {key: tuple(self.entries(raw.get(key), (*place, key))) for key in ("include", "exclude")}
        self.check_excluded(entries["exclude"], axes, (*place, "exclude"))
        return Cell(
            source=self.base(raw.get("base"), self.place_of("base", place)),
            axes=tuple(axes),
            overrides=(*shared, *self.overrides(raw.get("overrides", {}), (*place, "overrides"))),
            method=method,
            include=entries["include"],
            exclude=entries["exclude"],
            per_method=self.per_method(raw.get("per_method", {}), (*place, "per_method")),
            models=self.models(raw.get("models"), self.place_of("models", place)),
            name=name,
        )

    def place_of(self, key: str, cell: KeyPath) -> KeyPath:
        """Where ``key`` of a cell stands: there, or at the top."""
        return (*cell, key) if (*cell, key) in self.document.lines else (key,)

    def models(self, value: Any, place: KeyPath) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
            raise self.refuse(place, f"models: found {_shown(value)}, expected a list of models, one for each seed")
        return tuple(self.setting("model", item, (*place, index)) for index, item in enumerate(value))

    def base(self, value: Any, place: KeyPath) -> Path:
        if not isinstance(value, str):
            what = "missing" if value is None else f"found {_shown(value)}"
            raise self.refuse(place, f"base: {what}, expected a configuration such as quickstart")
        beside = self.path.parent / value
        try:
            return beside if beside.is_file() else find_config(value)
        except UsageError as error:
            raise self.refuse(place, f"base: {error}") from None

    def setting(self, key: str, value: Any, place: KeyPath) -> str:
        """`KEY=VALUE`; remembers where it stands."""
        if isinstance(value, dict):
            example = f"{key}.{next(iter(value), 'x')}"
            raise self.refuse(place, f"{_words(place)}: found a block of keys, expected dotted keys such as {example}")
        text = scalar_text(value)
        self.origins[f"{key}={text}"] = place
        return text

    def overrides(self, value: Any, place: KeyPath) -> tuple[str, ...]:
        if value == {}:
            return ()
        found = self.block(value, place, None)
        if METHOD_AXIS in found:
            raise self.refuse((*place, METHOD_AXIS), f"{METHOD_AXIS}: write `method: NAME` in the cell")
        return tuple(f"{key}={self.setting(key, item, (*place, key))}" for key, item in found.items())

    def per_method(self, value: Any, place: KeyPath) -> dict[str, tuple[str, ...]]:
        if value == {}:
            return {}
        found = self.block(value, place, None)
        for name in found:
            if name not in METHODS and ":" not in name:
                raise self.refuse(
                    (*place, name),
                    f"per_method: unknown method {name!r}{closest(name, METHODS)}; there are {', '.join(METHODS)}",
                )
        return {name: self.overrides(block, (*place, name)) for name, block in found.items()}

    def axes(self, value: Any, place: KeyPath) -> Iterator[Axis]:
        for key, items in (self.block(value, place, None) if value is not None else {}).items():
            here = (*place, key)
            if not isinstance(items, list) or not items:
                raise self.refuse(here, f"{key}: found {_shown(items)}, expected a list of values such as [0.1, 0.01]")
            texts = tuple(self.setting(key, item, (*here, index)) for index, item in enumerate(items))
            if len(set(texts)) < len(texts):
                raise self.refuse(here, f"{key}: a value is given twice")
            yield Axis(key, texts)

    def seeds(self, value: Any, place: KeyPath) -> list[Axis]:
        if value is None:
            return []
        is_list = isinstance(value, list) and value and all(type(item) is int and item >= 0 for item in value)
        if not is_list or len(set(value)) < len(value):
            raise self.refuse(place, f"seeds: found {_shown(value)}, expected different whole numbers such as [0, 1]")
        return [Axis(SEED_AXIS, tuple(map(str, value)))]

    def entries(self, value: Any, place: KeyPath) -> Iterator[dict[str, str]]:
        if value is None:
            return
        if not isinstance(value, list) or not value:
            raise self.refuse(place, f"{place[-1]}: found {_shown(value)}, expected a list of {{key: value}} entries")
        for index, entry in enumerate(value):
            here = (*place, index)
            found = self.block(entry, here, None)
            yield {key: self.setting(key, item, (*here, key)) for key, item in found.items()}

    def check_excluded(self, entries: Sequence[Mapping[str, str]], axes: Sequence[Axis], place: KeyPath) -> None:
        values = {axis.key: axis.values for axis in axes}
        for index, entry in enumerate(entries):
            for key, value in entry.items():
                here = (*place, index, key)
                if key not in values:
                    known = closest(key, values) or f"; the axes of this cell: {', '.join(values)}"
                    raise self.refuse(here, f"exclude: no axis {key!r}{known}")
                if value not in values[key]:
                    raise self.refuse(here, f"exclude: {key} has no value {value}, it has {', '.join(values[key])}")


def _words(place: KeyPath) -> str:
    return ".".join(map(str, place)) or "sweep"


def _shown(value: Any) -> str:
    return "a block of keys" if isinstance(value, dict) else scalar_text(value)[:80]
