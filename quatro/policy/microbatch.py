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
    """``tokens`` of a micro-batch: as ``configured``, and fewer once memory has run out.

    The number decides the order of sums, so it is part of a run's state. ``under_way`` is the shape of the pass that is
    being made, (rows, tokens of each), which tells whether a smaller number can help.
    """

    def __init__(self, configured: int) -> None:
        self.configured = self.tokens = configured
        self.under_way = (0, 0)

    def attempt(self, work: Callable[[], T], device: torch.device) -> T:
        """``work()``. Whenever memory runs out, ``work`` is done again from its beginning in smaller micro-batches.

        Raises:
            MissingError: memory ran out in a pass over a single row.
        """
        while True:
            self.under_way = (0, 0)
            try:
                return work()
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(error)
            # Outside the handler: the error's traceback held on to the tensors of the failed pass.
            if device.type == "cuda":
                torch.cuda.empty_cache()

    def _halve(self, error: BaseException) -> None:
        """Halve ``tokens`` until the pass that failed would be cut."""
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        num_rows, length = self.under_way
        if num_rows == 1 or self.tokens == 1:
            raise MissingError(
                f"out of memory with a single response of {length} tokens, its prompt included, in a micro-batch "
                f"({reason}); the last checkpoint is intact. Begin a run that needs less: `quatro train "
                "RUN/config.yaml -s policy.gradient_checkpointing=true`, -s dtype=bfloat16, -s policy.lora.rank=16, or "
                "a lower rollout.max_new_tokens; `--dry-run` predicts what each of them needs"
            ) from error
        half, needed = self.tokens // 2, num_rows * length or self.tokens
        while half >= needed:
            half //= 2
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
        """Take over a number that memory has lowered, unless another number has been configured since."""
        if state["configured"] == self.configured:
            self.tokens = state["used"]
