"""Tokens per CPU second of `quatro.rollout.transformers` against `transformers.generate`, in one process.

Same weights, prompts, temperature 1 without truncation, stop ids and token limit; both end with decoded texts. Ours
also returns log-probs (and entropies with --entropy). The repeats alternate, so that a busy machine slows all alike.

    python benchmarks/rollout_vs_generate.py                      # prompts of 40 to 152 tokens, 8 query and 2 kv heads
    python benchmarks/rollout_vs_generate.py --equal              # and prompts of one length, as many tokens in all
    python benchmarks/rollout_vs_generate.py --model embedded-like
    python benchmarks/rollout_vs_generate.py --model medium
    python benchmarks/rollout_vs_generate.py --model-folder ~/.cache/quatro/embedded/countdown-...
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from earlier import told
from random_words import NumberTokenizer, with_generate
from transformers import Qwen2Config, Qwen2ForCausalLM

from quatro.policy.facts import stop_ids
from quatro.policy.loading import load_model, load_tokenizer
from quatro.rollout.engine import rollout_seed
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Sampling

SHAPES = {
    "grouped": {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 8,
                      "num_key_value_heads": 2, "intermediate_size": 384, "max_position_embeddings": 512},
    "embedded-like": {"vocab_size": 232, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                      "num_key_value_heads": 2, "intermediate_size": 192, "max_position_embeddings": 64},
    "medium": {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
                      "num_key_value_heads": 4, "intermediate_size": 384, "max_position_embeddings": 512},
}  # fmt: skip
PROMPT_TOKENS = {"grouped": (40, 152), "embedded-like": (8, 8), "medium": (8, 8)}
MAX_NEW_TOKENS = {"grouped": 128, "embedded-like": 10, "medium": 128}
# Random weights draw every token about equally often: so many stop ids make responses as long as trained ones
# (padded/real 1.7 and 2.6).
NUM_STOP_IDS = {"grouped": 9, "embedded-like": 29, "medium": 9}


@dataclass
class Case:
    model: Any
    tokenizer: Any
    eos_ids: tuple[int, ...]
    prompts: list[Prompt]
    max_new_tokens: int


def random_case(shape: str, num_prompts: int, prompt_tokens: tuple[int, int]) -> Case:
    torch.manual_seed(0)
    config = Qwen2Config(**SHAPES[shape], tie_word_embeddings=True, bos_token_id=None, eos_token_id=0, pad_token_id=1)
    lengths = np.random.default_rng(0).integers(prompt_tokens[0], prompt_tokens[1] + 1, num_prompts)
    eos_ids = (0, *range(2, NUM_STOP_IDS[shape] + 1))
    model = Qwen2ForCausalLM(config).eval()
    return Case(model, NumberTokenizer(), eos_ids, random_prompts(lengths, config.vocab_size), MAX_NEW_TOKENS[shape])


def random_prompts(lengths: Sequence[int], vocabulary: int) -> list[Prompt]:
    rng = np.random.default_rng(1)
    ids = [tuple(int(i) for i in rng.integers(100, vocabulary, length)) for length in lengths]
    return [Prompt("random", str(i), "", None, "", token_ids) for i, token_ids in enumerate(ids)]


def with_equal_prompts(case: Case) -> Case:
    """As many prompts and, to half a token a prompt, as many tokens, but all prompts equally long."""
    length = round(float(np.mean([len(prompt.token_ids) for prompt in case.prompts])))
    vocabulary = case.model.config.vocab_size
    return dataclasses.replace(case, prompts=random_prompts([length] * len(case.prompts), vocabulary))


def countdown_case(folder: str, num_prompts: int) -> Case:
    from quatro.tasks import countdown

    model, tokenizer = load_model(folder, torch.float32, "cpu"), load_tokenizer(folder)
    prompts = []
    for problem in countdown.problems("train")[:num_prompts]:
        token_ids = tuple(tokenizer.encode(problem.prompt, add_special_tokens=False))
        prompts.append(Prompt("countdown", problem.id, problem.prompt, problem.prompt, problem.prompt, token_ids))
    return Case(model, tokenizer, stop_ids(tokenizer, model), prompts, 10)


def by_generate(case: Case, n: int) -> list[int]:
    """Real lengths of the responses drawn by transformers.generate, which end as texts."""
    prompts = [prompt.token_ids for prompt in case.prompts]
    drawn = with_generate(case.model, prompts, n, case.eos_ids, case.max_new_tokens, pad=1)
    for ids in drawn:
        case.tokenizer.decode(ids, skip_special_tokens=True)
    return list(map(len, drawn))


def with_engine(case: Case, n: int, engine: TransformersEngine, repeat: int) -> list[int]:
    seeds = [[rollout_seed(0, repeat, prompt.id, j) for j in range(n)] for prompt in case.prompts]
    groups = engine.generate(case.prompts, seeds, Sampling(max_new_tokens=case.max_new_tokens))
    return [len(rollout.token_ids) for group in groups for rollout in group]


def options_of(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--model", choices=SHAPES, default="grouped", help="shape of a model of random weights")
    parser.add_argument("--model-folder", help="a countdown policy's folder, in place of --model")
    parser.add_argument("--num-prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, nargs=2, metavar=("MIN", "MAX"), help="default: as fits --model")
    parser.add_argument("--max-batch-rows", type=int, help="rows that our engine decodes at once")
    parser.add_argument("--equal", action="store_true", help="also draw from prompts of one length")
    parser.add_argument("--no-generate", action="store_true", help="leave out transformers.generate")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--entropy", action="store_true", help="our engine also computes exact entropies")
    return parser.parse_args()


def main() -> None:
    options = options_of(argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter))
    torch.set_num_threads(options.threads)
    if options.model_folder:
        case = countdown_case(options.model_folder, options.num_prompts)
    else:
        prompt_tokens = tuple(options.prompt_tokens or PROMPT_TOKENS[options.model])
        case = random_case(options.model, options.num_prompts, prompt_tokens)

    limits = {"max_batch_rows": options.max_batch_rows} if options.max_batch_rows else {}
    settings: dict[str, Any] = {"eos_ids": case.eos_ids, "collect_entropy": options.entropy, **limits}
    ours = TransformersEngine(case.model, case.tokenizer, **settings)
    runs: dict[str, Callable[[int], list[int]]] = {"quatro": partial(with_engine, case, options.n, ours)}
    if not options.no_generate:
        runs["transformers.generate"] = lambda repeat: by_generate(case, options.n)
    if options.equal:
        runs["quatro, equal prompts"] = partial(with_engine, with_equal_prompts(case), options.n, ours)
    rates, padding = measure(runs, options.repeats)

    print(f"{options.num_prompts} prompts x {options.n} rollouts, <= {case.max_new_tokens} new tokens, "
          f"{options.threads} thread(s), {options.repeats} repeats, padded/real {padding:.2f}")  # fmt: skip
    for name, rate in rates.items():
        print(f"{name:24s}{np.median(rate):12,.0f} tokens per CPU second")
    for name in [name for name in rates if name != "quatro"]:
        print(f"ratio to {name}, of the repeats: {told(np.divide(rates['quatro'], rates[name]))}")


def measure(runs: dict[str, Callable[[int], list[int]]], repeats: int) -> tuple[dict[str, list[float]], float]:
    """Tokens per CPU second of each run in each repeat, and how many tokens equally long responses would have."""
    rates: dict[str, list[float]] = {name: [] for name in runs}
    real = padded = 0
    for repeat in range(-1, repeats):  # the first one warms up
        for name, run in runs.items():
            start = time.process_time()
            lengths = run(repeat + 1)
            seconds = time.process_time() - start
            if repeat >= 0:
                rates[name].append(sum(lengths) / seconds)
                real += sum(lengths)
                padded += max(lengths) * len(lengths)
            print(f"repeat {repeat + 1}, {name}: {sum(lengths) / seconds:,.0f}", file=sys.stderr, flush=True)
    return rates, padded / real


if __name__ == "__main__":
    main()
