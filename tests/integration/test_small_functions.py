"""The embedded code task from warm start to a policy that has learnt, with every program run in the sandbox."""

import json
from statistics import mean

import pytest

import quatro
from evals.sandbox import probe

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(probe().name == "none", reason="this machine has no isolation for programs"),
]


def test_the_base_policy_writes_some_right_programs_and_several_of_them(empty_cache, tmp_path):
    """4 programs for each of the 200 held-out functions: 0.20 of them are right."""
    files = quatro.draw_samples("embedded:code", "codegrammar", n=4, out=tmp_path, grade=True)
    rows = quatro.read_samples([file.path for file in files])
    assert len(rows) == 800
    assert 0.1 < rows["correct"].astype(float).mean() < 0.3
    right = rows[rows["correct"].astype(bool)]
    assert (right.groupby("id")["completion"].nunique() > 1).sum() > 10
    assert right["completion"].str.contains("\n").any()


def test_the_reward_of_small_functions_rises(empty_cache, tmp_path):
    """15 of the 60 iterations. Over seeds 0 and 1 the first four earn 0.25 and 0.26, the last four 0.46 and 0.47."""
    quatro.fine_tune("quickstart-code", tmp_path / "run", overrides={"steps": 15})
    lines = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    reward = [json.loads(line)["reward/mean"] for line in lines]
    assert mean(reward[-4:]) - mean(reward[:4]) > 0.05
