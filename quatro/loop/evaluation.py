"""Evaluation during training: `eval.n` samples per problem of `eval.benchmark`, every `eval.every` iterations."""

from __future__ import annotations

import logging
import math
from collections import Counter

import numpy as np

from evals.benchmarks.catalogue import grader_of
from evals.estimators import pass_at_k, ucc_at_k
from evals.training_metrics import BASE, EVALUATED
from quatro.loop.draw import draw_and_grade
from quatro.loop.position import Parts, Position
from quatro.rewards import Reward, make_grader
from quatro.rollout.engine import sample_seed
from quatro.types import Prompt, Sampling

logger = logging.getLogger(__name__)


class Evaluation:
    """Draws with the seeds of sample files, the same at every iteration, so that the points of a curve are comparable.

    `close` ends the processes of its grader.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        config = parts.config
        self.sampling = Sampling(
            temperature=config.eval.temperature,
            top_p=config.eval.top_p,
            max_new_tokens=config.rollout.max_new_tokens,
            stop=config.stop,
        )
        self.prompts: list[Prompt] = []
        self.grader: Reward | None = None
        if (found := parts.evaluation_prompts) is not None:
            for warning in found.warnings:
                logger.warning("%s: %s", config.eval.benchmark, warning)
            self.prompts = found.prompts
            # The benchmark's own grader, whatever the training reward is.
            self.grader = make_grader(grader_of(self.prompts[0].benchmark))

    def close(self) -> None:
        if self.grader is not None:
            self.grader.close()

    def of_base(self, position: Position) -> None:
        """With `eval.at_start`, measure the model before training, unless ``position`` has it. Raises as `measured`."""
        if self.grader is None or not self.parts.config.eval.at_start or position.base:
            return
        found = self.measured(self.grader)
        logger.info("before training: %s", ", ".join(f"{name} {value:.4g}" for name, value in found.items()))
        position.base = {f"{BASE}{name}": value for name, value in found.items()}

    def metrics(self, position: Position) -> dict[str, float]:
        """Metrics under eval/ if an evaluation is due after the iteration under way; after the first also under base/.

        Raises as `measured`.
        """
        found, step = dict[str, float](), position.step + 1
        if self.grader is not None and step % self.parts.config.eval.every == 0:
            found = {f"{EVALUATED}{name}": value for name, value in self.measured(self.grader).items()}
        return {**found, **position.base} if step == 1 else found

    def measured(self, grader: Reward) -> dict[str, float]:
        """What the policy as it is does on the benchmark.

        `distinct_correct` is UCC@n where only identical texts count as one solution.

        Raises:
            Stopped: a stop was requested before all samples were drawn.
        """
        config, n = self.parts.config, self.parts.config.eval.n
        seeds = [[sample_seed(config.seed, p.benchmark, p.id, j) for j in range(n)] for p in self.prompts]
        with self.parts.stopwatch.holding("eval"):
            drawn = draw_and_grade(self.parts, self.prompts, seeds, self.sampling, grader)
        passed_1, passed_n, distinct = [], [], []
        for group in drawn.groups:
            texts = Counter(rollout.text for rollout, grade in group.drawn if grade.correct)
            num_correct = sum(texts.values())
            passed_1.append(pass_at_k(n, num_correct, 1))
            passed_n.append(pass_at_k(n, num_correct, n))
            distinct.append(ucc_at_k(n, list(texts.values()), n))
        return {
            **_with_error("pass@1", passed_1),
            **_with_error(f"pass@{n}", passed_n),
            "distinct_correct": float(np.mean(distinct)),
            "problems": float(len(self.prompts)),
            "n": float(n),
        }


def _with_error(name: str, values: list[float]) -> dict[str, float]:
    """The mean over problems and its standard error, which a single problem does not have."""
    found = {name: float(np.mean(values))}
    if len(values) > 1:
        found[f"{name}_se"] = float(np.std(values, ddof=1) / math.sqrt(len(values)))
    return found
