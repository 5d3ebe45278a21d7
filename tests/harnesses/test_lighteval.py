"""Our metrics inside lighteval, on files that it wrote, beside what quatro says of these files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.harness
lighteval = pytest.importorskip("lighteval")

from lighteval.metrics.metrics_sample import PassAtK  # noqa: E402
from lighteval.models.model_output import ModelResponse  # noqa: E402
from lighteval.tasks.requests import Doc  # noqa: E402

from evals.errors import UsageError  # noqa: E402
from evals.plugins.lighteval import distinct_at, pass_at, ucc_at  # noqa: E402
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
MODEL = """\
import json
from lighteval.models.abstract_model import LightevalModel
from lighteval.models.model_output import ModelResponse
from lighteval.utils.cache_management import SampleCache


class Fixed(LightevalModel):
    tokenizer, add_special_tokens, max_length = None, False, 2048

    def __init__(self, config, *_):
        self.config, self._cache = config, SampleCache(config)

    def greedy_until(self, docs):
        texts = json.load(open("responses.json"))
        return [ModelResponse(input=one.query, text=texts[one.query][: one.num_samples]) for one in docs]

    def loglikelihood(self, docs):
        raise NotImplementedError

    loglikelihood_rolling = loglikelihood
"""


def test_the_results_have_the_numbers_of_quatro(here, responses, said_by_quatro):
    (here / "task.py").write_text(TASK, encoding="utf-8")
    (here / "model.py").write_text(MODEL, encoding="utf-8")
    by_prompt = {f"What is {answer}?": texts for answer, texts in responses.items()}
    (here / "responses.json").write_text(json.dumps(by_prompt), encoding="utf-8")
    program = Path(sys.executable).parent / "lighteval"
    words = [program, "custom", "fixed", "model.py", "sums|0", "--custom-tasks", "task.py", "--save-details"]
    environment = {**os.environ, "HF_HOME": str(here / "cache")}
    done = subprocess.run(
        [*words, "--output-dir", "out"], cwd=here, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
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
