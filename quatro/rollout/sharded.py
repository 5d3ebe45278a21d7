"""Several engines in processes of their own, one for each GPU, of which each draws a share of the same request."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from evals.errors import QuatroError
from quatro.rollout.engine import RolloutProgress, Sampler, Seeds
from quatro.types import Prompt, Rollout, Sampling

STOP_TIMEOUT_S = 10.0


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
