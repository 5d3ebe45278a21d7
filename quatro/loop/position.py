"""Where a run stands: how many iterations are finished, and the one under way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quatro.config import Config
from quatro.loop.iteration import Iteration
from quatro.loop.learn import Learner
from quatro.methods.scheduled import carry
from quatro.runs.best import bests, ends_early, is_best


@dataclass
class Position:
    """``step`` iterations are finished. The method gets ``carried`` in the next one.

    ``base`` holds the metrics of the model before training.
    """

    learner: Learner
    step: int = 0
    carried: Mapping[str, float] = field(default_factory=dict)
    iteration: Iteration | None = None
    base: Mapping[str, float] = field(default_factory=dict)

    def finish(self, metrics: Mapping[str, float], config: Config) -> None:
        """The iteration under way is finished; what later ones need of its ``metrics`` is carried on."""
        carried = {**carry(config.method, self.carried, metrics), **bests(config, self.carried, metrics)}
        self.step, self.carried, self.iteration = self.step + 1, carried, None

    def is_over(self, config: Config) -> bool:
        """Whether no iteration is left, or the run ends early."""
        return self.step >= config.steps or ends_early(config, self.carried) is not None

    def is_kept(self, config: Config) -> bool:
        """Whether a checkpoint is due after the iteration just finished."""
        return self.is_over(config) or config.checkpoint.is_due(self.step) or is_best(config, self.carried, self.step)
