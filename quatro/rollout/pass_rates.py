"""Prompts worth drawing: those that a model has solved neither too seldom nor too often (`data.pass_rate`)."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals.benchmarks.loading import has_splits
from evals.benchmarks.problems import Problem
from evals.errors import DataError
from evals.files.strict_json import shown
from evals.samples.graded import read_recorded
from evals.samples.types import GradedProblem


class PassRates:
    """The block `data.pass_rate` with what was measured; raises DataError if there are no samples, or no grades."""

    def __init__(self, config: Any) -> None:
        self._min, self._max, self._file = config.min, config.max, getattr(config, "from")
        try:
            graded = read_recorded(Path(self._file)).graded()
        except DataError as error:
            raise DataError(f"data.pass_rate.from ({self._file}): {error}") from error
        self._measured = {(one.benchmark, one.id): one for one in graded}

    def kept(self, problems: Sequence[Problem], source: str, called: str) -> tuple[list[Problem], str]:
        """The ``problems`` that are kept, and why others fall out; the samples may be of a benchmark ``called`` so.

        Raises DataError if none is kept, or the samples are of other problems.
        """
        kept, others = list[Problem](), Counter[str]()
        for problem in problems:
            found = self._measured.get((problem.benchmark, problem.id)) or self._measured.get((called, problem.id))
            if found is None:
                others["without a sample"] += 1
            elif self._is_same(problem, found) and found.correct / found.n < self._min:
                others[f"solved in less than {self._min:.3g} of the samples"] += 1
            elif found.correct / found.n > self._max:
                others[f"solved in more than {self._max:.3g} of the samples"] += 1
            else:
                kept.append(problem)
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(others.items())) or "none"
        said = f"data.pass_rate keeps {len(kept)} of the {len(problems)} prompts of {source}; left out: {why}"
        if kept:
            return kept, said
        if others["without a sample"] < len(problems):
            raise DataError(f"{said}. Take other bounds: data.pass_rate.min and data.pass_rate.max")
        there = shown(sorted({benchmark for benchmark, _ in self._measured}))
        command = f"`quatro sample MODEL -b {source} --grade`"
        how = f"{command} draws its test problems, so write those to train on into a file" * has_splits(source)
        raise DataError(f"{said}. {self._file} has samples of {there}; {how or f'{command} measures these prompts'}")

    def _is_same(self, problem: Problem, found: GradedProblem) -> bool:
        text, asked = problem.problem.strip(), found.prompt
        is_asked = asked is None or text in asked or json.dumps(text, ensure_ascii=False)[1:-1] in asked  # JSON: a chat
        if is_asked and str(problem.answer) == str(found.answer):
            return True
        raise DataError(
            f"data.pass_rate.from: {self._file} has samples of other prompts: {shown(problem.id)} of {found.benchmark} "
            f"is {shown(asked)} there, with the answer {shown(found.answer)}, and {shown(text)} with the answer "
            f"{shown(problem.answer)} here; measure these prompts with `quatro sample --grade`"
        )
