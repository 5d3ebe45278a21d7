"""What the loop asks of a rollout engine; `transformers.py`, `vllm.py` and `replay.py` answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from torch import Tensor

RolloutProgress = Callable[[int, int], None]  # (rollouts finished, tokens drawn so far)


class Share(NamedTuple):
    """Rollouts ``start`` to ``stop`` (exclusive) of prompt number ``prompt``."""

    prompt: int
    start: int
    stop: int


class Sampler(Protocol):
    """Draws responses. Same seeds, weights and machine give the same responses, however the work is batched."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        seeds: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        progress: RolloutProgress | None = None,
    ) -> list[list[Rollout]]:
        """``len(seeds[i])`` rollouts of ``prompts[i]``, one 64-bit seed each, in the order given.

        Raises:
            DataError: a prompt leaves no room for a response in the model's context.
        """


class Engine(Sampler, Protocol):
    """A sampler that follows the policy's weights through a training run."""

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Take over the policy's weights; returns metrics (empty where the engine shares the policy's tensors).

        ``named_weights`` yields the complete model under Hugging Face names; its tensors must stay as they are until
        the iterator is exhausted, because an engine may collect the parts of a fused layer first.

        Raises:
            DivergedError: engine and policy disagree about a probe sequence afterwards.
        """

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint must keep for the engine to go on from here (tensors, JSON values); mostly nothing."""

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from what `state` returned."""

    def close(self) -> None:
        """Give back what the engine holds (memory, processes); it draws nothing afterwards. Twice does no harm."""
