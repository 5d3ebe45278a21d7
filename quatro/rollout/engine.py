"""The interface of a rollout engine, which `transformers.py`, `vllm.py` and `replay.py` implement, and of samplers.

After each iteration the loop calls `Engine.sync`; there an engine with weights of its own takes over the policy's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from quatro.config.blocks import CPU_SIZES
from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from torch import Tensor

RolloutProgress = Callable[[int, int], None]  # (rollouts finished, tokens drawn so far)
Seeds = Sequence[Sequence[int]]  # by prompt: 64 bits for each of its rollouts


class Sampler(Protocol):
    """Draws responses. Same seeds, weights and machine give the same responses, however the work is batched."""

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """``len(seeds[i])`` rollouts of ``prompts[i]``, one 64-bit seed each, in the order given.

        Raises:
            DataError: a prompt leaves no room for a response in the model's context.
        """


class Arrival(NamedTuple):
    """Rollout ``row`` of prompt number ``number``, which is complete; it took ``num_tokens``."""

    number: int
    row: int
    rollout: Rollout
    num_tokens: int


class Engine(Sampler, Protocol):
    """A sampler that follows the policy's weights. Each engine says itself how, so that none draws from old ones."""

    def sync(self, named_weights: Callable[[], Iterator[tuple[str, Tensor]]]) -> Mapping[str, float]:
        """Take over the policy's weights; returns metrics (empty where the engine shares the policy's tensors).

        ``named_weights`` yields the complete model under Hugging Face names; its tensors must stay as they are until
        the iterator is exhausted, because an engine may collect the parts of a fused layer first.

        Raises:
            DivergedError: engine and policy disagree about a probe sequence afterwards.
        """

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What a checkpoint must keep for the engine to go on from here (tensors, JSON values); mostly nothing."""
        return {}, {}

    def load_state(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        return None

    def close(self) -> None:
        """Give back what the engine holds (memory, processes); it draws nothing afterwards. Twice does no harm."""
        return None


@dataclass(frozen=True)
class Recipe:
    """All that a process needs to draw from a model; it is pickled to the processes of several GPUs.

    ``engine`` is a name that `ENGINES` takes, ``weights`` a folder or Hub id, ``dtype`` float32 or bfloat16,
    ``max_tokens`` the most that prompt and response have together; ``rows_at_once`` and ``cache_tokens`` are the limits
    of the engine transformers. An engine alone on its GPU may take most of the memory.
    """

    engine: str
    weights: str
    dtype: str
    device: str
    max_tokens: int
    rows_at_once: int = CPU_SIZES.rows_at_once
    cache_tokens: int = CPU_SIZES.cache_tokens
    gpu_memory_utilization: float = 0.9
    replay_file: str | None = None


class EngineKind(Protocol):
    """An entry of `ENGINES`, or a user's own: how an engine is checked and made. Ours import no torch at the top."""

    is_recorded: ClassVar[bool] = False  # deals out recorded responses, in one process, and draws no others
    shares_weights: ClassVar[bool] = False  # draws from the policy's own tensors, or from a copy of the policy's
    takes_adapters: ClassVar[bool] = True  # loads the folder of an adapter as it is
    rows_per_call: ClassVar[int | None] = None  # samples that a call should draw; None: fewer, the longer they are

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Whether the engine can draw at all of ``temperatures``, given by the names that errors use.

        Raises:
            UsageError, MissingError, DataError: it cannot; whatever is found out without torch.
        """

    @staticmethod
    def check_model(shape: Any) -> None:
        """Raises UsageError or MissingError if the engine cannot hold a model of configuration ``shape`` here."""

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Any = None) -> Engine:
        """The engine: one that follows the weights of the `Policy`, or draws from `recipe.weights` alone."""
