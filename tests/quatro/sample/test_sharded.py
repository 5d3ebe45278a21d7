"""Engines in processes of their own: together they draw what one would, and none of them fails quietly."""

import functools
import logging
import os
import time
from pathlib import Path

import pytest

from evals.errors import DataError
from quatro.sample.engines import ShardedSampler
from quatro.types import Prompt, Rollout, Sampling

PROMPTS = [Prompt("toy", f"p{i}", "", None, "", (i + 1, 2)) for i in range(5)]
SEEDS = [[10 * i + j for j in range(count)] for i, count in enumerate([3, 0, 8, 1, 4])]


class Echo:
    """A rollout says which seed and prompt it answers, and where."""

    def __init__(self, folder=None):
        self.device = os.environ.get("CUDA_VISIBLE_DEVICES")
        if folder is not None:
            (Path(folder) / f"{self.device}-{os.getpid()}").touch()

    def generate(self, prompts, seeds, sampling, *, progress=None):
        rollouts = [
            [Rollout((seed, *prompt.token_ids), f"{prompt.id} on {self.device}", "stop") for seed in group]
            for prompt, group in zip(prompts, seeds, strict=True)
        ]
        for prompt in prompts:
            if prompt.id == "poison":
                raise DataError("prompt 'poison' is too long")
            if prompt.id == "bug":
                raise ZeroDivisionError("no reason")
            if prompt.id == "death":
                os._exit(7)
            if prompt.id == "hang":
                time.sleep(600)
        for done in range(len(prompts)):
            if progress is not None:
                progress(sum(map(len, rollouts[: done + 1])), 3 * sum(map(len, rollouts[: done + 1])))
        return rollouts


def fails_to_load():
    raise DataError("the model cannot be read")


def starts_slowly():
    logging.getLogger("quatro.rollout").info("compiling")
    return Echo()


def devices(count):
    return [{"CUDA_VISIBLE_DEVICES": str(i + 4)} for i in range(count)]


def test_what_the_engines_say_while_they_start_is_shown(capfd):
    ShardedSampler(starts_slowly, devices(2)).close()
    assert sorted(capfd.readouterr().err.splitlines()) == ["engine-0: compiling", "engine-1: compiling"]


def test_two_processes_draw_what_one_engine_would_each_on_its_own_device(tmp_path):
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    sampler = ShardedSampler(functools.partial(Echo, str(tmp_path)), devices(2))
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before
    reports = []
    try:
        whole = Echo().generate(PROMPTS, SEEDS, Sampling())
        found = sampler.generate(PROMPTS, SEEDS, Sampling(), progress=lambda *report: reports.append(report))
        few = sampler.generate(PROMPTS[:1], [[5]], Sampling())
    finally:
        sampler.close()
    assert [[r.token_ids for r in group] for group in found] == [[r.token_ids for r in group] for group in whole]
    assert {r.text.split()[-1] for group in found for r in group} == {"4", "5"}
    assert few[0][0].token_ids == (5, *PROMPTS[0].token_ids)
    assert reports == sorted(reports)
    assert reports[-1] == (16, 48)
    assert sorted(path.name.split("-")[0] for path in tmp_path.iterdir()) == ["4", "5"]


@pytest.mark.parametrize(
    ("id", "error", "words"),
    [
        ("poison", DataError, "'poison' is too long"),
        ("bug", RuntimeError, "ZeroDivisionError"),
        ("death", RuntimeError, "exit status 7"),
    ],
)
def test_what_goes_wrong_in_one_process_ends_them_all(id, error, words):
    sampler = ShardedSampler(Echo, devices(2))
    processes = [worker.process for worker in sampler._workers]
    last = Prompt("toy", id, "", None, "", (1,))
    try:
        with pytest.raises(error, match=words):
            sampler.generate([*PROMPTS, last], [*SEEDS, [1, 2, 3]], Sampling())
        assert not any(process.is_alive() for process in processes)
    finally:
        sampler.close()


def test_a_model_that_cannot_be_loaded_is_said_as_it_would_be_here():
    with pytest.raises(DataError, match="cannot be read"):
        ShardedSampler(fails_to_load, devices(2))


def test_closing_ends_a_process_in_the_middle_of_its_work():
    sampler = ShardedSampler(Echo, devices(1))
    (worker,) = sampler._workers
    worker.send([Prompt("toy", "hang", "", None, "", (1,))], [[1]], Sampling())
    sampler.close()
    assert not worker.process.is_alive()
    sampler.close()
