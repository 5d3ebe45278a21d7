"""The two sides of train_vs_trl.py: the same model and prompts, our loop and TRL's, each timed phase by phase."""

import argparse
import functools
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu_case import Case, random_model
from random_words import timed_run, write_prompts, write_words

REAL = "smollm2-started"
VOCABULARY = 512
PAD = VOCABULARY - 1


def reward_of(token_ids: Sequence[int]) -> float:
    return float(sum(token_ids) % 2)


# --- what both sides are given --------------------------------------------------------------------------------------


def write_inputs(folder: Path, options: argparse.Namespace) -> None:
    """A model with its tokenizer, and prompts; the first few of the 512 words of a random one end a response."""
    from quatro.policy.embedded import resolve_model
    from quatro.tasks.word_problems import items, prompt_of

    if options.real:
        folder.mkdir()
        (folder / "model").symlink_to(resolve_model(REAL))
        problems = items("train")[: options.prompts * options.iterations]
        write_prompts(folder, [prompt_of(problem.text) for problem in problems])
        return
    how = {"num_key_value_heads": options.kv_heads, "eos_token_id": list(range(options.stops)), "pad_token_id": PAD}
    model = random_model(Case(torch.device("cpu"), "grouped"), torch.float32, **how)
    rng = np.random.default_rng(0)
    least, most = options.prompt_tokens[0], options.prompt_tokens[-1]
    lengths = rng.integers(least, most + 1, options.prompts * options.iterations)
    write_words(folder, model, [rng.integers(100, PAD, length) for length in lengths])


def texts(folder: Path) -> list[str]:
    with open(folder / "prompts.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["problem"] for line in file]


class Lengths:
    """Prompt and response tokens of the rollouts of an iteration."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def take(self) -> dict[str, float]:
        prompt_B, response_B = np.array(self.pairs).T
        self.pairs.clear()
        padded = len(prompt_B) * int(prompt_B.max() + response_B.max())
        return {
            "tokens": float(response_B.sum()),
            "all_tokens": float(prompt_B.sum() + response_B.sum()),
            "padded_over_real": padded / float(prompt_B.sum() + response_B.sum()),
        }


# --- ours -----------------------------------------------------------------------------------------------------------


def ours(folder: Path, options: argparse.Namespace, dtype: str, *, audited: bool) -> list[dict[str, float]]:
    """CPU seconds and tokens of each iteration."""
    lengths = Lengths()
    rows: list[dict[str, float]] = []

    def is_correct(prompt: Any, rollout: Any) -> bool:
        lengths.pairs.append((len(prompt.token_ids), len(rollout.token_ids)))
        return reward_of(rollout.token_ids) > 0

    def observe(metrics: Any) -> None:
        row = {
            "whole": metrics["perf/step_s"],
            "generate": metrics["perf/generate_s"],
            "log-probs": metrics["perf/old_logp_s"] + metrics["perf/ref_logp_s"],
            "update": metrics["perf/update_s"],
            "audit": metrics["perf/audit_s"],
        }
        rows.append(row | lengths.take())

    overrides = [
        *(f"dtype={dtype}", "device=cpu", f"threads={options.threads}", f"steps={options.iterations}"),
        *(f"prompts_per_step={options.prompts}", f"minibatch_prompts={options.prompts}"),
        *(f"rollouts_per_prompt={options.n}", f"inner_updates={options.k}", "kl.beta=0.001"),
        *(f"rollout.max_new_tokens={options.max_new_tokens}", "optimizer.lr=1e-6"),
        *(f"microbatch_tokens={options.microbatch_tokens}", *(() if audited else ("audit=false",))),
    ]
    # CPU time, and the reward in this process, as TRL has it.
    timed_run(folder, "grpo", overrides, clock=time.process_time, is_correct=is_correct, observer=observe)
    return rows


# --- TRL's ----------------------------------------------------------------------------------------------------------


def settings_of(folder: Path, options: argparse.Namespace, dtype: str, rows: int, checkpointing: bool) -> Any:
    from trl import GRPOConfig

    rollouts = options.prompts * options.n
    rows = min(rows, rollouts)
    return GRPOConfig(
        output_dir=str(folder / "trl"),
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=rollouts // rows,
        generation_batch_size=rollouts,
        num_generations=options.n,
        num_iterations=options.k,
        max_steps=options.iterations * options.k,
        max_completion_length=options.max_new_tokens,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        beta=0.001,
        loss_type="bnpo",
        learning_rate=1e-6,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        shuffle_dataset=False,
        gradient_checkpointing=checkpointing,
        use_cpu=True,
        bf16=dtype == "bfloat16",
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        seed=0,
    )


def theirs(folder: Path, options: argparse.Namespace, dtype: str, setting: dict[str, Any]) -> list[dict[str, float]]:
    """CPU seconds and tokens of each iteration."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from transformers.trainer_callback import PrinterCallback
    from trl import GRPOTrainer

    seconds: dict[str, float] = {}
    done: list[dict[str, float]] = []
    lengths = Lengths()

    def timed(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            start = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.process_time() - start

        return wrapper

    class Clock(TrainerCallback):
        start = 0.0

        def on_train_begin(self, *_: Any, **__: Any) -> None:
            seconds.clear()
            self.start = time.process_time()

        def on_step_end(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step % options.k:
                return
            now = time.process_time()
            # The forward and backward passes are what training_step does beyond preparing its inputs.
            update = seconds["step"] - seconds["prepare"] + seconds["optimizer"]
            row = {
                "whole": now - self.start,
                "generate": seconds["generate"],
                "log-probs": seconds["log-probs"],
                "update": update,
            }
            done.append(row | lengths.take())
            seconds.clear()
            self.start = time.process_time()

    def rewards(prompts: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        pairs = zip(prompts, completion_ids, strict=True)
        lengths.pairs.extend((len(tokenizer(prompt).input_ids), len(ids)) for prompt, ids in pairs)
        return [reward_of(ids) for ids in completion_ids]

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "model")
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32),
        reward_funcs=rewards,
        args=settings_of(folder, options, dtype, **setting),
        train_dataset=Dataset.from_dict({"prompt": texts(folder)}),
        processing_class=tokenizer,
        callbacks=[Clock()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer._generate_single_turn = timed("generate", trainer._generate_single_turn)
    trainer._prepare_inputs = timed("prepare", trainer._prepare_inputs)
    trainer.training_step = timed("step", trainer.training_step)
    plain = trainer._get_per_token_logps_and_entropies
    without_gradient = timed("log-probs", plain)
    trainer._get_per_token_logps_and_entropies = lambda *args, **kwargs: (
        plain if torch.is_grad_enabled() else without_gradient
    )(*args, **kwargs)
    trainer.create_optimizer()
    trainer.optimizer.step = timed("optimizer", trainer.optimizer.step)
    trainer.train()
    return done
