"""Every method vector, through the public objects that the trainer uses (schema: vectors/methods/README.md)."""

from __future__ import annotations

import importlib
import json
import math
import os
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from quatro import ops
from quatro.config.blocks import CorrectionConfig
from quatro.dual import solve_dual
from quatro.loop.correction import correction_metrics, importance_weights, with_gradient_times
from quatro.loop.draw import has_signal, overlong_penalty
from quatro.processes.world import World
from quatro.registry import METHODS
from quatro.types import Batch
from tests.kit import read_json, relatives

OWN_FOLDER = Path(__file__).parents[2] / "vectors" / "methods"
FOLDER = Path(os.environ.get("QUATRO_METHOD_VECTORS") or OWN_FOLDER)
KL_NAMES = {"low_var_kl": "k3", "low_var_kl+": "k3+", "kl": "k1", "mse": "k2"}  # verl's other names


def batches_in(folder: Path) -> dict[str, dict[str, Any]]:
    files = [read_json(path) for path in sorted(folder.glob("batches*.json"))]
    return {name: batch for file in files for name, batch in file["batches"].items()}


def read(pattern: str, folder: Path = FOLDER) -> list[dict[str, Any]]:
    """Every case of some files, with the batch of its name that lies beside its file: folders share names."""
    files = [read_json(path) for path in sorted(folder.glob(pattern))]
    batches = batches_in(folder)
    cases = [case for file in files for case in file["cases"]]
    return [{**case, "batch": batches[case["batch"]]} if "batch" in case else case for case in cases]


DUALS = read("dual*.json")
BUDGETS = read("budget*.json", OWN_FOLDER)
RELATIVES = read("relatives*.json") or read("relatives*.json", OWN_FOLDER)
CASES = read("quatro*.json") + read("baselines*.json") + RELATIVES
BATCHES = batches_in(FOLDER)
OWN = relatives()
CHOSEN = {**METHODS, "dppo": OWN["Dppo"], "pkpo": OWN["Pkpo"]}


def method_of(case: dict[str, Any]) -> Any:
    hyper = case["hyper"]
    if case["method"] == "quatro":
        block = {"delta": hyper["delta"], "log_ratio": hyper["log_ratio"], "boundary_cap": None}
        block["max_log_ratio"] = hyper["max_log_ratio"]
        # Vectors are the exact infimum; the floor only guards losers at -inf, which no vector of the loss has.
        return METHODS["quatro"](**block, advantage_floor=-1e6)
    block = {
        "clip_low": hyper["clip_ratio_low"],
        "clip_high": hyper["clip_ratio_high"],
        "dual_clip": hyper["clip_ratio_c"],
        "aggregate": hyper["loss_agg_mode"],
        "standardise": hyper["norm_adv_by_std"],
        "leave_one_out": hyper["adv_estimator"] == "rloo",
        "divergence": hyper["loss_mode"].removeprefix("dppo_"),
        "threshold_low": hyper["clip_ratio_low"],
        "threshold_high": hyper["clip_ratio_high"],
        "max_ratio": hyper["clip_ratio_c"],
        "k": hyper.get("k"),
    }
    # verl passes one set of settings to every loss; each method has the fields that its loss reads.
    chosen = CHOSEN[case["method"]]
    return chosen(name=case["method"], **{name: value for name, value in block.items() if name in chosen.model_fields})


def tensors_of(batch: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {
        "logp": torch.tensor(batch["log_probs"], dtype=torch.float64, requires_grad=True),
        "old": torch.tensor(batch["old_log_probs"], dtype=torch.float64),
        "ref": torch.tensor(batch["ref_log_probs"], dtype=torch.float64),
        "mask": torch.tensor(batch["response_mask"]).bool(),
        "reward": torch.tensor(batch["rewards"], dtype=torch.float64),
        "group": torch.tensor(batch["group_ids"]),
    }


@pytest.mark.parametrize("case", DUALS, ids=lambda case: f"{case['name']}/{case['delta']}")
def test_dual_vectors(case):
    dual = solve_dual(np.array([case["rewards"]]), case["delta"], boundary_cap=None, advantage_floor=None)
    assert dual.status == [case["status"]]
    np.testing.assert_allclose(dual.advantage[0], [float(a) for a in case["advantages"]], rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(dual.lam[0], case["lam"], rtol=1e-9)
    np.testing.assert_allclose(dual.kl[0], case["kl_star"], rtol=1e-9, atol=1e-15)
    if case["status"] == "interior":
        np.testing.assert_allclose(dual.mu[0], case["mu"], rtol=1e-9, atol=1e-11)
        f_min = dual.mu[0] + dual.lam[0] * (1.0 + case["delta"])
        np.testing.assert_allclose(f_min, case["f_min"], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", BUDGETS, ids=lambda case: f"{case['name']}/{case['delta']}")
def test_budget_vectors(case):
    groups, lam_0, lam, wanted = (case[name] for name in ("rewards", "lam_0", "lam", "advantages"))
    method = METHODS["budgeted"](
        delta=case["delta"], spread=case["spread"] if case["spread"] == "inf" else float(case["spread"])
    )
    group_B = torch.tensor([number for number, group in enumerate(groups) for _ in group])
    found = method.advantages(torch.tensor(list(chain(*groups)), dtype=torch.float64), group_B)
    np.testing.assert_allclose(found.value_B, list(chain(*wanted)), rtol=1e-9, atol=1e-11)
    assert found.metrics["budget/lam_0"] == pytest.approx(lam_0, rel=1e-9)
    assert found.metrics["dual/lam_max"] == pytest.approx(max(lam), rel=1e-9)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_loss_vectors(case):
    method, row, expected, hyper = method_of(case), tensors_of(case["batch"]), case["expected"], case["hyper"]
    rtol = 1e-9 if case["method"] == "quatro" else 1e-6
    atol = 1e-11 if case["method"] == "quatro" else 1e-6

    advantage_B = method.advantages(row["reward"], row["group"]).value_B
    wanted_B = torch.tensor([math.nan if a is None else float(a) for a in expected["advantages"]], dtype=torch.float64)
    known_B = ~wanted_B.isnan()
    torch.testing.assert_close(advantage_B[known_B], wanted_B[known_B], rtol=rtol, atol=atol)

    sizes = torch.bincount(torch.unique(row["group"], return_inverse=True)[1])
    batch = Batch(
        old_logp_BT=row["old"],
        mask_BT=row["mask"],
        advantage_B=advantage_B,
        group_B=row["group"],
        group_size_B=sizes[torch.unique(row["group"], return_inverse=True)[1]],
        max_new_tokens=row["mask"].shape[1],
        ref_logp_BT=row["ref"],
    )
    loss = method.loss(row["logp"], batch)
    policy_loss = ops.total_loss(loss.terms)
    kl = ops.kl_term(
        row["logp"],
        batch,
        beta=1.0,
        estimator=KL_NAMES.get(hyper["kl_loss_type"], hyper["kl_loss_type"]),
        how=hyper.get("kl_agg", hyper.get("loss_agg_mode")),
        max_log_ratio=20.0,
    )
    kl_loss = ops.total_loss([kl])
    total = policy_loss + hyper["kl_loss_coef"] * kl_loss
    (grad_BT,) = torch.autograd.grad(total, row["logp"])

    def close(value: Any, name: str) -> None:
        np.testing.assert_allclose(float(value.detach()), expected[name], rtol=rtol, atol=atol, err_msg=name)

    close(policy_loss, "policy_loss")
    close(kl_loss, "kl_loss")
    close(total, "loss")
    grad_wanted_BT = torch.tensor(expected["grad_log_probs"], dtype=torch.float64)
    torch.testing.assert_close(grad_BT, grad_wanted_BT, rtol=rtol, atol=1e-11 if rtol == 1e-9 else 1e-9)
    for name in ("approx_kl", "clip_fraction", "clip_fraction_lower"):
        if name in loss.metrics and expected[name] is not None:
            metric = loss.metrics[name]
            np.testing.assert_allclose(float(metric.value / metric.count), expected[name], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("case", read("correction*.json", OWN_FOLDER), ids=lambda case: case["id"])
def test_correction_vectors(case):
    """verl's weights, what it counts of them, and the gradient that it makes with them."""
    method, row, expected = method_of(case), tensors_of(case["batch"]), case["expected"]
    correction = CorrectionConfig(**case["hyper"]["correction"])
    known = (row["old"], row["ref"], row["mask"])  # the sampler has the reference's log-probabilities
    weight, _ = importance_weights(correction, *known)
    wanted_BT = torch.tensor(expected["weights"], dtype=torch.float64)
    torch.testing.assert_close(weight.expand_as(row["old"]) * row["mask"], wanted_BT, rtol=1e-6, atol=1e-9)
    if correction.level == "token":  # of responses verl means the tokens, of which long ones have more
        metrics = correction_metrics(correction, *known, World())
        assert metrics == {
            f"correction/{name}": pytest.approx(expected[name], rel=1e-6)
            for name in ("weight_mean", "cut_share", "ess_share")
        }
    sizes = torch.bincount(torch.unique(row["group"], return_inverse=True)[1])
    batch = Batch(
        old_logp_BT=row["old"],
        mask_BT=row["mask"],
        advantage_B=method.advantages(row["reward"], row["group"]).value_B,
        group_B=row["group"],
        group_size_B=sizes[torch.unique(row["group"], return_inverse=True)[1]],
        max_new_tokens=row["mask"].shape[1],
    )
    loss = ops.total_loss(method.loss(with_gradient_times(weight, row["logp"]), batch).terms)
    (grad_BT,) = torch.autograd.grad(loss, row["logp"])
    grad_wanted_BT = torch.tensor(expected["grad_log_probs"], dtype=torch.float64)
    torch.testing.assert_close(grad_BT, grad_wanted_BT, rtol=1e-6, atol=1e-8)  # its gmpo adds 1e-10 to a weight


EXTRAS = [read_json(path) for path in sorted(FOLDER.glob("dapo_extras*.json"))]


@pytest.mark.parametrize("case", [case for extras in EXTRAS for case in extras["dynamic_sampling"]], ids=str)
def test_dynamic_sampling_keeps_the_prompts_that_verl_keeps(case):
    batch = BATCHES[case["batch"]]
    group_ids = list(dict.fromkeys(batch["group_ids"]))
    rewards = {g: [r for r, i in zip(batch["rewards"], batch["group_ids"], strict=True) if i == g] for g in group_ids}
    assert [g for g in sorted(group_ids) if has_signal(rewards[g])] == sorted(case["kept_group_ids"])


@pytest.mark.parametrize("case", [case for extras in EXTRAS for case in extras["soft_overlong"]], ids=str)
def test_overlong_rewards_are_verls(case):
    penalty = overlong_penalty(case["length"], case["max_resp_len"], case["buffer_len"], case["penalty_factor"])
    assert case["score"] + penalty == pytest.approx(case["reward"], abs=1e-9)


@pytest.fixture
def generate(monkeypatch):
    """The program that made the vectors."""
    monkeypatch.syspath_prepend(OWN_FOLDER)
    return importlib.import_module("generate")


def test_the_generator_makes_the_vectors_that_are_committed(generate, capsys):
    assert generate.main(["--check", "--every", "9"]) == 0
    assert capsys.readouterr().out == "batches, dual, quatro, budget: cases that differ: 0\n"


def test_the_generator_names_a_vector_that_is_not_its_own(generate, capsys, tmp_path, monkeypatch):
    for file in OWN_FOLDER.glob("*.json"):
        content = read_json(file)
        if file.name == "dual.json":
            content["cases"][0]["lam"] *= 1 + 1e-11
        (tmp_path / file.name).write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    assert generate.main(["--check", "--every", "99"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "dual.json: binary N=2 c=1/0.001: differs in lam",
        "batches, dual, quatro, budget: cases that differ: 1",
    ]


def test_a_vector_is_of_the_batch_beside_it_where_another_folder_has_one_of_that_name(tmp_path):
    for file in (*OWN_FOLDER.glob("relatives*.json"), *OWN_FOLDER.glob("batches*.json")):
        content = read_json(file)
        for batch in content.get("batches", {}).values():
            batch["rewards"] = [2.0 * reward for reward in batch["rewards"]]
        (tmp_path / file.name).write_text(json.dumps(content), encoding="utf-8")
    ours, theirs = (read("relatives*.json", folder) for folder in (OWN_FOLDER, tmp_path))
    assert len(ours) == len(theirs) > 0
    for our, their in zip(ours, theirs, strict=True):
        assert torch.equal(tensors_of(their["batch"])["reward"], 2 * tensors_of(our["batch"])["reward"])


def test_the_vectors_are_there():
    """Of this project's own folder every case is known to run; a folder of one's own may hold fewer methods."""
    assert len(DUALS) > 0
    assert len(CASES) > 0
    assert len(RELATIVES) >= 41
    if "QUATRO_METHOD_VECTORS" not in os.environ:
        assert len(DUALS) + len(CASES) == 255
        assert len(BUDGETS) > 0
        # Those of the first are BUDGETS; test_solutions.py computes those of the others by brute force.
        assert {case["method"] for case in CASES} == set(CHOSEN) - {"budgeted", "ucpo", "cluster-weighted"}
