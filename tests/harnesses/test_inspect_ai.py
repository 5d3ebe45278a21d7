"""Our metrics inside inspect-ai, on logs that it wrote, beside what quatro says of these logs."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.harness
inspect_ai = pytest.importorskip("inspect_ai")

from inspect_ai import Epochs, Task, eval, score  # noqa: E402
from inspect_ai.dataset import json_dataset  # noqa: E402
from inspect_ai.log import read_eval_log  # noqa: E402
from inspect_ai.scorer import SampleScore, Score, match  # noqa: E402
from inspect_ai.scorer import pass_at as their_pass_at  # noqa: E402

from evals.errors import UsageError  # noqa: E402
from evals.plugins.inspect_ai import distinct_at, maths, pass_at, pass_k, ucc_at  # noqa: E402
from tests.harnesses.stand_ins import of_inspect_ai  # noqa: E402
from tests.kit import says  # noqa: E402

ROOT = Path(__file__).parents[2]
METRICS = [
    pass_at([1, 2, 4]),
    pass_k([1, 2, 4]),
    ucc_at([2, 4]),
    ucc_at(2, similarity="exact"),
    ucc_at(2, similarity="tfidf", threshold=0.7, linkage="complete"),
    distinct_at(2, similarity="exact"),
]


def task(**options):
    options = {"scorer": maths(), "epochs": 8, "metrics": METRICS, **options}
    return Task(dataset=json_dataset("sums/test.jsonl"), name="sums", **options)


def run(asked, model, **options):
    (log,) = eval(asked, model=model, log_dir="logs", display="plain", **options)
    assert log.status == "success", log.error
    return log


def numbers(log, index=0):
    return {name: one.value for name, one in log.results.scores[index].metrics.items()}


@pytest.mark.parametrize("form", ["eval", "json"])
def test_the_log_has_the_numbers_of_quatro(form, here, responses, said_by_quatro):
    log = run(task(), of_inspect_ai(responses), log_format=form)
    theirs = said_by_quatro(Path(log.location), "inspect")
    ours = numbers(log)
    assert ours == {name: theirs[name] for name in ours}
    assert len(ours) == 11


def test_a_log_that_is_scored_again_has_the_same_numbers_and_settings(here, responses):
    log = run(task(), of_inspect_ai(responses))
    anew = score(read_eval_log(log.location), maths(), action="overwrite", display="plain")
    assert numbers(anew) == numbers(log)
    params = [one.params for one in anew.results.scores[0].metrics.values()]
    assert {"k": 2, "similarity": "tfidf", "threshold": 0.7, "linkage": "complete"} in params


def test_pass_at_k_is_that_of_inspect_ai(here, responses):
    plain = Epochs(8, [their_pass_at(2), their_pass_at(4)])
    ours, theirs = (run(one, of_inspect_ai(responses)) for one in (task(), task(epochs=plain, metrics=None)))
    for at, k in enumerate((2, 4)):
        assert numbers(ours)[f"pass@{k}"] == pytest.approx(numbers(theirs, at)["accuracy"], abs=1e-12)


def test_with_fewer_epochs_than_k_the_run_ends_well_and_the_log_says_nan(here, responses):
    log = run(task(epochs=2), of_inspect_ai(responses))
    unknown = {name for name, value in numbers(log).items() if math.isnan(value)}
    assert unknown == {"pass@4", "pass^4", "ucc@4/rouge-l/0.8/components"}
    assert len(numbers(log)) == 11


def test_an_epoch_that_failed_is_no_draw(here, responses):
    log = run(task(), of_inspect_ai(responses, fails={5}), fail_on_error=False)
    assert sum(one.error is not None for one in log.samples) == 1
    samples = [(sample.id, sample.scores["maths"].value) for sample in log.samples if sample.error is None]
    right = [[value == "C" for id, value in samples if id == f"p{answer}"] for answer in range(3, 16)]
    assert sorted(map(len, right)) == [7] + [8] * 12
    expected = sum(sum(one) / len(one) for one in right) / len(right)
    assert numbers(log)["pass@1"] == pytest.approx(expected, abs=1e-12)


def graded(id, value, **fields):
    return SampleScore(score=Score(value=value, **fields), sample_id=id)


def test_while_an_evaluation_runs_metrics_do_not_fail():
    some = [graded("a", "C", explanation="one \\boxed{1}"), graded("b", "I", explanation="two")]
    for metric in METRICS:
        for scores in ([], some[:1], some):
            assert all(math.isnan(value) or 0 <= value <= 1 for value in metric(scores).values())
    assert ucc_at(1, similarity="exact")(some) == {"ucc@1/exact": 0.5}
    assert math.isnan(pass_at(2)([*some, some[0]])["pass@2"])
    assert distinct_at(2, similarity="exact")([*some, some[0]]) == {"distinct@2/exact": 1.0}


def test_scores_of_another_scorer_give_their_texts(here, responses):
    theirs = run(task(scorer=match("any")), of_inspect_ai(responses))
    assert numbers(theirs)["ucc@4/rouge-l/0.8/components"] > 1
    by_model = [graded("a", "C", answer=text, explanation="GRADE: C") for text in ("one", "two")]
    assert ucc_at(2, similarity="exact", text="answer")(by_model) == {"ucc@2/exact": 2.0}
    with pytest.raises(UsageError) as caught:
        ucc_at(1)([graded("a7", "C")])
    says(caught, "explanation", value="a7", advice="text='answer'")
    assert pass_at(1)([graded("a7", "C")]) == {"pass@1": 1.0}


def test_the_scorer_takes_any_of_several_targets_and_the_options_of_the_grader(here):
    Path("sums/test.jsonl").write_text('{"id": "p3", "input": "What is 3?", "target": ["-1", "3"]}\n', encoding="utf-8")
    texts = {"What is 3?": ["\\boxed{3}", "\\boxed{-1}", "\\boxed{4}", "it is 3"] * 2}
    assert numbers(run(task(metrics=[pass_at(1)]), of_inspect_ai(texts))) == {"pass@1": 0.5}
    loose = run(task(scorer=maths(extraction="last-number"), metrics=[pass_at(1)]), of_inspect_ai(texts))
    assert numbers(loose) == {"pass@1": 0.75}


def test_an_installed_package_is_found_by_name_through_the_entry_point(tmp_path):
    """In a checkout names have no prefix; so here is a folder like that of a package which was installed."""
    shutil.copytree(ROOT / "evals", tmp_path / "site-packages/evals")
    code = (
        "import sys\nfrom inspect_ai._util.registry import registry_lookup\n"
        "assert 'evals.plugins.inspect_ai' not in sys.modules\n"
        "for kind, name in (('scorer', 'maths'), ('metric', 'ucc_at'), ('metric', 'pass_k')):\n"
        "    assert registry_lookup(kind, f'evals/{name}') is not None, name\n"
        "assert sys.modules['evals'].__file__.startswith(sys.argv[1])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site-packages")}
    words = [sys.executable, "-P", "-c", code, str(tmp_path)]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_our_file_imports_no_torch():
    code = "import sys, evals.plugins.inspect_ai\nassert not {'torch', 'transformers', 'quatro'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
