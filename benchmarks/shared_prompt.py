"""What one forward pass for a prompt and its N responses could save of `update` and `score`, at most.

A pass over N rows computes the prompt N times. With prompts an N-th as long it would compute as many prompt tokens as
a shared prompt has: their time is the bound ("short prompts"). Responses would still have to read the whole shared
prompt, through a mask, since causal attention alone no longer says who may read what: "and a mask" adds those keys.
The model has the proportions of Qwen2.5-1.5B: six query heads a key-value head, the MLP's width, and a vocabulary
that gives the head the same share. CPU seconds in one process, the cases taking turns; and operations of the 1.5B
shape.

    python benchmarks/shared_prompt.py
    python benchmarks/shared_prompt.py --quick
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parent))

import gpu_case
from earlier import told
from gpu_update import configuration, make_rows
from transformers import AttentionInterface

from quatro.loop.learn import make_objective
from quatro.policy.kinds import make_policy
from quatro.processes.world import World

gpu_case.SHAPES["small"] = {
    "vocab_size": 5376,
    "hidden_size": 384,
    "num_hidden_layers": 4,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "intermediate_size": 2240,
    "max_position_embeddings": 4096,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt-tokens", type=int, default=150)
    parser.add_argument("--response-tokens", type=int, default=600, help="on average")
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--microbatch-tokens", type=int, default=4096)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a small case, to try the script itself")
    options = parser.parse_args()
    if options.quick:
        options.prompt_tokens, options.response_tokens, options.n, options.blocks = 24, 32, 4, 1
    return options


def attention_with_more_keys(num_keys: int) -> Callable[..., Any]:
    """Causal attention whose queries also read ``num_keys`` keys that no query of their own belongs to."""

    def attention(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **options: Any
    ) -> tuple[torch.Tensor, None]:
        shape, length = (*key.shape[:2], num_keys, key.shape[3]), query.shape[2]
        key, value = (torch.cat((each.new_zeros(shape), each), dim=2) for each in (key, value))
        own = torch.ones(length, length, dtype=torch.bool, device=query.device).tril()
        allowed = torch.cat((own.new_ones(length, num_keys), own), dim=1)
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, scale=options.get("scaling"), enable_gqa=True
        )
        return out.transpose(1, 2).contiguous(), None

    return attention


def case_of(options: argparse.Namespace, prompt_tokens: int) -> gpu_case.Case:
    # `make_rows` draws responses between a twentieth of the limit and the limit.
    limit = round(options.response_tokens / 0.525)
    return gpu_case.Case(
        torch.device("cpu"), "small", 1, options.n, (prompt_tokens, prompt_tokens), limit, (options.microbatch_tokens,)
    )


def work_of(options: argparse.Namespace, prompt_tokens: int, attention: str) -> Callable[[], None]:
    """One update and one pass without gradient over the rollouts of a prompt."""
    case = case_of(options, prompt_tokens)
    config = configuration(
        case,
        *("dtype=float32", "policy.gradient_checkpointing=true", "kl.beta=0", f"threads={options.threads}"),
        f"microbatch_tokens={options.microbatch_tokens}",
    )
    rows = make_rows(case, 1, case.max_new_tokens)
    model = gpu_case.random_model(case, torch.float32, attn_implementation=attention)
    policy, objective = make_policy(config, model, World(), None), make_objective(config)

    def work() -> None:
        policy.update(rows, objective, use_own_logp=True, need_entropy=False)
        policy.score(rows)

    return work


def operations(shape: dict[str, int], options: argparse.Namespace) -> dict[str, float]:
    """Multiplications of one pass over the rows of a prompt: as they are, shared, and shared with masked attention."""
    hidden, layers = shape["hidden_size"], shape["num_hidden_layers"]
    keys = hidden // shape["num_attention_heads"] * shape["num_key_value_heads"]
    weights = layers * (2 * hidden * hidden + 2 * hidden * keys + 3 * hidden * shape["intermediate_size"])
    prompt, response, n = options.prompt_tokens, options.response_tokens, options.n
    head = n * response * hidden * shape["vocab_size"]
    pair = 2 * layers * hidden  # of one query with one key
    plain = weights * n * (prompt + response) + head + pair * n * (prompt + response) ** 2 / 2
    once = weights * (prompt + n * response) + head + pair * prompt**2 / 2
    return {
        "plain": plain,
        "shared": once + pair * n * (response * prompt + response**2 / 2),
        "masked": once + pair * n * response * (prompt + response),
        "head": head / (plain - head),
    }


def main() -> None:
    options = parse()
    torch.set_num_threads(options.threads)
    short = max(1, round(options.prompt_tokens / options.n))
    AttentionInterface.register("more_keys", attention_with_more_keys(options.prompt_tokens - short))
    works = {
        "as it is": work_of(options, options.prompt_tokens, "sdpa"),
        "short prompts": work_of(options, short, "sdpa"),
        "and a mask": work_of(options, short, "more_keys"),
    }
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for block in range(-1, options.blocks):  # the first one warms up
        for name, work in works.items():
            start = time.process_time()
            work()
            if block >= 0:
                seconds[name].append(time.process_time() - start)
    print(
        f"one prompt of {options.prompt_tokens} tokens, {options.n} responses of {options.response_tokens} on average, "
        f"gradient checkpointing, one update and one scoring, {options.blocks} blocks, {options.threads} thread(s)"
    )
    for name in ("short prompts", "and a mask"):
        print(f"{name:16s}{told(np.divide(seconds['as it is'], seconds[name]), 3)} x")
    for name in ("small", "1.5b"):
        count = operations(gpu_case.SHAPES[name], options)
        print(
            f"operations, {name:6s}{count['plain'] / count['shared']:.3f} x, with masked attention "
            f"{count['plain'] / count['masked']:.3f} x; the head is {count['head']:.1%} of the rest"
        )


if __name__ == "__main__":
    main()
