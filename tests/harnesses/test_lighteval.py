"""Our metrics inside lighteval, on files that it wrote, beside what quatro says of these files."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.harness
lighteval = pytest.importorskip("lighteval")

from lighteval.metrics.metrics_sample import PassAtK  # noqa: E402
from lighteval.models.model_output import ModelResponse  # noqa: E402
from lighteval.tasks.requests import Doc  # noqa: E402

from evals.errors import UsageError  # noqa: E402
from evals.plugins.lighteval import distinct_at, pass_at, ucc_at  # noqa: E402
from tests.harnesses.stand_ins import run_lighteval  # noqa: E402
from tests.kit import read_json, says  # noqa: E402

TASK = """\
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc
from evals.plugins.lighteval import distinct_at, pass_at, pass_k, ucc_at


def prompt(row, task_name):
    return Doc(query=row["input"], choices=[str(row["target"])], gold_index=0, task_name=task_name)


TASKS_TABLE = [
    LightevalTaskConfig(
        name="sums", prompt_function=prompt, hf_repo="sums", hf_subset="default",
        hf_avail_splits=["test"], evaluation_splits=["test"],
        metrics=[
            pass_at([1, 2, 4], n=8), pass_k([1, 2, 4], n=8), ucc_at([2, 4], n=8), ucc_at(2, n=8, similarity="exact"),
            ucc_at(2, n=8, similarity="tfidf", threshold=0.7, linkage="complete"),
            distinct_at(2, n=8, similarity="exact"),
        ],
    )
]
"""


def test_the_results_have_the_numbers_of_quatro(here, responses, said_by_quatro):
    (here / "task.py").write_text(TASK, encoding="utf-8")
    run_lighteval(responses, here, "task.py")
    (results,), (details,) = (here / "out").rglob("results_*.json"), (here / "out").rglob("details_*.parquet")
    found = read_json(results)["results"]["sums|0"]
    ours = {name: value for name, value in found.items() if not name.endswith("_stderr")}
    theirs = said_by_quatro(details, "lighteval")
    assert ours == {name: theirs[name] for name in ours}
    assert len(ours) == 11
    assert found["pass@1_stderr"] > 0


def values(metric, answer, texts):
    doc = Doc(query="q", choices=[answer], gold_index=0)
    return metric.compute_sample(doc=doc, model_response=ModelResponse(text=texts))


def test_pass_at_k_is_that_of_lighteval_and_n_responses_count():
    texts = ["\\boxed{4}", "\\boxed{5}", "\\boxed{4}", "\\boxed{6}", "\\boxed{4}"]
    theirs = PassAtK(
        k=2, n=4, sample_scoring_function=lambda doc, model_response: float(model_response.text == ["\\boxed{4}"])
    )
    doc = Doc(query="q", choices=["4"], gold_index=0)
    expected = theirs.compute(doc=doc, model_response=ModelResponse(text=texts))
    assert values(pass_at(2, n=4), "4", texts)["pass@2"] == pytest.approx(expected, abs=1e-12)
    assert values(ucc_at(4, n=4, similarity="exact"), "4", texts) == {"ucc@4/exact": 1.0}
    assert values(pass_at(1, n=1, grading={"extraction": "last-number"}), "4", ["it is 4"]) == {"pass@1": 1.0}
    assert values(distinct_at([2, 3], n=4, similarity="exact"), "4", texts) == {"distinct@2/exact": 1.0}


def test_more_draws_than_responses_are_refused_before_anything_is_drawn():
    with pytest.raises(UsageError) as caught:
        pass_at([1, 9], n=8)
    says(caught, "pass@k", value="n = 8", advice="k = 9")
    assert pass_at([1, 8], n=8).sample_level_fn.num_samples() == 8
