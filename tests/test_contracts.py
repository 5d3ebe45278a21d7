"""What other programs import and type: names, arguments and results that stay as they are."""

import numpy as np
import pytest

from tests.kit import quatro

READERS = [
    *("config show", "config diff", "config schema", "benchmarks list", "benchmarks show", "runs list", "runs show"),
    *("runs compare", "rollouts", "doctor", "eval passk", "eval ucc", "eval grade", "eval compare", "eval clusters"),
    *("eval similarity", "eval flips", "verl-command"),
]
OTHERS = [
    *("train", "sample", "sweep", "table", "paper", "report", "export", "eval import", "benchmarks fetch"),
    *("runs rm", "runs prune", "plot passk", "plot ucc", "plot training"),
]


def test_verdicts_have_an_outcome():
    from evals.grading import grade

    found = grade("so \\boxed{5}", "5", policy="strict", extraction="boxed")
    assert (found.correct, found.outcome) == (True, "correct")
    assert grade("nothing", "5").outcome == "no_answer"


def test_estimators_take_counts_and_refuse_impossible_ones():
    from evals.estimators import pass_at_k, ucc_at_k

    assert (pass_at_k(4, 1, 2), ucc_at_k(4, [1, 1], 2)) == (0.5, 1.0)
    for call in (lambda: pass_at_k(4, 1, 5), lambda: ucc_at_k(4, [5], 1), lambda: pass_at_k(0, 0, 1)):
        with pytest.raises(ValueError):
            call()


def test_a_similarity_is_a_function_of_texts_and_a_clustering_a_label_each():
    from evals.clustering import cluster
    from evals.similarity import SIMILARITIES

    assert list(SIMILARITIES) == ["exact", "tfidf", "rouge-l", "jaccard", "edit"]
    for similarity in SIMILARITIES.values():
        found = similarity(["a b", "a c", "a b"], tokens="whitespace")
        assert (found.shape, found.dtype, found[0, 2]) == ((3, 3), np.float64, 1.0)
    assert cluster(["a b c", "d", "a b c"], similarity="tfidf", threshold=None, linkage="components") == [0, 1, 0]


def test_the_dual_and_the_methods_are_where_they_were():
    from quatro.dual import solve_dual
    from quatro.methods import METHODS

    assert callable(solve_dual)
    assert METHODS["quatro"](delta=0.01, log_ratio="detached").delta == 0.01
    assert {"quatro", "grpo", "gspo", "gmpo", "gpg", "dapo", "cispo"} <= set(METHODS)


def test_a_program_can_be_run_alone():
    from evals.sandbox import run_program  # tests/evals/sandbox/test_single.py runs it

    with pytest.raises(ValueError, match="`code` and `tests`"):
        run_program({})


@pytest.mark.parametrize("command", READERS)
def test_a_reader_prints_json(command):
    assert "--json" in quatro(*command.split(), "--help").stdout


@pytest.mark.parametrize("command", OTHERS)
def test_a_command_is_there(command):
    assert "Usage" in quatro(*command.split(), "--help").stdout


def test_a_table_has_four_formats():
    assert "markdown (default), latex, csv, json" in " ".join(quatro("table", "--help").stdout.split())
