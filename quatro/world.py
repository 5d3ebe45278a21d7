"""The ranks that train together. One process is a world of one, and every reduction is the identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from quatro.types import Metric


@dataclass(frozen=True)
class World:
    """Rank ``rank`` of ``size`` processes joined in torch.distributed's default group (when ``size`` > 1)."""

    rank: int = 0
    size: int = 1
    device: torch.device | str = "cpu"

    def sums(self, values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Each value summed over all ranks, in one message; every rank brings the same keys."""
        names = sorted(values)
        if self.size == 1 or not names:
            return {name: values[name] for name in names}
        stacked = torch.stack([values[name].double().to(self.device) for name in names])
        torch.distributed.all_reduce(stacked)
        return dict(zip(names, stacked, strict=True))

    def reduce(self, metrics: Mapping[str, Metric]) -> dict[str, float]:
        """Plain numbers: means as sum over count, the other kinds by their name. Every rank brings the same keys."""
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
                result[name] = self._extreme(_scalar(metric.value), metric.kind)
        return result

    def _extreme(self, value: torch.Tensor, kind: str) -> float:
        if self.size > 1:
            value = value.to(self.device)
            operation = torch.distributed.ReduceOp.MAX if kind == "max" else torch.distributed.ReduceOp.MIN
            torch.distributed.all_reduce(value, op=operation)
        return value.item()


def merge(metrics: Mapping[str, Metric], more: Mapping[str, Metric]) -> dict[str, Metric]:
    """Metrics of two disjoint sets of rows taken together."""
    merged = dict(metrics)
    for name, metric in more.items():
        other = merged.get(name)
        merged[name] = metric if other is None else _join(other, metric)
    return merged


def _join(a: Metric, b: Metric) -> Metric:
    if a.kind in ("mean", "sum"):
        return Metric(a.kind, _scalar(a.value) + _scalar(b.value), _scalar(a.count) + _scalar(b.count))
    pick = torch.maximum if a.kind == "max" else torch.minimum
    return Metric(a.kind, pick(_scalar(a.value), _scalar(b.value)))


def _scalar(value: float | torch.Tensor) -> torch.Tensor:
    return torch.as_tensor(value, dtype=torch.float64)
