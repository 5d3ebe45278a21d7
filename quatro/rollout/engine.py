"""The interface of a rollout engine and of samplers, the engines there are, and the random stream of each rollout.

`transformers.py`, `vllm.py` and `replay.py` implement it; what needs torch is imported when an engine is made. After
each iteration the loop calls `Engine.sync`; there an engine with weights of its own takes over the policy's.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evals.errors import UsageError, require
from evals.samples.reading import read_samples
from quatro.config.blocks import CPU_SIZES
from quatro.policy.device import USED_SHARE, drawing_limits, free_bytes, total_bytes
from quatro.policy.facts import stop_ids
from quatro.policy.loading import load_model, load_shape
from quatro.rollout.stops import check_temperature
from quatro.types import Prompt, Rollout, Sampling, Tensor

if TYPE_CHECKING:
    from quatro.policy.base import Policy

RolloutProgress = Callable[[int, int], None]  # (rollouts finished, tokens drawn so far)
Seeds = Sequence[Sequence[int]]  # by prompt: 64 bits for each of its rollouts
_MASK_64 = (1 << 64) - 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


class Sampler(Protocol):
    """Draws responses. On a CPU, same seeds, weights and machine give the same ones, however the work is batched."""

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """``len(seeds[i])`` rollouts of ``prompts[i]``, one 64-bit seed each, in the order given.

        Raises DataError if a prompt leaves no room for a response in the model's context.
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

        Raises DivergedError if engine and policy disagree about a probe sequence afterwards.
        """

    def rest(self) -> None:
        """Nothing is drawn from here to the next `sync`: give memory back that the policy can use to learn."""
        return None

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
    of the engine transformers, which finds its own on a GPU where it samples alone. An engine alone on its GPU may take
    most of the memory. ``needs_logp``: the log-probability of every token that is drawn is needed, whatever the dtype.
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
    needs_logp: bool = False


class EngineKind(Protocol):
    """An entry of `ENGINES`, or a user's own: how an engine is checked and made. Ours import no torch at the top."""

    is_recorded: ClassVar[bool] = False  # deals out recorded responses, in one process, and draws no others
    shares_weights: ClassVar[bool] = False  # draws from the policy's own tensors, or from a copy of the policy's
    takes_adapters: ClassVar[bool] = True  # loads the folder of an adapter as it is
    rows_per_call: ClassVar[int | None] = None  # samples that a call should draw; None: fewer, the longer they are

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Whether the engine can draw at all of ``temperatures``, given by the names that errors use.

        Raises UsageError, MissingError or DataError if it cannot, as far as that is found out without torch.
        """

    @staticmethod
    def check_model(shape: Any) -> None:
        """Raises UsageError or MissingError if the engine cannot hold a model of configuration ``shape`` here."""

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Any = None) -> Engine:
        """The engine: one that follows the weights of the `Policy`, or draws from `recipe.weights` alone."""


class Transformers(EngineKind):
    """`rollout.engine: transformers`: a decode loop on the policy's own tensors."""

    shares_weights = True

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        import torch

        from quatro.rollout.transformers import CopyEngine, TransformersEngine

        limits: dict[str, Any] = {"max_batch_rows": recipe.rows_at_once, "max_batch_tokens": recipe.cache_tokens}
        if policy is None:
            model = load_model(recipe.weights, getattr(torch, recipe.dtype), recipe.device)
            ids = stop_ids(tokenizer, model)
            if (card := total_bytes(model.device)) is not None:
                room = int(USED_SHARE * (free_bytes(model.device) or 0))
                shape, number = model.config.get_text_config(), model.dtype.itemsize
                found = drawing_limits(card, room, shape, number, recipe.max_tokens)
                limits = {name: max(1, size) for name, size in zip(limits, found, strict=True)}
            return TransformersEngine(model, tokenizer, eos_ids=ids, collect_entropy=False, **limits)
        from quatro.policy.torch_policy import TorchPolicy

        if not isinstance(policy, TorchPolicy):
            raise UsageError(
                "rollout.engine: found transformers, which draws from tensors of this process, and the policy "
                f"{type(policy).__name__} has none here; expected vllm, which is sent the weights, or an engine of "
                "your own (module:Class)"
            )
        sampled = policy.sampling_model
        engine = TransformersEngine if sampled is policy.model else CopyEngine
        ids = stop_ids(tokenizer, policy.model)
        return engine(sampled, tokenizer, eos_ids=ids, compute=policy.computing, **limits)


class Vllm(EngineKind):
    """`rollout.engine: vllm`: vLLM with weights of its own, which `sync` replaces after each iteration."""

    takes_adapters = False
    rows_per_call = 2048  # it batches as it sees fit and is idle only at the end of a call

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Raises UsageError for a temperature that vLLM does not sample at, MissingError without its package."""
        for name, temperature in temperatures.items():
            check_temperature(name, temperature)
        require("vllm", "the engine vllm")

    @staticmethod
    def check_model(shape: Any) -> None:
        """Raises MissingError if vLLM cannot be imported, UsageError if it does not take the model's heads."""
        from quatro.rollout.vllm import check_usable

        check_usable(shape)

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        """Loaded from `recipe.weights`: the first `sync` brings the policy's own."""
        from quatro.rollout.vllm import Following, VllmEngine, that_follows

        model, follows = getattr(policy, "model", None) or load_shape(recipe.weights), Following(logp_every=0)
        if policy is not None:
            recipe, follows = that_follows(recipe, tokenizer, policy, model)
        return VllmEngine(recipe, tokenizer, shape=model.config, eos_ids=stop_ids(tokenizer, model), follows=follows)


class Replay(EngineKind):
    """`rollout.engine: replay`: recorded responses from a samples file."""

    is_recorded = True

    @staticmethod
    def check(*, temperatures: Mapping[str, float], replay_file: str | None = None) -> None:
        """Raises DataError if the file of recorded responses cannot be read."""
        read_samples([Path(replay_file or "")], keep_extra=False)

    @staticmethod
    def open(recipe: Recipe, tokenizer: Any, policy: Policy | None = None) -> Engine:
        from quatro.rollout.replay import ReplayEngine

        return ReplayEngine(Path(recipe.replay_file or ""), tokenizer)


# --- random streams -------------------------------------------------------------------------------------------------
# The identity of a rollout gives its seed, and (seed, position) gives each uniform. There is no state and no order:
# batches, ranks and resumes change nothing. The uniforms are splitmix64 at a position (Steele, Lea and Flood, OOPSLA
# 2014; constants of the reference C code by Vigna), computed in numpy, so they are the same for every device.


def rollout_seed(run_seed: int, iteration: int, prompt_key: str, rollout_index: int) -> int:
    """64-bit seed of rollout ``rollout_index`` of the prompt ``prompt_key`` at ``iteration`` of a training run."""
    return _hash64(b"quatro.rollout", (run_seed, iteration, rollout_index), (prompt_key,))


def sample_seed(seed: int, benchmark: str, problem_id: str, sample_index: int) -> int:
    """64-bit seed of sample ``sample_index`` of a benchmark problem."""
    return _hash64(b"quatro.sample", (seed, sample_index), (benchmark, problem_id))


def uniforms(seeds: NDArray[np.uint64], step: int | NDArray[np.uint64]) -> NDArray[np.float64]:
    """The uniforms in [0, 1), multiples of 2^-53, that streams ``seeds`` hold at position ``step`` (broadcast)."""
    position = np.asarray(step, dtype=np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the algorithm
        bits = seeds + position * _GOLDEN
        bits = (bits ^ (bits >> np.uint64(30))) * _MIX_1
        bits = (bits ^ (bits >> np.uint64(27))) * _MIX_2
        bits = bits ^ (bits >> np.uint64(31))
    uniform: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniform


def _hash64(purpose: bytes, numbers: tuple[int, ...], texts: tuple[str, ...]) -> int:
    """blake2b of the fields, each with a fixed width or its length in front, so that no two lists of fields agree."""
    digest = hashlib.blake2b(
        struct.pack(f"<{len(numbers)}Q", *(n & _MASK_64 for n in numbers)), digest_size=8, person=purpose
    )
    for text in texts:
        encoded = text.encode("utf-8")
        digest.update(struct.pack("<Q", len(encoded)) + encoded)
    return int.from_bytes(digest.digest(), "little")
