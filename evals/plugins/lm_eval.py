"""lm-evaluation-harness: Pass@k, pass^k, UCC@k and distinct@k of repeated responses, for the YAML file of a task.

    filter_list: [{name: all, filter: [{function: quatro_all}]}]
    metric_list: [{metric: !function evals.plugins.lm_eval.ucc_at, k: [1, 4], aggregation: quatro_mean}]

`!function` imports this file, which registers the filter and the aggregation.
"""

import math
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_aggregation, register_filter, register_metric

from evals.plugins.at_k import AtK, mean

register_aggregation("quatro_mean")(mean)


@register_filter("quatro_all")
class AllResponses(Filter):
    """Every response to a problem; without a filter lm-eval takes the first alone."""

    def apply(self, resps: Any, docs: Any) -> Any:
        """The responses as they are."""
        return resps


def _metric(name: str, metric: str) -> Any:
    def of_problem(references: Any, predictions: Any, k: Any, grading: Any = None, **settings: Any) -> dict[str, Any]:
        texts = [predictions[0]] if isinstance(predictions[0], str) else predictions[0]
        values = AtK(metric, k, **settings).of_answers(texts, references[0], grading or {})
        return {name: None if math.isnan(value) else value for name, value in values.items()}  # JSON has no NaN

    of_problem.__name__ = name  # by which lm-eval finds what is registered
    return register_metric(metric=name, higher_is_better=True, aggregation="quatro_mean")(of_problem)


pass_at, pass_k = _metric("pass_at", "pass@k"), _metric("pass_k", "pass^k")
ucc_at, distinct_at = _metric("ucc_at", "ucc@k"), _metric("distinct_at", "distinct@k")
