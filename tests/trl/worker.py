"""Trains with QuatroTrainer and records what every optimiser step saw: `worker.py MODEL OUT OPTIONS-AS-JSON`.

A process of accelerate's writes what it recorded to OUT-RANK.pt.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset

from quatro.integrations.trl import QuatroConfig, QuatroTrainer

PROMPTS = [f"{i} {i + 1} 7 = 20" for i in range(10, 22)]


def reward(completion_ids, **_):
    """The share of odd ids: an untrained policy earns mixed rewards from the start."""
    return [sum(i % 2 for i in ids) / len(ids) for ids in completion_ids]


def odd(completion_ids, **_):
    """1 for a response whose first id is odd, and no verdict on one without an id."""
    return [float(ids[0] % 2) if ids else None for ids in completion_ids]


class Recorder(QuatroTrainer):
    """``steps``: weights before each step, its micro-batches with their losses, and the gradient that it takes."""

    def __init__(self, *args, **options):
        self.steps = []
        super().__init__(*args, **options)

    def training_step(self, model, *args):
        if self._step % self.args.gradient_accumulation_steps == 0:
            weights = {name: value.clone() for name, value in self.model.state_dict().items()}
            self.steps.append({"weights": weights, "parts": [], "losses": []})
        loss = super().training_step(model, *args)
        gradient = torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()])
        self.steps[-1]["gradient"] = gradient.clone()
        return loss

    def _compute_loss(self, model, inputs):
        loss = super()._compute_loss(model, inputs)
        if not self.model.training:
            return loss
        self.steps[-1]["parts"].append(dict(inputs))
        self.steps[-1]["losses"].append(loss.item())
        return loss


def make(cls, model: str, out: Path, *, prompts: Sequence[str] = PROMPTS, **options) -> Recorder:
    defaults = {
        "output_dir": str(out),
        "num_generations": 4,
        "max_completion_length": 8,
        "max_steps": 4,
        "learning_rate": 3e-4,
        "max_grad_norm": 1e9,
        "seed": 1,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "per_device_eval_batch_size": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }
    data = Dataset.from_list([{"prompt": prompt} for prompt in prompts])
    return cls(
        model, reward, QuatroConfig(**{**defaults, **options}), train_dataset=data, eval_dataset=data.select([0, 1])
    )


def record(model: str, out: Path, **options) -> dict[str, Any]:
    trainer = make(Recorder, model, out, log_completions=True, num_completions_to_print=1, **options)
    trainer.train()
    trainer.save_state()
    log, table = [*trainer.state.log_history], list(trainer._logs["advantages"])
    trainer.reward_funcs = [odd]
    # As many rows as a batch for training has: the file of completions holds the last that many, whatever they are of.
    evaluation = trainer.evaluate(trainer.train_dataset.select(range(trainer.args.generation_batch_size // 4)))
    return {"steps": trainer.steps, "log": log, "table": table, "evaluation": evaluation}


if __name__ == "__main__":
    model, out, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    torch.save(record(model, out, **options), f"{out}-{os.environ['RANK']}.pt")
