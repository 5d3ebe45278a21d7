"""What other programs import and type: names, arguments and results that stay as they are."""

import json

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


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("eval passk", "-b --k --ci --json -o --label --per-problem"),
        ("eval ucc", "-b --k --similarity --threshold --linkage --tokens --ci --json -o --per-problem"),
        ("table", "--average --with-paper --format -o"),
        ("train", "-s -m -o --resume --new --steps --dry-run"),
        ("sample", "-b -n --n --tag --base-url --temperature --top-p -o --dry-run"),
        ("sweep", "-g -s --seeds --dry-run -o"),
    ],
)
def test_options_that_scripts_type_are_there(command, options):
    words = set(quatro(*command.split(), "--help").stdout.replace(",", " ").split())
    assert set(options.split()) <= words


def test_a_seed_of_intervals_is_taken(tmp_path):
    row = {"benchmark": "b", "id": "p", "sample_index": 0, "completion": "x", "answer": "1", "correct": True}
    (tmp_path / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    quatro("eval", "passk", str(tmp_path / "a.jsonl"), "--k", "1", "--ci", "--seed", "0", "--json", code=0)


def test_keys_that_configurations_have_are_there():
    from quatro.config import load_config

    settings = ["rollout.engine=replay", "rollout.replay_file=rollouts", "model=m"]
    found = load_config("quickstart", overrides=settings).model_dump()
    for block, keys in {
        "rollout": "engine temperature top_p top_k max_new_tokens gpu_memory_utilization replay_file",
        "optimizer": "name lr betas weight_decay max_grad_norm warmup_steps",
        "kl": "beta estimator aggregate",
        "policy": "kind zero_stage lora",
        "eval": "every benchmark n temperature top_p",
        "checkpoint": "every keep",
        "method": "name delta log_ratio ratio loss_norm max_log_ratio boundary_cap advantage_floor",
    }.items():
        assert set(keys.split()) <= found[block].keys(), block
    keys = "model dtype seed steps data reward prompts_per_step rollouts_per_prompt minibatch_prompts inner_updates"
    assert set(keys.split()) | {"microbatch_tokens", "entropy_coefficient", "audit", "on_nonfinite"} <= found.keys()
