"""Our methods inside verl's own advantage and actor loss, against the vectors and our own loss."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytestmark = pytest.mark.verl
verl = pytest.importorskip("verl")

import numpy as np  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402
from tensordict import NonTensorData, TensorDict  # noqa: E402
from verl.protocol import DataProto  # noqa: E402
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, POLICY_LOSS_REGISTRY  # noqa: E402
from verl.trainer.ppo.ray_trainer import compute_advantage  # noqa: E402
from verl.utils.tracking import Tracking  # noqa: E402
from verl.workers.config import ActorConfig  # noqa: E402
from verl.workers.config.actor import PolicyLossConfig  # noqa: E402
from verl.workers.utils import losses  # noqa: E402

from evals.errors import UsageError  # noqa: E402
from quatro import ops  # noqa: E402
from quatro.integrations.verl.methods import METHOD_OF  # noqa: E402
from quatro.integrations.verl.plugin import PolicyLoss  # noqa: E402
from quatro.registry import METHODS  # noqa: E402
from quatro.types import Batch  # noqa: E402

VERL_NAME_OF = {name: verl_name for verl_name, name in METHOD_OF.items()}
VECTORS = Path(__file__).parents[1] / "vectors" / "methods"


def read(name: str) -> dict[str, Any]:
    return json.loads((VECTORS / f"{name}.json").read_text(encoding="utf-8"))


BATCHES = read("batches")["batches"]
CASES = [
    case
    for case in read("quatro")["cases"] + read("baselines")["cases"]
    if case["hyper"]["kl_loss_type"] != "sequence-exact"  # a KL that verl does not have
]


def block_of(case: dict[str, Any]) -> dict[str, Any]:
    """``algorithm.quatro`` of a case; the vectors of QUATRO have neither cap nor floor."""
    hyper, fields = case["hyper"], METHODS[case["method"]].model_fields
    if case["method"] == "quatro":
        keys = ("delta", "log_ratio", "max_log_ratio")
        return {key: hyper[key] for key in keys} | {"boundary_cap": None, "advantage_floor": -1e6}
    block = {
        "clip_low": hyper["clip_ratio_low"],
        "clip_high": hyper["clip_ratio_high"],
        "dual_clip": hyper["clip_ratio_c"],
        "aggregate": hyper["loss_agg_mode"],
        "standardise": hyper["norm_adv_by_std"],
    }
    return {key: value for key, value in block.items() if key in fields}


def rows_of(batch: dict[str, Any]) -> dict[str, Any]:
    rows = {name: torch.tensor(batch[f"{name}_probs"], dtype=torch.float64) for name in ("log", "old_log", "ref_log")}
    return rows | {
        "mask": torch.tensor(batch["response_mask"]).long(),
        "reward": torch.tensor(batch["rewards"], dtype=torch.float64),
        "group": batch["group_ids"],
    }


def verls_advantage(verl_name: str, rows: dict[str, Any], **algorithm: Any) -> torch.Tensor:
    # verl sums a response's token rewards, padding included: so a response without a token keeps its reward.
    rewards_BT = torch.zeros_like(rows["old_log"])
    rewards_BT[:, 0] = rows["reward"]
    data = DataProto.from_dict(
        tensors={"token_level_rewards": rewards_BT, "response_mask": rows["mask"]},
        non_tensors={"uid": np.array([f"prompt {id}" for id in rows["group"]], dtype=object)},
    )
    config = OmegaConf.create(algorithm)
    return compute_advantage(data, adv_estimator=verl_name, config=config).batch["advantages"]


def actor_of(verl_name: str, block: dict[str, Any], **settings: Any) -> ActorConfig:
    policy_loss = PolicyLoss(loss_mode=verl_name, quatro=block)
    settings = {"rollout_n": 4, **settings}
    return ActorConfig(strategy="fsdp2", ppo_micro_batch_size_per_gpu=1, policy_loss=policy_loss, **settings)


def verls_loss(
    actor: ActorConfig, rows: dict[str, Any], advantage_BT: torch.Tensor, parts: list[torch.Tensor], num_rows: int
) -> tuple[float, torch.Tensor, dict[str, list[float]]]:
    """Loss, its gradient by log pi_theta and metrics, with one backward pass a micro-batch as in verl's engine."""
    leaf_BT, total, metrics = rows["log"].clone().requires_grad_(True), 0.0, {}
    for part in parts:
        tensors = {"response_mask": rows["mask"], "old_log_probs": rows["old_log"], "ref_log_prob": rows["ref_log"]}
        tensors = {name: value[part] for name, value in tensors.items()} | {"advantages": advantage_BT[part]}
        data = TensorDict(tensors, batch_size=len(part))
        info = {"dp_size": 1, "batch_num_tokens": int(rows["mask"].sum()), "global_batch_size": num_rows}
        for name, value in info.items():
            data[name] = NonTensorData(value)
        value, found = losses.ppo_loss(actor, {"log_probs": leaf_BT[part]}, data)
        value.backward()
        total += value.item()
        for name, metric in found.items():
            metrics.setdefault(name, []).extend(metric.values if hasattr(metric, "values") else [metric])
    return total, leaf_BT.grad, metrics


@pytest.fixture(autouse=True)
def rows_are_padded_already(monkeypatch):
    monkeypatch.setattr(losses, "no_padding_2_padding", lambda tensor, data: tensor)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_vector_comes_out_of_verl_in_any_number_of_micro_batches(case):
    rows, expected, hyper = rows_of(BATCHES[case["batch"]]), case["expected"], case["hyper"]
    verl_name, block = VERL_NAME_OF[case["method"]], block_of(case)
    rtol, atol = (1e-9, 1e-10) if case["method"] == "quatro" else (1e-6, 1e-6)

    advantage_BT = verls_advantage(verl_name, rows, quatro=block)
    wanted = [float("nan") if value is None else float(value) for value in expected["advantages"]]
    wanted_BT = torch.tensor(wanted, dtype=torch.float64)[:, None].expand_as(advantage_BT)
    grad_wanted_BT = torch.tensor(expected["grad_log_probs"], dtype=torch.float64)
    real_BT = rows["mask"].bool()
    torch.testing.assert_close(advantage_BT[real_BT], wanted_BT[real_BT], rtol=rtol, atol=atol)

    num_rows, has_tokens_B = len(real_BT), real_BT.any(dim=1)
    how = hyper.get("kl_agg", hyper.get("loss_agg_mode"))
    # verl divides a mean over rows by their configured number, which for these vectors is that of rows with tokens.
    is_row_mean = case["method"] in ("quatro", "gmpo")
    if is_row_mean and how != "token-mean" and not has_tokens_B.all():
        pytest.skip("the method counts rows without tokens, its KL does not: verl has one number for both")
    counted = num_rows if is_row_mean else int(has_tokens_B.sum())
    actor = actor_of(
        verl_name,
        block,
        use_kl_loss=True,
        kl_loss_coef=hyper["kl_loss_coef"],
        kl_loss_type=hyper["kl_loss_type"],
        loss_agg_mode=how,
        loss_scale_factor=real_BT.shape[1],
    )
    for parts in (1, 2, 4, 5):  # 5: micro-batches of unequal size
        chunks = list(torch.arange(num_rows).chunk(parts))
        loss, grad_BT, _ = verls_loss(actor, rows, advantage_BT, chunks, counted)
        assert loss == pytest.approx(expected["loss"], rel=rtol, abs=atol)
        torch.testing.assert_close(grad_BT, grad_wanted_BT, rtol=rtol, atol=atol)


def test_rows_that_fill_a_batch_up_change_no_advantage_and_add_nothing_to_the_loss():
    """verl fills 13 rows up to 16 with rows of a prompt of their own, without a token and without a reward."""
    torch.manual_seed(3)
    mask = (torch.arange(9) < torch.randint(1, 10, (13, 1))).long()
    old = -torch.rand(13, 9, dtype=torch.float64)
    rows = {"mask": mask, "old_log": old, "ref_log": old, "log": old + 0.2 * torch.randn_like(old)}
    rows |= {"reward": torch.randint(0, 3, (13,)).double() / 2, "group": [i // 4 for i in range(13)]}
    filled = {
        name: torch.cat([value, torch.zeros(3, *value.shape[1:], dtype=value.dtype)])
        for name, value in rows.items()
        if name != "group"
    } | {"group": [*rows["group"], 99, 99, 99]}
    filled["log"][13:] = filled["old_log"][13:] = torch.randn(3, 9).double()  # whatever the model says there
    for verl_name in METHOD_OF:
        plain = verls_advantage(verl_name, rows, quatro={})
        with_filling = verls_advantage(verl_name, filled, quatro={})
        torch.testing.assert_close(with_filling[:13], plain, rtol=0, atol=0)
        assert (with_filling[13:] == 0).all()
        actor = actor_of(verl_name, {})
        loss, grad_BT, metrics = verls_loss(actor, rows, plain, [torch.arange(13)], 16)
        halves = [torch.arange(16)[::2], torch.arange(16)[1::2]]
        filled_loss, filled_grad_BT, _ = verls_loss(actor, filled, with_filling, halves, 16)
        assert filled_loss == pytest.approx(loss, rel=1e-12)
        torch.testing.assert_close(filled_grad_BT[:13], grad_BT, rtol=1e-12, atol=1e-14)
        assert (filled_grad_BT[13:] == 0).all()
        assert verls_loss(actor, filled, with_filling, [torch.arange(13, 16)], 16)[0] == 0  # filling alone
        # ... and are no rows of the metrics.
        seen = verls_loss(actor, filled, with_filling, [torch.arange(16)], 16)[2]
        for name in ("log_ratio/max", "log_ratio/min", "kl/new_old"):
            assert seen[name] == pytest.approx(metrics[name], rel=1e-12)


def test_the_sum_over_rollouts_takes_the_number_of_rollouts_from_verl():
    rows = rows_of(BATCHES["binary_mild"])
    value = verls_advantage("quatro", rows)
    chunks = [torch.arange(12)]
    mean, _, _ = verls_loss(actor_of("quatro", {}), rows, value, chunks, 12)
    summed, _, _ = verls_loss(actor_of("quatro", {"loss_norm": "sum"}), rows, value, chunks, 12)
    assert summed == pytest.approx(4 * mean, rel=1e-12)


def test_metrics_are_ours_and_reach_verls_logger():
    rows = rows_of(BATCHES["binary_mild"])
    advantage_BT = verls_advantage("quatro", rows, quatro={"delta": 0.1})
    _, _, metrics = verls_loss(actor_of("quatro", {"delta": 0.1}), rows, advantage_BT, [torch.arange(12)], 12)
    log_ratio_B = ((rows["log"] - rows["old_log"]) * rows["mask"]).sum(1)
    s_B = log_ratio_B.exp()
    assert metrics["kl/new_old"] == pytest.approx([(s_B * log_ratio_B - s_B + 1).mean().item()])
    assert metrics["log_ratio/max"] == pytest.approx([log_ratio_B.max().item()])
    assert metrics["log_ratio/min"] == pytest.approx([log_ratio_B.min().item()])
    assert "ratio/capped_share" in metrics

    shown: list[tuple[dict[str, float], int]] = []
    tracking = Tracking("project", "experiment", default_backend=[])
    tracking.logger["list"] = SimpleNamespace(log=lambda data, step: shown.append((data, step)))
    tracking.log(data={"reward": 1.0}, step=7)
    tracking.log(data={"reward": 2.0}, step=8)
    batch = BATCHES["binary_mild"]
    group = torch.tensor(batch["group_ids"])
    wanted = METHODS["quatro"](delta=0.1).advantages(rows["reward"], group).metrics
    assert shown[0] == (pytest.approx({"reward": 1.0, **wanted}), 7)
    assert wanted["dual/lam_mean"] > 0
    assert shown[1] == ({"reward": 2.0}, 8)


def test_every_method_is_registered_and_a_driver_says_so():
    assert set(METHOD_OF.values()) == set(METHODS) - {"ucpo", "cluster-weighted"}
    assert METHOD_OF.keys() <= ADV_ESTIMATOR_REGISTRY.keys() & POLICY_LOSS_REGISTRY.keys()
    done = subprocess.run(
        [sys.executable, "-c", "import verl"], capture_output=True, text=True, timeout=300, check=True
    )
    assert f"advantage estimators and policy losses {', '.join(METHOD_OF)}" in done.stderr


def test_a_preset_fills_the_methods_own_keys():
    actor = actor_of("quatro_gspo", {"preset": "official"})
    rows = rows_of(BATCHES["binary_mild"])
    advantage_BT = verls_advantage("quatro_gspo", rows)
    chunks = [torch.arange(12)]
    official, *_ = verls_loss(actor, rows, advantage_BT, chunks, 12)
    by_hand = actor_of("quatro_gspo", {"clip_low": 3e-4, "clip_high": 4e-4})
    assert official == verls_loss(by_hand, rows, advantage_BT, chunks, 12)[0]
    assert official != verls_loss(actor_of("quatro_gspo", {}), rows, advantage_BT, chunks, 12)[0]


@pytest.mark.parametrize(
    ("verl_name", "block", "message"),
    [
        ("quatro", {"inner_updates": "auto"}, "quatro.inner_updates: Extra"),
        ("quatro", {"kl": {"beta": 0.1}}, "quatro.kl: Extra"),
        ("quatro", {"dleta": 0.1}, "quatro.dleta: Extra inputs"),
        ("quatro", {"delta": -1.0}, "quatro.delta: Input should be greater than 0"),
        ("quatro", {"name": "gspo"}, "quatro.name: "),
        ("quatro_dapo", {"overlong_buffer": 64}, "overlong_buffer: expected 0; verl has its own"),
        ("vanilla", {}, "loss_mode: found vanilla, expected one of quatro, "),
        ("quatro", None, r"policy_loss.quatro: missing; add '\+actor"),
    ],
)
def test_what_verl_cannot_express_is_refused_where_verl_reads_its_configuration(verl_name, block, message):
    with pytest.raises(UsageError, match=message):
        PolicyLoss(loss_mode=verl_name, quatro=block)


def test_what_only_the_batch_can_show_is_refused_by_name():
    rows = rows_of(BATCHES["binary_mild"])
    with pytest.raises(UsageError, match=r"rollout_correction.rollout_is: found sequence"):
        verls_advantage("quatro", rows, rollout_correction={"rollout_is": "sequence"})
    with pytest.raises(UsageError, match=r"rollout_correction.rollout_rs: found token_k1"):
        verls_advantage("quatro", rows, rollout_correction={"rollout_rs": "token_k1"})

    call = {"old_log_prob": rows["old_log"], "log_prob": rows["log"], "advantages": rows["log"]}
    call |= {"response_mask": rows["mask"]}
    policy = POLICY_LOSS_REGISTRY["quatro"]
    with pytest.raises(UsageError, match=r"rollout_correction.rollout_is: found weights"):
        policy(**call, config=actor_of("quatro", {}), rollout_is_weights=rows["log"])
    plain = ActorConfig(
        strategy="fsdp2", rollout_n=4, ppo_micro_batch_size_per_gpu=1, policy_loss=PolicyLossConfig(loss_mode="quatro")
    )
    with pytest.raises(UsageError, match=r"_target_=quatro.integrations.verl.plugin.PolicyLoss"):
        policy(**call, config=plain)
    normed = {"aggregate": "seq-mean-token-sum-norm"}
    with pytest.raises(UsageError, match=r"loss_scale_factor to data.max_response_length"):
        POLICY_LOSS_REGISTRY["quatro_grpo"](**call, config=actor_of("quatro_grpo", normed))


def test_a_loss_that_is_no_plain_mean_is_refused(monkeypatch):
    def uneven(self, logp_BT, batch):
        loss = original(self, logp_BT, batch)
        term = loss.terms[0]
        return type(loss)([type(term)("policy", term.value, torch.arange(1.0, 13.0))], loss.metrics)

    kind = METHODS["gmpo"]
    original = kind.loss
    monkeypatch.setattr(kind, "loss", uneven)
    rows = rows_of(BATCHES["binary_mild"])
    with pytest.raises(UsageError, match="'policy' is not a plain mean"):
        verls_loss(actor_of("quatro_gmpo", {}), rows, rows["log"], [torch.arange(12)], 12)


def test_one_mini_batch_on_two_ranks_is_our_loss():
    """verl's gradients are averaged over ranks, so each rank's share is times dp_size."""
    rows = rows_of(BATCHES["binary_mild"])
    block = {"delta": 0.05}
    advantage_BT = verls_advantage("quatro", rows, quatro=block)
    leaf_BT = rows["log"].clone().requires_grad_(True)
    for part in torch.arange(12).chunk(2):
        actor = actor_of("quatro", block)
        actor.global_batch_info.update(dp_size=2, batch_num_tokens=int(rows["mask"].sum()), global_batch_size=12)
        value, _ = POLICY_LOSS_REGISTRY["quatro"](
            rows["old_log"][part], leaf_BT[part], advantage_BT[part], rows["mask"][part].bool(), config=actor
        )
        (value / 2).backward()
    method = METHODS["quatro"](delta=0.05)
    group = torch.tensor(rows["group"])
    batch = Batch(
        old_logp_BT=rows["old_log"],
        mask_BT=rows["mask"].bool(),
        advantage_B=method.advantages(rows["reward"], group).value_B,
        group_B=group,
        group_size_B=torch.full_like(group, 4),
        max_new_tokens=7,
    )
    own_BT = rows["log"].clone().requires_grad_(True)
    ops.total_loss(method.loss(own_BT, batch).terms).backward()
    torch.testing.assert_close(leaf_BT.grad, own_BT.grad, rtol=1e-12, atol=1e-14)
