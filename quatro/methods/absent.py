"""What stands for a method of the user's own in a run that is read where its module is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from evals.errors import UsageError
from quatro.methods.base import Method

if TYPE_CHECKING:
    from torch import Tensor

    from quatro.types import Advantages, Batch, Loss


class AbsentMethod(Method, extra="allow"):
    """Has the keys of the block as they stand, unchecked; it can be looked at and cannot train."""

    _reason: str = PrivateAttr("")

    @classmethod
    def of(cls, block: dict[str, Any], reason: str) -> AbsentMethod:
        found = cls.model_validate(block)
        found._reason = reason
        return found

    @property
    def kl_radius(self) -> float | None:
        """`delta`, if the block has one."""
        delta = (self.model_extra or {}).get("delta")
        return delta if isinstance(delta, float) else None

    def refuse(self) -> UsageError:
        """The error of the import, with what to do."""
        return UsageError(f"{self._reason}; call quatro from the folder that holds it")

    def advantages(self, reward_B: Tensor, group_B: Tensor) -> Advantages:
        """Raises UsageError."""
        raise self.refuse()

    def loss(self, logp_BT: Tensor, batch: Batch) -> Loss:
        """Raises UsageError."""
        raise self.refuse()
