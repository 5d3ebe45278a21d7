"""The ranks that train together. For a single process everything here is the identity."""

# Axes: B rows (rollouts).

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch

from evals.errors import QuatroError
from quatro.types import Metric

CAUSE = "cause"  # the store's key for the reason why the first rank failed
CAUSE_WAIT_S = 5.0

T = TypeVar("T")
Number = TypeVar("Number", int, float)


class LostRankError(QuatroError):
    """Another rank is gone or did not come in time; ``is_said``: a rank has printed the reason already."""

    def __init__(self, message: str, *, exit_code: int = 1, is_said: bool = False) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.is_said = is_said


@dataclass(frozen=True)
class World:
    """Rank ``rank`` of ``size`` processes joined in torch.distributed's default group (when ``size`` > 1).

    All ranks must call every method that speaks to the others, in the same order. Small values travel by way of the
    CPU, whatever device the model is on. A rank that fails writes the reason into ``store``.
    """

    rank: int = 0
    size: int = 1
    store: Any = field(default=None, compare=False)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, count: int) -> range:
        """The numbers of the things that belong to this rank: every ``size``-th of ``count``."""
        return range(self.rank, count, self.size)

    def sums(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Each value summed over all ranks, in one message; every rank brings the same keys."""
        names = sorted(values)
        if self.size == 1 or not names:
            return {name: values[name] for name in names}
        stacked = torch.stack([values[name].detach().double().cpu() for name in names])
        with self.waiting("sums over the batch"):
            torch.distributed.all_reduce(stacked)
        device = values[names[0]].device
        return dict(zip(names, stacked.to(device), strict=True))

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """``value`` summed over all ranks."""
        return self.sums({"value": value})["value"]

    def reduce(self, metrics: Mapping[str, Metric]) -> dict[str, float]:
        """Plain numbers over all ranks: a mean is its sum over its count. Every rank brings the same keys."""
        result: dict[str, float] = {}
        sums = {f"{name}/value": _scalar(m.value) for name, m in metrics.items() if m.kind in ("mean", "sum")}
        sums |= {f"{name}/count": _scalar(m.count) for name, m in metrics.items() if m.kind == "mean"}
        totals = self.sums(sums)
        for name, metric in metrics.items():
            if metric.kind == "sum":
                result[name] = totals[f"{name}/value"].item()
            elif metric.kind == "mean":
                count = totals[f"{name}/count"].item()
                result[name] = totals[f"{name}/value"].item() / count if count else float("nan")
            else:
                result[name] = self.largest(_scalar(metric.value).item())
        return result

    def largest(self, value: Number) -> Number:
        """The largest value of any rank."""
        return max(self.gather_objects(value, "the largest of a number"))

    def gather(self, value_B: torch.Tensor) -> torch.Tensor:
        """The values of all ranks, rank after rank; ranks may bring different numbers of values."""
        if self.size == 1:
            return value_B
        # A copy, because pickling a part of a tensor sends all that it is a part of.
        own_B = value_B.detach().cpu().clone()
        return torch.cat(self.gather_objects(own_B, "values of each row")).to(value_B.device)

    def gather_objects(self, value: T, what: str) -> list[T]:
        """The values of all ranks, in the order of the ranks."""
        if self.size == 1:
            return [value]
        gathered: list[Any] = [None] * self.size
        with self.waiting(what):
            torch.distributed.all_gather_object(gathered, value)
        return gathered

    def from_first(self, make: Callable[[], T], what: str) -> T:
        """The value that ``make`` returns on rank 0, where alone it is called."""
        box: list[Any] = [make() if self.is_first else None]
        if self.size > 1:
            with self.waiting(what):
                torch.distributed.broadcast_object_list(box, src=0)
        made: T = box[0]
        return made

    def barrier(self, what: str) -> None:
        """Wait until every rank is here."""
        self.gather_objects(None, what)

    # --- when a rank is missing -------------------------------------------------------------------------------------

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Inside, an error that means a lost rank becomes a `LostRankError` with ``what`` and the reason, if known."""
        try:
            yield
        except RuntimeError as error:
            if self.size == 1 or not is_lost(error):
                raise
            cause = self.cause()
            if cause is not None:
                raise LostRankError(cause["message"], exit_code=cause["exit_code"], is_said=True) from error
            reason = " ".join(str(error).split())[:200]
            raise LostRankError(
                f"rank {self.rank} of {self.size} waited for {what}, and another rank is gone or did not come in time "
                f"({reason}); look for its own message above, or for a process that was killed; then go on with "
                "`quatro train RUN --resume` under the same launcher"
            ) from error

    def cause(self) -> dict[str, Any] | None:
        """Rank, message and exit_code of the first rank that failed; None if no rank says so within a few seconds."""
        if self.store is None:
            return None
        try:
            self.store.wait([CAUSE], timedelta(seconds=CAUSE_WAIT_S))
            found: dict[str, Any] = json.loads(self.store.get(CAUSE))
        except RuntimeError:  # nobody said so in time, or the store went with the rank that held it
            return None
        return found


def is_lost(error: BaseException) -> bool:
    """Whether an error of torch.distributed means that another process is gone or late."""
    if isinstance(error, torch.distributed.DistError):
        return True
    message = str(error)
    return any(
        words in message for words in ("gloo/", "Connection closed by peer", "Connection reset by peer", "Broken pipe")
    )


def merge(metrics: Mapping[str, Metric], more: Mapping[str, Metric]) -> dict[str, Metric]:
    """The metrics of two disjoint sets of rows together."""
    merged = dict(metrics)
    for name, metric in more.items():
        other = merged.get(name)
        merged[name] = metric if other is None else _join(other, metric)
    return merged


def _join(a: Metric, b: Metric) -> Metric:
    if a.kind in ("mean", "sum"):
        return Metric(a.kind, _scalar(a.value) + _scalar(b.value), _scalar(a.count) + _scalar(b.count))
    return Metric(a.kind, torch.maximum(_scalar(a.value), _scalar(b.value)))


def _scalar(value: float | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)
