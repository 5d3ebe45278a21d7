"""Tokens per CPU second of `quatro.rollout.transformers` against `transformers.generate`, in one process.

Same weights, prompts, temperature 1 without truncation, stop ids and token limit; both end with decoded texts. Ours
also returns log-probs (and entropies with --entropy). The repeats alternate, so that a busy machine slows both.

    python benchmarks/rollout_vs_generate.py                      # random weights, shape of the embedded policy
    python benchmarks/rollout_vs_generate.py --model medium
    python benchmarks/rollout_vs_generate.py --model-folder ~/.cache/quatro/embedded/countdown-...
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from quatro.policy.loading import load_model, load_tokenizer, stop_ids
from quatro.rollout.streams import rollout_seed
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Sampling

SHAPES = {
    "embedded-like": {"vocab_size": 232, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
                      "num_key_value_heads": 2, "intermediate_size": 192, "max_position_embeddings": 64},
    "medium": {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4,
                      "num_key_value_heads": 4, "intermediate_size": 384, "max_position_embeddings": 512},
}  # fmt: skip
MAX_NEW_TOKENS = {"embedded-like": 10, "medium": 128}
# Random weights draw every token about equally often: so many stop ids make responses as long as trained ones
# (padded/real 1.7 and 2.6).
NUM_STOP_IDS = {"embedded-like": 29, "medium": 9}


class NumberTokenizer:
    """Writes ids as numbers: random weights have no language."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, token_ids))


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
    rng = np.random.default_rng(0)
    lengths = rng.integers(prompt_tokens[0], prompt_tokens[1] + 1, num_prompts)
    ids = [tuple(int(i) for i in rng.integers(100, SHAPES[shape]["vocab_size"], length)) for length in lengths]
    prompts = [Prompt("random", str(i), "", None, "", token_ids) for i, token_ids in enumerate(ids)]
    eos_ids = (0, *range(2, NUM_STOP_IDS[shape] + 1))
    return Case(Qwen2ForCausalLM(config).eval(), NumberTokenizer(), eos_ids, prompts, MAX_NEW_TOKENS[shape])


def countdown_case(folder: str, num_prompts: int) -> Case:
    from evals.benchmarks import countdown

    model, tokenizer = load_model(folder, torch.float32, "cpu"), load_tokenizer(folder)
    prompts = []
    for problem in countdown.problems("train")[:num_prompts]:
        token_ids = tuple(tokenizer.encode(problem.prompt, add_special_tokens=False))
        prompts.append(Prompt("countdown", problem.id, problem.prompt, problem.prompt, problem.prompt, token_ids))
    return Case(model, tokenizer, stop_ids(tokenizer, model), prompts, 10)


def with_generate(case: Case, n: int) -> list[int]:
    """Real lengths of the responses drawn by transformers.generate."""
    longest = max(len(prompt.token_ids) for prompt in case.prompts)
    pads = [longest - len(prompt.token_ids) for prompt in case.prompts]
    rows = [[1] * pad + list(prompt.token_ids) for pad, prompt in zip(pads, case.prompts, strict=True)]
    mask = [[0] * pad + [1] * (longest - pad) for pad in pads]
    with torch.inference_mode():
        drawn = case.model.generate(
            input_ids=torch.tensor(rows).repeat_interleave(n, 0),
            attention_mask=torch.tensor(mask).repeat_interleave(n, 0),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=case.max_new_tokens,
            eos_token_id=list(case.eos_ids),
            pad_token_id=1,
        )[:, longest:]
    is_stop = torch.isin(drawn, torch.tensor(case.eos_ids))
    lengths = torch.where(is_stop.any(1), is_stop.int().argmax(1) + 1, drawn.shape[1]).tolist()
    for ids, length in zip(drawn.tolist(), lengths, strict=True):
        case.tokenizer.decode(ids[:length], skip_special_tokens=True)
    return lengths


def with_engine(case: Case, n: int, engine: TransformersEngine, repeat: int) -> list[int]:
    seeds = [[rollout_seed(0, repeat, prompt.id, j) for j in range(n)] for prompt in case.prompts]
    groups = engine.generate(case.prompts, seeds, Sampling(max_new_tokens=case.max_new_tokens))
    return [len(rollout.token_ids) for group in groups for rollout in group]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SHAPES, default="embedded-like", help="shape of a model of random weights")
    parser.add_argument("--model-folder", help="a countdown policy's folder, in place of --model")
    parser.add_argument("--num-prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, nargs=2, default=(8, 8), metavar=("MIN", "MAX"))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--entropy", action="store_true", help="our engine also computes exact entropies")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    if options.model_folder:
        case = countdown_case(options.model_folder, options.num_prompts)
    else:
        case = random_case(options.model, options.num_prompts, tuple(options.prompt_tokens))
    engine = TransformersEngine(case.model, case.tokenizer, eos_ids=case.eos_ids, collect_entropy=options.entropy)
    runs: dict[str, Callable[[int], list[int]]] = {
        "transformers.generate": lambda repeat: with_generate(case, options.n),
        "quatro": lambda repeat: with_engine(case, options.n, engine, repeat),
    }
    rates: dict[str, list[float]] = {name: [] for name in runs}
    real = padded = 0
    for repeat in range(-1, options.repeats):  # the first one warms up
        for name, run in runs.items():
            start = time.process_time()
            lengths = run(repeat + 1)
            seconds = time.process_time() - start
            if repeat >= 0:
                rates[name].append(sum(lengths) / seconds)
                real += sum(lengths)
                padded += max(lengths) * len(lengths)
    median = {name: float(np.median(values)) for name, values in rates.items()}
    ratios = np.array(rates["quatro"]) / np.array(rates["transformers.generate"])
    print(f"{options.num_prompts} prompts x {options.n} rollouts, <= {case.max_new_tokens} new tokens, "
          f"{options.threads} thread(s), {options.repeats} repeats, padded/real {padded / real:.2f}")  # fmt: skip
    for name, rate in median.items():
        print(f"{name:24s}{rate:12,.0f} tokens per CPU second")
    print(f"ratio {np.median(ratios):.2f} (of the repeats: {ratios.min():.2f} to {ratios.max():.2f})")


if __name__ == "__main__":
    main()
