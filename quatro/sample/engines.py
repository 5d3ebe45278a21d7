"""Opens what draws samples: one engine in this process, or one for each GPU in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from evals.errors import MissingError, UsageError
from quatro.registry import ENGINES
from quatro.rollout.engine import EngineKind, Recipe

if TYPE_CHECKING:
    from quatro.rollout.engine import Engine, Sampler
    from quatro.types import Sampling

logger = logging.getLogger(__name__)


def engine_name(name: str) -> str:
    """``name``, checked: it is an engine that draws samples, and its package is installed.

    Raises:
        UsageError: there is no such engine.
        MissingError: its package is not installed.
    """
    names = [engine for engine in ENGINES if not ENGINES[engine].is_recorded]
    if name not in names:
        raise UsageError(f"unknown engine {name!r}; the engines are {', '.join(names)}")
    ENGINES[name].check(temperatures={})
    return name


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
        OSError: the merged model of an adapter cannot be written; TMPDIR says where.
    """
    with _whole_model(recipe) as whole:
        if gpus:
            from quatro.rollout.sharded import ShardedSampler

            environments = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
            sampler: ShardedSampler | Engine = ShardedSampler(
                functools.partial(make_sampling_engine, whole), environments
            )
        else:
            sampler = make_sampling_engine(whole)
        try:
            yield sampler
        finally:
            sampler.close()


@contextlib.contextmanager
def _whole_model(recipe: Recipe) -> Iterator[Recipe]:
    """``recipe``, or for an adapter that the engine does not take, that of the merged model in a folder there inside.

    Merged once, however many GPUs draw, and loaded like any other model.
    """
    import torch

    from quatro.policy.adapters import base_of
    from quatro.policy.loading import load_model, load_tokenizer
    from quatro.policy.local import save_folder

    if ENGINES[recipe.engine].takes_adapters or base_of(recipe.weights) == recipe.weights:
        yield recipe
        return
    with tempfile.TemporaryDirectory(prefix="quatro-merged-") as folder:
        logger.info("merging the adapter %s into %s", recipe.weights, folder)
        model = load_model(recipe.weights, getattr(torch, recipe.dtype), "cpu")
        save_folder(model, Path(folder), load_tokenizer(recipe.weights))
        del model  # its memory is vLLM's on a machine without a GPU
        yield replace(recipe, weights=folder)


def make_sampling_engine(recipe: Recipe) -> Engine:
    """The engine of ``recipe`` in this process; for one that takes no adapters see `open_sampler`."""
    from quatro.policy.loading import load_tokenizer

    kind: type[EngineKind] = ENGINES[recipe.engine]
    return kind.open(recipe, load_tokenizer(recipe.weights))


def rows_per_call(recipe: Recipe, sampling: Sampling, num_engines: int) -> int:
    """Samples that one call draws: what keeps all engines busy."""
    from quatro.sample.benchmark import default_rows_per_call

    kind: type[EngineKind] = ENGINES[recipe.engine]
    rows = kind.rows_per_call or default_rows_per_call(sampling)
    return rows * max(1, num_engines)
