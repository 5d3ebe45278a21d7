"""Maths prompts on the path of real models: chat template, byte-level tokenizer, recorded and live rollouts."""

from __future__ import annotations

import json
import math
import os
import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from scipy.optimize import brentq
from torch.optim.optimizer import register_optimizer_step_post_hook

from quatro.config import load_config
from quatro.policy.loading import load_model, load_tokenizer
from quatro.runs.directory import RunDir
from quatro.train import train
from tests.kit import quatro, read_json, write_rows

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
    write_rows(path, rows)
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


class Row(NamedTuple):
    """One recorded response: the tokens before it, its own, and what the dual gives it."""

    prompt: list[int]
    answer: list[int]
    advantage: float


def rows_of_prompts(folder: Path, problems: Path, tokenizer: Any, delta: float) -> list[list[Row]]:
    """What the run learnt from, by prompt: the recorded texts through the chat template, the rewards by the dual."""
    problem_of = {row["id"]: row["problem"] for row in map(json.loads, problems.open(encoding="utf-8"))}
    written = defaultdict(list)
    for line in (folder / "rollouts/step-000001.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        written[row["id"]].append(row)
    prompts = []
    for id, rows in written.items():
        content = problem_of[id] + "\nPlease reason step by step, and put your final answer within \\boxed{}."
        turns = [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": content},
        ]
        text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
        num_correct = int(sum(row["reward"] for row in rows))
        prompts.append(
            [
                Row(
                    prompt,
                    [*tokenizer(row["completion"], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id],
                    binary_advantage(num_correct, row["reward"] == 1, delta),
                )
                for row in rows
            ]
        )
    return prompts


def token_logp(model: Any, row: Row) -> torch.Tensor:
    """log pi of each token of the answer, from the logits by hand."""
    logits = model(torch.tensor([row.prompt + row.answer])).logits[0, len(row.prompt) - 1 : -1].double()
    return logits[torch.arange(len(row.answer)), torch.tensor(row.answer)] - logits.exp().sum(-1).log()


class ByHand:
    """The paper's update, written out: only the derivative of log pi by the weights is left to autograd.

    With l = sum_t (log pi - log pi_old) of a response, s = e^l, d = log pi_pre - log pi of a token, n responses and m
    tokens in the minibatch: dloss/dlogp_it = -s_i (A_i - l_i) / n + beta (1 - e^d) / m. Then clipping to the norm and
    AdamW.
    """

    def __init__(self, model: Any, *, beta: float, lr: float, weight_decay: float, max_grad_norm: float) -> None:
        self.model, self.beta, self.lr = model, beta, lr
        self.weight_decay, self.max_grad_norm = weight_decay, max_grad_norm
        self.weights = [parameter.data for parameter in model.parameters()]
        self.first = [torch.zeros_like(weight) for weight in self.weights]
        self.second = [torch.zeros_like(weight) for weight in self.weights]
        self.grad_norms: list[float] = []
        self.log_ratios: list[float] = []
        self.first_gradient: list[torch.Tensor] = []

    def step(self, rows: list[Row], old: list[torch.Tensor], pre: list[torch.Tensor]) -> None:
        """One optimiser step on a minibatch, given log pi_old and log pi_pre of its tokens."""
        num_tokens = sum(len(row.answer) for row in rows)
        for parameter in self.model.parameters():
            parameter.grad = None
        for row, old_logp, pre_logp in zip(rows, old, pre, strict=True):
            logp = token_logp(self.model, row)
            log_ratio = float((logp.detach() - old_logp).sum())
            pull = math.exp(log_ratio) * (row.advantage - log_ratio) / len(rows)
            logp.backward(-pull + self.beta * (1 - (pre_logp - logp.detach()).exp()) / num_tokens)
            self.log_ratios.append(log_ratio)
        gradient = [parameter.grad.clone() for parameter in self.model.parameters()]
        norm = math.sqrt(sum(float(part.double().square().sum()) for part in gradient))
        self.grad_norms.append(norm)
        self.first_gradient = self.first_gradient or gradient
        count = len(self.grad_norms)
        for weight, grad, first, second in zip(self.weights, gradient, self.first, self.second, strict=True):
            grad = grad * min(1.0, self.max_grad_norm / norm)
            first += 0.1 * (grad - first)
            second += 0.001 * (grad.square() - second)
            move = first / (1 - 0.9**count) / ((second / (1 - 0.999**count)).sqrt() + 1e-8)
            weight -= self.lr * (move + self.weight_decay * weight)


@pytest.fixture
def weights_after_steps() -> Iterator[list[list[torch.Tensor]]]:
    """A copy of the trained weights after each optimiser step of whatever trains."""
    seen: list[list[torch.Tensor]] = []

    def copy(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        seen.append([weight.detach().clone() for group in optimizer.param_groups for weight in group["params"]])

    hook = register_optimizer_step_post_hook(copy)
    yield seen
    hook.remove()


@pytest.mark.parametrize("source", [made_up, pytest.param(recorded, marks=[needs_completions, pytest.mark.slow])])
def test_recorded_completions_move_the_weights_as_computed(tmp_path, byte_model, source, weights_after_steps):
    """Replay, maths reward, two passes over two minibatches: after each step the weights are those of the paper."""
    problems, samples = source(tmp_path)
    settings = {"beta": 2.0, "lr": 3e-4, "weight_decay": 5.0, "max_grad_norm": 4.0}
    options = [
        f"model={byte_model}",
        *("dtype=float32", "steps=1", "threads=1", f"data.prompts={problems}", "rollout.engine=replay"),
        *(
            f"rollout.replay_file={samples}",
            "rollout.max_new_tokens=2500",
            "data.max_prompt_tokens=1024",
            "method.delta=0.05",
            "inner_updates=2",
        ),
        *("prompts_per_step=6", "minibatch_prompts=3", "microbatch_tokens=4000", f"kl.beta={settings['beta']}"),
        *(f"optimizer.{key}={settings[key]}" for key in ("lr", "weight_decay", "max_grad_norm")),
    ]
    arguments = ["train", "math-1.5b", "-o", str(tmp_path / "run"), *(f"-s{option}" for option in options)]
    quatro(*arguments)
    metrics = read_json(tmp_path / "run/metrics.jsonl")
    assert 0 < metrics["reward/mean"] < 1
    assert metrics["groups/mixed_share"] > 0.5

    model, tokenizer = load_model(str(byte_model), torch.float32, "cpu"), load_tokenizer(str(byte_model))
    prompts = rows_of_prompts(tmp_path / "run", problems, tokenizer, 0.05)
    minibatches = [[row for rows in half for row in rows] for half in (prompts[:3], prompts[3:])]
    with torch.no_grad():  # pi_old of the iteration is the model it began with, and so is pi_pre
        began = [[token_logp(model, row) for row in rows] for rows in minibatches]
    by_hand = ByHand(model, **settings)
    assert len(weights_after_steps) == 4
    for number, weights in enumerate(weights_after_steps):
        by_hand.step(minibatches[number % 2], began[number % 2], began[number % 2])
        largest = max(float(part.abs().max()) for part in by_hand.first_gradient)
        for part, found, wanted in zip(by_hand.first_gradient, weights, by_hand.weights, strict=True):
            # AdamW divides by the gradient's size: where that is next to nothing, only rounding is left.
            known = part.abs() > 1e-3 * largest
            torch.testing.assert_close(found[known], wanted[known], rtol=0, atol=1e-6)
    # What a single step without a KL term would leave open: the stabiliser has something to do, and so has the clip.
    assert max(by_hand.log_ratios[: len(minibatches[0])]) == 0
    assert max(map(abs, by_hand.log_ratios)) > 0.5
    assert max(by_hand.log_ratios) < 20  # where the ratio would be capped
    assert min(by_hand.grad_norms) < settings["max_grad_norm"] < max(by_hand.grad_norms)
    assert metrics["grad/norm"] == pytest.approx(sum(by_hand.grad_norms) / 4, rel=1e-4)


def binary_advantage(num_correct: int, is_correct: bool, delta: float) -> float:
    """The closed form for rewards 0 and 1, N = 8."""
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
@pytest.mark.slow
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
