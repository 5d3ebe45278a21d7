"""Where a run stands: how many iterations are finished, and the one under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quatro.loop.iteration import Iteration
from quatro.loop.learn import Learner


@dataclass
class Position:
    """``step`` iterations are finished. The method gets ``carried`` in the next one.

    ``base`` is what was measured of the model before training.
    """

    learner: Learner
    step: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    iteration: Iteration | None = None
    base: Mapping[str, float] = field(default_factory=dict)

    def finish(self, carried: Mapping[str, float]) -> None:
        """The iteration under way is finished."""
        self.step, self.carried, self.iteration = self.step + 1, carried, None
