"""From samples to result documents: hand-computed rows, the rules about k, intervals, and who says what is correct."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evals import intervals
from evals.errors import DataError, UsageError
from evals.estimators import pass_at_k
from evals.metrics.counting import Clustering
from evals.metrics.passk_ucc import passk_result, ucc_result
from evals.results.document import About, GraderInfo, Result, read_result
from evals.samples.about import about_samples
from evals.samples.graded import read_graded
from evals.samples.graders import GradingSettings, grade_rows
from evals.samples.reading import read_samples
from evals.samples.types import Sample, Samples


def samples(*problems):
    """Samples from (benchmark, id, completions); a completion is correct if it starts with "ok"."""
    rows = [
        Sample(benchmark, id, index, text, "7", correct=text.startswith("ok"))
        for benchmark, id, texts in problems
        for index, text in enumerate(texts)
    ]
    return Samples(rows, [Path("s.jsonl")])


def values(result, **wanted):
    rows = [row for row in result.document()["rows"] if all(row.get(key) == value for key, value in wanted.items())]
    return {row["k"]: row["value"] for row in rows}


# c/n: 2/4, 0/4 in "a", 4/4 in "b"; the correct texts of a1 and b1 fall into 2 and 3 exact clusters.
SMALL = samples(
    ("a", "a1", ["ok x", "no", "ok y", "no"]),
    ("a", "a2", ["no"] * 4),
    ("b", "b1", ["ok x", "ok x", "ok y", "ok z"]),
)


def test_pass_at_k_by_hand():
    result = passk_result(SMALL)
    assert values(result, benchmark="a") == pytest.approx({1: 0.25, 2: (1 - 1 / 6) / 2, 4: 0.5})
    assert values(result, benchmark="b") == {1: 1, 2: 1, 4: 1}
    assert values(result, benchmark="average") == pytest.approx({1: 0.625, 2: (5 / 12 + 1) / 2, 4: 0.75})


def test_ucc_at_k_by_hand():
    result = ucc_result(SMALL, Clustering(["exact"]), ks=[1, 2, 4])
    # a1: two clusters of 1 in n = 4, each met by 2 draws with chance 1/2; a2 counts 0.
    assert values(result, metric="ucc@k", benchmark="a") == pytest.approx({1: 0.25, 2: 0.5, 4: 1.0})
    # b1: sizes 2, 1, 1: k = 2 gives 5/6 + 1/2 + 1/2.
    assert values(result, metric="ucc@k", benchmark="b") == pytest.approx({1: 1.0, 2: 11 / 6, 4: 3.0})
    assert values(result, metric="ucc@k", benchmark="average") == pytest.approx({1: 0.625, 2: 7 / 6, 4: 2.0})
    assert values(result, metric="ucr", benchmark="a") == {None: 0.25}
    assert values(result, metric="ucr", benchmark="b") == {None: 0.75}
    assert values(result, metric="ucr", benchmark="average") == {None: 0.5}


def test_the_document_has_the_keys_of_the_contract():
    document = ucc_result(
        SMALL,
        Clustering(["jaccard", "edit"], thresholds=[0.5, 1.0]),
        ks=[1],
        per_problem=True,
        about=About(label="Ours"),
    ).document()
    assert document["schema"] == 1
    assert document["label"] == "Ours"
    assert document["sampling"] == {
        **dict.fromkeys(["temperature", "top_p", "top_k", "max_tokens", "stop", "prompt"]),
        "n": 4,
    }
    assert document["grader"] == {"version": None, "policy": None}
    assert {
        "schema",
        "metric",
        "label",
        "model",
        "method",
        "seed",
        "source_digest",
        "base_digest",
        "checkpoint",
        "sampling",
        "grader",
        "rows",
        "problems",
    } == set(document)
    assert len(document["rows"]) == 4 * 3 * 5  # settings x (2 benchmarks + average) x (ucc@1 and four without k)
    assert len(document["problems"]) == 4 * 3
    assert document["problems"][0] == {
        "benchmark": "a", "id": "a1", "n": 4, "correct": 2, "clusters": [1, 1],
        "similarity": "jaccard", "threshold": 0.5, "linkage": "components", "tokens": "math"
    }  # fmt: skip
    row = passk_result(SMALL, ks=[2]).document()["rows"][0]
    assert list(row) == ["metric", "benchmark", "k", "value", "num_problems", "n"]
    assert "problems" not in passk_result(SMALL).document()
    assert passk_result(SMALL, per_problem=True).document()["problems"][2] == {
        "benchmark": "b",
        "id": "b1",
        "n": 4,
        "correct": 4,
    }


def test_a_written_document_reads_back_and_replaces_the_old_one_whole(tmp_path):
    path = tmp_path / "results" / "r.json"
    result = ucc_result(SMALL, ci=True, per_problem=True, about=About(grader=GraderInfo(policy="strict"), seed=3))
    result.write(path)
    result.write(path)
    assert read_result(path).document() == result.document() == json.loads(path.read_text(encoding="utf-8"))
    assert result.document()["seed"] == 3
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "JSON"),
        ("[]", "expected a JSON object"),
        ("{}", "rows"),
        ('{"metric": "pass@k", "rows": [{"benchmark": "a"}]}', r"rows\.0\.metric"),
        ('{"metric": "pass@k", "rows": 3}', "rows"),
        ('{"schema": 2, "metric": "pass@k", "rows": []}', "schema"),
    ],
)
def test_a_file_that_is_no_result_is_refused_by_name(tmp_path, content, words):
    (tmp_path / "r.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=rf"r\.json.*{words}"):
        read_result(tmp_path / "r.json")


def test_a_result_never_holds_a_number_that_is_not_finite():
    row = {"metric": "x", "benchmark": "a", "k": 1, "value": float("nan"), "num_problems": 1, "n": 1}
    with pytest.raises(ValueError, match="finite"):
        Result.model_validate({"metric": "x", "rows": [row]})


def test_default_ks_are_powers_of_two_up_to_the_smallest_n():
    assert list(values(passk_result(samples(("a", "p", ["no"] * 9))), benchmark="a")) == [1, 2, 4, 8]
    assert list(values(passk_result(samples(("a", "p", ["no"] * 600))), benchmark="a")) == [2**i for i in range(9)]
    ragged = samples(("a", "p", ["ok"] * 9), ("a", "q", ["no"] * 3))
    result = passk_result(ragged)
    assert values(result, benchmark="a") == {1: 0.5, 2: 0.5}
    assert {row["n"] for row in result.document()["rows"]} == {3}
    assert result.document()["sampling"]["n"] is None


def test_a_k_above_some_n_is_refused_naming_problem_n_and_k():
    ragged = samples(("a", "p", ["ok"] * 9), ("a", "q", ["no"] * 3))
    for evaluate in (passk_result, ucc_result):
        with pytest.raises(UsageError, match=r"k = 4 .*'q' of a has n = 3"):
            evaluate(ragged, ks=[1, 4])
        with pytest.raises(UsageError, match="k = 0"):
            evaluate(ragged, ks=[0])
        with pytest.raises(UsageError, match="no k"):
            evaluate(ragged, ks=[])


def test_defaults_cluster_countdown_exactly_mathematics_by_rouge_l_and_code_by_tfidf():
    answer = "7 2 7 6 2 8 -> 67"
    rows = [Sample("countdown", "c0", i, "x", answer, correct=False) for i in range(2)]
    rows += [Sample("aime24", "p0", i, "ok", "7", correct=True) for i in range(2)]
    mixed = Samples(rows, [])
    found = {row["benchmark"]: row for row in ucc_result(mixed).document()["rows"]}
    assert found["countdown"]["similarity"] == "exact"
    assert found["countdown"]["threshold"] is None
    assert (found["aime24"]["similarity"], found["aime24"]["threshold"]) == ("rouge-l", 0.8)
    (code,) = Clustering().settings("mbpp")
    assert code == ("tfidf", 0.8, "components", "code")
    # No setting covers both benchmarks, so no mean over them exists.
    assert "average" not in found
    assert "average" in {row["benchmark"] for row in ucc_result(mixed, Clustering(["exact"])).document()["rows"]}
    with pytest.raises(UsageError, match="which is the default for short answers"):
        ucc_result(mixed, Clustering(thresholds=[0.5]))
    with pytest.raises(UsageError, match="exact"):
        ucc_result(mixed, Clustering(["tfidf", "exact"], thresholds=[0.5]))


def test_countdown_says_which_share_of_all_solutions_was_found():
    countdown = pytest.importorskip("quatro.tasks.countdown")
    problem = countdown.problems("test")[0]
    drawn = ["2 *9 =18 +8 =26 *3 =78", "2 *9 =18 +8 =26 *3 =78 ", "5 +8 =13 *2 =26 *3 =78", "nonsense"]
    rows = [
        Sample("countdown", problem.id, i, text, problem.prompt, correct=text != "nonsense")
        for i, text in enumerate(drawn)
    ]
    result = ucc_result(Samples(rows, []), per_problem=True).document()
    assert result["problems"][0]["clusters"] == [2, 1]
    shares = {row.get("share_of_all_solutions") for row in result["rows"] if row["benchmark"] == "countdown"}
    assert shares == {2 / 87}  # it has 87 solutions


def test_unknown_options_are_refused_before_anything_is_clustered(monkeypatch):
    monkeypatch.setattr("evals.metrics.passk_ucc.count_clusters", lambda *_, **__: pytest.fail("clustered"))
    for wrong in ({"similarities": ["bleu"]}, {"linkage": "single"}, {"tokens": "nltk"}, {"thresholds": [1.5]}):
        with pytest.raises(UsageError):
            ucc_result(SMALL, Clustering(**wrong))


def test_processes_are_started_only_where_there_is_much_to_compare(monkeypatch):
    def get_context(method):
        raise RuntimeError("processes are started")

    monkeypatch.setattr("multiprocessing.get_context", get_context)
    monkeypatch.setattr("evals.metrics.counting.usable_cores", lambda: 2)
    assert ucc_result(SMALL, jobs=None).rows == ucc_result(SMALL, jobs=1).rows
    monkeypatch.setattr("evals.metrics.counting.LEAST_SHARED", 1)
    with pytest.raises(RuntimeError, match="processes are started"):
        ucc_result(SMALL, jobs=None)


def test_a_benchmark_cannot_take_the_name_of_the_average():
    with pytest.raises(DataError, match="average"):
        passk_result(samples(("average", "p", ["ok"])))


def test_no_number_is_made_of_samples_without_a_grade():
    rows = [Sample("a", "p", 0, "x", "7", correct=True), Sample("a", "p", 1, "y", "7")]
    for evaluate in (passk_result, ucc_result):
        with pytest.raises(DataError, match=r"sample 1 of 'p' \(a\) has no grade"):
            evaluate(Samples(rows, []))


def written(path, rows):
    path.write_bytes(b"".join(row.to_json_line() for row in rows))
    return path


def test_rows_decide_for_themselves(tmp_path):
    wrong, right = "\\boxed{8}", "\\boxed{7}"
    rows = [Sample("a", "p", 0, wrong, "7", correct=True), *(Sample("a", "p", i, right, "7") for i in (1, 2))]
    path = written(tmp_path / "s.jsonl", rows)
    assert read_graded([path])[0].graded()[0].completions == [wrong, right, right]


def test_infra_errors_are_refused(tmp_path):
    rows = [Sample("a", "p", 0, "\\boxed{7}", "7", correct=False, extra={"outcome": "infra_error"})]
    path = written(tmp_path / "s.jsonl", rows)
    with pytest.raises(DataError, match="infra_error"):
        read_graded([path])


def is_right(sample, **how):
    return grade_rows([sample], settings=GradingSettings(**how))[0].correct


def test_the_benchmark_chooses_its_grader():
    countdown = pytest.importorskip("quatro.tasks.countdown")
    problem = countdown.problems("test")[0]
    solution = "2 *9 =18 +8 =26 *3 =78"
    assert is_right(Sample("countdown", "c", 0, solution, problem.prompt))
    assert not is_right(Sample("countdown", "c", 0, solution + " =1", problem.prompt))
    assert is_right(Sample("mine", "c", 0, solution, problem.prompt), grader="countdown")
    with pytest.raises(DataError, match="'c'"):
        is_right(Sample("countdown", "c", 0, solution, "not a prompt"))
    with pytest.raises(DataError, match="benchmarks fetch humaneval"):
        is_right(Sample("humaneval", "HumanEval/0", 0, "def f(): ...", None))
    with pytest.raises(UsageError, match="math"):
        is_right(Sample("a", "p", 0, "x", "7"), grader="llm")


def test_mathematics_is_graded_by_its_answer():
    pytest.importorskip("evals.grading", reason="the maths grader is not installed")
    assert is_right(Sample("unknown", "p", 0, r"so \boxed{7}", 7))
    assert not is_right(Sample("aime24", "p", 0, r"so \boxed{8}", "7"))


def test_rows_carry_the_interval_of_their_own_values():
    problems = [("a", f"p{i}", ["ok"] * i + ["no"] * (8 - i)) for i in range(9)]
    row = passk_result(samples(*problems), ks=[2], ci=True).document()["rows"][0]
    values = np.array([pass_at_k(8, i, 2) for i in range(9)])
    mean, error = values.mean(), values.std(ddof=1) / 3
    half = 2.306004135204 * error / (mean * (1 - mean))  # Student's t with 8 degrees of freedom, on the logit scale
    logit = math.log(mean / (1 - mean))
    assert row["ci_high"] == pytest.approx(1 / (1 + math.exp(-logit - half)), abs=1e-12)
    assert row["ci_low"] == pytest.approx(min(1 / (1 + math.exp(-logit + half)), 0.025 ** (1 / 9) * mean), abs=1e-12)


def test_the_average_is_as_sure_as_its_independent_benchmarks():
    problems = [(name, f"p{i}", ["ok" if i % 2 else "no"]) for name in "abcd" for i in range(50)]
    rows = passk_result(samples(*problems), ks=[1], ci=True).document()["rows"]
    width = {row["benchmark"]: row["ci_high"] - row["ci_low"] for row in rows}
    # Four independent means of variance v average to variance v / 4: half the width.
    assert width["average"] == pytest.approx(width["a"] / 2, rel=0.1)


def paired_difference(a, b):
    a_SPK, b_SPK = (np.array(values)[None, :, None] for values in (a, b))
    return intervals.average_paired_differences([a_SPK], [b_SPK], [1.0])[0]


def test_the_paired_difference_of_equal_methods_is_nothing():
    same = paired_difference([0.1, 0.5, 1.0], [0.1, 0.5, 1.0])
    assert same == (0.0, 0.0, 0.0, 1.0, "problems only")
    better = paired_difference([0.0, 0.5, 0.2], [0.3, 0.6, 0.8])
    worse = paired_difference([0.3, 0.6, 0.8], [0.0, 0.5, 0.2])
    assert better.p == pytest.approx(worse.p)
    assert 0.05 < better.p < 1  # of three problems
    assert (better.mean, better.low, better.high) == pytest.approx((-worse.mean, -worse.high, -worse.low))


def test_what_is_known_of_the_sampling_comes_from_the_files_beside_the_samples(tmp_path):
    for tag, temperature in (("t1", 1.0), ("t2", 1.5)):
        (tmp_path / tag).mkdir()
        document = {"model": "m", "seed": 0, "sampling": {"n": 4, "temperature": temperature, "top_k": 0}}
        (tmp_path / tag / "sampling.json").write_text(json.dumps(document), encoding="utf-8")
    first, second = tmp_path / "t1/a.jsonl", tmp_path / "t2/a.jsonl"
    document = passk_result(SMALL, about=about_samples([first])).document()
    assert (document["model"], document["seed"], document["method"]) == ("m", 0, None)
    assert document["sampling"]["temperature"] == 1.0
    both = passk_result(SMALL, about=about_samples([first, second])).document()
    assert (both["model"], both["sampling"]["temperature"], both["sampling"]["top_k"]) == ("m", None, 0)
    assert about_samples([tmp_path / "a.jsonl"]) == About()
    (tmp_path / "samples").mkdir()
    (tmp_path / "t2").rename(tmp_path / "samples/t2")
    assert about_samples([tmp_path / "graded/t2/a.jsonl"]).sampling.temperature == 1.5
    (tmp_path / "t1/sampling.json").write_text('{"seed": "x"}', encoding="utf-8")
    with pytest.raises(DataError, match=r"sampling\.json"):
        about_samples([first])


def test_problems_missing_from_a_known_benchmark_are_warned_of():
    warnings = passk_result(samples(("aime24", "p", ["ok"]))).warnings
    assert any("30" in warning and "1 of them" in warning for warning in warnings)


def test_problems_without_a_reference_answer_are_not_missed():
    for count, expected in (
        (7498, []),
        (7497, ["math_train has 7498 problems, but the samples hold only 7497 of them"]),
    ):
        whole = samples(*(("math_train", f"p{number}", ["ok"]) for number in range(count)))
        assert passk_result(whole, ks=[1]).warnings == expected


def test_row_order_changes_no_number(tmp_path):
    rows = [
        {"benchmark": "a", "id": f"p{p}", "sample_index": i, "completion": f"{p} {i % 3} x y", "answer": "7"}
        | {"correct": (p * i) % 3 != 1}
        for p in range(12)
        for i in range(6)
    ]
    for name, ordered in (("a.jsonl", rows), ("b.jsonl", rows[::-1])):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in ordered), encoding="utf-8")
    one, other = (
        ucc_result(
            read_samples([tmp_path / name]), clustering=Clustering(linkage="greedy"), ci=True, per_problem=True
        ).document()
        for name in ("a.jsonl", "b.jsonl")
    )
    assert one == other


def test_the_public_ragged_file_computes_small_k_and_refuses_large():
    folder = os.environ.get("QUATRO_BAD_INPUTS")
    if not folder:
        pytest.skip("QUATRO_BAD_INPUTS is not set")
    manifest = Path(folder, "manifest.jsonl").read_text(encoding="utf-8")
    for case in (json.loads(line) for line in manifest.split("\n") if line):
        if case["expect"] != "refuse" or "--k" not in case["command"]:
            continue
        ragged = read_samples([Path(folder, case["file"])])
        ragged = replace(ragged, rows=[replace(row, correct=True) for row in ragged.rows])
        k = int(case["command"].split("--k")[1].split()[0])
        with pytest.raises(UsageError) as caught:
            passk_result(ragged, ks=[k])
        assert all(word in str(caught.value) for word in case["must_mention"])
        assert values(passk_result(ragged, ks=[1]), benchmark="average") == {1: 1}
