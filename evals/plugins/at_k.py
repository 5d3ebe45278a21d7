"""What the plug-ins share: metrics at k of one problem's responses and their mean, with the digits of `quatro eval`."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from statistics import fmean
from typing import Any

from evals.benchmarks.catalogue import Kind
from evals.errors import UsageError
from evals.estimators import g_pass_at_k, ucc_at_k
from evals.grading import grade_many
from evals.metrics.counting import count_clusters
from evals.metrics.measuring import Options
from evals.results.shown import metric_at
from evals.samples.types import GradedProblem
from evals.similarity import Setting

_KIND = Kind("math", has_short_answers=False)  # of a task that the registry does not know


class AtK:
    """pass@k, pass^k, ucc@k or distinct@k at each k; ``k_of`` has them by name, as logs call them: `ucc@4/exact`.

    ``settings`` are similarity, threshold, linkage and tokens as in `quatro eval ucc`; they stand in the name. Raises
    UsageError for one that is unknown, out of range or without effect.
    """

    def __init__(self, metric: str, k: int | Sequence[int], **settings: Any) -> None:
        known = Setting._fields if metric in ("ucc@k", "distinct@k") else ()
        if unknown := [name for name in settings if name not in known]:
            raise UsageError(f"{metric} has no {unknown[0]}; expected {', '.join(('k', *known))}")
        self._metric = metric
        self.setting = Options(["ucc@k"], **settings).clustering.settings("", _KIND)[0] if known else None
        words = f"/{self.setting}".replace(" >= ", "/").replace(", ", "/").removesuffix(" tokens") if known else ""
        self.k_of = {metric_at(metric, one) + words: one for one in ([k] if isinstance(k, int) else k)}

    def of_problem(self, texts: Sequence[str], is_right: Sequence[bool]) -> dict[str, float]:
        """By name the value of a problem; NaN with fewer than k responses, no distinct@k with fewer correct ones."""
        right = tuple(text for text, correct in zip(texts, is_right, strict=True) if correct)
        n = len(right) if self._metric == "distinct@k" else len(texts)
        sizes = _sizes(right, self.setting) if self.setting else [len(right)]  # Pass@k is UCC@k of one cluster
        of = partial(g_pass_at_k, n, len(right), tau=1.0) if self._metric == "pass^k" else partial(ucc_at_k, n, sizes)
        k_of = {name: k for name, k in self.k_of.items() if k <= n or self._metric != "distinct@k"}
        return {name: of(k) if k <= n else math.nan for name, k in k_of.items()}

    def of_answers(self, texts: Sequence[str], answer: Any, grading: Mapping[str, Any]) -> dict[str, float]:
        """`of_problem` by the grader of mathematics; ``grading`` are its policy and extraction."""
        grades = grade_many([(text, answer) for text in texts], **grading)
        return self.of_problem(texts, [one.correct for one in grades])


def mean(values: Iterable[float | None]) -> float:
    """The mean of problems, as `means_of` makes it; NaN if there are none, or one of them is NaN or None."""
    found = [math.nan if value is None else value for value in values]
    return fmean(found) if found else math.nan


@lru_cache(maxsize=10_000)  # the same responses come again while an evaluation runs
def _sizes(texts: tuple[str, ...], setting: Setting) -> Sequence[int]:
    problem = GradedProblem("", "", None, len(texts), [*texts], recorded=_KIND)
    return count_clusters([problem], {"": [setting]})[setting][0].sizes or ()
