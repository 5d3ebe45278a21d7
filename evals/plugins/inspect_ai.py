"""inspect-ai: our grader of mathematics as a scorer; Pass@k, pass^k, UCC@k and distinct@k of a sample's epochs.

    Task(..., scorer=maths(), epochs=8, metrics=[pass_at([1, 4]), ucc_at(4, similarity="exact"), distinct_at(2)])

They are metrics of scores before reduction, not score reducers. Both see all epochs of a sample with their texts; but a
log keeps the arguments of a metric, with which `inspect score` makes it again, and of a reducer only its name and k.
And so the mean over samples is quatro's own, to the last digit.

While an evaluation runs, and after errors, a sample may have fewer than k epochs. Then metrics are NaN, but distinct@k
is over the samples with k correct epochs.
"""

from typing import Any

from inspect_ai import scorer as inspect
from inspect_ai.solver import TaskState

from evals.errors import UsageError
from evals.grading import ExtractionPolicy, grade
from evals.grading.decide import Policy
from evals.plugins.at_k import AtK, mean


@inspect.scorer(metrics=[inspect.accuracy(), inspect.stderr()])
def maths(policy: Policy = "strict", extraction: ExtractionPolicy = "boxed") -> inspect.Scorer:
    """Whether a response gives one of the targets, as `quatro eval grade` decides it. Its text is the explanation."""

    async def score(state: TaskState, target: inspect.Target) -> inspect.Score:
        text = state.output.completion
        grades = [grade(text, one, policy=policy, extraction=extraction) for one in target]
        best = max(grades, key=lambda one: one.correct)
        value = inspect.CORRECT if best.correct else inspect.INCORRECT
        return inspect.Score(value=value, answer=best.extracted, explanation=text)

    return score


def _metric(name: str, metric: str) -> Any:
    def of_epochs(k: int | list[int], text: str = "explanation", **settings: Any) -> inspect.Metric:
        """``text`` is the scores' field with the response: of model_graded_qa it is the `answer`."""
        asked, to_float = AtK(metric, k, **settings), inspect.value_to_float()

        def values(scores: list[inspect.SampleScore]) -> dict[str, float]:
            samples: dict[str, tuple[list[str], list[bool]]] = {}
            for one in scores:
                texts, is_right = samples.setdefault(str(one.sample_id), ([], []))
                texts.append(getattr(one.score, text))
                is_right.append(to_float(one.score.value) >= 1)
                if asked.setting and is_right[-1] and texts[-1] is None:
                    found = f"{name}: a correct score of sample {one.sample_id} has no {text}, expected the response"
                    raise UsageError(f"{found}; name another field (text='answer'), or take the scorer `maths`")
            of_each = [asked.of_problem(*sample) for sample in samples.values()]
            return {one: mean(found[one] for found in of_each if one in found) for one in asked.k_of}

        return values

    return inspect.metric(name=name, scores="unreduced")(of_epochs)


pass_at, pass_k = _metric("pass_at", "pass@k"), _metric("pass_k", "pass^k")
ucc_at, distinct_at = _metric("ucc_at", "ucc@k"), _metric("distinct_at", "distinct@k")
