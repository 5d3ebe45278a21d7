"""Maths prompts on the path of real models: chat template, byte-level tokenizer, recorded and live rollouts."""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from scipy.optimize import brentq

from quatro.config import load_config
from quatro.rundir import RunDir
from quatro.train import train

CHAT_TEMPLATE = (
    "{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
NUM_ROLLOUTS = 8


@pytest.fixture(scope="module")
def byte_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2 over bytes, with a chat template."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = Tokenizer(BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=1,
        num_key_value_heads=1,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        dtype="float32",
    )
    folder = tmp_path_factory.mktemp("models") / "bytes"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = Qwen2ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def made_up(folder: Path) -> tuple[Path, Path]:
    """Sums whose answers are right for one to seven of eight recorded completions."""
    generator = random.Random(0)
    problems, samples = [], []
    for number in range(6):
        a, b = generator.randint(1, 99), generator.randint(1, 99)
        problems.append({"id": f"sum-{number}", "problem": f"What is ${a}+{b}$?", "answer": str(a + b)})
        for index in range(NUM_ROLLOUTS):
            given = a + b if index <= number else a + b + 1
            text = f"We add {a} and {b}{' step by step' * (index % 3)}. So \\boxed{{{given}}}."
            samples.append(
                {
                    "benchmark": "prompts",
                    "id": f"sum-{number}",
                    "sample_index": index,
                    "completion": text,
                    "answer": str(a + b),
                }
            )
    return write(folder / "prompts.jsonl", problems), write(folder / "recorded.jsonl", samples)


def recorded(folder: Path) -> tuple[Path, Path]:
    """Real completions of a Qwen model, on the problems where some of the eight are right and some wrong."""
    rows_of = defaultdict(list)
    source = Path(os.environ["QUATRO_COMPLETIONS"]) / "completions_qwen_math_cot_100.jsonl"
    with source.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            rows_of[row["id"]].append(row)
    mixed = {id: rows for id, rows in rows_of.items() if 0 < sum(row["source_score"] for row in rows) < len(rows)}
    problems = [
        {"id": id, "problem": rows[0]["problem"], "answer": rows[0]["answer_gold"]} for id, rows in mixed.items()
    ]
    keep = ("id", "sample_index", "completion")
    samples = [
        {"benchmark": "prompts", "answer": row["answer_gold"], **{key: row[key] for key in keep}}
        for rows in mixed.values()
        for row in rows[:NUM_ROLLOUTS]
    ]
    return write(folder / "prompts.jsonl", problems[:6]), write(folder / "recorded.jsonl", samples)


needs_completions = pytest.mark.skipif(
    "QUATRO_COMPLETIONS" not in os.environ, reason="QUATRO_COMPLETIONS names no folder of recorded completions"
)


@pytest.mark.parametrize("source", [made_up, pytest.param(recorded, marks=needs_completions)])
def test_recorded_completions_move_the_weights_as_computed(tmp_path, byte_model, source):
    """Replay, maths reward, one step: the weights are those of an update written out by hand."""
    problems, samples = source(tmp_path)
    config = load_config(
        "math-1.5b",
        overrides=[
            f"model={byte_model}",
            *("dtype=float32", "steps=1", "threads=1", f"data.prompts={problems}", "rollout.engine=replay"),
            *(f"rollout.replay_file={samples}", "rollout.max_new_tokens=2500", "method.delta=0.05", "kl.beta=0"),
            *("prompts_per_step=6", "minibatch_prompts=6", "optimizer.lr=1e-3", "microbatch_tokens=4000"),
        ],
    )
    with RunDir.create(tmp_path / "run", config) as run:
        metrics = train(config, run)
    assert 0 < metrics["reward/mean"] < 1
    assert metrics["groups/mixed_share"] > 0.5

    from quatro.policy.loading import load_model, load_tokenizer

    model, tokenizer = load_model(str(byte_model), torch.float32, "cpu"), load_tokenizer(str(byte_model))
    problem_of = {row["id"]: row for row in map(json.loads, problems.open(encoding="utf-8"))}
    rollouts = [json.loads(line) for line in (tmp_path / "run/rollouts/step-000001.jsonl").open(encoding="utf-8")]
    counts = {id: sum(row["reward"] for row in rollouts if row["id"] == id) for id in problem_of}
    loss = torch.zeros(())
    for row in rollouts:
        turns = [
            {"role": "system", "content": "You are a helpful assistant."},
            {
                "role": "user",
                "content": problem_of[row["id"]]["problem"]
                + "\nPlease reason step by step, and put your final answer within \\boxed{}.",
            },
        ]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        answer = [*tokenizer(row["completion"], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        logits = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1]
        logp = logits.log_softmax(-1)[torch.arange(len(answer)), torch.tensor(answer)].sum()
        loss = loss - binary_advantage(int(counts[row["id"]]), row["reward"] == 1, 0.05) * logp / len(rollouts)
    loss.backward()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.0)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert metrics["grad/norm"] == pytest.approx(float(norm), rel=1e-3)
    big = {name: p.grad.abs() > 1e-3 * p.grad.abs().max() for name, p in model.named_parameters()}
    optimizer.step()
    after = load_file(tmp_path / "run/checkpoints/step-000001/model/model.safetensors")
    for name, parameter in model.named_parameters():
        # Adam's first step is lr x sign(gradient) but for the smallest gradients, where only noise is left.
        torch.testing.assert_close(after[name][big[name]], parameter.detach()[big[name]], rtol=0, atol=2e-5)


def binary_advantage(num_correct: int, is_correct: bool, delta: float) -> float:
    """The closed form for rewards 0 and 1, N = 8."""
    import math

    n, c = NUM_ROLLOUTS, num_correct
    if c in (0, n):
        return 0.0

    def excess(share: float) -> float:
        return share * math.log(share * n / c) + (1 - share) * math.log((1 - share) * n / (n - c)) - delta

    share = brentq(excess, c / n, 1 - 1e-12)
    return math.log(share * n / c) if is_correct else math.log((1 - share) * n / (n - c))


def real_prompts(folder: Path) -> str:
    """Short problems of the MATH training set."""
    with (Path(os.environ["QUATRO_DATA"]) / "math_train.jsonl").open(encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["answer"] and len(row["problem"]) < 80]
    return str(
        write(folder / "prompts.jsonl", [{k: row[k] for k in ("id", "problem", "answer")} for row in rows[:200]])
    )


needs_data = pytest.mark.skipif("QUATRO_DATA" not in os.environ, reason="QUATRO_DATA names no folder of benchmarks")


@pytest.mark.parametrize(
    "source",
    [lambda folder: str(made_up(folder)[0]), pytest.param(real_prompts, marks=needs_data)],
    ids=["own", "MATH"],
)
def test_live_rollouts_on_maths_prompts_learn_a_python_reward(tmp_path, byte_model, source, monkeypatch):
    (tmp_path / "digits.py").write_text(
        "def share(prompt, completion, answer):\n"
        "    return sum(letter.isdigit() for letter in completion) / max(1, len(completion))\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)
    config = load_config(
        "math-1.5b",
        overrides=[
            f"model={byte_model}",
            *("dtype=float32", "steps=25", "threads=1", f"data.prompts={source(tmp_path)}", "reward=digits:share"),
            *("rollout.max_new_tokens=12", "prompts_per_step=6", "minibatch_prompts=3", "inner_updates=2"),
            *("optimizer.lr=3e-3", "method.delta=0.1", "rollouts_per_prompt=16", "checkpoint.every=0"),
        ],
    )
    with RunDir.create(tmp_path / "run", config) as run:
        train(config, run)
    rewards = [json.loads(line)["reward/mean"] for line in (tmp_path / "run/metrics.jsonl").open(encoding="utf-8")]
    assert sum(rewards[-5:]) / 5 > 2 * sum(rewards[:5]) / 5
