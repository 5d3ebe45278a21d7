"""verl's FSDP2 engine in this process, with one of our configurations, on rows of ours."""

# Axes: B rows (rollouts), P prompt tokens, T response tokens.
from __future__ import annotations

import os
from functools import partial
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from tensordict import TensorDict
from torch import Tensor
from verl.protocol import DataProto
from verl.trainer.ppo.ray_trainer import compute_advantage
from verl.utils import tensordict_utils
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers.engine import EngineRegistry
from verl.workers.utils.losses import ppo_loss
from verl.workers.utils.padding import left_right_2_no_padding, no_padding_2_padding

from quatro.config import Config
from quatro.integrations.verl.command import VerlCommand, verl_command
from quatro.loop.learn import make_objective
from quatro.policy.rows import Rows
from quatro.policy.torch_policy import LocalPolicy

# What differs on a CPU from the command that we print.
ON_CPU = {
    "actor_rollout_ref.model.use_remove_padding": False,
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
    "trainer.device": "cpu",
}


class VerlEngine:
    """Weights, optimiser and loss are verl's, made from the command that `quatro verl-command` prints."""

    def __init__(self, config: Config) -> None:
        os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", RAY_LOCAL_WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29617")
        initialize_global_process_group_ray()
        command = verl_command(config, name="test", prompts="prompts.parquet")
        with initialize_config_module("verl.trainer.config", version_base=None):
            whole = compose("ppo_trainer", overrides=VerlCommand({**command.settings, **ON_CPU}).overrides)
        self.algorithm = whole.algorithm
        self.actor = omega_conf_to_dataclass(whole.actor_rollout_ref.actor)
        self.engine = EngineRegistry.new(
            model_type="language_model",
            backend="fsdp2",
            model_config=omega_conf_to_dataclass(whole.actor_rollout_ref.model),
            engine_config=self.actor.engine,
            optimizer_config=self.actor.optim,
            checkpoint_config=self.actor.checkpoint,
        )
        self.engine.initialize()

    def advantages(self, rows: Rows, reward_B: Tensor) -> Tensor:
        """(B, T), as verl's driver has the plug-in compute them, in verl's float32."""
        mask_BT = rows.batch.mask_BT
        reward_BT = torch.zeros(mask_BT.shape)
        reward_BT[torch.arange(len(rows)), mask_BT.sum(1) - 1] = reward_B.float()
        uid = np.array([str(group) for group in rows.batch.group_B.tolist()], dtype=object)
        tensors = {"token_level_rewards": reward_BT, "response_mask": mask_BT.long()}
        data = DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})
        found: Tensor = compute_advantage(
            data, adv_estimator=self.algorithm.adv_estimator, config=self.algorithm
        ).batch["advantages"]
        return found

    def logp(self, rows: Rows, *, rows_at_a_time: int) -> Tensor:
        """log pi of the responses, (B, T), from verl's forward pass."""
        data = self._data(rows, {}, rows_at_a_time)
        with self.engine.eval_mode():
            output = self.engine.infer_batch(data, loss_function=None)
        found: Tensor = no_padding_2_padding(output["model_output"]["log_probs"], data)
        return found

    def gradient(self, rows: Rows, advantage_BT: Tensor, *, rows_at_a_time: int) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradient of one mini-batch; no optimiser step is taken."""
        data = self._data(rows, {"advantages": advantage_BT}, rows_at_a_time)
        with self.engine.train_mode():
            self.engine.optimizer_zero_grad()
            output = self.engine.forward_backward_batch(data, partial(ppo_loss, config=self.actor))
            gradients = {name: _whole(weight.grad).clone() for name, weight in self.engine.module.named_parameters()}
        return float(sum(output["loss"])), gradients

    def step(self, rows: Rows, advantage_BT: Tensor, *, rows_at_a_time: int) -> float:
        """The gradient norm of one optimiser step."""
        data = self._data(rows, {"advantages": advantage_BT}, rows_at_a_time)
        with self.engine.train_mode():
            return float(self.engine.train_batch(data, partial(ppo_loss, config=self.actor))["metrics"]["grad_norm"])

    def _data(self, rows: Rows, more: dict[str, Tensor], rows_at_a_time: int) -> TensorDict:
        """``rows`` as verl's trainer hands them to a worker: prompts padded on the left, responses on the right."""
        mask_BT, num_rows = rows.batch.mask_BT, len(rows)
        width, prompt_width = mask_BT.shape[1], int(rows.prompt_length_B.max())
        prompt_BP = torch.zeros(num_rows, prompt_width, dtype=torch.long)
        response_BT = torch.zeros(num_rows, width, dtype=torch.long)
        for row, (start, length) in enumerate(zip(rows.prompt_length_B.tolist(), mask_BT.sum(1).tolist(), strict=True)):
            prompt_BP[row, prompt_width - start :] = rows.ids_BL[row, :start]
            response_BT[row, :length] = rows.ids_BL[row, start : start + length]
        is_prompt_BP = torch.arange(prompt_width).flip(0) < rows.prompt_length_B[:, None]
        attention = torch.cat([is_prompt_BP, mask_BT], dim=1).long()
        tensors = {
            "input_ids": torch.cat([prompt_BP, response_BT], dim=1),
            "attention_mask": attention,
            "position_ids": (attention.cumsum(1) - 1).clamp(min=0),
            "prompts": prompt_BP,
            "responses": response_BT,
            "response_mask": mask_BT.long(),
            "old_log_probs": rows.batch.old_logp_BT,
            **more,
        }
        data = left_right_2_no_padding(TensorDict(tensors, batch_size=num_rows))
        settings: dict[str, Any] = {
            "use_remove_padding": False,
            "use_dynamic_bsz": False,
            "use_fused_kernels": False,
            "micro_batch_size_per_gpu": rows_at_a_time,
            "max_token_len_per_gpu": 4096,
            "temperature": 1.0,
            "calculate_entropy": False,
            "global_batch_size": num_rows,
        }
        tensordict_utils.assign_non_tensor(data, **settings)
        return data


class Watched(LocalPolicy):
    """Our policy, which keeps loss and gradient of its last step."""

    def take_step(self, loss_sum: Tensor) -> Any:
        self.gradient = {name: weight.grad.clone() for name, weight in self.model.named_parameters()}
        self.loss = float(loss_sum)
        return super().take_step(loss_sum)


def gradients_apart(config: Config, model: Any, rows: Rows, reward_B: Tensor, noise_BT: Tensor) -> dict[int, float]:
    """Number of micro-batches -> distance of verl's gradient from ours, relative to ours; the losses must be equal.

    ``model`` has the weights of ``config.model`` and takes a step. log pi_old is log pi plus the noise.
    """
    policy, engine = Watched(model, config), VerlEngine(config)
    own_BT, mask_BT = policy.score(rows).logp_BT, rows.batch.mask_BT
    torch.testing.assert_close(engine.logp(rows, rows_at_a_time=4)[mask_BT], own_BT[mask_BT], rtol=1e-5, atol=1e-5)
    advantage_B = config.method.advantages(reward_B, rows.batch.group_B).value_B
    rows = rows.with_batch(old_logp_BT=own_BT + noise_BT, advantage_B=advantage_B)
    policy.update(rows, make_objective(config), use_own_logp=False, need_entropy=False)
    advantage_BT, found = engine.advantages(rows, reward_B), {}
    for num_micro in (1, 2, 4):
        loss, gradients = engine.gradient(rows, advantage_BT, rows_at_a_time=len(rows) // num_micro)
        assert abs(loss - policy.loss) <= max(1e-6, 1e-5 * abs(policy.loss))
        found[num_micro] = relative_difference(gradients, policy.gradient)
    return found


def relative_difference(theirs: dict[str, Tensor], ours: dict[str, Tensor]) -> float:
    assert theirs.keys() == ours.keys()
    gap = sum((theirs[name] - ours[name]).square().sum() for name in ours)
    return float((gap / sum(value.square().sum() for value in ours.values())).sqrt())


def _whole(tensor: Any) -> Tensor:
    found: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return found
