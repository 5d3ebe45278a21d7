"""A reward model: a Hugging Face sequence classifier, whose first number for prompt and response is the reward."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from pydantic import Field

from quatro.policy.facts import render_chat
from quatro.rewards.base import Grade, Grades, Groups, Reward, pairs, regrouped, require_usable
from quatro.rewards.settings import RewardConfig
from quatro.types import Block, Prompt, Rollout


class ModelOptions(Block):
    """The keys of `reward.options` of `reward: model`."""

    path: str = Field(
        min_length=1,
        description="folder or Hub id of the reward model, a sequence classifier of transformers. It reads problem "
        "and response in its own chat template, or without one prompt and response",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where it computes; auto is cuda if there is a device"
    )
    dtype: Literal["bfloat16", "float32"] = Field("bfloat16", description="number format of its weights")
    batch_rows: int = Field(16, ge=1, description="how many responses it reads at once")
    max_tokens: int = Field(
        4096,
        ge=1,
        description="longest text, in tokens: of a longer one it reads the end; `reward/parts/cut` is the share of "
        "such texts",
    )


class ModelReward(Reward):
    """The model is loaded when it first scores; each rank of several has one on its own device."""

    Options: ClassVar[type[Block]] = ModelOptions

    def __init__(self, config: RewardConfig) -> None:
        from quatro.policy.model_files import require_model

        self._options: Any = config.options
        require_model(self._options.path)

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        """``(model, tokenizer)``. Raises DataError for a model without the head of a classifier."""
        import torch

        from quatro.policy.device import find_device
        from quatro.policy.loading import load_headed

        options, rank = self._options, os.environ.get("LOCAL_RANK")
        device = find_device(options.device, None if rank is None else int(rank))
        return load_headed(options.path, getattr(torch, options.dtype), device)

    def score(self, prompts: Sequence[Prompt], completions: Groups) -> Grades:
        _, tokenizer = self._loaded
        most = self._options.max_tokens
        texts = [self._text(prompt, rollout, tokenizer) for prompt, rollout in pairs(prompts, completions)]
        has_template = getattr(tokenizer, "chat_template", None) is not None
        ids = [tokenizer(text, add_special_tokens=not has_template)["input_ids"] for text in texts]
        is_cut = [len(row) > most for row in ids]
        rewards = self._rewards([row[-most:] for row in ids])
        found = (Grade(reward, logged={"cut": float(cut)}) for reward, cut in zip(rewards, is_cut, strict=True))
        grades = regrouped(found, completions)
        require_usable(prompts, completions, grades)
        return grades

    @staticmethod
    def _text(prompt: Prompt, rollout: Rollout, tokenizer: Any) -> str:
        if getattr(tokenizer, "chat_template", None) is None:
            return prompt.text + rollout.text
        messages = [{"role": "user", "content": prompt.problem}, {"role": "assistant", "content": rollout.text}]
        return render_chat(tokenizer, messages, add_generation_prompt=False)

    def _rewards(self, ids: Sequence[list[int]]) -> list[float]:
        """The reward of each text, in batches of similar length."""
        found = [0.0] * len(ids)
        order = sorted(range(len(ids)), key=lambda row: (len(ids[row]), row))
        for start in range(0, len(order), self._options.batch_rows):
            batch = order[start : start + self._options.batch_rows]
            for row, reward in zip(batch, self._forward([ids[row] for row in batch]), strict=True):
                found[row] = reward
        return found

    def _forward(self, rows: list[list[int]]) -> list[float]:
        from unittest import mock

        import torch

        model, _ = self._loaded
        width = max(map(len, rows))
        # transformers reads the head at the last token that is not the padding token. A model that names none gets one
        # that does not occur, so that a response may end with any token.
        pad = model.config.pad_token_id
        if pad is None:
            present = {token for row in rows for token in row}
            pad = next(token for token in range(len(present) + 1) if token not in present)
        ids_BL = torch.tensor([row + [pad] * (width - len(row)) for row in rows], device=model.device)
        mask_BL = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=model.device)
        with mock.patch.object(model.config, "pad_token_id", pad), torch.inference_mode():
            logits_BC = model(input_ids=ids_BL, attention_mask=mask_BL).logits
        rewards: list[float] = logits_BC[:, 0].float().tolist()
        return rewards

    def environment(self) -> Mapping[str, str]:
        return {"reward model": self._options.path}

    def device_bytes(self, device: str) -> int:
        """The weights of the model, if it computes there; raises as `load_model_config`."""
        from quatro.policy.device import find_device
        from quatro.policy.loading import num_classifier_parameters

        options = self._options
        if find_device(options.device).type != device:
            return 0
        return num_classifier_parameters(options.path) * (2 if options.dtype == "bfloat16" else 4)

    def close(self) -> None:
        self.__dict__.pop("_loaded", None)
