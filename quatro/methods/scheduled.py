"""Methods whose fields change over the run. The loop calls the functions below; other methods are left as they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

from quatro.methods.base import Method


class Scheduled(ABC):
    """A second base class for such a method, beside `Method`."""

    @property
    @abstractmethod
    def min_kl_radius(self) -> float | None:
        """The smallest radius in nats that `at` may put in force; None where the method has none."""

    @property
    @abstractmethod
    def needs_audit(self) -> bool:
        """Whether `carry` reads the realised KL of each iteration."""

    @abstractmethod
    def at(self, carried: Mapping[str, float]) -> Method:
        """The method in force in an iteration; ``carried`` is what `carry` returned for the one before, if any."""

    @abstractmethod
    def carry(self, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
        """The finite numbers that the next iteration is given, made of ``carried`` and the metrics of this one.

        They are part of a checkpoint. The loop asks the configured method, not the one in force.
        """


def method_at(method: Method, carried: Mapping[str, float]) -> Method:
    """The method in force in an iteration; ``carried`` is what `carry` returned for the one before, if any."""
    return method.at(carried) if isinstance(method, Scheduled) else method


def carry(method: Method, carried: Mapping[str, float], metrics: Mapping[str, float]) -> Mapping[str, float]:
    """Numbers that ``method`` takes into the next iteration."""
    return method.carry(carried, metrics) if isinstance(method, Scheduled) else {}


def min_kl_radius(method: Method) -> float | None:
    """The smallest radius in nats that is in force in any iteration; None where ``method`` has none."""
    return method.min_kl_radius if isinstance(method, Scheduled) else method.kl_radius


def needs_audit(method: object) -> bool:
    """Whether ``method`` reads the realised KL of each iteration."""
    return isinstance(method, Scheduled) and method.needs_audit
