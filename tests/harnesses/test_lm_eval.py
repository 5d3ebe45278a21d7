"""Our metrics inside lm-evaluation-harness, on files that it wrote, beside what quatro says of these files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

pytestmark = pytest.mark.harness
lm_eval = pytest.importorskip("lm_eval")

from evals.errors import UsageError  # noqa: E402
from evals.plugins.lm_eval import ucc_at  # noqa: E402
from tests.harnesses.stand_ins import run_lm_eval  # noqa: E402
from tests.kit import read_json, says  # noqa: E402

TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums/test.jsonl}}
test_split: test
output_type: generate_until
doc_to_text: "{{input}}"
doc_to_target: "{{target}}"
generation_kwargs: {until: ["Q:"], do_sample: true}
repeats: 8
filter_list: [{name: all, filter: [{function: quatro_all}]}]
metric_list:
"""
METRICS = (
    "pass_at, k: [1, 2, 4]",
    "pass_k, k: [1, 2, 4]",
    "ucc_at, k: [2, 4]",
    "distinct_at, k: 2, similarity: exact",
)


def run(responses, *metrics, replace=("", "")):
    """The numbers of a run, and the samples file that lm-eval wrote."""
    line = "  - {{metric: !function evals.plugins.lm_eval.{}, aggregation: quatro_mean, higher_is_better: true}}\n"
    text = TASK.replace(*replace) + "".join(map(line.format, metrics))
    Path("sums.yaml").write_text(text, encoding="utf-8")
    _, results, rows = run_lm_eval(responses)
    numbers = read_json(results)["results"]["sums"]
    return {
        key.partition(",")[0]: value for key, value in numbers.items() if key.endswith(",all") and "_" not in key
    }, rows


@pytest.mark.parametrize(
    "more",
    [
        "ucc_at, k: 2, similarity: exact",  # lm-eval takes a metric once
        "ucc_at, k: 2, similarity: tfidf, threshold: 0.7, linkage: complete",
        None,
    ],
)
def test_the_results_have_the_numbers_of_quatro(more, here, responses, said_by_quatro):
    metrics = [*METRICS[:2], more or METRICS[2], METRICS[3]]
    ours, samples = run(responses, *metrics)
    theirs = said_by_quatro(samples, "lm-eval")
    assert ours == {name: theirs[name] for name in ours}
    assert len(ours) == 3 + 3 + (1 if more else 2) + 1


def test_without_our_filter_there_is_one_response_and_no_number_for_two(here, responses, said_by_quatro):
    ours, samples = run(responses, "pass_at, k: [1, 2]", replace=("quatro_all", "take_first"))
    firsts = [f"\\boxed{{{answer}}}" in responses[f"What is {answer}?"][0] for answer in range(3, 16)]
    assert ours["pass@1"] == pytest.approx(sum(firsts) / len(firsts), abs=1e-12)
    assert math.isnan(ours["pass@2"])
    assert {json.loads(line)["pass@2"] for line in samples.read_text(encoding="utf-8").splitlines()} == {None}
    said_by_quatro(samples, "lm-eval")  # which can be read


def test_options_of_the_grader_and_settings(here):
    texts = {f"What is {answer}?": ["it is 3"] * 8 for answer in range(3, 16)}
    ours, _ = run(texts, "pass_at, k: 8, grading: {extraction: last-number}")
    assert ours["pass@8"] == pytest.approx(1 / 13, abs=1e-12)
    with pytest.raises(UsageError) as caught:
        ucc_at(["3"], [["\\boxed{3}"]], k=1, similarity="rogue")
    says(caught, value="rogue")
