"""The published numbers agree with one another where mathematics says they must, but for the flagged ones."""

from decimal import ROUND_HALF_UP, Decimal
from importlib import resources
from itertools import pairwise

import pytest

from evals.results.document import Result, SamplingInfo
from evals.results.paper import BENCHMARKS, paper, sampling_warnings
from tests.kit import read_json

KS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
FLAGS = read_json(resources.files("evals.results") / "paper_results.json")["flags"]
NUM_PROBLEMS = {"math500": 500, "amc23": 40, "aime24": 30, "aime25": 30, "minerva": 272, "olympiad": 674}


def series(table):
    return [one for one in paper().series if one.table == table]


def test_every_table_is_complete():
    methods = {(one.model, one.label) for one in series("tab:avg_passk")}
    assert len(methods) == 9 + 3
    assert all(one.k == KS for one in series("tab:avg_passk") + series("tab:appendix_passk_all"))
    for name in BENCHMARKS:
        found = {(one.model, one.label) for one in series("tab:appendix_passk_all") if one.benchmark == name}
        assert found == methods
    five = {"GRPO", "GPG", "GMPO", "GSPO", "Ours"}
    for table, ks in (("tab:ucc_all2", (8, 16)), ("tab:ucc_all", (32, 64, 128, 256))):
        assert {(one.benchmark, one.label) for one in series(table)} == {(b, m) for b in BENCHMARKS for m in five}
        assert all(one.k == ks for one in series(table))
    assert [one.label for one in series("tab:final_entropy")] == [
        *("GSPO", "DAPO", "CISPO"),
        *("Ours delta=0.1", "Ours delta=0.01", "Ours delta=0.001"),
    ]
    code = {one.benchmark: one.k for one in series("tab:code_generation")}
    assert code == {
        "humaneval": (1, 4, 8, 16, 32, 64),
        "humanevalplus": (1, 4, 8, 16, 32, 64),
        "mbpp": (1, 8, 16),
        "mbppplus": (1, 8, 16),
    }


def test_pass_at_256_is_a_share_of_the_problems():
    """n = 256: a problem is solved or not, so the printed percent is a whole number of problems."""
    for one in series("tab:appendix_passk_all"):
        num_problems = NUM_PROBLEMS[one.benchmark]
        shares = {(Decimal(100 * c) / num_problems).quantize(Decimal("0.01"), ROUND_HALF_UP) for c in range(1000)}
        assert Decimal(str(one.values()[256])).quantize(Decimal("0.01")) in shares, one


def broken(one):
    """Values that no Pass@k and no UCC@k can have: falling, or convex beyond what two digits allow."""
    ks, values = one.k, one.value
    falls = {b for (_, x), (b, y) in pairwise(zip(ks, values, strict=True)) if y < x}
    slopes = [(y - x) / (b - a) for (a, x), (b, y) in pairwise(zip(ks, values, strict=True))]
    slack = [0.02 / (b - a) for a, b in pairwise(ks)]
    bends = {ks[i + 1] for i in range(len(slopes) - 1) if slopes[i + 1] > slopes[i] + slack[i] + slack[i + 1]}
    return falls | bends


def test_pass_at_k_never_falls_and_is_concave():
    for one in paper().of("pass@k"):
        assert not broken(one), one


def test_ucc_at_k_never_falls_but_for_the_misprint():
    found = {(one.benchmark, one.label) for one in paper().of("ucc@k") if broken(one)}
    assert found == {("olympiad", "Ours")}
    assert [[*one.misprints] for one in series("tab:ucc_all") if one.misprints] == [[32]]
    (flag,) = (flag for flag in FLAGS if flag["table"] == "tab:ucc_all" and flag["kind"] == "misprint")
    assert (flag["k"], flag["printed"], flag["expected"]) == ([32], [15.8], [5.8])


def test_ucc_stays_below_k_times_pass_at_1_but_for_the_flagged():
    rate = {(one.benchmark, one.label): one.values()[1] / 100 for one in series("tab:appendix_passk_all")}
    impossible = set()
    for one in paper().of("ucc@k"):
        if one.method != "Ours":  # whose delta is not stated
            for k, value in one.values().items():
                if value - 0.005 > k * (rate[one.benchmark, one.label] + 0.00005):
                    impossible.add((one.benchmark, one.label, k))
    flagged = {
        (flag["benchmark"], flag["method"], k)
        for flag in FLAGS
        if (flag["metric"], flag["kind"]) == ("ucc@k", "inconsistent")
        for k in flag["k"]
    }
    assert impossible == flagged != set()


def test_a_flagged_value_is_the_one_printed():
    for flag in FLAGS:
        place = {key: flag[key] for key in ("table", "metric", "benchmark", "model", "method", "delta")}
        (one,) = (one for one in paper().series if all(getattr(one, key) == value for key, value in place.items()))
        assert [one.values()[k] for k in flag["k"]] == flag["printed"]
        assert flag["reason"]
        assert flag["kind"] != "misprint" or [one.misprints[k] for k in flag["k"]] == [flag["reason"]] * len(flag["k"])


@pytest.mark.parametrize("table", ["tab:ucc_all", "tab:final_entropy", "tab:code_generation"])
def test_what_the_paper_leaves_open_is_said(table):
    assert any("not stated" in remark for remark in paper().remarks[table])


@pytest.mark.parametrize(
    ("sampling", "said"),
    [
        (SamplingInfo(n=256, temperature=1.0, top_p=0.7), ""),
        (SamplingInfo(), ""),
        (SamplingInfo(n=64, temperature=1.0, top_p=1.0), "n 64, not 256; top_p 1, not 0.7"),
    ],
)
def test_samples_that_were_drawn_otherwise_are_told(sampling, said):
    found = sampling_warnings(Result(metric="ucc@k", rows=[], sampling=sampling))
    assert [said in one for one in found] == ([True] if said else [])
