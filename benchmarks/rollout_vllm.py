"""Tokens per CPU second of `quatro.rollout.vllm` against `quatro.rollout.transformers`, in one process.

Same random weights (Qwen2, hidden 256 x 4 layers unless told), prompts, seeds, stop ids and token limit; both end with
texts and log-probs. The repeats alternate. It says so and ends where vLLM is not installed; `make test-vllm` makes an
environment that has it.

    .venv-vllm/bin/python benchmarks/rollout_vllm.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from earlier import told
from random_words import NumberTokenizer
from transformers import Qwen2Config, Qwen2ForCausalLM

from quatro.policy.loading import load_model
from quatro.rollout.engine import Recipe, rollout_seed
from quatro.rollout.transformers import TransformersEngine
from quatro.rollout.vllm import Following, VllmEngine
from quatro.types import Prompt, Sampling

VOCABULARY = 512
PROMPT_TOKENS = (40, 80)
NUM_STOP_IDS = 9  # random weights draw every token about equally often: responses as long as trained ones


def tokens_per_cpu_second(engine: Any, prompts: list[Prompt], n: int, repeat: int, max_new_tokens: int) -> float:
    seeds = [[rollout_seed(0, repeat, prompt.id, j) for j in range(n)] for prompt in prompts]
    start = time.process_time()
    groups = engine.generate(prompts, seeds, Sampling(max_new_tokens=max_new_tokens))
    seconds = time.process_time() - start
    return sum(len(rollout.token_ids) for group in groups for rollout in group) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--num-prompts", type=int, default=16)
    parser.add_argument("--n", type=int, default=8, help="rollouts per prompt")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    if find_spec("vllm") is None:
        print("vLLM against transformers: not run, vLLM is not installed here")
        return
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    heads = options.hidden // 64
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=options.hidden, intermediate_size=3 * options.hidden,
        num_hidden_layers=options.layers, num_attention_heads=heads, num_key_value_heads=heads,
        max_position_embeddings=1024, tie_word_embeddings=True, bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    lengths = rng.integers(*PROMPT_TOKENS, options.num_prompts)
    prompts = [
        Prompt("random", str(i), "", None, "", tuple(rng.integers(NUM_STOP_IDS, VOCABULARY, length).tolist()))
        for i, length in enumerate(lengths)
    ]
    eos_ids = tuple(range(NUM_STOP_IDS))
    with tempfile.TemporaryDirectory() as folder:
        Qwen2ForCausalLM(config).save_pretrained(folder)
        tokenizer = NumberTokenizer()
        ours = TransformersEngine(
            load_model(folder, torch.float32, "cpu"), tokenizer, eos_ids=eos_ids, collect_entropy=False
        )
        recipe = Recipe("vllm", folder, "float32", "cpu", 1024)
        vllm = VllmEngine(recipe, tokenizer, shape=config, eos_ids=eos_ids, follows=Following())
    engines = {"transformers": ours, "vllm": vllm}
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for repeat in range(-1, options.repeats):  # the first one warms up
        for name, engine in engines.items():
            rate = tokens_per_cpu_second(engine, prompts, options.n, repeat + 1, options.max_new_tokens)
            if repeat >= 0:
                rates[name].append(rate)
    vllm.close()
    print(
        f"vLLM against transformers, hidden {options.hidden} x {options.layers} layers, {options.num_prompts} prompts "
        f"x {options.n}: {np.median(rates['vllm']):,.0f} and {np.median(rates['transformers']):,.0f} tokens per CPU "
        f"second, ratio {told(np.divide(rates['vllm'], rates['transformers']))}"
    )


if __name__ == "__main__":
    main()
