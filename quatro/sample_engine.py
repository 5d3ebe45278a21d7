"""What draws samples: one engine in this process, or one per GPU in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evals.errors import MissingError, UsageError
from quatro import packages
from quatro.rollout.limits import check_temperature

if TYPE_CHECKING:
    from quatro.rollout.engine import Engine, Sampler
    from quatro.types import Sampling

logger = logging.getLogger(__name__)

EngineName = Literal["transformers", "vllm"]
ENGINES: tuple[EngineName, ...] = ("transformers", "vllm")

# Samples that one call of a vLLM engine draws, and a crash can lose: it batches as it sees fit and is idle only at
# the end of a call, so few long calls are best.
VLLM_ROWS_PER_CALL = 2048
GPU_MEMORY_UTILIZATION = 0.9  # nothing else of ours is on that GPU


@dataclass(frozen=True)
class Recipe:
    """All that a process needs to know to draw from a model; pickled to the processes of several GPUs.

    ``weights`` is a folder or Hub id, ``dtype`` float32 or bfloat16, ``max_tokens`` the most that prompt and response
    have together.
    """

    engine: EngineName
    weights: str
    dtype: str
    device: str
    max_tokens: int


def engine_name(name: str) -> EngineName:
    """``name``, if there is such an engine and its package.

    Raises:
        UsageError: there is no such engine.
        MissingError: its package is not installed.
    """
    for engine in ENGINES:
        if engine == name:
            if engine == "vllm":
                packages.require("vllm", "the engine vllm")
            return engine
    raise UsageError(f"unknown engine {name!r}; the engines are {', '.join(ENGINES)}")


def gpu_list(text: str | None) -> list[str]:
    """The devices that ``--gpus 0,1`` means, as CUDA_VISIBLE_DEVICES names them; none without the option.

    Raises:
        UsageError: not a list of different numbers, or a GPU that is not there.
        MissingError: there is no GPU at all.
    """
    if text is None:
        return []
    numbers = text.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise UsageError(f"--gpus takes numbers such as 0,1, found {text!r}")
    chosen = [int(number) for number in numbers]
    if len(set(chosen)) < len(chosen):
        raise UsageError(f"--gpus names a GPU twice: {text}")
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise MissingError(
            "--gpus needs a CUDA device, and PyTorch sees none here; leave it out, or see `quatro doctor`"
        )
    if max(chosen) >= count:
        raise UsageError(f"--gpus {text}: there are {count} GPUs here, numbered from 0")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return [names[number].strip() for number in chosen]


@contextlib.contextmanager
def open_sampler(recipe: Recipe, gpus: Sequence[str]) -> Iterator[Sampler]:
    """An engine in this process, or one on each of ``gpus`` in processes of their own; closed at the end.

    Raises:
        MissingError, UsageError, DataError: what the engines raise about the model.
        OSError: the merged model that vLLM needs of an adapter cannot be written; TMPDIR says where.
    """
    with _whole_model(recipe) as whole:
        if gpus:
            from quatro.rollout.sharded import ShardedSampler

            environments = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
            sampler: ShardedSampler | Engine = ShardedSampler(functools.partial(make_engine, whole), environments)
        else:
            sampler = make_engine(whole)
        try:
            yield sampler
        finally:
            sampler.close()


@contextlib.contextmanager
def _whole_model(recipe: Recipe) -> Iterator[Recipe]:
    """``recipe``, or where vLLM is to draw from an adapter, that of the merged model in a folder that is there inside.

    Merged once, however many GPUs draw, and loaded by vLLM like any other model.
    """
    import torch

    from quatro.policy.adapters import base_of
    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.policy.local import save_folder

    if recipe.engine != "vllm" or base_of(recipe.weights) == recipe.weights:
        yield recipe
        return
    with tempfile.TemporaryDirectory(prefix="quatro-merged-") as folder:
        logger.info("merging the adapter %s into %s", recipe.weights, folder)
        model = load_model(recipe.weights, getattr(torch, recipe.dtype), "cpu")
        save_folder(model, Path(folder), load_tokenizer(recipe.weights))
        del model  # its memory is vLLM's on a machine without a GPU
        yield replace(recipe, weights=folder)


def make_engine(recipe: Recipe) -> Engine:
    """The engine of ``recipe`` in this process; vLLM's takes no adapter, see `open_sampler`."""
    import torch

    from quatro.policy.loading import load_model, load_tokenizer, stop_ids

    tokenizer = load_tokenizer(recipe.weights)
    if recipe.engine == "vllm":
        from quatro.rollout.vllm import VllmEngine

        shape = _shape(recipe.weights)
        return VllmEngine(
            recipe.weights,
            tokenizer,
            shape=shape.config,
            eos_ids=stop_ids(tokenizer, shape),
            dtype=recipe.dtype,
            max_model_len=recipe.max_tokens,
            gpu_memory_utilization=GPU_MEMORY_UTILIZATION,
            collect_logp=False,
        )
    from quatro.rollout.transformers import TransformersEngine

    model = load_model(recipe.weights, getattr(torch, recipe.dtype), recipe.device)
    return TransformersEngine(model, tokenizer, eos_ids=stop_ids(tokenizer, model), collect_entropy=False)


def _shape(weights: str) -> Any:
    """The model without weights, with the generation config that comes with them: it may name more stop tokens."""
    from transformers import GenerationConfig

    from quatro.policy.loading import load_shape

    shape = load_shape(weights)
    with contextlib.suppress(OSError):  # there is none, and the model's own configuration says it all
        shape.generation_config = GenerationConfig.from_pretrained(weights)
    return shape


def check_sampling(engine: EngineName, sampling: Sampling) -> None:
    """Raises UsageError for what ``engine`` cannot draw."""
    if engine == "vllm":
        check_temperature("temperature", sampling.temperature)


def rows_per_call(recipe: Recipe, sampling: Sampling, num_engines: int) -> int:
    """Samples that one call draws: what keeps all engines busy."""
    from quatro.sample_benchmark import rows_per_call as rows_of_one

    rows = VLLM_ROWS_PER_CALL if recipe.engine == "vllm" else rows_of_one(sampling)
    return rows * max(1, num_engines)
