"""Decoded tokens/s of the transformers engine against transformers.generate, on a model shaped like Qwen2.5-1.5B.

Random weights in bfloat16 draw every token about equally often, so stop tokens are as many as make responses a third
of the limit long on average. Same weights, prompts and limits; a token counts if it is part of a response.

    python benchmarks/gpu_rollout.py --save benchmarks/results/README.md
    python benchmarks/gpu_rollout.py --tiny --device cpu
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from gpu_case import SHAPES, add_options, keep, peak_gib, random_model, require_device, reset_peak, synchronise

from quatro.rollout.streams import rollout_seed
from quatro.rollout.transformers import TransformersEngine
from quatro.types import Prompt, Sampling


class NumberTokenizer:
    """Writes ids as numbers: random weights have no language."""

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return " ".join(map(str, token_ids))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    if options.tiny:
        options.prompts, options.n, options.prompt_tokens, options.max_new_tokens = 2, 4, 8, 24
        options.repeats = 1
    return options


def with_generate(
    model: Any, prompts: Sequence[Prompt], stops: Sequence[int], options: argparse.Namespace
) -> list[int]:
    """Lengths of the responses."""
    ids = torch.tensor([prompt.token_ids for prompt in prompts], device=model.device).repeat_interleave(options.n, 0)
    with torch.inference_mode():
        drawn = model.generate(
            input_ids=ids,
            attention_mask=torch.ones_like(ids),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=options.max_new_tokens,
            eos_token_id=list(stops),
            pad_token_id=stops[0],
        )[:, ids.shape[1] :]
    is_stop = torch.isin(drawn, torch.tensor(stops, device=drawn.device))
    return torch.where(is_stop.any(1), is_stop.int().argmax(1) + 1, drawn.shape[1]).tolist()


def main() -> None:
    options = parse()
    device = require_device(options.device)
    name = "tiny" if options.tiny else "1.5b"
    vocabulary = SHAPES[name]["vocab_size"]
    stops = tuple(range(max(1, 3 * vocabulary // options.max_new_tokens)))
    model = random_model(name, device, torch.bfloat16, eos_token_id=list(stops), pad_token_id=stops[0])
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(len(stops), vocabulary, (options.prompts, options.prompt_tokens), generator=generator).tolist()
    prompts = [Prompt("random", str(i), "", None, "", tuple(row)) for i, row in enumerate(ids)]
    engine = TransformersEngine(model, NumberTokenizer(), eos_ids=stops, collect_entropy=False)

    def ours(repeat: int) -> list[int]:
        seeds = [[rollout_seed(0, repeat, prompt.id, j) for j in range(options.n)] for prompt in prompts]
        groups = engine.generate(prompts, seeds, Sampling(max_new_tokens=options.max_new_tokens))
        return [len(rollout.token_ids) for group in groups for rollout in group]

    def theirs(repeat: int) -> list[int]:
        return with_generate(model, prompts, stops, options)

    table = ["| engine | tokens/s | padded/real | peak GiB |", "|---|---|---|---|"]
    rates = {}
    for engine_name, run in (("transformers.generate", theirs), ("quatro", ours)):
        run(0)
        reset_peak(device)
        real, padded, seconds = 0, 0, 0.0
        for repeat in range(1, options.repeats + 1):
            synchronise(device)
            start = time.perf_counter()
            lengths = run(repeat)
            synchronise(device)
            seconds += time.perf_counter() - start
            real, padded = real + sum(lengths), padded + max(lengths) * len(lengths)
        rates[engine_name] = real / seconds
        table.append(f"| {engine_name} | {real / seconds:,.0f} | {padded / real:.2f} | {peak_gib(device):.1f} |")
    table.append(f"| ratio | {rates['quatro'] / rates['transformers.generate']:.2f} | | |")
    keep(
        f"Rollouts: {name}, {options.prompts} prompts x {options.n}, at most {options.max_new_tokens} tokens, bfloat16",
        table,
        options.save,
    )


if __name__ == "__main__":
    main()
