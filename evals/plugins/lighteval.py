"""lighteval: Pass@k, pass^k, UCC@k and distinct@k of n sampled responses, as metrics for a custom task.

LightevalTaskConfig(..., metrics=[pass_at([1, 4], n=8), ucc_at(4, n=8, similarity="exact")])
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lighteval.metrics.metrics_sample import SampleLevelComputation, SamplingMetric
from lighteval.metrics.utils.metric_utils import SampleLevelMetricGrouping
from lighteval.tasks.requests import SamplingMethod

from evals.errors import UsageError
from evals.plugins.at_k import AtK, mean


class _Sampled(SamplingMetric, SampleLevelComputation):
    def __init__(self, asked: AtK, n: int, grading: Mapping[str, Any]) -> None:
        super().__init__()
        self.asked, self.n, self.grading = asked, n, grading

    def compute(self, doc: Any, model_response: Any, **_: Any) -> dict[str, float]:
        return self.asked.of_answers(model_response.text[: self.n], doc.get_golds()[0], self.grading)

    def num_samples(self) -> int:
        return self.n


def at_k(
    metric: str, k: int | Sequence[int], n: int, grading: Mapping[str, Any] | None = None, **settings: Any
) -> SampleLevelMetricGrouping:
    """``metric`` at each k; ``grading`` may hold policy and extraction of the grader of mathematics."""
    asked = AtK(metric, k, **settings)
    if n < (most := max(asked.k_of.values())):
        raise UsageError(f"{metric}: k = {most} draws of n = {n} responses; expected n of at least k")
    return SampleLevelMetricGrouping(
        metric_name=list(asked.k_of),
        higher_is_better=dict.fromkeys(asked.k_of, True),
        category=SamplingMethod.GENERATIVE,
        sample_level_fn=_Sampled(asked, n, grading or {}),
        corpus_level_fn=dict.fromkeys(asked.k_of, mean),
    )


pass_at, pass_k = partial(at_k, "pass@k"), partial(at_k, "pass^k")
ucc_at, distinct_at = partial(at_k, "ucc@k"), partial(at_k, "distinct@k")
