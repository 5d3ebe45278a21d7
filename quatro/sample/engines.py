"""Opens what draws samples: one engine in this process, or one for each GPU in processes of their own."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import multiprocessing
import os
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.errors import MissingError, QuatroError, UsageError
from quatro.policy.embedded import resolve_model
from quatro.policy.facts import context_limit, refuse_unknown_ids, vocabulary_size
from quatro.policy.loading import load_model, load_model_config, load_tokenizer, save_folder
from quatro.policy.model_files import base_of, model_digest
from quatro.registry import ENGINES
from quatro.rollout.engine import Engine, EngineKind, Recipe, RolloutProgress, Sampler, Seeds
from quatro.rollout.prompts import to_prompts, unused_chat_template
from quatro.rollout.stops import response_limits
from quatro.sample.benchmark import default_rows_per_call
from quatro.sample.request import SamplePlan
from quatro.sample.settings import Source
from quatro.types import Prompt, Rollout, Sampling

if TYPE_CHECKING:
    from quatro.rollout.server import ServerSampler

logger = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0


def gpu_list(text: str | None) -> list[str]:
    """The devices that ``--gpus 0,1`` means, as CUDA_VISIBLE_DEVICES names them; none without the option.

    Raises:
        UsageError: not a list of different numbers, or a GPU that is not there.
        MissingError: there is no GPU at all.
    """
    if text is None:
        return []
    numbers = [number.strip() for number in text.split(",")]
    if not all(map(str.isdecimal, numbers)) or len(set(numbers)) < len(numbers):
        raise UsageError(f"--gpus takes different numbers such as 0,1, found {text!r}")
    import torch

    count = torch.cuda.device_count()
    if not count:
        raise MissingError(
            "--gpus needs a CUDA device, and PyTorch sees none here; leave it out, or see `quatro doctor`"
        )
    if max(map(int, numbers)) >= count:
        raise UsageError(f"--gpus {text}: there are {count} GPUs here, numbered from 0")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(count)]
    return [names[int(number)].strip() for number in numbers]


@dataclass(frozen=True)
class Opened:
    """What draws, and what it is given: the prompts of each benchmark, and how many samples a call draws."""

    sampler: Sampler | ServerSampler
    prompts: list[list[Prompt]]
    source: Source
    rows_per_call: Callable[[Sampling], int]


def tokenized(plan: SamplePlan, tokenizer: Any, context: int | None) -> list[list[Prompt]]:
    """The prompts of each benchmark as token ids.

    Raises as `to_prompts`, and DataError if a prompt leaves no room for a response in a context of ``context`` tokens.
    """
    for note in dict.fromkeys(unused_chat_template(one.template, tokenizer) for one in plan.benchmarks):
        if note:
            logger.info(note)
    prompts = [list(to_prompts(one.problems, one.template, tokenizer)) for one in plan.benchmarks]
    for rows in prompts:
        response_limits(rows, 1, context=context)  # better now than hours into sampling
    return prompts


@contextlib.contextmanager
def open_local(plan: SamplePlan) -> Iterator[Opened]:
    """The engine of ``plan`` here. Raises as `tokenized` and `open_sampler`; DataError for another tokenizer."""
    import torch

    from quatro.policy.device import find_device

    weights = resolve_model(plan.model.name)
    tokenizer, shape = load_tokenizer(weights), load_model_config(weights)
    context = context_limit(shape)
    prompts = tokenized(plan, tokenizer, context)
    for rows in prompts:
        refuse_unknown_ids(rows, tokenizer, vocabulary_size(shape))
    longest = max(
        len(prompt.token_ids) + one.settings.sampling.max_new_tokens
        for one, rows in zip(plan.benchmarks, prompts, strict=True)
        for prompt in rows
    )
    device = find_device("auto")
    recipe = Recipe(
        engine=plan.engine,
        weights=weights,
        dtype="bfloat16" if device.type == "cuda" else "float32",
        device=str(device),
        max_tokens=longest if context is None else min(context, longest),
    )
    source = replace(
        plan.model.source,
        fingerprint=model_digest(weights),
        dtype=recipe.dtype,
        device=f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else str(device.type),
        engine=plan.engine,
    )

    def rows_per_call(sampling: Sampling) -> int:
        rows: int = ENGINES[plan.engine].rows_per_call or default_rows_per_call(sampling)
        return rows * max(1, len(plan.gpus))

    with open_sampler(recipe, plan.gpus) as sampler:
        yield Opened(sampler, prompts, source, rows_per_call)


@contextlib.contextmanager
def open_sampler(recipe: Recipe, gpus: Sequence[str]) -> Iterator[Sampler]:
    """An engine in this process, or one on each of ``gpus`` in processes of their own; closed at the end.

    One that does not take adapters gets the merged model in a folder, which is there inside.

    Raises:
        MissingError, UsageError, DataError: what the engines raise about the model.
        OSError: the merged model of an adapter cannot be written; TMPDIR says where.
    """
    import torch

    with contextlib.ExitStack() as stack:
        if not ENGINES[recipe.engine].takes_adapters and base_of(recipe.weights) != recipe.weights:
            # Merged once, however many GPUs draw, and loaded like any other model.
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="quatro-merged-"))
            logger.info("merging the adapter %s into %s", recipe.weights, folder)
            model = load_model(recipe.weights, getattr(torch, recipe.dtype), "cpu")
            save_folder(model, Path(folder), load_tokenizer(recipe.weights))
            del model  # its memory is vLLM's on a machine without a GPU
            recipe = replace(recipe, weights=folder)
        make = functools.partial(make_sampling_engine, recipe)
        devices = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus]
        yield stack.enter_context(contextlib.closing(ShardedSampler(make, devices) if gpus else make()))


def make_sampling_engine(recipe: Recipe) -> Engine:
    """The engine of ``recipe`` in this process; for one that takes no adapters see `open_sampler`."""
    kind: type[EngineKind] = ENGINES[recipe.engine]
    return kind.open(recipe, load_tokenizer(recipe.weights))


# ---- engines in processes of their own, of which each draws a share of the same request


class ShardedSampler:
    """``make`` builds the engine of each process; process i has ``environments[i]`` added to its environment.

    ``make`` is pickled: a module's function, or a `functools.partial` of one.

    Raises:
        QuatroError: what ``make`` raised in one of the processes.
        RuntimeError: anything else it raised, or a process that ended.
    """

    def __init__(self, make: Callable[[], Sampler], environments: Sequence[Mapping[str, str]]) -> None:
        self._workers: list[_Worker] = []
        try:
            for number, environment in enumerate(environments):
                self._workers.append(_Worker(make, environment, number))
            for worker in self._workers:  # they load their models side by side
                worker.receive()
        except BaseException:
            self.close()
            raise

    def generate(
        self, prompts: Sequence[Prompt], seeds: Seeds, sampling: Sampling, *, progress: RolloutProgress | None = None
    ) -> list[list[Rollout]]:
        """See `engine.Sampler.generate`; whatever a process raises is raised here, and ends them all."""
        # Rollouts are dealt out like cards, so that all processes have as many, to one.
        cards = itertools.cycle(range(len(self._workers)))
        worker_of = [[next(cards) for _ in group] for group in seeds]
        running: dict[Connection, _Worker] = {}
        counts: dict[int, tuple[int, int]] = {}
        drawn: dict[int, Iterator[Rollout]] = {}
        try:
            for worker in self._workers:
                own = [
                    [seed for seed, number in zip(group, numbers, strict=True) if number == worker.number]
                    for group, numbers in zip(seeds, worker_of, strict=True)
                ]
                if asked := [(prompt, group) for prompt, group in zip(prompts, own, strict=True) if group]:
                    worker.send([prompt for prompt, _ in asked], [group for _, group in asked], sampling)
                    running[worker.connection] = worker
            while running:
                for connection in wait(list(running)):
                    assert isinstance(connection, Connection)
                    worker = running[connection]
                    kind, value = worker.receive()
                    if kind == "done":
                        del running[connection]
                        drawn[worker.number] = itertools.chain.from_iterable(value)
                        continue
                    counts[worker.number] = value
                    if progress is not None:
                        progress(sum(c[0] for c in counts.values()), sum(c[1] for c in counts.values()))
        except BaseException:
            # A process in the middle of a request would answer the next one with this one's rollouts.
            self.close()
            raise
        return [[next(drawn[number]) for number in numbers] for numbers in worker_of]

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.connection.close()
            worker.process.terminate()
        for worker in self._workers:
            worker.process.join(STOP_TIMEOUT_S)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
        self._workers.clear()


class _Worker:
    def __init__(self, make: Callable[[], Sampler], environment: Mapping[str, str], number: int) -> None:
        self.number = number
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        arguments = (make, dict(environment), other)
        self.process: BaseProcess = context.Process(target=_serve, args=arguments, name=f"engine-{number}")
        self.process.start()
        other.close()

    def send(self, *request: Any) -> None:
        try:
            self.connection.send(request)
        except OSError as error:
            raise self._ended() from error

    def receive(self) -> tuple[str, Any]:
        try:
            kind, value = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self._ended() from error
        if kind == "error":
            raise value
        return kind, value

    def _ended(self) -> RuntimeError:
        self.process.join(STOP_TIMEOUT_S)
        return RuntimeError(
            f"the process of engine {self.number} ended by itself (exit status {self.process.exitcode}; "
            "-9 is what the kernel does when memory is short); finished samples are kept"
        )


def _serve(make: Callable[[], Sampler], environment: Mapping[str, str], connection: Connection) -> None:
    """Answers requests until the other end is closed."""
    os.environ.update(environment)  # CUDA reads which devices it may see when it is first used
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; ours to end is `close`
    logging.basicConfig(format="%(processName)s: %(message)s")
    logging.getLogger("quatro").setLevel(logging.INFO)  # vLLM takes minutes to start, and our line says why

    def report(num_finished: int, num_tokens: int) -> None:
        connection.send(("progress", (num_finished, num_tokens)))

    try:
        engine = make()
        connection.send(("ready", None))
        while True:
            prompts, seeds, sampling = connection.recv()
            connection.send(("done", engine.generate(prompts, seeds, sampling, progress=report)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        known = error if isinstance(error, QuatroError) else RuntimeError(traceback.format_exc())
        with contextlib.suppress(OSError):
            connection.send(("error", known))
