"""How many tokens a micro-batch holds, and what happens when memory runs out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TypeVar

import torch

from evals.errors import MissingError, is_out_of_memory

logger = logging.getLogger(__name__)

T = TypeVar("T")


class MicrobatchSize:
    """``tokens`` of a micro-batch: as ``configured``, and half of that once memory has run out.

    The number decides the order of sums, so it is part of a run's state.
    """

    def __init__(self, configured: int) -> None:
        self.configured = self.tokens = configured

    def attempt(self, work: Callable[[], T], device: torch.device) -> T:
        """``work()``. If memory runs out, ``work`` is done again from its beginning with half the tokens.

        Raises:
            MissingError: memory ran out again, or the number had been halved before.
        """
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            self._halve(error)
        # Outside the handler: the error's traceback held on to the tensors of the failed pass.
        if device.type == "cuda":
            torch.cuda.empty_cache()
        try:
            return work()
        except (RuntimeError, MemoryError) as error:
            if is_out_of_memory(error):
                self._halve(error)
            raise

    def _halve(self, error: BaseException) -> None:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        half = self.tokens // 2
        if self.tokens < self.configured or self.tokens == 1:
            raise MissingError(
                f"out of memory with microbatch_tokens={self.tokens}, where {self.configured} was configured "
                f"({reason}); the last checkpoint is intact. Begin a run that needs less: `quatro train "
                f"RUN/config.yaml -s microbatch_tokens={max(1, half)}`, with -s policy.gradient_checkpointing=true, or "
                "with a lower rollout.max_new_tokens"
            ) from error
        logger.warning(
            "out of memory with microbatch_tokens=%d (%s); the run goes on with %d and begins this optimiser step "
            "again",
            self.tokens,
            reason,
            half,
        )
        self.tokens = half

    def state(self) -> dict[str, int]:
        """What a checkpoint keeps."""
        return {"configured": self.configured, "used": self.tokens}

    def load_state(self, state: Mapping[str, int]) -> None:
        """Take over a number that was halved, unless another number has been configured since."""
        if state["configured"] == self.configured:
            self.tokens = state["used"]
