"""The paper's published numbers and its known misprints (`paper_results.json`).

Every value stands as printed: Pass@k in percent, UCC@k as a count. Tables are named by their LaTeX label.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from operator import itemgetter
from types import MappingProxyType

from evals.results.document import Result

BENCHMARKS = ("math500", "amc23", "aime24", "aime25", "minerva", "olympiad")  # of its average, in its order
CODE_BENCHMARKS = ("humaneval", "humanevalplus", "mbpp", "mbppplus")


@dataclass(frozen=True, slots=True)
class Series:
    """One method's values over k in one table.

    ``benchmark`` is a name of the registry or `average`. ``benchmark``, ``model`` and ``delta`` are None if the paper
    does not state them; ``k`` is (None,) for the final entropy. ``misprints`` say of each k what is wrong there.
    """

    table: str
    metric: str
    benchmark: str | None
    model: str | None
    method: str
    delta: float | None
    k: tuple[int | None, ...]
    value: tuple[float, ...]
    misprints: Mapping[int | None, str]

    @property
    def label(self) -> str:
        return self.method if self.delta is None else f"{self.method} delta={self.delta:g}"

    @property
    def is_ours(self) -> bool:
        return self.method == "Ours"

    def values(self) -> Mapping[int | None, float]:
        return dict(zip(self.k, self.value, strict=True))


@dataclass(frozen=True, slots=True)
class Paper:
    """All published series. ``remarks`` by table's label say what to know before comparing with it.

    ``sampling`` is n, temperature and top_p of its evaluations.
    """

    series: tuple[Series, ...]
    remarks: Mapping[str, tuple[str, ...]]
    sampling: Mapping[str, float]

    def of(self, metric: str) -> tuple[Series, ...]:
        return tuple(series for series in self.series if series.metric == metric)


@cache
def paper() -> Paper:
    """The published numbers, read once."""
    text = resources.files("evals.results").joinpath("paper_results.json").read_text(encoding="utf-8")
    document = json.loads(
        text,
        object_hook=lambda found: {key: tuple(one) if isinstance(one, list) else one for key, one in found.items()},
    )
    place = itemgetter("table", "metric", "benchmark", "model", "method", "delta")
    misprints: dict[object, dict[int | None, str]] = {}
    for flag in document["flags"]:
        if flag["kind"] == "misprint":  # and no contradiction between two tables, or wrong bold print
            misprints.setdefault(place(flag), {}).update(dict.fromkeys(flag["k"], flag["reason"]))
    series = [Series(**found, misprints=misprints.get(place(found), {})) for found in document["series"]]
    remarks: dict[str, tuple[str, ...]] = {}
    for remark in document["remarks"]:
        for table in remark["tables"]:
            remarks[table] = (*remarks.get(table, ()), remark["text"])
    return Paper(tuple(series), MappingProxyType(remarks), MappingProxyType(document["sampling"]))


def sampling_warnings(result: Result) -> list[str]:
    """What differs between the sampling of ``result`` and the paper's, where it is known."""
    stated = paper().sampling
    found = {name: getattr(result.sampling, name) for name in stated}
    words = [
        f"{name} {found[name]:g}, not {value:g}" for name, value in stated.items() if found[name] not in (None, value)
    ]
    return [f"these samples were drawn otherwise than the paper's: {'; '.join(words)}"] if words else []
