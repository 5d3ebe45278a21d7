"""Tokens per CPU second of `quatro.rollout.transformers` against `transformers.generate`, in one process.

Same weights, prompts, temperature 1 without truncation, stop ids and token limit; both end with decoded texts. Ours
also returns log-probs (and entropies with --entropy). The repeats alternate, so that a busy machine slows all alike.

    python benchmarks/rollout_vs_generate.py                      # prompts of 40 to 152 tokens, 8 query and 2 kv heads
    python benchmarks/rollout_vs_generate.py --equal              # and prompts of one length, as many tokens in all
    python benchmarks/rollout_vs_generate.py --model embedded-like
    python benchmarks/rollout_vs_generate.py --model medium
    python benchmarks/rollout_vs_generate.py --model-folder ~/.cache/quatro/embedded/countdown-...
"""

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from earlier import told
from gpu_case import Case, random_model, random_prompts
from random_words import Draws, NumberTokenizer

from quatro.policy.facts import stop_ids
from quatro.policy.loading import load_model, load_tokenizer
from quatro.rollout.prompts import to_prompts
from quatro.rollout.transformers import TransformersEngine
from quatro.tasks.countdown import problems_of


class Shape(NamedTuple):
    """Of prompts and responses. Random weights draw every token about equally often.

    So many stop ids make responses as long as trained ones (padded/real 1.7 and 2.6).
    """

    prompt_tokens: tuple[int, int]
    max_new_tokens: int
    num_stop_ids: int


SHAPES = {
    "grouped": Shape((40, 152), 128, 9),
    "embedded-like": Shape((8, 8), 10, 29),
    "medium": Shape((8, 8), 128, 9),
}


def random_draws(options: argparse.Namespace) -> Draws:
    shape = SHAPES[options.model]
    model = random_model(Case(torch.device("cpu"), options.model), torch.float32, eos_token_id=0, pad_token_id=1)
    lengths = options.prompt_tokens or shape.prompt_tokens
    prompts = random_prompts(model.config.vocab_size, options.num_prompts, lengths, 100)
    eos_ids = (0, *range(2, shape.num_stop_ids + 1))
    return Draws(model, NumberTokenizer(), prompts, options.n, shape.max_new_tokens, eos_ids, pad=1)


def countdown_draws(options: argparse.Namespace) -> Draws:
    model, tokenizer = load_model(options.model_folder, torch.float32, "cpu"), load_tokenizer(options.model_folder)
    problems = problems_of("countdown", "train")[: options.num_prompts]
    prompts = list(to_prompts(problems, "plain", tokenizer))
    return Draws(model, tokenizer, prompts, options.n, 10, stop_ids(tokenizer, model), pad=1)


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
    draws = countdown_draws(options) if options.model_folder else random_draws(options)
    limits = {"max_batch_rows": options.max_batch_rows} if options.max_batch_rows else {}
    settings: dict[str, Any] = {"eos_ids": draws.stops, "collect_entropy": options.entropy, **limits}
    engine = TransformersEngine(draws.model, draws.tokenizer, **settings)
    runs: dict[str, Callable[[int], list[int]]] = {"quatro": partial(draws.by_engine, engine)}
    if not options.no_generate:
        runs["transformers.generate"] = lambda _: draws.by_generate()
    if options.equal:  # as many tokens in all, to half a token a prompt
        length = round(float(np.mean([len(prompt.token_ids) for prompt in draws.prompts])))
        equal = random_prompts(draws.model.config.vocab_size, options.num_prompts, (length, length), 100)
        runs["quatro, equal prompts"] = partial(draws._replace(prompts=equal).by_engine, engine)
    rates, padding = measure(runs, options.repeats)

    print(f"{options.num_prompts} prompts x {options.n} rollouts, <= {draws.limit} new tokens, "
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
